// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// A migration is open while a host or the compute API has something to do about it. A server has at
// most one open migration in which it moves. Beside it there may be evacuations that are done and
// whose sources have not come back. All open migrations of a server have different sources, and
// none of these is a destination, so that a host has at most one thing to do about a server.

// Migration is a move of the server of a record to another host.
type Migration struct {
	cellwire.Migration
	// Open: a host, or the compute API, has something to do about it.
	Open bool
	// Changed: it differs from its row, and is to be written.
	Changed bool
}

// endedStatuses are the statuses in which a server does not move any more.
var endedStatuses = []cellwire.MigrationStatus{
	cellwire.MigrationConfirmed, cellwire.MigrationReverted, cellwire.MigrationError, cellwire.MigrationDone,
	cellwire.MigrationCompleted, cellwire.MigrationFailed,
}

// currentMigration returns the migration that moves the server now, nil for none. A cold migration
// that is confirmed but whose source still has to remove its guest counts only while the server is
// resized: an administrator may have set another state without waiting for the source.
func (r *Record) currentMigration() *Migration {
	for _, m := range slices.Backward(r.Migrations) { // an older one may still wait for its source
		if m.endedUnplaced() {
			continue
		}
		kept := m.Type == cellwire.MigrationCold &&
			(m.Status != cellwire.MigrationConfirm || r.Server.VMState == cellwire.VMResized)
		if m.Open && (m.GiveBack || kept ||
			m.Type != cellwire.MigrationCold && !slices.Contains(endedStatuses, m.Status)) {
			return m
		}
	}
	return nil
}

// OpenMigration returns the open migration with the uuid, nil if there is none.
func (r *Record) OpenMigration(uuid string) *Migration {
	for _, m := range r.Migrations {
		if m.Open && m.UUID == uuid {
			return m
		}
	}
	return nil
}

// WantOn returns the desired state of the server on a host, and the migration that it is for, if
// any; "" if the host has nothing to do.
func (r *Record) WantOn(host string) (cellwire.Want, *cellwire.Migration) {
	s := &r.Server
	if host == "" || s.Hidden {
		return "", nil
	}
	for _, m := range r.Migrations {
		if !m.Open {
			continue
		}
		var want cellwire.Want
		decided := false
		switch host {
		case m.SourceHost:
			want, decided = r.wantOnSource(m)
		case m.DestHost:
			want, decided = r.wantOnDestination(m)
		}
		switch {
		case want != "":
			return want, &m.Migration
		case decided:
			return "", nil
		}
	}
	if host != s.Host {
		return "", nil
	}
	want := r.wantWithoutMigration()
	if want == cellwire.WantGone {
		for _, m := range r.Migrations {
			if m.Open && m.SourceHost == host {
				return want, &m.Migration
			}
		}
	}
	return want, nil
}

// IdleOn reports whether a host that has nothing to do about the server may have its guest: the
// server is there, was launched once, and is not about to go back to its source.
func (r *Record) IdleOn(host string) bool {
	s := &r.Server
	goesBack := slices.ContainsFunc(r.Migrations, func(m *Migration) bool {
		return m.Open && m.GiveBack && m.DestHost == host
	})
	return s.Host == host && s.LaunchedAt != nil && !s.Hidden && !s.Deleted && !goesBack
}

// wantOnSource returns the desired state that the migration sets on its source. decided is false if
// the migration sets none: then the server's own state decides.
func (r *Record) wantOnSource(m *Migration) (want cellwire.Want, decided bool) {
	home := r.Server.Host == m.SourceHost
	switch {
	case r.deleting():
		if home {
			return "", false // all that is there goes
		}
		return cellwire.WantLeft, true
	case m.endedUnplaced():
		return "", false
	case m.Status == cellwire.MigrationConfirm, m.Status == cellwire.MigrationDone:
		if r.lacksGuest() { // what is here may be the only copy
			return cellwire.WantDeparting, true
		}
		return cellwire.WantLeft, true
	case m.Status == cellwire.MigrationAccepted: // a guest that is to be evacuated is left as it is
		return "", m.Type != cellwire.MigrationCold
	case home && r.Server.TaskState == cellwire.TaskResizeReverting: // it is here again
		return "", false
	}
	return cellwire.WantDeparting, true
}

