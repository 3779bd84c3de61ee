// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/placementtest"
)

// TestBatches: of random writes that share commits, which are written in an order of their own, the
// database has what the server shows.
func TestBatches(t *testing.T) {
	rounds(t, func(rt *rapid.T, e engine, name string) {
		l := open(rt, name)
		model := placementtest.NewModel()
		for _, op := range placementtest.SetupOps() {
			model.Apply(op)
			if _, err := l.Update(ctx, op.Run); err != nil {
				rt.Fatal(err)
			}
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
