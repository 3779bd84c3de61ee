// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// Record is a row of instances: a server, and what the cell remembers of it beside.
type Record struct {
	Server cellwire.Server
	// Digest is the digest of the row as it was inserted.
	Digest string
	// InsertedAt is when the row came here, by the cell's clock.
	InsertedAt time.Time
	// CleanupDue: the row was deleted without its host, which may have a guest.
	CleanupDue bool
	// Unfreed: the row was deleted without its host, and the compute API has not reported yet that
	// the allocations are removed.
	Unfreed bool
	// WantRevision is the revision at which DesiredState last changed.
	WantRevision int64
	// Former is kept until the host has removed the guest of a server that is rebuilt. Processes of
	// older versions drop it.
	Former *Former
	// Migrations are its open migrations, where they were read, and those that were so.
	Migrations []*Migration
}

// NewRecord returns the hidden row of a server that [CheckInsert] accepts, inserted now.
func NewRecord(s cellwire.Server, now time.Time) (*Record, error) {
	s = asInserted(s)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("digest of server %s: %w", s.UUID, err)
	}
	sum := sha256.Sum256(text)
	s.Hidden = true
	return &Record{Server: s, Digest: hex.EncodeToString(sum[:]), InsertedAt: now}, nil
}

// asInserted leaves of a server what an insertion gives: nothing that the cell makes, and times as
// they are kept.
func asInserted(s cellwire.Server) cellwire.Server {
	s.ID, s.Revision, s.Hidden, s.HostUp, s.HostDisabled, s.HostForcedDown = 0, 0, false, false, false, false
	s.CreatedAt = TruncateTime(s.CreatedAt)
	if s.Fault != nil {
		fault := *s.Fault
		fault.Created = TruncateTime(fault.Created)
		s.Fault = &fault
	}
	return s
}

// TruncateTime is a time as the database keeps it: in UTC, to the microsecond.
func TruncateTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// DesiredState returns the desired state of the server on its host; "" if the host has nothing to
// do.
func (r *Record) DesiredState() cellwire.Want {
	want, _ := r.WantOn(r.Server.Host)
	return want
}

// wantWithoutMigration returns DesiredState without regard to migrations.
func (r *Record) wantWithoutMigration() cellwire.Want {
	s := &r.Server
	switch {
	case s.Deleted && r.CleanupDue, !s.Deleted && s.TaskState == cellwire.TaskDeleting:
		return cellwire.WantGone
	case s.Deleted, s.VMState == cellwire.VMError && s.TaskState == "": // a spawn that failed leaves nothing
		return ""
	}
	if r.awaitsReschedule() {
		return ""
	}
	switch s.TaskState {
	case cellwire.TaskRebuilding:
		return cellwire.WantCleared
	case cellwire.TaskRebuildSpawning:
		return cellwire.WantRebuilt
	case cellwire.TaskResizeReverting: // it is back, or waits for the source on the destination
		m := r.currentMigration()
		switch {
		case m != nil && s.Host == m.DestHost:
			return cellwire.WantPresent
		case m != nil && m.OldVMState != cellwire.VMActive:
			return cellwire.WantShutdown
		}
		return cellwire.WantRunning
	case cellwire.TaskRestoring, cellwire.TaskPoweringOn, cellwire.TaskRebootStarted, cellwire.TaskRebootStartedHard:
		return cellwire.WantRunning
	case cellwire.TaskSoftDeleting, cellwire.TaskPoweringOff, cellwire.TaskRebooting, cellwire.TaskRebootingHard:
		return cellwire.WantShutdown
	}
	if s.VMState == cellwire.VMSoftDeleted {
		return cellwire.WantShutdown
	}
	return cellwire.WantPresent
}

// CheckRepeatedInsert returns a refusal (exists) if a repeated insertion has another row.
func (r *Record) CheckRepeatedInsert(inserted *Record) error {
	if r.Digest != inserted.Digest {
		return &cellwire.Error{
			Status: 409,
			Code:   cellwire.CodeExists,
			Message: fmt.Sprintf("there is another server %s in this cell, or it was inserted with other content",
				r.Server.UUID),
		}
	}
	return nil
}

// Release shows the row. It reports whether that changed anything, as all transitions do.
func (r *Record) Release() bool {
	changed := r.Server.Hidden
	r.Server.Hidden = false
	return changed
}

// CheckDiscard refuses (conflict) to erase a row that was released.
func (r *Record) CheckDiscard() error {
	if !r.Server.Hidden {
		return Conflict("server %s was released in this cell, and is not forgotten; delete it", r.Server.UUID)
	}
	return nil
}