// wantOnDestination returns the desired state that the migration sets on its destination. decided
// is false if the migration sets none: then the server's own state decides.
func (r *Record) wantOnDestination(m *Migration) (want cellwire.Want, decided bool) {
	switch {
	case r.deleting() || r.Server.Host != m.DestHost:
		return "", false
	case m.GiveBack: // nothing is left there
		return "", true
	case m.Status == cellwire.MigrationPost, m.Status == cellwire.MigrationPre:
		return cellwire.WantArriving, true
	case m.Status == cellwire.MigrationRevert && m.SourceGuest != cellwire.SourceGuestAsked:
		return cellwire.WantLeaving, true
	}
	return "", false
}

// Migrate begins a migration, for which the compute API then chooses a destination. It is refused
// (conflict) in a state that does not allow it, and (in use) if it is an evacuation and the host is
// up.
func (r *Record) Migrate(
	q cellwire.MigrateRequest, by cellwire.Origin, hostUp bool, now time.Time,
) (changed bool, err error) {
	s := &r.Server
	moving := r.currentMigration()
	if moving != nil && moving.UUID == q.UUID {
		return false, nil // a repetition
	}
	if s.Deleted || s.Hidden {
		return false, NotFound("server", s.UUID)
	}
	seen := *s
	seen.HostUp = hostUp
	if err := q.Check(&seen); err != nil {
		return false, err
	}
	if moving != nil && moving.revertPending(s) {
		if s.VMState == cellwire.VMResized {
			s.VMState = moving.OldVMState
		}
		r.endReverted()
		moving = nil
	}
	if moving != nil {
		return false, Conflict(
			"migration %s of server %s is %s; an administrator can abort it if it waits for a host that is down, or "+
				"has no destination yet", moving.UUID, s.UUID, moving.Status)
	}
	if i := slices.IndexFunc(r.Migrations, (*Migration).endedUnplaced); i >= 0 {
		return false, Conflict(
			"migration %s of server %s is %s, and its allocations are not given back yet. Send the request again.",
			r.Migrations[i].UUID, s.UUID, r.Migrations[i].Status)
	}
	if q.Host == s.Host {
		return false, Invalid("server %s is on host %s already", s.UUID, s.Host)
	}
	s.TaskState, r.Former = q.Type.Task(), nil
	r.Migrations = append(r.Migrations, &Migration{Open: true, Changed: true, Migration: cellwire.Migration{
		UUID: q.UUID, ServerUUID: s.UUID, Type: q.Type, Status: cellwire.MigrationAccepted, DestHost: q.Host,
		SourceHost: s.Host, SourceNode: s.Node, SourceNodeUUID: s.NodeUUID, SourceZone: s.Zone,
		OldVMState: s.VMState, UserID: by.UserID, ProjectID: by.ProjectID, CreatedAt: TruncateTime(now),
	}})
	return true, nil
}

// Step applies a step of the compute API to an open migration. up reports whether a host is up.
func (r *Record) Step(
	uuid string, step cellwire.MigrationStep, up func(host string) bool, now time.Time,
) (changed bool, err error) {
	m := r.OpenMigration(uuid)
	if m == nil {
		return false, NotFound("open migration", uuid)
	}
	switch {
	case step.Destination != nil:
		return r.setDestination(m, *step.Destination)
	case step.Failed != nil:
		return r.applyUnplaced(m, step.Failed, step.GiveBack, now)
	case step.GivenBack:
		return r.applyGivenBack(m, step.Fenced, now)
	case step.Confirm, step.Revert:
		return r.decide(m, step.Confirm, up, now)
	case step.Abort != "":
		return r.abort(m, step.Abort, up, now)
	}
	return false, Invalid("a step of a migration has no member that is known")
}

// setStatus changes the status of a migration; one that is over is not open any more.
func (m *Migration) setStatus(status cellwire.MigrationStatus, over bool) {
	m.Status, m.Open, m.Changed = status, !over, true
	if over {
		m.Offer = "" // it may be a secret
	}
}

