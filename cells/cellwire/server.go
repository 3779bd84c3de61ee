// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
)

// The states of a server, in Nova's words (nova.compute.vm_states).
const (
	VMBuilding    = "building"
	VMActive      = "active"
	VMStopped     = "stopped"
	VMError       = "error"
	VMResized     = "resized" // it is on another host, and waits for confirmation
	VMSoftDeleted = "soft-delete"
	VMDeleted     = "deleted"
)

// The tasks under way on a server (nova.compute.task_states); "": no task.
const (
	TaskScheduling        = "scheduling"
	TaskSpawning          = "spawning"
	TaskDeleting          = "deleting"
	TaskSoftDeleting      = "soft-deleting"
	TaskRestoring         = "restoring"
	TaskPoweringOff       = "powering-off"
	TaskPoweringOn        = "powering-on"
	TaskRebooting         = "rebooting"
	TaskRebootingHard     = "rebooting_hard"
	TaskRebootStarted     = "reboot_started" // it is off, and is started again
	TaskRebootStartedHard = "reboot_started_hard"
	TaskRebuilding        = "rebuilding"       // also of an evacuation
	TaskRebuildSpawning   = "rebuild_spawning" // the old guest is removed, and the new one is made
	TaskResizePrep        = "resize_prep"
	TaskResizeMigrating   = "resize_migrating"
	TaskResizeFinish      = "resize_finish" // the destination makes the guest
	TaskResizeReverting   = "resize_reverting"
)

// Server is a server as its cell keeps it: a row of instances. In a build request it is what the
// server is going to be.
type Server struct {
	UUID      string `json:"uuid"`
	ProjectID string `json:"project_id"`
	UserID    string `json:"user_id"`

	Name        string            `json:"name"` // display_name
	Description *string           `json:"description,omitempty"`
	Hostname    string            `json:"hostname,omitempty"`
	ImageRef    string            `json:"image_ref,omitempty"` // "": none
	Flavor      Flavor            `json:"flavor"`
	Zone        string            `json:"availability_zone,omitempty"` // asked for, or that of its host
	Metadata    map[string]string `json:"metadata,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	UserData    string            `json:"user_data,omitempty"` // base64, as given
	// KeyName and KeyData are those of the key pair that it was made with, "" without one. Older
	// cells refuse a body that has them.
	KeyName      string   `json:"key_name,omitempty"`
	KeyData      string   `json:"key_data,omitempty"` // the public key
	ConfigDrive  bool     `json:"config_drive,omitempty"`
	DiskConfig   string   `json:"disk_config,omitempty"` // MANUAL or AUTO
	AccessIPv4   string   `json:"access_ip_v4,omitempty"`
	AccessIPv6   string   `json:"access_ip_v6,omitempty"`
	Locked       bool     `json:"locked,omitempty"`
	Reservation  string   `json:"reservation_id,omitempty"`
	LaunchIndex  int      `json:"launch_index,omitempty"`
	TrustedCerts []string `json:"trusted_image_certificates,omitempty"`
	// Retries is on how many other hosts it may still be built, when one says that it cannot. Older
	// cells refuse a body that has it.
	Retries int `json:"retries,omitempty"`

	Host     string `json:"host,omitempty"`      // "": none, as in cell0
	Node     string `json:"node,omitempty"`      // hypervisor_hostname
	NodeUUID string `json:"node_uuid,omitempty"` // the compute node's, which is its root provider's

	VMState    string             `json:"vm_state"`
	TaskState  string             `json:"task_state,omitempty"`
	PowerState plugins.PowerState `json:"power_state"`
	Fault      *Fault             `json:"fault,omitempty"`

	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    *time.Time `json:"updated_at,omitempty"`
	LaunchedAt   *time.Time `json:"launched_at,omitempty"`
	TerminatedAt *time.Time `json:"terminated_at,omitempty"`
	DeletedAt    *time.Time `json:"deleted_at,omitempty"`
	Deleted      bool       `json:"deleted,omitempty"`

	// ID counts the rows of the cell: instance-%08x is made of it.
	ID int64 `json:"id,omitempty"`
	// Hidden: inserted, and not released yet.
	Hidden bool `json:"hidden,omitempty"`
	// Revision is the revision of the last change.
	Revision int64 `json:"revision,omitempty"`
	// HostUp says whether the host's service showed life lately and is not forced down,
	// HostDisabled whether it takes no new servers, HostForcedDown whether an administrator forced
	// it down. All are as of the time of the answer.
	HostUp         bool `json:"host_up,omitempty"`
	HostDisabled   bool `json:"host_disabled,omitempty"`
	HostForcedDown bool `json:"host_forced_down,omitempty"`
}

// GuestName is what Nova calls the guest of the server, by its number in its cell.
func (s *Server) GuestName() string { return fmt.Sprintf("instance-%08x", s.ID) }

// Flavor is the flavor that a server was made with, whole: flavors may be deleted.
type Flavor struct {
	ID string `json:"flavorid"`
	plugins.Flavor
}

// Fault is why a server is in error.
type Fault struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`           // for the owner of the server
	Details string    `json:"details,omitempty"` // for administrators
	Created time.Time `json:"created"`
}

// ServerState is the state of a server, deleted or not.
type ServerState struct {
	UUID      string `json:"uuid"`
	VMState   string `json:"vm_state"`
	TaskState string `json:"task_state,omitempty"`
	Deleted   bool   `json:"deleted,omitempty"`
	Hidden    bool   `json:"hidden,omitempty"`
}

// Gone says whether the server is deleted, being deleted or softly deleted: whether its mapping is
// queued for delete. One that is being restored is not gone, though it stays softly deleted until
// its host has started it.
func (s ServerState) Gone() bool {
	return s.Deleted || s.VMState == VMSoftDeleted && s.TaskState != TaskRestoring || s.VMState == VMDeleted ||
		s.TaskState == TaskDeleting || s.TaskState == TaskSoftDeleting
}
