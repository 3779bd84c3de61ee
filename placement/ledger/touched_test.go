// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// replica is a copy of a ledger that only learns what transactions touched.
type replica struct {
	providers       map[string]*ledger.Provider
	consumers       map[string]*ledger.Consumer
	classes, traits map[string]bool
	hosts           map[string]*ledger.Host
}

func newReplica() replica {
	return replica{map[string]*ledger.Provider{}, map[string]*ledger.Consumer{}, map[string]bool{},
		map[string]bool{}, map[string]*ledger.Host{}}
}

func (r replica) apply(t ledger.Touched) {
	for _, e := range t.Providers {
		if e.Before != nil {
			delete(r.providers, e.Before.UUID)
		}
		if e.After != nil {
			r.providers[e.After.UUID] = e.After
		}
	}
	for _, e := range t.Consumers {
		if e.After == nil {
			delete(r.consumers, e.Before.UUID)
		} else {
			r.consumers[e.After.UUID] = e.After
		}
	}
	for _, e := range t.Hosts {
		r.hosts[e.After.Name] = e.After
	}
	for _, e := range t.Traits {
		if e.Before != nil {
			delete(r.traits, e.Before.Name)
		}
		if e.After != nil {
			r.traits[e.After.Name] = true
		}
	}
	for _, e := range t.Classes {
		if e.Before != nil {
			delete(r.classes, e.Before.Name)
		}
		if e.After != nil {
			r.classes[e.After.Name] = true
		}
		if e.Before != nil && e.After != nil {
			r.rename(e.Before.Name, e.After.Name)
		}
	}
}

// rename writes the new name of a class wherever it is used.
func (r replica) rename(was, is string) {
	for uuid, p := range r.providers {
		now := *p
		now.Inventories = slices.Clone(p.Inventories)
		for i := range now.Inventories {
			if now.Inventories[i].Class == was {
				now.Inventories[i].Class = is
			}
		}
		r.providers[uuid] = &now
	}
	for uuid, c := range r.consumers {
		now := *c
		now.Allocations = slices.Clone(c.Allocations)
		for i := range now.Allocations {
			if now.Allocations[i].Class == was {
				now.Allocations[i].Class = is
			}
		}
		r.consumers[uuid] = &now
	}
}

// dump shows the replica as far as a Dump has it.
func (r replica) dump() placementtest.Dump {
	d := placementtest.Dump{Providers: map[string]placementtest.ProviderDump{},
		Consumers: map[string]placementtest.ConsumerDump{},
		Hosts:     map[string]placementtest.HostDump{}}
	for name, h := range r.hosts {
		d.Hosts[name] = placementtest.HostDump{Since: h.Since, Classes: h.Classes, Traits: h.Traits}
	}
	for uuid, p := range r.providers {
		shown := placementtest.ProviderDump{Name: p.Name, Parent: p.Parent, Root: p.Root, Generation: p.Generation,
			Traits: p.Traits, Aggregates: p.Aggregates,
			Inventories: map[string]placementtest.InventoryDump{}}
		for _, i := range p.Inventories {
			shown.Inventories[i.Class] = placementtest.InventoryDump{Total: i.Total, Reserved: i.Reserved,
				MinUnit: i.MinUnit, MaxUnit: i.MaxUnit, StepSize: i.StepSize, Ratio: i.AllocationRatio}
		}
		d.Providers[uuid] = shown
	}
	for uuid, c := range r.consumers {
		shown := placementtest.ConsumerDump{Generation: c.Generation, Project: c.Project, User: c.User, Type: c.Type,
			Allocations: providertree.ProviderResources{}}
		for _, a := range c.Allocations {
			if shown.Allocations[a.Provider] == nil {
				shown.Allocations[a.Provider] = map[string]int64{}
			}
			shown.Allocations[a.Provider][a.Class] = a.Used
		}
		d.Consumers[uuid] = shown
	}
	d.Classes, d.Traits = slices.Sorted(maps.Keys(r.classes)), slices.Sorted(maps.Keys(r.traits))
	return d
}