// setDestination records where the server goes.
func (r *Record) setDestination(m *Migration, to cellwire.MigrationDestination) (bool, error) {
	s := &r.Server
	same := m.DestHost == to.Host && m.DestNodeUUID == to.NodeUUID
	switch {
	case m.Status != cellwire.MigrationAccepted && same && !m.GiveBack:
		return false, nil
	case m.Status != cellwire.MigrationAccepted, r.deleting():
		return false, Conflict("migration %s of server %s is %s, and the server in task_state %s",
			m.UUID, s.UUID, m.Status, orNone(s.TaskState))
	}
	for _, other := range r.Migrations {
		if other.Open && other.SourceHost == to.Host {
			return false, Conflict("server %s has not left host %s yet, in migration %s", s.UUID, to.Host, other.UUID)
		}
	}
	if err := CheckHost(to.Host); err != nil {
		return false, err
	}
	if err := CheckName("node", to.Node); err != nil {
		return false, err
	}
	if err := CheckUUID(to.NodeUUID); err != nil {
		return false, err
	}
	m.DestHost, m.DestNode, m.DestNodeUUID, m.DestZone = to.Host, to.Node, to.NodeUUID, to.Zone
	m.setStatus(cellwire.MigrationPre, false)
	switch m.Type {
	case cellwire.MigrationBuild:
		r.moveTo(m)
		s.TaskState, s.Fault = cellwire.TaskSpawning, nil
		m.setStatus(cellwire.MigrationDone, true)
	case cellwire.MigrationEvacuation:
		r.moveTo(m)
	default:
		s.TaskState = cellwire.TaskResizeMigrating
	}
	return true, nil
}

// rescheduleBuild has the compute API choose another host for a server that its host cannot build.
// What that said is in the action that failed.
func (r *Record) rescheduleBuild(now time.Time) {
	s := &r.Server
	s.Retries--
	s.VMState, s.TaskState = cellwire.VMBuilding, cellwire.TaskScheduling
	r.Migrations = append(r.Migrations, &Migration{Open: true, Changed: true, Migration: cellwire.Migration{
		UUID:       uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s %d", s.UUID, s.Retries)).String(),
		ServerUUID: s.UUID, Type: cellwire.MigrationBuild, Status: cellwire.MigrationAccepted,
		SourceHost: s.Host, SourceNode: s.Node, SourceNodeUUID: s.NodeUUID, SourceZone: s.Zone,
		OldVMState: s.VMState, UserID: s.UserID, ProjectID: s.ProjectID, CreatedAt: TruncateTime(now),
	}})
}

// moveTo has the server on the destination, moveBack on the source.
func (r *Record) moveTo(m *Migration) {
	s := &r.Server
	s.Host, s.Node, s.NodeUUID, s.Zone = m.DestHost, m.DestNode, m.DestNodeUUID, m.DestZone
}

func (r *Record) moveBack(m *Migration) {
	s := &r.Server
	s.Host, s.Node, s.NodeUUID, s.Zone = m.SourceHost, m.SourceNode, m.SourceNodeUUID, m.SourceZone
}

// applyUnplaced ends a migration that has no destination. As in Nova, a server that was to be
// evacuated is in error then, and another one is as it was.
func (r *Record) applyUnplaced(m *Migration, fault *cellwire.Fault, giveBack bool, now time.Time) (bool, error) {
	s := &r.Server
	switch {
	case m.endedUnplaced() && !r.deleting(): // a repetition, or it was aborted
		return false, nil
	case m.Status != cellwire.MigrationAccepted, r.deleting():
		return false, Conflict("migration %s of server %s is %s, and the server in task_state %s",
			m.UUID, s.UUID, m.Status, orNone(s.TaskState))
	}
	if was := s.Fault; m.Type == cellwire.MigrationBuild && was != nil { // it says more to the owner
		both := *was
		both.Details, both.Created = strings.TrimPrefix(
			was.Details+"\nNo other host: "+fault.Details, "\n",
		), fault.Created
		fault = &both
	}
	s.Fault = boundedFault(fault, now)
	if m.Type != cellwire.MigrationCold {
		s.VMState = cellwire.VMError
	}
	r.endMigration(m, giveBack)
	return true, nil
}

// applyGivenBack goes on after the allocations were given back.
func (r *Record) applyGivenBack(m *Migration, fenced bool, now time.Time) (bool, error) {
	s := &r.Server
	switch {
	case !m.GiveBack && s.Host == m.SourceHost && m.Status != cellwire.MigrationAccepted:
		return false, nil // a repetition
	case !m.GiveBack:
		return false, Conflict("migration %s of server %s is %s, and its allocations are not to be given back",
			m.UUID, s.UUID, m.Status)
	case s.Deleted:
		m.GiveBack = false
		m.setStatus(m.Status, true)
		return true, nil
	case r.deleting():
		return false, Conflict("server %s is being deleted", s.UUID)
	case m.endedUnplaced() && !fenced && m.claimable(now):
		return false, Conflict(
			"migration %s of server %s ended less than %s ago, and an earlier claim may still be on its way "+
				"to Placement", m.UUID, s.UUID, claimWindow,
		)
	case m.endedUnplaced(): // what it is asked to do since then goes on
		m.GiveBack = false
		m.setStatus(m.Status, true)
		return true, nil
	}
	m.GiveBack = false
	r.moveBack(m)
	if m.Type == cellwire.MigrationEvacuation {
		s.TaskState = ""
		m.setStatus(m.Status, true)
		return true, nil
	}
	s.TaskState = cellwire.TaskResizeReverting
	s.PowerState = plugins.PowerNoState // until the source says that its guest is there
	m.setStatus(m.Status, false)
	return true, nil
}

