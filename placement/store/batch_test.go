// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBatches: of random writes that share commits, which are written in an order of their own, the
// database has what the server shows.
func TestBatches(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rounds(t, func(rt *rapid.T, e testEngine, name string) {
		l := open(rt, name)
		model := placementtest.NewModel()
		for _, op := range placementtest.SetupOps() {
			model.Apply(op)
			testproc.Try(l.Update(ctx, op.Run)).Or(rt)
		}
		for range 3 {
			var ops []placementtest.Op
			for range rapid.IntRange(2, 30).Draw(rt, "writes") {
				op := placementtest.DrawOp(rt, model)
				model.Apply(op) // what it says is not compared: the order is not known
				ops = append(ops, op)
			}
			var running sync.WaitGroup
			begun, release := make(chan struct{}), make(chan struct{})
			first := true
			running.Go(func() {
				_, _ = l.Update(ctx, func(*ledger.Tx) error { // changes nothing
					if first {
						first = false
						close(begun)
						<-release
					}
					return nil
				})
			})
			<-begun
			errs := make([]error, len(ops))
			for i, op := range ops {
				running.Go(func() { _, errs[i] = l.Update(ctx, op.Run) })
			}
			close(release)
			running.Wait()
			for i, err := range errs {
				if err != nil && ledger.KindOf(err) == 0 {
					rt.Fatalf("%+v: %v", ops[i], err)
				}
			}
		}
		shown := l.Current()
		closeLedger(rt, l)
		last := open(rt, name)
		defer closeLedger(rt, last)
		same(rt, "shown -, loaded +", shown, last.Current())
	})
}

// TestSeveralRows: each kind of change that is written for many rows at once is written for two.
func TestSeveralRows(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testEngine) {
		testproc.Parallel(t, testproc.Light)
		name := e.fresh(t)
		l := open(t, name)
		uuids := []string{"a", "b"}
		update := func(f func(tx *ledger.Tx, uuid string) error) {
			t.Helper()
			testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error {
				return errors.Join(f(tx, uuids[0]), f(tx, uuids[1]))
			})).Or(t)
		}
		vcpus := func(total int64) ledger.Inventory {
			return ledger.Inventory{Class: "VCPU", Total: total, MinUnit: 1, MaxUnit: total,
				StepSize: 1, AllocationRatio: 1.5}
		}
		claim := func(project string, amount int64, generation *int64) func(*ledger.Tx, string) error {
			return func(tx *ledger.Tx, uuid string) error {
				return tx.ReplaceAllocations([]ledger.ConsumerAllocations{{
					Consumer: "of-" + uuid, CheckGeneration: true, Generation: generation, Project: project, User: "u",
					Resources: providertree.ProviderResources{uuid: {"VCPU": amount}},
				}})
			}
		}
		update(func(tx *ledger.Tx, uuid string) error {
			_, err := tx.CreateProvider(ledger.NewProvider{UUID: uuid, Name: uuid})
			return err
		})
		update(func(tx *ledger.Tx, uuid string) error { _, err := tx.AddInventory(uuid, vcpus(8)); return err })
		update(claim("p", 1, nil))
		generation := int64(1)
		update(claim("p", 2, &generation))
		generation = 2
		update(claim("q", 3, &generation))
		update(func(tx *ledger.Tx, uuid string) error { _, err := tx.SetInventory(uuid, 4, vcpus(16)); return err })
		wrote := l.Current()
		closeLedger(t, l)
		loaded := open(t, name)
		defer closeLedger(t, loaded)
		same(t, "the server that wrote -, what is in the database +", wrote, loaded.Current())
		for _, uuid := range uuids {
			c, _ := loaded.Current().Consumer("of-" + uuid)
			if p, _ := loaded.Current().Provider(uuid); c == nil || c.Project != "q" || c.Generation != 3 ||
				loaded.Current().Used(p, "VCPU") != 3 {
				t.Errorf("consumer of %s: %+v", uuid, c)
			}
		}
	})
}
