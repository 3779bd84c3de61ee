// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAllocationRatios: the server that wrote an inventory and one that reads it show the same
// ratio and capacity, also where the column has single precision, as in the tables that OpenStack's
// Placement makes on MySQL.
func TestAllocationRatios(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	check := func(t *testing.T, name string) {
		t.Helper()
		l := open(t, name)
		classes := ledger.StandardClasses()
		var list []ledger.Inventory
		for i, ratio := range []float64{16, 1.5, 0.1, 16.123456789, 1.0 / 3, 1234567.89, 0.0123456789, 3.40282e+38} {
			list = append(list, ledger.Inventory{Class: classes[i], Total: 1000, MinUnit: 1, MaxUnit: 1000,
				StepSize: 1, AllocationRatio: ratio})
		}
		testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error {
			p, _ := tx.Provider("shared")
			_, err := tx.SetInventories("shared", p.Generation, list)
			return err
		})).Or(t)
		shown := l.Current()
		closeLedger(t, l)
		other := open(t, name)
		defer closeLedger(t, other)
		same(t, "the server that wrote -, the other +", shown, other.Current())
	}
	each(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		prepare(t, name)
		check(t, name)
		if e.name == "mariadb" {
			name := e.fresh(t)
			prepare(t, name)
			execute(t, name, "ALTER TABLE inventories MODIFY allocation_ratio FLOAT NOT NULL")
			check(t, name)
		}
	})
}
