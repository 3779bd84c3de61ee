// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func open(t testing.TB, store ledger.Store) *transactor.Ledger {
	t.Helper()
	l := testproc.Try(transactor.Open(context.Background(), store, transactor.Options{})).Or(t)
	t.Cleanup(func() { testproc.NoError(t, l.Close()) })
	return l
}

func snapshot(t rapid.TB, l *transactor.Ledger) *ledger.Snapshot {
	t.Helper()
	return testproc.Try(l.Snapshot(context.Background())).Or(t)
}

// TestAgainstModel: along a random history of writes, right ones and wrong
// ones, through two servers of one database, which restart now and then, the
// ledger agrees with the naive model in what it refuses and why, in every
// generation and sum, and in what old snapshots show. Every change fits the
// rows. In the end both servers show what is loaded from the rows.
func TestAgainstModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	outcomes := map[string]int{}
	history := func(rt *rapid.T) {
		db := placementtest.NewRowStore(ledger.State{})
		db.Backwards = rapid.Bool().Draw(rt, "newest first")
		servers := []*transactor.Ledger{open(t, db), open(t, db)}
		loads := db.Loads
		// A delta cannot give a number another name: a server that restarted counts on from the
		// largest that is left.
		mayReload := false
		model := placementtest.NewModel()
		do := func(op placementtest.Op) {
			which := rapid.IntRange(0, 1).Draw(rt, "server")
			if rapid.IntRange(0, 49).Draw(rt, "restart") == 0 {
				servers[which] = open(t, db)
				loads, mayReload = loads+1, true
			}
			l := servers[which]
			before := l.Current()
			picture := testproc.Try(placementtest.DumpOf(before)).Or(rt)
			want := model.Apply(op)
			s, err := l.Update(context.Background(), op.Run)
			if err != nil && ledger.KindOf(err) == 0 || !placementtest.SameRefusal(want, ledger.KindOf(err)) {
				rt.Fatalf("%+v: the ledger says %v, the model %q", op, err, want)
			}
			if err != nil {
				s = l.Current()
			}
			outcomes[op.Name+": "+want.String()]++
			mayReload = mayReload || op.Name == "RenameClass" && want == 0
			got, err := placementtest.DumpOf(s)
			testproc.Checkf(rt, err, "after %+v", op)
			if diff := cmp.Diff(model.Dump(), got, cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("after %+v (refused: %v): model -, ledger +\n%s", op, err, diff)
			}
			again := testproc.Try(placementtest.DumpOf(before)).Or(rt)
			if diff := cmp.Diff(picture, again); diff != "" {
				rt.Fatalf("%+v changed an old snapshot:\n%s", op, diff)
			}
		}
		for _, op := range placementtest.SetupOps() {
			do(op)
		}
		for range rapid.IntRange(20, 80).Draw(rt, "writes") {
			do(placementtest.DrawOp(rt, model))
		}
		if db.Loads != loads && !mayReload {
			rt.Errorf("everything was loaded %d times for what other servers changed", db.Loads-loads)
		}
		loaded := snapshot(rt, open(t, db))
		for i, l := range servers {
			if diff := cmp.Diff(placementtest.Rows(loaded), placementtest.Rows(snapshot(rt, l))); diff != "" {
				rt.Errorf("loaded -, server %d +\n%s", i, diff)
			}
		}
	}
	// A model test is worth what it reaches.
	rare := []string{
		"Reshape: kind 0", "Reshape: capacity would be exceeded", "Reshape: inventory has allocations",
		"Reshape: resource provider generation conflict",
		"ReplaceAllocations: kind 0", "ReplaceAllocations: capacity would be exceeded",
		"ReplaceAllocations: consumer generation conflict",
		"UpdateProvider: kind 0", "UpdateProvider: parent is not possible", "DeleteProvider: kind 0",
		"DeleteProvider: resource provider has allocations",
		"RenameClass: kind 0", "SetTraits: kind 0",
		"SetAggregates: kind 0", "DeleteInventory: inventory has allocations",
	}
	missed := func(name string) bool { return outcomes[name] == 0 }
	for round := 0; round == 0 || round < 5 && slices.ContainsFunc(rare, missed) &&
		!t.Failed() && !testing.Short(); round++ {
		rapid.Check(t, history) // Some are so rare that one round may lack them.
	}
	if i := slices.IndexFunc(rare, missed); i >= 0 && !t.Failed() && !testing.Short() {
		t.Errorf("the random histories never came to %q", rare[i])
	}
}
