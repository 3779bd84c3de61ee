// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func hosts(b *testing.B, n int) *transactor.Ledger {
	b.Helper()
	l := open(b, new(placementtest.MemoryStore))
	if _, err := l.Update(ctx, func(tx *ledger.Tx) error {
		for i := range n {
			if err := create(fmt.Sprintf("%036d", i))(tx); err != nil {
				return err
			}
			if _, err := tx.AddInventory(fmt.Sprintf("%036d", i), inventory("VCPU", 1<<30)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkUpdate is the ledger's own part of one write, without a store, at
// two sizes: it must not grow with the number of providers.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		l := hosts(b, n)
		b.Run(fmt.Sprint("inventory/", n, "providers"), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error {
					p, _ := tx.Provider(fmt.Sprintf("%036d", i%n))
					_, err := tx.SetInventory(p.UUID, p.Generation, inventory("VCPU", int64(1000+i)))
					return err
				})).Or(b)
			}
		})
		b.Run(fmt.Sprint("claim/", n, "providers"), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error {
					return tx.ReplaceAllocations(
						[]ledger.ConsumerAllocations{claim(fmt.Sprintf("c%035d", i),
							resources{fmt.Sprintf("%036d", i%n): {"VCPU": 1}})})
				})).Or(b)
			}
		})
	}
}

// BenchmarkProvider is a look-up by uuid among 100,000.
func BenchmarkProvider(b *testing.B) {
	s := hosts(b, 100_000).Current()
	uuids := make([]string, 0, 100_000)
	for p := range s.Providers() {
		uuids = append(uuids, p.UUID)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := s.Provider(uuids[i%len(uuids)]); !ok {
			b.Fatal("lost")
		}
	}
}
