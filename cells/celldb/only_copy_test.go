// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

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

// TestRevertEndsWithoutAGuestOnTheSource: the server stays where it is, and the action fails.
func TestRevertEndsWithoutAGuestOnTheSource(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	e := &exits{t: t, s: fresh(t), now: moment, dead: map[string]bool{}}
	e.beat()
	active(t, e.s, building(1))
	e.moves(cellwire.MigrationFinished)
	e.keeps(true)
	e.step(cellwire.MigrationStep{Revert: true})
	e.keeps(false)
	testproc.Same(t, gocmp.Diff([]string{"01: departing (finished)"}, wants(t, e.s, "h1", 0)))
	answer := testproc.Try(e.s.Actions(ctx, sid(1))).Or(t)
	if last := answer.Actions[0]; last.Name != cellwire.ActionRevert || !last.Failed ||
		!strings.Contains(last.Details, "host h1 has no guest of it any more") {
		t.Errorf("the last action is %+v", last)
	}
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
	_, _, err := e.s.Report(ctx, serverstate.Reporter{Host: "h1"},
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
