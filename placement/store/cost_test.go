// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRoundTrips: a commit asks the server as often for many writes as for one, but for what one
// write does not have two of.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	const hosts = 64
	host := func(i int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", i) }
	eachShared(t, func(t *testing.T, e testEngine) {
		testproc.Parallel(t, testproc.Light)
		proxy := dbservers.NewProxy(t, e.fresh(t))
		l := open(t, proxy.DSN)
		defer closeLedger(t, l)
		update := func(fn func(tx *ledger.Tx) error) {
			t.Helper()
			if _, err := l.Update(ctx, fn); err != nil {
				t.Error(err)
			}
		}
		update(func(tx *ledger.Tx) error {
			for i := range hosts {
				if _, err := tx.CreateProvider(ledger.NewProvider{UUID: host(i), Name: host(i)}); err != nil {
					return err
				}
				for _, class := range []string{"VCPU", "MEMORY_MB", "DISK_GB"} {
					inventory := ledger.Inventory{Class: class, Total: 1 << 20, MinUnit: 1, MaxUnit: 1 << 20,
						StepSize: 1, AllocationRatio: 1}
					if _, err := tx.AddInventory(host(i), inventory); err != nil {
						return err
					}
				}
			}
			return nil
		})
		// together runs the writes in one commit, and returns the round trips of it.
		together := func(writes int, fn func(tx *ledger.Tx, i int) error) int {
			t.Helper()
			if (l.Current().Version()+1)%256 == 0 { // that commit prunes the changes, too
				update(func(tx *ledger.Tx) error {
					_, _, err := tx.CreateTrait(fmt.Sprint("CUSTOM_", l.Current().Version()))
					return err
				})
			}
			proxy.Trips()
			var running sync.WaitGroup
			begun, release := make(chan struct{}), make(chan struct{})
			first := true
			running.Go(func() {
				update(func(*ledger.Tx) error { // changes nothing
					if first {
						first = false
						close(begun)
						<-release
					}
					return nil
				})
			})
			<-begun
			before := l.Current().Version()
			for i := range writes {
				running.Go(func() { update(func(tx *ledger.Tx) error { return fn(tx, i) }) })
			}
			testproc.Eventually(t, time.Minute,
				"all writes wait", testproc.True(func() bool { return l.Waiting() == writes }))
			close(release)
			running.Wait()
			if n := l.Current().Version() - before; n != 1 {
				t.Fatalf("%d commits", n)
			}
			trips := proxy.Trips()
			if len(trips) != 1 {
				t.Fatalf("round trips: %v", trips)
			}
			return trips[0]
		}
		total := int64(1000)
		inventories := func(tx *ledger.Tx, i int) error {
			p, _ := tx.Provider(host(i))
			inventory := ledger.Inventory{Class: "VCPU",
				Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
			_, err := tx.SetInventory(p.UUID, p.Generation, inventory)
			return err
		}
		round := 0
		allocate := func(amount int64) func(tx *ledger.Tx, i int) error {
			return func(tx *ledger.Tx, i int) error {
				consumer := fmt.Sprintf("%04d-%031d", round, i)
				a := ledger.ConsumerAllocations{Consumer: consumer, Project: "q", User: "u"}
				if amount > 0 {
					a.Resources =
						providertree.ProviderResources{host(i): {"VCPU": amount,
							"MEMORY_MB": amount, "DISK_GB": amount}}
				}
				return tx.ReplaceAllocations([]ledger.ConsumerAllocations{a})
			}
		}
		cases := []struct {
			name  string
			trips []int // with 1, 7 and 33 writes
			fn    func(tx *ledger.Tx, i int) error
		}{
			{"inventories", []int{6, 6, 6}, inventories},
			{"claim", []int{7, 7, 7}, allocate(1)},
			{"replace", []int{8, 8, 8}, allocate(2)},
			{"release", []int{7, 7, 7}, allocate(0)},
		}
		got := make([][]int, len(cases))
		for _, writes := range []int{1, 7, 33} {
			for try := range 2 { // the first prepares statements
				round++
				total++
				for i, c := range cases {
					if n := together(writes, c.fn); try == 1 {
						got[i] = append(got[i], n)
					}
				}
			}
		}
		for i, c := range cases {
			if !slices.Equal(got[i], c.trips) {
				t.Errorf("%s: a commit of 1, 7 and 33 writes takes %v round trips, not %v", c.name, got[i], c.trips)
			}
		}
		// More rows than one statement takes: 2,100 allocations are two of them.
		if n := together(1, func(tx *ledger.Tx, _ int) error {
			var all []ledger.ConsumerAllocations
			for i := range 700 {
				all = append(all,
					ledger.ConsumerAllocations{Consumer: fmt.Sprintf("many-%031d", i), Project: "q", User: "u",
						Resources: providertree.ProviderResources{host(i % hosts): {"VCPU": 1,
							"MEMORY_MB": 1, "DISK_GB": 1}}})
			}
			return tx.ReplaceAllocations(all)
		}); n != 8 {
			t.Errorf("700 claims in one write take %d round trips, not 8", n)
		}
		shown := l.Current()
		last := open(t, proxy.DSN)
		defer closeLedger(t, last)
		same(t, "shown -, loaded +", shown, last.Current())
	})
}
