// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// A server that was migrated and is not confirmed has two guests. Which one goes is its owner's to
// decide, and none goes while the other one may be missing.

// decide confirms or reverts a migration, as the owner of the server asks. It refuses (conflict) if
// the guest that would stay does not exist, because the other guest, which would be removed, may be
// the only one. A revert waits until the source has reported whether its guest exists, unless the
// source is up with an agent of an older version, which does not report that.
func (r *Record) decide(m *Migration, confirm bool, up func(host string) bool, now time.Time) (bool, error) {
	s := &r.Server
	name, status := "revertResize", cellwire.MigrationRevert
	if confirm {
		name, status = "confirmResize", cellwire.MigrationConfirm
	}
	switch {
	case r.deleting() || s.VMState != cellwire.VMResized:
		return false, Conflict("Cannot '%s' instance %s while it is in vm_state %s", name, s.UUID, s.VMState)
	case s.TaskState != "":
		return false, Conflict("Cannot '%s' instance %s while it is in task_state %s", name, s.UUID, s.TaskState)
	case m.Status == status:
		return false, nil
	case m.Status == cellwire.MigrationConfirm &&
		r.lacksGuest(): // the source has not been asked to leave, or not since
	case m.Status != cellwire.MigrationFinished:
		return false, Conflict("migration %s of server %s is %s", m.UUID, s.UUID, m.Status)
	}
	missing := m.SourceGuest == cellwire.SourceGuestMissing
	switch {
	case confirm && r.lacksGuest() && missing:
		return false, Conflict(
			"Cannot '%s' instance %s: use 'revertResize', and then a hard reboot, which makes its guest again over "+
				"its disks. Neither host %s nor host %s has one.", name, s.UUID, s.Host, m.SourceHost)
	case confirm && r.lacksGuest():
		return false, Conflict(
			"Cannot '%s' instance %s: use 'revertResize', which takes it back. Its new host %s has no guest of it, "+
				"and the one on the old host %s would be removed.", name, s.UUID, s.Host, m.SourceHost)
	case confirm:
	case missing && !r.lacksGuest():
		return false, Conflict(
			"Cannot '%s' instance %s: use 'confirmResize', which keeps it. Its old host %s has no guest of it, and "+
				"the one on the new host %s would be removed.",
			name, s.UUID, m.SourceHost, s.Host)
	case missing: // nothing is removed on the destination before there is a guest on the source
		m.GiveBack = true
		r.abandon(m, uuid.NewSHA1(uuid.NameSpaceOID, []byte(m.UUID+" reverted")).String(), now)
	case m.SourceGuest != "" || m.Status == cellwire.MigrationConfirm || !up(m.SourceHost):
		m.SourceGuest = cellwire.SourceGuestAsked
	}
	if !confirm {
		s.TaskState = cellwire.TaskResizeReverting
	}
	m.setStatus(status, false)
	return true, nil
}

// applySourceGuest records whether the source of a finished migration still has its guest. A revert
// that waits for that continues if it has. Otherwise the revert ends, and the server stays where it
// is.
func (r *Record) applySourceGuest(m *Migration, report cellwire.Report, now time.Time) (changed bool) {
	s := &r.Server
	guest := cellwire.SourceGuestThere
	if report.PowerState == plugins.PowerNoState {
		guest = cellwire.SourceGuestMissing
	}
	reverting := m.Status == cellwire.MigrationRevert
	switch {
	// a repetition, or the destination leaves
	case m.SourceGuest == guest, reverting && m.SourceGuest != cellwire.SourceGuestAsked:
		return false
	case reverting && guest == cellwire.SourceGuestMissing:
		fault := cellwire.Fault{Code: 500,
			Message: fmt.Sprintf("Revert of the migration of instance %s failed: host %s has no guest of it any more",
				s.UUID, m.SourceHost)}
		if report.Fault != nil {
			fault.Details = report.Fault.Details
		}
		r.cancelRevert(m, &fault, now)
	}
	m.SourceGuest, m.Changed = guest, true
	return true
}

// cancelRevert ends a revert before the destination was asked for anything.
func (r *Record) cancelRevert(m *Migration, fault *cellwire.Fault, now time.Time) {
	r.Server.TaskState, r.Server.Fault = "", boundedFault(fault, now)
	m.SourceGuest = ""
	m.setStatus(cellwire.MigrationFinished, false)
}

// keepsBoth says that the guest is on the destination, and that the source keeps its own.
func (m *Migration) keepsBoth() bool {
	return !m.GiveBack && m.SourceKeepsGuest()
}

// lacksGuest reports whether the server is not being deleted and has no guest on its host, by the
// host's last report. No other host must then remove what it has of the server.
func (r *Record) lacksGuest() bool {
	return !r.deleting() && r.Server.PowerState == plugins.PowerNoState
}
