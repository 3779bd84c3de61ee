// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// resized begins a cell with a server that was migrated from h1 to h2.
func resized(t *testing.T) *exits {
	t.Helper()
	e := &exits{t: t, s: fresh(t), now: moment, dead: map[string]bool{}}
	e.beat()
	active(t, e.s, building(1))
	e.moves(cellwire.MigrationFinished)
	return e
}

// keeps has the source say whether it has its guest.
func (e *exits) keeps(there bool) {
	e.t.Helper()
	report := cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: plugins.PowerShutdown}
	if !there {
		report.PowerState, report.Fault = plugins.PowerNoState,
			&cellwire.Fault{Code: 500, Message: "its guest does not exist"}
	}
	e.says("h1", report)
}

// has has the destination say whether it has its guest.
func (e *exits) has(there bool) {
	e.t.Helper()
	e.says("h2", cellwire.Report{Kind: cellwire.ReportPower,
		PowerState: map[bool]plugins.PowerState{true: plugins.PowerRunning, false: plugins.PowerNoState}[there]})
}

// situation is what h1 and h2 are asked for, "" for nothing, and the state and host of the server.
type situation struct{ h1, h2, state, task, host string }

// asked compares the situation.
func (e *exits) asked(when string, want situation) {
	e.t.Helper()
	for host, asked := range map[string]string{"h1": want.h1, "h2": want.h2} {
		var all []string
		if asked != "" {
			all = []string{"01: " + asked}
		}
		testproc.Samef(e.t, gocmp.Diff(all, wants(e.t, e.s, host, 0)), "%s: %s is asked for", when, host)
	}
	s := testproc.Try(e.s.Server(ctx, sid(1), e.now)).Or(e.t)
	if s.VMState != want.state || s.TaskState != want.task || s.Host != want.host {
		e.t.Errorf("%s: the server is %q %q on %q, want %q %q on %q",
			when, s.VMState, s.TaskState, s.Host, want.state, want.task, want.host)
	}
}

// refuses fails unless a step is refused with a text.
func (e *exits) refuses(step cellwire.MigrationStep, says string) {
	e.t.Helper()
	if _, err := e.s.Step(ctx, e.moving, step, e.now); !cellclient.IsConflict(err) ||
		!strings.Contains(err.Error(), says) {
		e.t.Errorf("%+v: %v, want a conflict with %q", step, err, says)
	}
}

var (
	confirm = cellwire.MigrationStep{Confirm: true}
	revert  = cellwire.MigrationStep{Revert: true}
)

// TestConfirmKeepsTheOnlyGuest: without a guest on the destination, the one on the source is not
// removed, whether that is known before the migration is confirmed or after.
func TestConfirmKeepsTheOnlyGuest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	t.Run("missing before", func(t *testing.T) {
		e := resized(t)
		e.has(false)
		e.refuses(confirm,
			"use 'revertResize', which takes it back. Its new host h2 has no guest of it, and the one on the old "+
				"host h1 would be removed.")
		e.asked("refused", situation{h1: "departing (finished)", h2: "present", state: "resized", host: "h2"})
		e.has(true)
		e.step(confirm)
		e.asked("there again", situation{h1: "left (confirming)", h2: "present", state: "resized", host: "h2"})
	})
	t.Run("missing after", func(t *testing.T) {
		e := resized(t)
		e.step(confirm)
		e.has(false)
		e.asked("missing", situation{h1: "departing (confirming)", h2: "present", state: "resized", host: "h2"})
		e.step(revert)
		e.asked("reverted", situation{h1: "departing (reverting)", h2: "present",
			state: "resized", task: "resize_reverting", host: "h2"})
		e.keeps(true)
		e.asked("proven", situation{h1: "departing (reverting)", h2: "leaving (reverting)",
			state: "resized", task: "resize_reverting", host: "h2"})
	})
}

