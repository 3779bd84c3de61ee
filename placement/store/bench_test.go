// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func vcpus(total int64) ledger.Inventory {
	return ledger.Inventory{Class: "VCPU", Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
}

// hosts opens a ledger on a fresh database with n hosts of some VCPUs.
func hosts(b *testing.B, n int, e testEngine) *transactor.Ledger {
	b.Helper()
	l := open(b, e.fresh(b))
	b.Cleanup(func() { closeLedger(b, l) })
	if _, err := l.Update(ctx, func(tx *ledger.Tx) error {
		for i := range n {
			name := fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
			if _, err := tx.CreateProvider(ledger.NewProvider{UUID: name, Name: "host" + name}); err != nil {
				return err
			}
			if _, err := tx.AddInventory(name, vcpus(1<<30)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return l
}

// benchEach runs a benchmark on all engines.
func benchEach(b *testing.B, f func(b *testing.B, e testEngine)) {
	b.Helper()
	for _, e := range engines {
		b.Run(e.name, func(b *testing.B) { f(b, e) })
	}
}

func host0(i int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", i) }

// many runs do b.N times, by many clients.
func many(b *testing.B, l *transactor.Ledger, clients int, do func(i int) error) {
	b.Helper()
	start := l.Current().Version()
	var next atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/float64(l.Current().Version()-start), "writes/commit")
}

// BenchmarkUpdateInventory is a durable PUT of an inventory, by many clients: commits are shared.
func BenchmarkUpdateInventory(b *testing.B) {
	benchEach(b, func(b *testing.B, e testEngine) {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprint(clients, "clients"), func(b *testing.B) {
				l := hosts(b, 1000, e)
				many(b, l, clients, func(i int) error {
					_, err := l.Update(ctx, func(tx *ledger.Tx) error {
						p, _ := tx.Provider(host0(i % 1000))
						_, err := tx.SetInventory(p.UUID, p.Generation, vcpus(int64(1000+i)))
						return err
					})
					return err
				})
			})
		}
	})
}

// BenchmarkClaim is a durable PUT of a new consumer's allocations, by many clients: commits are
// shared.
func BenchmarkClaim(b *testing.B) {
	benchEach(b, func(b *testing.B, e testEngine) {
		for _, clients := range []int{1, 16, 64} {
			b.Run(fmt.Sprint(clients, "clients"), func(b *testing.B) {
				l := hosts(b, 1000, e)
				many(b, l, clients, func(i int) error {
					_, err := l.Update(ctx, func(tx *ledger.Tx) error {
						return tx.ReplaceAllocations(
							[]ledger.ConsumerAllocations{{Consumer: fmt.Sprintf("%036d", i), Project: "q",
								User: "u", CheckGeneration: true,
								Resources: providertree.ProviderResources{host0(i % 1000): {"VCPU": 1}}}})
					})
					return err
				})
			})
		}
	})
}

// BenchmarkSnapshot is the read side: asking for the newest state.
func BenchmarkSnapshot(b *testing.B) {
	benchEach(b, func(b *testing.B, e testEngine) {
		l := hosts(b, 10, e)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Snapshot(ctx); err != nil { // Try would cost a hundred times as much
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReshape moves the allocations of 1000 consumers on 100 trees from
// each root to two children, 3000 allocation rows, and back.
func BenchmarkReshape(b *testing.B) { benchEach(b, benchReshape) }

func benchReshape(b *testing.B, e testEngine) {
	const trees, consumers = 100, 1000
	l := hosts(b, trees, e)
	child := func(i, k int) string { return fmt.Sprintf("%08d-0000-4000-8000-%012d", i, k) }
	at := func(i int, split bool) providertree.ProviderResources {
		if split {
			return providertree.ProviderResources{child(i, 1): {"VCPU": 2},
				child(i, 2): {"VCPU": 2}, host0(i): {"MEMORY_MB": 1}}
		}
		return providertree.ProviderResources{host0(i): {"VCPU": 4, "MEMORY_MB": 1}}
	}
	memory := vcpus(1 << 30)
	memory.Class = "MEMORY_MB"
	reshape := func(tx *ledger.Tx, split bool) error {
		req := ledger.Reshape{Inventories: map[string]ledger.ProviderInventories{}}
		for i := range trees {
			for k := range 3 {
				uuid, list := host0(i), []ledger.Inventory{memory}
				if k > 0 {
					uuid, list = child(i, k), nil
				}
				if (k > 0) == split {
					list = append(list, vcpus(1<<30))
				}
				p, _ := tx.Provider(uuid)
				req.Inventories[uuid] = ledger.ProviderInventories{Generation: p.Generation, Inventories: list}
			}
		}
		for i := range consumers {
			req.Allocations = append(req.Allocations,
				ledger.ConsumerAllocations{Consumer: fmt.Sprintf("%036d", i), Project: "q", User: "u",
					Resources: at(i%trees, split)})
		}
		return tx.Reshape(req)
	}
	if _, err := l.Update(ctx, func(tx *ledger.Tx) error {
		for i := range trees {
			for k := range 2 {
				if _, err := tx.CreateProvider(
					ledger.NewProvider{UUID: child(i, k+1), Name: child(i, k+1), Parent: host0(i)}); err != nil {
					return err
				}
			}
		}
		return reshape(tx, false)
	}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error { return reshape(tx, i%2 == 0) })).Or(b)
	}
}

// BenchmarkLoad opens a database of 100,000 providers in trees of seven, each
// with an inventory, and 100,000 consumers of two allocations.
func BenchmarkLoad(b *testing.B) {
	const providers, consumers = 100_000, 100_000
	path := filepath.Join(b.TempDir(), "placement.db")
	l := open(b, path)
	uuid := func(i int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000001", i) }
	for from := 0; from < providers; from += 7000 {
		if _, err := l.Update(ctx, func(tx *ledger.Tx) error {
			for i := from; i < min(from+7000, providers); i++ {
				p := ledger.NewProvider{UUID: uuid(i), Name: uuid(i)}
				if i%7 != 0 {
					p.Parent = uuid(i - i%7)
				}
				if _, err := tx.CreateProvider(p); err != nil {
					return err
				}
				if _, err := tx.AddInventory(p.UUID, vcpus(1000)); err != nil {
					return err
				}
				if err := tx.ReplaceAllocations(
					[]ledger.ConsumerAllocations{{Consumer: fmt.Sprintf("%036d", i), Project: "q", User: "u",
						Resources: providertree.ProviderResources{uuid(i): {"VCPU": 1},
							uuid(i - i%7): {"VCPU": 1}}}}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	if n := l.Current().ProviderCount(); n != providers {
		b.Fatalf("%d providers", n)
	}
	closeLedger(b, l)
	b.ReportAllocs()
	for b.Loop() {
		closeLedger(b, open(b, path))
	}
	b.ReportMetric(float64(providers*2+consumers*3), "rows")
}
