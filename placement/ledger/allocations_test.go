// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/placementtest"
	"github.com/compute-agent/compute-agent/providertree"
)

// TestAllocationAmounts: the bounds of one amount, and new consumers of one write with IDs of their
// own.
func TestAllocationAmounts(t *testing.T) {
	l := open(t, new(placementtest.MemoryStore))
	most := int64(providertree.MaxUnit)
	update := func(fn func(tx *ledger.Tx) error) (*ledger.Snapshot, error) { return l.Update(t.Context(), fn) }
	if _, err := update(func(tx *ledger.Tx) error {
		if _, err := tx.CreateProvider(ledger.NewProvider{UUID: "p", Name: "n"}); err != nil {
			return err
		}
		_, err := tx.SetInventories("p", 0, []ledger.Inventory{
			{Class: "DISK_GB", Total: most, MinUnit: 1, MaxUnit: most, StepSize: 1, AllocationRatio: 4},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	claim := func(consumer string, amount int64) ledger.ConsumerAllocations {
		return ledger.ConsumerAllocations{Consumer: consumer, Project: "q", User: "u", Resources: map[string]map[string]int64{"p": {"DISK_GB": amount}}}
	}
	for amount, want := range map[int64]ledger.Kind{0: ledger.InvalidAllocation, 1: 0, most: 0, most + 1: ledger.InvalidAllocation} {
		_, err := update(func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c", amount)})
		})
		if ledger.KindOf(err) != want || (err != nil) != (want != 0) {
			t.Errorf("%d: %v, want %v", amount, err, want)
		}
	}
	s, err := update(func(tx *ledger.Tx) error {
		return tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c1", 1), claim("c2", 1), claim("c3", 1)})
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int64]string{}
	for c := range s.Consumers() {
		ids[c.ID] = c.UUID
	}
	if len(ids) != 4 {
		t.Errorf("the consumers by ID are %v", ids)
	}
}
