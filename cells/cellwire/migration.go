// SPDX-License-Identifier: Apache-2.0

package cellwire

import "time"

// AbilityMigrate is what a node's driver needs for moves of servers from and to it: the wants
// [WantDeparting], [WantArriving], [WantLeft] and [WantLeaving].
const AbilityMigrate = "migrate"

// Migration is a move of a server from one host of a cell to another: a row of Nova's migrations.
// Its UUID is a consumer in Placement, of the type MIGRATION, which has the allocations on the
// source from the choice of the destination on, while the server's own are on the destination.
//
//	migration:
//	  accepted ─▶ pre-migrating ─▶ post-migrating ─▶ finished ─▶ confirming ─▶ confirmed
//	                    ╰─────fault──────┴──▶ error      ╰─────▶ reverting ──▶ reverted
//	evacuation, completed when the source is back and has left:
//	  accepted ─▶ pre-migrating ─▶ done ─▶ completed
//	                    ╰──fault──▶ failed
type Migration struct {
	UUID string `json:"uuid"`
	// ID counts the migrations of a cell.
	ID         int64           `json:"id,omitempty"`
	ServerUUID string          `json:"server_uuid"`
	Type       MigrationType   `json:"type"`
	Status     MigrationStatus `json:"status"`

	SourceHost     string `json:"source_host"`
	SourceNode     string `json:"source_node"`
	SourceNodeUUID string `json:"source_node_uuid"`
	DestHost       string `json:"dest_host,omitempty"` // "": not chosen yet, as the next two
	DestNode       string `json:"dest_node,omitempty"`
	DestNodeUUID   string `json:"dest_node_uuid,omitempty"`

	// OldVMState is the vm_state before. The guest of a server that was active is started where it
	// goes, and where it goes back to.
	OldVMState string `json:"old_vm_state"`
	// Offer is how the destination gets the disks from the source, as the source said when it
	// reported [ReportDeparted]: a text of at most [MaxOffer] bytes that only hosts understand. "":
	// there is none, as in an evacuation.
	Offer string `json:"offer,omitempty"`

	UserID    string     `json:"user_id,omitempty"` // of the client that asked for it
	ProjectID string     `json:"project_id,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
	// Revision is that of the last change.
	Revision int64 `json:"revision,omitempty"`
}

// MaxOffer bounds Migration.Offer, in bytes.
const MaxOffer = 4096

// MigrationType is what kind of move it is, in Nova's words.
type MigrationType string

// The types.
const (
	// MigrationCold shuts the guest down on the source and makes it on the destination from the
	// source's disks; its owner then confirms or reverts.
	MigrationCold MigrationType = "migration"
	// MigrationEvacuation makes a guest elsewhere whose host is down: from the disks, where the
	// destination finds them on shared storage, or from the image again.
	MigrationEvacuation MigrationType = "evacuation"
)

// MigrationStatus is how far a migration is, in Nova's words.
type MigrationStatus string

// The statuses.
const (
	// MigrationAccepted: no destination is chosen yet.
	MigrationAccepted MigrationStatus = "accepted"
	// MigrationPre: the destination is chosen. Of a cold migration the source is to depart, of an
	// evacuation the destination is to make the guest.
	MigrationPre MigrationStatus = "pre-migrating"
	// MigrationPost: the source has departed, and the destination is to make the guest.
	MigrationPost      MigrationStatus = "post-migrating"
	MigrationFinished  MigrationStatus = "finished" // the guest is on the destination: confirm or revert
	MigrationConfirm   MigrationStatus = "confirming"
	MigrationConfirmed MigrationStatus = "confirmed"
	MigrationRevert    MigrationStatus = "reverting"
	MigrationReverted  MigrationStatus = "reverted"
	MigrationError     MigrationStatus = "error"     // of a cold migration: the server is, or will be, where it was
	MigrationDone      MigrationStatus = "done"      // of an evacuation: the guest is on the destination
	MigrationCompleted MigrationStatus = "completed" // the source has come back as well, and left
	MigrationFailed    MigrationStatus = "failed"    // of an evacuation
)