// Delete deletes the server, whatever state it is in.
//
// If the host is up, it destroys the guest, removes the allocations, and reports; the row is
// deleted then. If the host is down, or no host ever had the server, the row is deleted at once.
// Then local is true until the compute API reports that it has removed the allocations. If a delete
// is repeated after the host has died, the row is deleted, too.
//
// A soft delete keeps the allocations and is never local. The host shuts the guest down, if it is
// down as soon as it is back. As in Nova, a server that was never active is deleted for good
// instead.
func (r *Record) Delete(kind cellwire.DeleteKind, hostUp bool, now time.Time) (changed, local bool) {
	s := &r.Server
	switch {
	case s.Deleted:
		return false, r.Unfreed
	case kind == cellwire.DeleteSoft && s.LaunchedAt != nil && !s.Hidden:
		return r.deleteSoftly(hostUp, now), false
	case s.Hidden || s.Host == "" || !hostUp:
		r.CleanupDue = !s.Hidden && s.Host != ""
		r.Unfreed = true
		r.markDeleted(now)
		return true, true
	case s.TaskState == cellwire.TaskDeleting:
		return false, false
	}
	s.TaskState = cellwire.TaskDeleting
	return true, false
}

// CheckReclaim refuses (conflict) to delete a server for good that is not softly deleted any more,
// or is being restored.
func (r *Record) CheckReclaim() error {
	if s := &r.Server; !s.Deleted && s.DeletedAt == nil {
		return Conflict("server %s is in vm_state %s (task_state %s) and not softly deleted any more",
			s.UUID, s.VMState, orNone(s.TaskState))
	}
	return nil
}

func (r *Record) deleteSoftly(hostUp bool, now time.Time) bool {
	s := &r.Server
	switch {
	case s.TaskState == cellwire.TaskDeleting,
		s.TaskState == cellwire.TaskSoftDeleting && hostUp,
		s.TaskState == "" && s.VMState == cellwire.VMSoftDeleted:
		return false
	case hostUp:
		s.TaskState = cellwire.TaskSoftDeleting
	default:
		s.VMState, s.TaskState = cellwire.VMSoftDeleted, ""
	}
	r.Former = nil
	if s.DeletedAt == nil {
		at := TruncateTime(now)
		s.DeletedAt = &at
	}
	return true
}

// markDeleted makes it a deleted row.
func (r *Record) markDeleted(now time.Time) {
	s := &r.Server
	at := TruncateTime(now)
	s.VMState, s.TaskState, s.PowerState = cellwire.VMDeleted, "", plugins.PowerNoState
	s.Deleted, s.Hidden, s.DeletedAt, r.Former = true, false, &at, nil
	if s.TerminatedAt == nil {
		s.TerminatedAt = &at
	}
	r.abandonMigrations()
}

// Restore undoes a soft delete: the host starts the guest again, and with its report the server is
// active. A server that is not softly deleted is refused (conflict).
func (r *Record) Restore() (changed bool, err error) {
	s := &r.Server
	switch {
	case s.Deleted || s.VMState != cellwire.VMSoftDeleted || s.TaskState == cellwire.TaskDeleting:
		return false, Conflict("server %s is in vm_state %s (task_state %s) and can only be restored in vm_state %s",
			s.UUID, s.VMState, orNone(s.TaskState), cellwire.VMSoftDeleted)
	case s.TaskState == cellwire.TaskRestoring:
		return false, nil
	}
	s.TaskState, s.DeletedAt = cellwire.TaskRestoring, nil
	return true, nil
}

// Patch changes the name, description, metadata and tags of the server. It is refused (conflict) in
// a state that does not allow it.
func (r *Record) Patch(patch cellwire.ServerPatch) (changed bool, err error) {
	if r.Server.Deleted || r.Server.Hidden {
		return false, NotFound("server", r.Server.UUID)
	}
	if err := patch.Check(&r.Server); err != nil {
		return false, err
	}
	after, former := r.Server, r.Former
	if err := errors.Join(patch.Apply(&after), checkTexts(after)); err != nil {
		return false, err
	}
	if former != nil {
		if former, err = former.patched(r.Server, patch); err != nil {
			return false, err
		}
	}
	changed = !reflect.DeepEqual(r.Server, after) || !reflect.DeepEqual(r.Former, former)
	r.Server, r.Former = after, former
	return changed, nil
}

// Power begins a power action. The host carries it out as soon as it is up, and its report ends the
// task. A reboot has two halves, each with a desired state and a report of its own, so that an
// interrupted reboot is continued and not begun again. It is refused (conflict) in a state that
// does not allow it.
func (r *Record) Power(action cellwire.PowerAction) (changed bool, err error) {
	s := &r.Server
	if s.Deleted || s.Hidden {
		return false, NotFound("server", s.UUID)
	}
	if err := action.Check(s); err != nil {
		return false, err
	}
	changed = s.TaskState != action.Task()
	s.TaskState = action.Task()
	return changed, nil
}

