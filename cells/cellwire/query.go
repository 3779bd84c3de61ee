// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"time"

	"github.com/compute-agent/compute-agent/plugins"
)

// ServerQuery asks a cell for a page of servers, without hidden ones. Conditions with zero values
// are not applied. A list matches if any of its values matches.
type ServerQuery struct {
	ProjectID string `json:"project_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
	// Deleted says which servers count by their deletion.
	Deleted Deletion `json:"deleted,omitempty"`
	// SoftDeleted adds softly deleted servers to DeletedNone. DeletedOnly and DeletedAny always
	// have them.
	SoftDeleted bool `json:"soft_deleted,omitempty"`

	UUIDs []string `json:"uuids,omitempty"`
	// NamePattern is a regular expression (Go's RE2) that the name has to contain a match of,
	// without regard to case, as Nova's with MariaDB.
	NamePattern string `json:"name_pattern,omitempty"`
	// Patterns are such expressions for other columns, by their names in [PatternColumns]. A column
	// without a value matches no pattern.
	Patterns map[string]string `json:"patterns,omitempty"`
	VMStates []string          `json:"vm_states,omitempty"`
	// TaskStates holds the task states that count; "" stands for none.
	TaskStates  []string             `json:"task_states,omitempty"`
	PowerStates []plugins.PowerState `json:"power_states,omitempty"`
	Hosts       []string             `json:"hosts,omitempty"`
	FlavorID    string               `json:"flavor_id,omitempty"`
	ImageRef    string               `json:"image_ref,omitempty"`
	NoImage     bool                 `json:"no_image,omitempty"` // only servers that were booted from no image
	LaunchIndex *int                 `json:"launch_index,omitempty"`
	Locked      *bool                `json:"locked,omitempty"`
	ConfigDrive *bool                `json:"config_drive,omitempty"`
	TagsAll     []string             `json:"tags,omitempty"`
	TagsAny     []string             `json:"tags_any,omitempty"`
	NotTagsAll  []string             `json:"not_tags,omitempty"`
	NotTagsAny  []string             `json:"not_tags_any,omitempty"`
	Metadata    map[string]string    `json:"metadata,omitempty"`
	// ChangedSince and ChangedBefore bound the time of the last change, or of the creation if there
	// was none. Both are inclusive. As in Nova, a list with ChangedSince also has deleted servers;
	// for that the caller sets Deleted.
	ChangedSince  *time.Time `json:"changed_since,omitempty"`
	ChangedBefore *time.Time `json:"changed_before,omitempty"`

	// Sort is by which columns the answer is ordered; the uuid, ascending, decides among equals and
	// need not be named.
	Sort []SortKey `json:"sort,omitempty"`
	// After is the key of the row after which the page begins: as many values as Sort has, and the
	// uuid. Nil: from the beginning.
	After Key `json:"after,omitempty"`
	// Limit is how many rows are answered at most, at least 1.
	Limit int `json:"limit"`
	// Brief asks for id, uuid and name only, besides the key.
	Brief bool `json:"brief,omitempty"`
}

// Deletion says which servers count by their deletion.
type Deletion string

// The values of a Deletion.
const (
	DeletedNone Deletion = ""     // living ones
	DeletedOnly Deletion = "only" // deleted ones, softly or for good
	DeletedAny  Deletion = "any"  // all
)

// SortKey is one column to sort by.
type SortKey struct {
	// Key is one of SortColumns.
	Key  string `json:"key"`
	Desc bool   `json:"desc,omitempty"`
}

// SortColumns are the columns that servers can be sorted by.
var SortColumns = []string{"access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive",
	"created_at", "display_description",
	"display_name", "host", "hostname", "image_ref", "instance_type_id", "key_name", "launch_index", "launched_at",
	"locked_by", "node", "power_state", "progress",
	"project_id", "root_device_name", "task_state", "terminated_at", "updated_at", "user_id", "uuid", "vm_state"}

// PatternColumns are the columns that patterns can be looked for in, besides the name: those that
// Nova searches and does not compare.
var PatternColumns = []string{"access_ip_v4", "access_ip_v6", "availability_zone", "display_description", "hostname",
	"key_name", "node", "reservation_id"}

// Key is the values of a row in the columns that it is sorted by, and last its uuid. A value is a
// string or an int64 (times are microseconds since 1970, what is missing is "" or 0). In JSON,
// numbers are integers; decode it with [Key.UnmarshalJSON].
type Key []any

// Row is a server on a page.
type Row struct {
	Server Server `json:"server"`
	Key    Key    `json:"key"`
}

// ServerPage is a page of servers.
type ServerPage struct {
	Rows []Row `json:"rows"`
	// More says that there are more rows after these. It can be set although there are fewer rows
	// than Limit, because an answer is bounded in bytes, too.
	More bool `json:"more,omitempty"`
}

// StatesRequest asks for the states of servers.
type StatesRequest struct {
	UUIDs []string `json:"uuids"` // at most MaxStates
}

// MaxStates is how many servers can be asked for at once.
const MaxStates = 1000

// StatesAnswer has the states of the servers that the cell knows, deleted ones included. A server
// that is missing is not in this cell, or was purged.
type StatesAnswer struct {
	States []ServerState `json:"states"`
}