// revertPending says that a migration was undone, and the server waits for the source.
func (m *Migration) revertPending(s *cellwire.Server) bool {
	return !m.GiveBack && s.Host == m.SourceHost && s.TaskState == cellwire.TaskResizeReverting
}

// endReverted ends a migration that was undone, when the guest is on the source as it was.
func (r *Record) endReverted() {
	m := r.currentMigration()
	switch {
	case m == nil:
	case m.Status == cellwire.MigrationRevert:
		m.setStatus(cellwire.MigrationReverted, true)
	default:
		m.setStatus(m.Status, true)
	}
}

// abandonMigrations leaves to each host, when the server is deleted, what there is of it. Where it
// had not left the source, the compute API removes the allocations.
func (r *Record) abandonMigrations() {
	for _, m := range r.Migrations {
		if m.Open {
			m.GiveBack, m.Changed = r.Server.Host == m.SourceHost, true
		}
	}
}

// CheckSoftDelete refuses (conflict) to delete a server softly while it moves.
func (r *Record) CheckSoftDelete() error {
	if m := r.currentMigration(); m != nil && !r.Server.Deleted && r.Server.LaunchedAt != nil {
		return Conflict("server %s is being moved: migration %s is %s; end it, or delete the server with forceDelete",
			r.Server.UUID, m.UUID, m.Status)
	}
	return nil
}

// AboutMigration reports whether [Record.ApplyMigration] takes reports of a kind, not
// [Record.Apply].
func AboutMigration(kind cellwire.ReportKind) bool {
	return kind == cellwire.ReportDeparted || kind == cellwire.ReportArrived || kind == cellwire.ReportLeft
}

// MigrationsMatter reports whether a report about a server may depend on the server's migrations,
// or change what their hosts have to do. So may any report that a guest exists or does not exist
// any more: the source of an open migration keeps its guest until that of the server exists.
func MigrationsMatter(s *cellwire.Server, report *cellwire.Report) bool {
	was, is := s.PowerState, report.PowerState
	if AboutMigration(report.Kind) || s.LaunchedAt != nil && was != is &&
		(was == plugins.PowerNoState || is == plugins.PowerNoState) {
		return true
	}
	switch s.TaskState {
	case cellwire.TaskRebuilding, cellwire.TaskResizePrep, cellwire.TaskResizeMigrating, cellwire.TaskResizeFinish,
		cellwire.TaskResizeReverting, cellwire.TaskDeleting:
		return true
	}
	return s.Deleted || s.VMState == cellwire.VMResized
}

// Hosts returns the names of the hosts that the server may be on.
func (r *Record) Hosts() []string {
	open := make([]cellwire.Migration, 0, len(r.Migrations))
	for _, m := range r.Migrations {
		if m.Open {
			open = append(open, m.Migration)
		}
	}
	return cellwire.HostsOf(r.Server.Host, open)
}

// MayReport reports whether a host may report about the server. The server is on the host or, if
// the report is about a migration, an open migration moves it from the host or to it. A destination
// that was asked for but is not chosen yet may not report.
func (r *Record) MayReport(host string, migration bool) bool {
	switch {
	case host == "" || r.Server.Hidden:
		return false
	case r.Server.Host == host:
		return true
	}
	return migration && slices.ContainsFunc(r.Migrations, func(m *Migration) bool {
		return m.Open && (m.SourceHost == host || m.DestHost == host && m.DestNode != "")
	})
}