// Rebuild begins to create the guest of the server again. It has two halves, as a reboot has. Only
// the first one removes a guest, and it ends with the report that there is none. So a host that
// continues, or repeats that report, does not remove the new guest. It is refused (conflict) in a
// state that does not allow it.
func (r *Record) Rebuild(request cellwire.RebuildRequest) (changed bool, err error) {
	if r.Server.Deleted || r.Server.Hidden {
		return false, NotFound("server", r.Server.UUID)
	}
	if err := request.Check(&r.Server); err != nil {
		return false, err
	}
	after := r.Server
	if err := errors.Join(request.Apply(&after), checkTexts(after)); err != nil {
		return false, err
	}
	r.Server, r.Former = after, formerOf(&r.Server)
	return true, nil
}

// Reset sets the state of the server for an administrator. Its task ends, so that its host does
// nothing more for the task. It is refused (conflict) in a state that does not allow it, and while
// the server moves.
func (r *Record) Reset(request cellwire.ResetRequest) (changed bool, err error) {
	s := &r.Server
	if s.Deleted || s.Hidden {
		return false, NotFound("server", s.UUID)
	}
	if err := request.Check(s); err != nil {
		return false, err
	}
	if m := r.currentMigration(); m != nil {
		return false, Conflict(
			"server %s is being moved: migration %s is %s; end that, or abort it", s.UUID, m.UUID, m.Status,
		)
	}
	changed = s.VMState != request.VMState || s.TaskState != ""
	s.VMState, s.TaskState, r.Former = request.VMState, "", nil
	return changed, nil
}

// MarkFreed records that the compute API has removed the allocations. It is refused (conflict) for
// a server that is not deleted.
func (r *Record) MarkFreed() (changed bool, err error) {
	if !r.Server.Deleted {
		return false, Conflict("server %s is not deleted", r.Server.UUID)
	}
	changed = r.Unfreed
	r.Unfreed = false
	return changed, nil
}

// State returns the state of the server in its short form.
func (r *Record) State() cellwire.ServerState {
	s := &r.Server
	return cellwire.ServerState{UUID: s.UUID, VMState: s.VMState, TaskState: s.TaskState,
		Deleted: s.Deleted, Hidden: s.Hidden}
}

// NotFound returns the refusal (not found) for something that the cell does not have.
func NotFound(what, name string) error {
	return &cellwire.Error{Status: 404, Code: cellwire.CodeNotFound,
		Message: fmt.Sprintf("there is no %s %s in this cell", what, name)}
}

// Conflict returns the refusal (conflict) of a change that the state of a server or host forbids.
func Conflict(format string, args ...any) error {
	return &cellwire.Error{Status: 409, Code: cellwire.CodeConflict, Message: fmt.Sprintf(format, args...)}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Former has the values from before a rebuild of what a [cellwire.RebuildRequest] may change. While
// the old guest may still exist, the row already describes the new one. If the old guest is kept,
// the row gets these values back.
type Former struct {
	ImageRef    string            `json:"image_ref,omitempty"`
	UserData    string            `json:"user_data,omitempty"`
	KeyName     string            `json:"key_name,omitempty"`
	KeyData     string            `json:"key_data,omitempty"`
	Name        string            `json:"name,omitempty"`
	Description *string           `json:"description,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	DiskConfig  string            `json:"disk_config,omitempty"`
	AccessIPv4  string            `json:"access_ip_v4,omitempty"`
	AccessIPv6  string            `json:"access_ip_v6,omitempty"`
}

// formerOf copies what a rebuild of the server may change. It shares maps and slices with the
// server, which are never changed in place.
func formerOf(s *cellwire.Server) *Former {
	return &Former{
		ImageRef: s.ImageRef, UserData: s.UserData, KeyName: s.KeyName, KeyData: s.KeyData,
		Name: s.Name, Description: s.Description,
		Metadata: s.Metadata, Tags: s.Tags, DiskConfig: s.DiskConfig,
		AccessIPv4: s.AccessIPv4, AccessIPv6: s.AccessIPv6,
	}
}

// restore makes a server what it was.
func (f *Former) restore(s *cellwire.Server) {
	s.ImageRef, s.UserData, s.KeyName, s.KeyData, s.Name, s.Description = f.ImageRef, f.UserData, f.KeyName,
		f.KeyData, f.Name, f.Description
	s.Metadata, s.Tags, s.DiskConfig, s.AccessIPv4, s.AccessIPv6 = f.Metadata, f.Tags,
		f.DiskConfig, f.AccessIPv4, f.AccessIPv6
}

// patched is f with a change that came since.
func (f *Former) patched(s cellwire.Server, patch cellwire.ServerPatch) (*Former, error) {
	f.restore(&s)
	if err := patch.Apply(&s); err != nil {
		return nil, err
	}
	return formerOf(&s), nil
}
