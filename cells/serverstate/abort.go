// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// A migration ends before its end: without a destination, or because an administrator says so.

// endedUnplaced says that a migration ended before its destination was chosen: the server is where
// it was, and what the compute API may have claimed elsewhere is given back.
func (m *Migration) endedUnplaced() bool { return m.Open && m.GiveBack && m.DestNode == "" }

// claimWindow is how long a request of the compute API to Placement may be under way: the greatest
// value of placement_client.timeout, after which the compute API waits for no answer.
const claimWindow = 10 * time.Minute

// claimable reports whether a claim that the compute API sent before the migration ended may still
// arrive at Placement. The clocks of two processes may differ by up to claimWindow.
func (m *Migration) claimable(now time.Time) bool {
	ended := m.CreatedAt
	if m.UpdatedAt != nil {
		ended = *m.UpdatedAt
	}
	age := now.Sub(ended)
	return age > -claimWindow && age < claimWindow
}

// endMigration ends one before its destination was chosen.
func (r *Record) endMigration(m *Migration, giveBack bool) {
	r.Server.TaskState, m.GiveBack = "", giveBack
	status := cellwire.MigrationFailed
	if m.Type == cellwire.MigrationCold {
		status = cellwire.MigrationError
	}
	m.setStatus(status, !giveBack)
}

// abort ends a migration that is not a build, for an administrator, if it has no destination yet or
// waits for a host that is down. The server stays on the destination if the migration was
// confirmed, or if a revert waits for the report of the source while the destination is up;
// otherwise it goes back. When the host that is down comes back, it removes its guest: a source
// because of the migration, a destination because of a finished evacuation that gets the uuid. It
// returns false if the migration was aborted before.
func (r *Record) abort(m *Migration, uuid string, up func(host string) bool, now time.Time) (bool, error) {
	s := &r.Server
	host := m.DestHost
	switch {
	case m.GiveBack:
		return false, nil // a repetition
	case r.deleting():
		return false, Conflict("server %s is being deleted", s.UUID)
	case m.Status == cellwire.MigrationAccepted && m.Type != cellwire.MigrationBuild:
		r.endMigration(m, true)
		return true, nil
	case m.revertPending(s):
		return false, Conflict(
			"migration %s of server %s is undone, and the server waits for host %s; evacuate it if that is down",
			m.UUID, s.UUID, m.SourceHost)
	case m.Status == cellwire.MigrationConfirm, m.Status == cellwire.MigrationPre && m.Type == cellwire.MigrationCold:
		host = m.SourceHost
	case m.Status == cellwire.MigrationRevert && m.SourceGuest == cellwire.SourceGuestAsked && up(m.DestHost):
		host = m.SourceHost
	case m.Status == cellwire.MigrationPre, m.Status == cellwire.MigrationPost, m.Status == cellwire.MigrationRevert:
	case m.Status == cellwire.MigrationAccepted: // a build
		return false, Conflict(
			"migration %s builds server %s on another host, and is not aborted; the owner of the server can delete it",
			m.UUID, s.UUID)
	default:
		return false, Conflict("migration %s of server %s is %s, and waits for no host", m.UUID, s.UUID, m.Status)
	}
	unproven := m.Status == cellwire.MigrationRevert && host == m.SourceHost // nothing is removed yet
	if up(host) && !unproven {
		return false, Conflict(
			"migration %s of server %s is %s, and host %s, which is up, ends it", m.UUID, s.UUID, m.Status, host,
		)
	}
	fault := &cellwire.Fault{
		Code: 500, Message: AbortMessage(s.UUID),
		Details: fmt.Sprintf("It was %s, and host %s was down.", m.Status, host),
	}
	if unproven {
		fault.Details = fmt.Sprintf("It was %s, and host %s had not said that it has the guest.", m.Status, host)
	}
	switch {
	case m.Status == cellwire.MigrationConfirm && s.VMState != cellwire.VMResized:
		return false, nil // a repetition
	case m.Status == cellwire.MigrationConfirm: // the source is still to leave
		s.VMState, m.Changed = stateOf(s.PowerState), true
	case m.Status == cellwire.MigrationRevert && host == m.SourceHost:
		r.cancelRevert(m, fault, now)
	case host == m.SourceHost:
		r.rollBack(m, fault, now)
	case m.Status == cellwire.MigrationRevert:
		m.GiveBack, m.Changed = true, true
		r.abandon(m, uuid, now)
	default:
		r.rollBack(m, fault, now)
		r.abandon(m, uuid, now)
	}
	return true, nil
}

// AbortMessage is the details of the action whose migration an administrator aborted.
func AbortMessage(server string) string {
	return "An administrator ended the migration of instance " + server + "."
}

// abandon has the destination of a migration remove what it has of the server when it is back.
func (r *Record) abandon(m *Migration, uuid string, now time.Time) {
	r.Migrations = append(r.Migrations, &Migration{Open: true, Changed: true, Migration: cellwire.Migration{
		UUID: uuid, ServerUUID: m.ServerUUID, Type: cellwire.MigrationEvacuation, Status: cellwire.MigrationDone,
		SourceHost: m.DestHost, SourceNode: m.DestNode, SourceNodeUUID: m.DestNodeUUID, SourceZone: m.DestZone,
		DestHost: m.SourceHost, DestNode: m.SourceNode, DestNodeUUID: m.SourceNodeUUID, DestZone: m.SourceZone,
		OldVMState: m.OldVMState, UserID: m.UserID, ProjectID: m.ProjectID, CreatedAt: TruncateTime(now),
	}})
}