// TestRevertKeepsTheOnlyGuest: the destination removes its guest when the source has said that its
// own is there, and not before.
func TestRevertKeepsTheOnlyGuest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	t.Run("missing before", func(t *testing.T) {
		e := resized(t)
		e.keeps(false)
		e.refuses(revert,
			"use 'confirmResize', which keeps it. Its old host h1 has no guest of it, and the one on the new host "+
				"h2 would be removed.")
		e.asked("refused", situation{h1: "departing (finished)", h2: "present", state: "resized", host: "h2"})
		e.keeps(true)
		e.step(revert)
		e.asked("there again", situation{h1: "departing (reverting)", h2: "present",
			state: "resized", task: "resize_reverting", host: "h2"})
	})
	t.Run("missing after", func(t *testing.T) {
		e := resized(t)
		e.keeps(true)
		e.step(revert)
		e.asked("reverted", situation{h1: "departing (reverting)", h2: "present",
			state: "resized", task: "resize_reverting", host: "h2"})
		e.keeps(false)
		e.asked("missing", situation{h1: "departing (finished)", h2: "present", state: "resized", host: "h2"})
		answer := testproc.Try(e.s.Actions(ctx, sid(1))).Or(t)
		if last := answer.Actions[0]; last.Name != cellwire.ActionRevert || !last.Failed ||
			!strings.Contains(last.Details, "host h1 has no guest of it any more") {
			t.Errorf("the last action is %+v", last)
		}
		e.refuses(revert, "host h1 has no guest")
		e.step(confirm)
		e.asked("confirmed", situation{h1: "left (confirming)", h2: "present", state: "resized", host: "h2"})
	})
	t.Run("there", func(t *testing.T) {
		e := resized(t)
		e.keeps(true)
		e.step(revert)
		e.keeps(true)
		e.asked("proven", situation{h1: "departing (reverting)", h2: "leaving (reverting)",
			state: "resized", task: "resize_reverting", host: "h2"})
		e.says("h2", cellwire.Report{Kind: cellwire.ReportLeft})
		e.giveBack()
		e.settled("h1")
		e.asked("back", situation{h1: "present", state: "active", host: "h1"})
	})
	t.Run("an agent that does not say", func(t *testing.T) {
		e := resized(t)
		e.step(revert)
		e.asked("its host is up", situation{h1: "departing (reverting)", h2: "leaving (reverting)",
			state: "resized", task: "resize_reverting", host: "h2"})
	})
	t.Run("a host that is down", func(t *testing.T) {
		e := resized(t)
		e.dies("h1")
		e.step(revert)
		e.asked("silent", situation{h1: "departing (reverting)", h2: "present",
			state: "resized", task: "resize_reverting", host: "h2"})
		e.dead["h1"] = false
		e.beat()
		e.keeps(true)
		e.asked("back", situation{h1: "departing (reverting)", h2: "leaving (reverting)",
			state: "resized", task: "resize_reverting", host: "h2"})
	})
	t.Run("a host that is up and never says", func(t *testing.T) {
		e := resized(t)
		e.dies("h1")
		e.step(revert)
		e.dead["h1"] = false
		e.beat()
		e.step(cellwire.MigrationStep{Abort: sid(700)})
		e.asked("aborted", situation{h1: "departing (finished)", h2: "present", state: "resized", host: "h2"})
		e.step(confirm)
		e.asked("confirmed", situation{h1: "left (confirming)", h2: "present", state: "resized", host: "h2"})
	})
}

// TestNeitherHostHasAGuest: the server goes back, and the destination removes what is left of it
// when a hard reboot has made the guest on the source again.
func TestNeitherHostHasAGuest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	e := resized(t)
	e.keeps(false)
	e.has(false)
	e.refuses(confirm, "use 'revertResize', and then a hard reboot, which makes its guest again over its disks. "+
		"Neither host h2 nor host h1 has one.")
	e.step(revert)
	e.giveBack()
	e.asked("reverted", situation{h1: "running", h2: "departing (done)",
		state: "resized", task: "resize_reverting", host: "h1"})
	e.says("h1", cellwire.Report{Kind: cellwire.ReportSettled, PowerState: plugins.PowerNoState,
		Fault: &cellwire.Fault{Code: 500, Message: "no guest"}})
	e.asked("back", situation{h1: "present", h2: "departing (done)", state: "stopped", host: "h1"})
	e.power(cellwire.PowerRebootHard)
	e.says("h1", cellwire.Report{Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown})
	e.settled("h1")
	e.asked("made again", situation{h1: "present", h2: "left (done)", state: "active", host: "h1"})
}