// ApplyMigration applies a report about a migration, from its source or its destination. See
// [Record.Apply] for the results.
func (r *Record) ApplyMigration(host string, report cellwire.Report, now time.Time) (changed bool, refused string) {
	s := &r.Server
	if !slices.Contains(powerStates, report.PowerState) {
		return false, fmt.Sprintf("%d is no power state", report.PowerState)
	}
	m := r.OpenMigration(report.Migration)
	if m == nil {
		return false, "" // it is over
	}
	want, of := r.WantOn(host)
	if of == nil || of.UUID != m.UUID {
		return false, fmt.Sprintf("this host has nothing to do in migration %s now", m.UUID)
	}
	switch {
	case report.Kind == cellwire.ReportDeparted && want == cellwire.WantDeparting && m.keepsBoth():
		return r.applySourceGuest(m, report, now), ""
	case report.Kind == cellwire.ReportDeparted && want == cellwire.WantDeparting:
		if m.Status != cellwire.MigrationPre || m.Type != cellwire.MigrationCold || m.GiveBack {
			return false, "" // a repetition
		}
		if report.Fault != nil {
			return r.rollBack(m, report.Fault, now), ""
		}
		if len(report.Offer) > cellwire.MaxOffer || !Storable(report.Offer) {
			return false, fmt.Sprintf("the offer has more than %d bytes, or is no UTF-8, or has the character 0",
				cellwire.MaxOffer)
		}
		m.Offer = report.Offer
		m.setStatus(cellwire.MigrationPost, false)
		r.moveTo(m)
		s.TaskState, s.PowerState = cellwire.TaskResizeFinish, report.PowerState
		return true, ""
	case report.Kind == cellwire.ReportArrived && want == cellwire.WantArriving:
		if report.Fault != nil {
			return r.rollBack(m, report.Fault, now), ""
		}
		r.applyArrived(m, report.PowerState, now)
		return true, ""
	case report.Kind == cellwire.ReportLeft && (want == cellwire.WantLeft || want == cellwire.WantLeaving):
		return r.applyLeft(m), ""
	}
	return false, fmt.Sprintf("of this host %q is wanted now, and not what it says it has done: %q", want, report.Kind)
}

// rollBack ends a migration that a host could not do. The allocations are given back first. After
// an evacuation the server is in error, and its fault says that the source keeps the guest, shut
// down if it came back meanwhile.
func (r *Record) rollBack(m *Migration, fault *cellwire.Fault, now time.Time) bool {
	s := &r.Server
	m.GiveBack = true
	s.Fault = boundedFault(fault, now)
	if m.Type == cellwire.MigrationEvacuation {
		withHost := *fault
		withHost.Details = strings.TrimSuffix(
			fmt.Sprintf("Host %s keeps its guest, shut down if it came back meanwhile: a hard reboot starts it.\n%s",
				m.SourceHost, fault.Details),
			"\n",
		)
		s.Fault = boundedFault(&withHost, now)
		s.VMState, s.PowerState = cellwire.VMError, plugins.PowerNoState
		m.setStatus(cellwire.MigrationFailed, false)
	} else {
		m.setStatus(cellwire.MigrationError, false)
	}
	return true
}

// applyArrived: the guest is on the destination.
func (r *Record) applyArrived(m *Migration, power plugins.PowerState, now time.Time) {
	s := &r.Server
	at := TruncateTime(now)
	s.TaskState, s.LaunchedAt, s.PowerState = "", &at, power
	if m.Type == cellwire.MigrationCold {
		s.VMState = cellwire.VMResized
		m.setStatus(cellwire.MigrationFinished, false)
		m.Offer = ""
		return
	}
	s.VMState = stateOf(power)
	s.Fault = nil
	m.setStatus(cellwire.MigrationDone, false)
}

// stateOf is the vm_state of a guest that is there.
func stateOf(power plugins.PowerState) string {
	if power == plugins.PowerRunning || power == plugins.PowerPaused {
		return cellwire.VMActive
	}
	return cellwire.VMStopped
}

// applyLeft records that a host has nothing of the server any more: the source of a migration, or
// the destination of one that is undone.
func (r *Record) applyLeft(m *Migration) bool {
	s := &r.Server
	switch {
	case r.deleting() && m.Type == cellwire.MigrationEvacuation, m.Status == cellwire.MigrationDone:
		m.setStatus(cellwire.MigrationCompleted, true)
	case m.Status == cellwire.MigrationRevert && !r.deleting():
		m.GiveBack, m.Changed = true, true
	default:
		if s.VMState == cellwire.VMResized {
			s.VMState = stateOf(s.PowerState)
		}
		m.setStatus(cellwire.MigrationConfirmed, true)
	}
	return true
}
