// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCountStates: servers that live count; hidden and deleted ones do not.
func TestCountStates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, countStates)
}

func countStates(t *testing.T, s *celldb.DB) {
	t.Helper()
	if got, err := s.CountStates(ctx); err != nil || len(got) != 0 {
		t.Errorf("an empty cell has %v, %v", got, err)
	}
	nodes := []cellwire.ReportedNode{{UUID: sid(91), Name: "n1"}, {UUID: sid(92), Name: "n2"}}
	if _, _, err := s.Report(
		ctx, serverstate.Reporter{Host: "h1"}, cellwire.HostReport{Nodes: nodes}, moment,
	); err != nil {
		t.Fatal(err)
	}
	insert(t, s, building(0)) // hidden
	for n := 1; n <= 5; n++ {
		release(t, s, building(n))
	}
	var reports []cellwire.Report
	for n := 2; n <= 5; n++ {
		reports = append(reports,
			cellwire.Report{UUID: sid(n), Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning})
	}
	testproc.Try(s.Apply(ctx, "h1", reports, moment)).Or(t)
	for n, kind := range map[int]cellwire.DeleteKind{3: cellwire.DeleteSoft, 4: cellwire.DeleteNormal} {
		testproc.Try(s.Delete(ctx, sid(n), kind, moment)).Or(t)
	}
	soft := testproc.Try(s.Server(ctx, sid(3), moment)).Or(t)
	reports = []cellwire.Report{{UUID: sid(4), Kind: cellwire.ReportGone},
		{UUID: sid(3), Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown, Revision: soft.Revision}}
	testproc.Try(s.Apply(ctx, "h1", reports, moment)).Or(t)
	want := map[string]int64{cellwire.VMBuilding: 1, cellwire.VMActive: 2, cellwire.VMSoftDeleted: 1}
	got := testproc.Try(s.CountStates(ctx)).Or(t)
	testproc.Same(t, cmp.Diff(want, got))
	counted, err := s.CountedNodes(ctx, moment)
	if err != nil || len(counted) != 2 || counted[0].Servers != 4 ||
		counted[1].Servers != 0 || counted[0].Name != "n1" {
		t.Errorf("the nodes are %+v, %v", counted, err)
	}
}

// BenchmarkCountStates is what a look at the metrics costs in a cell of 100,000 servers, when
// nothing is remembered.
func BenchmarkCountStates(b *testing.B) {
	onEachEngine(b, func(b *testing.B, s *celldb.DB) {
		b.Helper()
		crowd(b, s)
		for b.Loop() {
			if got, err := s.CountStates(ctx); err != nil || got[cellwire.VMActive] != 100_000 {
				b.Fatal(got, err)
			}
		}
	})
}
