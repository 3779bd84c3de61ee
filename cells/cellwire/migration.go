// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

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
//	build: accepted ─▶ done, or failed
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
	SourceZone     string `json:"source_zone,omitempty"`
	// DestHost is the host that was asked for, or "", until a destination is chosen and the fields
	// below are set.
	DestHost     string `json:"dest_host,omitempty"`
	DestNode     string `json:"dest_node,omitempty"`
	DestNodeUUID string `json:"dest_node_uuid,omitempty"`
	DestZone     string `json:"dest_zone,omitempty"`

	// OldVMState is the vm_state before the migration. Unless it is stopped, the guest is started
	// on the destination, and on the source if the server goes back.
	OldVMState string `json:"old_vm_state"`
	// Offer is how the destination gets the disks from the source, as the source said when it
	// reported [ReportDeparted]: a text of at most [MaxOffer] bytes that only hosts understand. "":
	// there is none, as in an evacuation.
	Offer string `json:"offer,omitempty"`
	// SourceGuest is what the source has reported of its guest since a cold migration is finished.
	SourceGuest SourceGuest `json:"source_guest,omitempty"`
	// GiveBack says that the migration failed, was aborted or is reverted, and that the compute API
	// still has to give the allocations on the source back to the server, or to remove them if the
	// server is deleted.
	GiveBack bool `json:"give_back,omitempty"`

	UserID string `json:"user_id,omitempty"` // of the client that asked for it
	// RequestID is the request ID of the action under way on the server, only of migrations that
	// are due.
	RequestID string `json:"request_id,omitempty"`
	// Traceparent is the trace context of that request, likewise.
	Traceparent string     `json:"traceparent,omitempty"`
	ProjectID   string     `json:"project_id,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   *time.Time `json:"updated_at,omitempty"`
	// Revision is the revision of the last change.
	Revision int64 `json:"revision,omitempty"`
}

// SourceKeepsGuest reports whether the source keeps a guest of the server although it is on the
// destination: in a cold migration that is neither confirmed nor reverted to its end. The cell and
// its hosts must agree on it.
func (m Migration) SourceKeepsGuest() bool {
	return m.Type == MigrationCold &&
		(m.Status == MigrationFinished || m.Status == MigrationConfirm || m.Status == MigrationRevert)
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
	// MigrationBuild builds a server on another host, because the source has said that it cannot
	// and has nothing of it: it is over when the destination is chosen. Nova has no record of it.
	MigrationBuild MigrationType = "build"
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

// SourceGuest is what the source last reported of the guest that it keeps in a migration.
type SourceGuest string

// What there is. "": the source has said nothing of it since it departed.
const (
	SourceGuestThere   SourceGuest = "there"
	SourceGuestMissing SourceGuest = "missing"
	// SourceGuestAsked: a revert waits until the source reports that its guest exists. Until then
	// the destination keeps its own guest.
	SourceGuestAsked SourceGuest = "asked"
)

// MigrateRequest asks a cell to begin a migration of a server. Repeating it changes nothing.
type MigrateRequest struct {
	UUID string        `json:"uuid"` // of the migration
	Type MigrationType `json:"type"`
	// Host is the destination that was asked for; "": any.
	Host string `json:"host,omitempty"`
}

// migrateRule says when a migration may begin, as Nova has it, and which task it begins.
type migrateRule struct {
	name   ActionName
	task   string
	states []string // the vm_states that allow it
}

var migrateRules = map[MigrationType]migrateRule{
	MigrationEvacuation: {ActionEvacuate, TaskRebuilding, []string{VMActive, VMStopped, VMError}},
	MigrationCold:       {ActionMigrate, TaskResizePrep, []string{VMActive, VMStopped}},
}

// Action is what Nova's history calls a migration of the type.
func (t MigrationType) Action() string { return string(migrateRules[t].name) }

// Task is the task_state of a server for which one was accepted.
func (t MigrationType) Task() string { return migrateRules[t].task }

// hostTasks are the tasks that end with a report of the host of the server, and with nothing else.
// While that is down, an evacuation or an administrator ([ResetRequest]) ends them.
var hostTasks = []string{
	TaskPoweringOff, TaskPoweringOn, TaskRebooting, TaskRebootingHard, TaskRebootStarted, TaskRebootStartedHard,
	TaskRebuilding, TaskRebuildSpawning, TaskResizeReverting,
}

// Check refuses a migration of a server whose state, or whose host's, does not allow it (conflict,
// in use), in Nova's words. It is for the cell, which decides, and for servers that are not in a
// cell yet. Unlike in Nova, a server is evacuated whatever its host was asked to do before.
func (m MigrateRequest) Check(s *Server) error {
	waits := m.Type == MigrationEvacuation && !s.HostUp && slices.Contains(hostTasks, s.TaskState)
	back := waits && s.TaskState == TaskResizeReverting && s.VMState == VMResized
	rule, known := migrateRules[m.Type]
	refuse := func(code Code, format string, args ...any) error {
		return &Error{Status: http.StatusConflict, Code: code, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case !known:
		return &Error{Status: http.StatusBadRequest,
			Code: CodeBadRequest, Message: fmt.Sprintf("%.64q is no type of migration", string(m.Type))}
	case !slices.Contains(rule.states, s.VMState) && !back:
		return refuse(CodeConflict, "Cannot '%s' instance %s while it is in vm_state %s", rule.name, s.UUID, s.VMState)
	case s.TaskState != "" && !waits:
		return refuse(CodeConflict, "Cannot '%s' instance %s while it is in task_state %s",
			rule.name, s.UUID, s.TaskState)
	case s.Host == "" || s.LaunchedAt == nil:
		return refuse(CodeConflict, "Instance %s is not ready", s.UUID)
	case m.Type == MigrationEvacuation && s.HostUp:
		return refuse(CodeInUse, "Compute service of %s is still in use.", s.Host)
	case m.Type == MigrationCold && !s.HostUp:
		return refuse(CodeConflict, "Service is unavailable at this time.")
	}
	return nil
}

// MigrationStep is what a compute API does about a migration: exactly one member is set, but for
// GiveBack and Fenced. Repeating it changes nothing.
type MigrationStep struct {
	// Destination is the chosen node. The server has its allocations there.
	Destination *MigrationDestination `json:"destination,omitempty"`
	// Failed ends a migration for which there is no destination, with the reason.
	Failed *Fault `json:"failed,omitempty"`
	// GiveBack comes with Failed: the migration may have allocations, which have to be given back.
	GiveBack bool `json:"give_back,omitempty"`
	// GivenBack says that the server has its allocations on the source again, or, if it is deleted,
	// that neither the server nor the migration has allocations.
	GivenBack bool `json:"given_back,omitempty"`
	// Fenced comes with GivenBack, for a migration without a destination: no claim that was sent
	// for it earlier can take effect any more. Without Fenced the cell refuses GivenBack (conflict)
	// for some minutes, in which such a claim may still arrive.
	Fenced bool `json:"fenced,omitempty"`
	// Confirm and Revert end a migration that is finished.
	Confirm bool `json:"confirm,omitempty"`
	Revert  bool `json:"revert,omitempty"`
	// Abort ends a migration that has no destination yet or waits for a host that is down. It is a
	// new uuid, for the evacuation by which that host removes its guest when it is back, where that
	// is needed. Refused (conflict) if the host is up, or if the migration waits for neither.
	Abort string `json:"abort,omitempty"`
}

// MigrationDestination is a node that has been chosen.
type MigrationDestination struct {
	Host     string `json:"host"`
	Node     string `json:"node"`
	NodeUUID string `json:"node_uuid"`
	Zone     string `json:"zone,omitempty"`
}

// MigrationQuery asks for migrations, open or over, the newest first: by created_at, then by id,
// both descending, and last by uuid. Conditions with zero values are not applied.
type MigrationQuery struct {
	UUID       string          `json:"uuid,omitempty"`
	ServerUUID string          `json:"server_uuid,omitempty"`
	Host       string          `json:"host,omitempty"` // the source or the destination
	SourceHost string          `json:"source_host,omitempty"`
	Status     MigrationStatus `json:"status,omitempty"`
	Type       MigrationType   `json:"type,omitempty"`
	ProjectID  string          `json:"project_id,omitempty"` // of the client that asked for it
	// ChangedSince and ChangedBefore bound the time of the last change, or of the creation if there
	// was none. Both are inclusive.
	ChangedSince  *time.Time `json:"changed_since,omitempty"`
	ChangedBefore *time.Time `json:"changed_before,omitempty"`
	// After is the migration after which the page begins, by its CreatedAt, ID and UUID, of
	// whichever cell it is.
	After *Migration `json:"after,omitempty"`
	// Limit is how many are answered at most, from 1 to MaxLimit.
	Limit int `json:"limit"`
}

// MigrationsAnswer has migrations.
type MigrationsAnswer struct {
	Migrations []Migration `json:"migrations"`
}