// TestTouchedIsAllThatChanged: along a random history through two servers, which run functions
// again when the other was first, a replica that learns only what the committed transactions
// touched shows the same as the ledger. What each edit says was before is what the replica has.
func TestTouchedIsAllThatChanged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		db := placementtest.NewRowStore(ledger.State{})
		servers := []*transactor.Ledger{open(t, db), open(t, db)}
		model, copied := placementtest.NewModel(), newReplica()
		do := func(op placementtest.Op) {
			l := servers[rapid.IntRange(0, 1).Draw(rt, "server")]
			var touched ledger.Touched
			var base placementtest.Dump
			outcomes := 0
			_, err := l.Update(context.Background(), func(tx *ledger.Tx) error {
				if err := op.Run(tx); err != nil {
					return err
				}
				seen := tx.Touched()
				var err error
				if base, err = placementtest.DumpOf(tx.Base()); err != nil {
					return err
				}
				tx.OnOutcome(func(err error) {
					if err != nil {
						rt.Errorf("%+v: outcome %v", op, err)
					}
					touched = seen
					outcomes++
				})
				return nil
			})
			before := model.Dump()
			model.Apply(op)
			if err != nil && outcomes != 0 || outcomes > 1 {
				rt.Fatalf("%+v answered %v and had %d outcomes", op, err, outcomes)
			}
			if diff := cmp.Diff(before, base, cmpopts.EquateEmpty()); err == nil && diff != "" {
				rt.Fatalf("%+v: the base is not the state before: model -, base +\n%s", op, diff)
			}
			check(rt, copied, touched)
			copied.apply(touched)
			want := model.Dump()
			for uuid, p := range want.Providers {
				p.Used, p.Consumers, p.Children = nil, nil, nil
				want.Providers[uuid] = p
			}
			want.Members, want.Traited, want.Offering = nil, nil, nil
			if diff := cmp.Diff(want, copied.dump(), cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("after %+v (%v): model -, replica +\n%s", op, err, diff)
			}
		}
		for _, op := range placementtest.SetupOps() {
			do(op)
		}
		for range rapid.IntRange(10, 40).Draw(rt, "writes") {
			do(placementtest.DrawOp(rt, model))
		}
	})
}

// check compares what edits say was before with what the replica has.
func check(t rapid.TB, r replica, touched ledger.Touched) {
	t.Helper()
	for _, e := range touched.Providers {
		if e.Before != nil &&
			(r.providers[e.Before.UUID] == nil || r.providers[e.Before.UUID].Generation != e.Before.Generation) {
			t.Fatalf("provider %+v was not there before", e.Before)
		}
		if e.Before == nil && r.providers[e.After.UUID] != nil {
			t.Fatalf("provider %s was there before", e.After.UUID)
		}
	}
	for _, e := range touched.Consumers {
		if e.Before != nil &&
			(r.consumers[e.Before.UUID] == nil || r.consumers[e.Before.UUID].Generation != e.Before.Generation) {
			t.Fatalf("consumer %+v was not there before", e.Before)
		}
		if e.Before == nil && r.consumers[e.After.UUID] != nil {
			t.Fatalf("consumer %s was there before", e.After.UUID)
		}
	}
}

// TestTouchedLeavesOutWhatCameAndWent: a transaction that undoes what it did touches nothing.
func TestTouchedLeavesOutWhatCameAndWent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := open(t, new(placementtest.MemoryStore))
	_, err := l.Update(t.Context(), func(tx *ledger.Tx) error {
		if err := create("p")(tx); err != nil {
			return err
		}
		if err := tx.DeleteProvider("p"); err != nil {
			return err
		}
		if got := tx.Touched(); len(got.Providers) != 0 {
			t.Errorf("touched %+v", got)
		}
		return nil
	})
	testproc.Check(t, err)
}
