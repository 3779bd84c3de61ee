// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDerive: what is derived from a tree is computed once, until something in the tree changes.
func TestDerive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := open(t, new(placementtest.MemoryStore))
	must(t, l, create("a"))
	computed := 0
	derive := func(s *ledger.Snapshot, d ledger.Derivation) any {
		p, _ := s.Provider("a")
		tree, _ := s.TreeAt(p.TreeNumber())
		return tree.Derive(d, func(*ledger.Tree) any { computed++; return computed })
	}
	for _, step := range []struct {
		name string
		do   func(*ledger.Tx) error
		of   ledger.Derivation
		want int
	}{
		{"first", nil, ledger.DerivedLayout, 1},
		{"cached", nil, ledger.DerivedLayout, 1},
		{"another derivation", nil, ledger.DerivedSummaries, 2},
		{"another tree changed", create("b"), ledger.DerivedLayout, 1},
		{"set the aggregates it has",
			func(tx *ledger.Tx) error { _, err := tx.SetAggregates("a", nil, nil); return err }, ledger.DerivedLayout,
			1},
		{"changed", func(tx *ledger.Tx) error { _, err := tx.SetTraits("a", 0, []string{"COMPUTE_NODE"}); return err },
			ledger.DerivedLayout, 3},
	} {
		if step.do != nil {
			must(t, l, step.do)
		}
		if got := derive(l.Current(), step.of); got != step.want {
			t.Errorf("%s: value number %v, want %d", step.name, got, step.want)
		}
	}
}