// TestAnEvacuatedHostKeepsTheOnlyGuest: so does the former host of a server that was evacuated, and
// whose guest on the new one is missing.
func TestAnEvacuatedHostKeepsTheOnlyGuest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	e := &exits{t: t, s: fresh(t), now: moment, dead: map[string]bool{}}
	e.beat()
	active(t, e.s, building(1))
	e.dies("h1")
	e.migrate(cellwire.MigrationEvacuation)
	e.to("h2")
	e.arrives("h2", nil)
	for _, there := range []bool{false, true} {
		e.has(there)
		of := map[bool]string{false: "departing (done)", true: "left (done)"}[there]
		e.asked(fmt.Sprintf("a guest on h2: %t", there), situation{h1: of, h2: "present", state: "active", host: "h2"})
	}
	e.has(false)
	e.delete(cellwire.DeleteNormal)
	e.asked("deleted", situation{h1: "left (done)", h2: "gone", state: "active", task: "deleting", host: "h2"})
}

// TestSourceGuestsAreKept: what sources say survives, and a repetition changes nothing.
func TestSourceGuestsAreKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		t.Helper()
		e := &exits{t: t, s: s, now: moment, dead: map[string]bool{}}
		e.beat()
		active(t, s, building(1))
		e.moves(cellwire.MigrationFinished)
		for _, there := range []bool{true, false} {
			e.keeps(there)
			before := testproc.Try(s.Info(ctx)).Or(t)
			e.keeps(there)
			if after := testproc.Try(s.Info(ctx)).Or(t); after != before {
				t.Errorf("a repetition makes %+v of %+v", after, before)
			}
			all := testproc.Try(s.MigrationsOf(ctx, sid(1))).Or(t)
			is := map[bool]cellwire.SourceGuest{true: cellwire.SourceGuestThere,
				false: cellwire.SourceGuestMissing}[there]
			if len(all) != 1 || !slices.ContainsFunc(all,
				func(m cellwire.Migration) bool { return m.SourceGuest == is }) {
				t.Errorf("the migrations are %+v", all)
			}
		}
	})
}

// TestAHostThatDoesNotReportANode is up, so that an evacuation is refused, with what to do. Its
// service forced down, the server is evacuated, and the host removes what it has when it can.
func TestAHostThatDoesNotReportANode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	e := &exits{t: t, s: fresh(t), now: moment, dead: map[string]bool{}}
	e.beat()
	active(t, e.s, building(1))
	evacuation := cellwire.MigrateRequest{UUID: sid(501), Type: cellwire.MigrationEvacuation}
	refuses := func(reported bool) {
		t.Helper()
		_, err := e.s.Migrate(ctx, sid(1), evacuation, e.now)
		if !cellclient.IsInUse(err) ||
			strings.Contains(err.Error(), "If none of its guests runs any more, force it down.") == reported {
			t.Errorf("%v; reported: %t", err, reported)
		}
	}
	refuses(true)
	_, _, err := e.s.Report(ctx, celldb.Reporter{Host: "h1"},
		cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{}}, e.now)
	testproc.Check(t, err)
	refuses(false)
	e.power(cellwire.PowerStop)
	for _, service := range testproc.Try(e.s.Services(ctx, e.now)).Or(t) {
		if service.Host == "h1" {
			testproc.Try(e.s.PatchService(ctx, service.UUID, cellwire.ServicePatch{ForcedDown: new(true)}, e.now)).Or(t)
		}
	}
	e.evacuate()
	if got := wants(t, e.s, "h1", 0); !slices.Equal(got, []string{"01: left (done)"}) {
		t.Errorf("the host is asked for %v", got)
	}
}
