// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func inventory(class string, total int64) ledger.Inventory {
	return ledger.Inventory{Class: class, Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
}

func claim(consumer string, resources providertree.ProviderResources) ledger.ConsumerAllocations {
	return ledger.ConsumerAllocations{Consumer: consumer, Project: "q", User: "u", Resources: resources}
}

type resources = providertree.ProviderResources

// TestGenerations says which generations each write moves, as OpenStack
// Placement 8.0.0 moves them. To begin with, provider a has generation 2 and
// is the parent of b, with 1; consumer c holds one VCPU of a and has 1.
func TestGenerations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	one, two, root := int64(1), int64(2), ""
	for _, tc := range []struct {
		name    string
		do      func(tx *ledger.Tx) error
		a, b, c int64 // generations afterwards; 0: gone
	}{
		{"rename", func(tx *ledger.Tx) error {
			_, err := tx.UpdateProvider("a", ledger.ProviderUpdate{Name: "other"})
			return err
		}, 2, 1, 1},
		{"move", func(tx *ledger.Tx) error {
			_, err := tx.UpdateProvider("b", ledger.ProviderUpdate{Parent: &root, AllowReparent: true})
			return err
		}, 2, 1, 1},
		{"set the same inventories", func(tx *ledger.Tx) error {
			_, err := tx.SetInventories("a", 2, []ledger.Inventory{inventory("VCPU", 4)})
			return err
		}, 3, 1, 1},
		{"delete no inventories", func(tx *ledger.Tx) error { return tx.DeleteInventories("b") }, 2, 2, 1},
		{"set traits", func(tx *ledger.Tx) error {
			_, err := tx.SetTraits("b", 1, []string{"COMPUTE_NODE"})
			return err
		}, 2, 2, 1},
		{"set no traits where there are none",
			func(tx *ledger.Tx) error { _, err := tx.SetTraits("b", 1, nil); return err }, 2, 1, 1},
		{"clear no traits", func(tx *ledger.Tx) error { return tx.ClearTraits("b") }, 2, 1, 1},
		{"set aggregates before 1.19",
			func(tx *ledger.Tx) error { _, err := tx.SetAggregates("b", nil, []string{"g"}); return err }, 2, 1, 1},
		{"set the same aggregates from 1.19",
			func(tx *ledger.Tx) error { _, err := tx.SetAggregates("b", &one, nil); return err }, 2, 2, 1},
		{"stale aggregates from 1.19", func(tx *ledger.Tx) error {
			if _, err := tx.SetAggregates("b", &two, nil); !errors.Is(err, ledger.ErrConflict) {
				return fmt.Errorf("got %w, want a conflict", err)
			}
			return nil
		}, 2, 1, 1},
		{"another claims", func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations(
				[]ledger.ConsumerAllocations{claim("d", resources{"a": {"VCPU": 1}, "b": {"DISK_GB": 1}})})
		}, 3, 2, 1},
		{"move away", func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c", resources{"b": {"DISK_GB": 1}})})
		}, 2, 2, 2},
		{"empty PUT", func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations(
				[]ledger.ConsumerAllocations{claim("c", nil)})
		}, 3, 1, 0},
		{"empty PUT of a consumer that is not there",
			func(tx *ledger.Tx) error { return tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("d", nil)}) },
			2, 1, 1},
		{"DELETE of allocations", func(tx *ledger.Tx) error { return tx.DeleteAllocations("c") }, 2, 1, 0},
		{"reshape of inventories alone", func(tx *ledger.Tx) error {
			return tx.Reshape(
				ledger.Reshape{Inventories: map[string]ledger.ProviderInventories{"b": {Generation: 1,
					Inventories: []ledger.Inventory{inventory("VCPU", 1)}}}})
		}, 2, 3, 1},
		{"reshape that moves all from a to b", func(tx *ledger.Tx) error {
			return tx.Reshape(ledger.Reshape{
				Inventories: map[string]ledger.ProviderInventories{"a": {Generation: 2},
					"b": {Generation: 1, Inventories: []ledger.Inventory{inventory("VCPU", 4)}}},
				Allocations: []ledger.ConsumerAllocations{claim("c", resources{"b": {"VCPU": 1}})},
			})
		}, 3, 4, 2},
		{"reshape with allocations of a provider that it does not reshape", func(tx *ledger.Tx) error {
			return tx.Reshape(ledger.Reshape{
				Inventories: map[string]ledger.ProviderInventories{"b": {Generation: 1,
					Inventories: []ledger.Inventory{inventory("VCPU", 4)}}},
				Allocations: []ledger.ConsumerAllocations{claim("c", resources{"a": {"VCPU": 1}, "b": {"VCPU": 1}})},
			})
		}, 3, 4, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := open(t, new(placementtest.MemoryStore))
			must(t, l, func(tx *ledger.Tx) error {
				for _, p := range []ledger.NewProvider{{UUID: "a", Name: "a"}, {UUID: "b", Name: "b", Parent: "a"}} {
					if _, err := tx.CreateProvider(p); err != nil {
						return err
					}
				}
				if _, err := tx.AddInventory("a", inventory("VCPU", 4)); err != nil {
					return err
				}
				if _, err := tx.AddInventory("b", inventory("DISK_GB", 4)); err != nil {
					return err
				}
				return tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c", resources{"a": {"VCPU": 1}})})
			})
			s := must(t, l, tc.do)
			got := map[string]int64{}
			for _, uuid := range []string{"a", "b"} {
				p, _ := s.Provider(uuid)
				got[uuid] = p.Generation
			}
			got["c"] = 0
			if c, ok := s.Consumer("c"); ok {
				got["c"] = c.Generation
			}
			if diff := cmp.Diff(map[string]int64{"a": tc.a, "b": tc.b, "c": tc.c}, got); diff != "" {
				t.Errorf("generations: want -, got +\n%s", diff)
			}
		})
	}
}

// TestRenameClass: the new name is in every inventory and allocation of the class, and in no other.
func TestRenameClass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := open(t, new(placementtest.MemoryStore))
	must(t, l, func(tx *ledger.Tx) error {
		_, _, err := tx.CreateClass("CUSTOM_A")
		errs := []error{err, create("a")(tx), create("b")(tx)}
		for _, provider := range []string{"a", "b"} {
			for _, class := range []string{"VCPU", "CUSTOM_A"} {
				_, err := tx.AddInventory(provider, inventory(class, 4))
				errs = append(errs, err)
			}
		}
		errs = append(errs,
			tx.ReplaceAllocations(
				[]ledger.ConsumerAllocations{claim(
					"c", resources{"a": {"VCPU": 1, "CUSTOM_A": 1}, "b": {"VCPU": 1, "CUSTOM_A": 1}})}))
		return errors.Join(errs...)
	})
	s := must(t, l, func(tx *ledger.Tx) error { return tx.RenameClass("CUSTOM_A", "CUSTOM_B") })
	var got []string
	for p := range s.Providers() {
		for _, inv := range p.Inventories {
			got = append(got, p.UUID+" has "+inv.Class)
		}
	}
	for c := range s.Consumers() {
		for _, a := range c.Allocations {
			got = append(got, c.UUID+" has "+a.Class+" of "+a.Provider)
		}
	}
	want := []string{"a has VCPU", "a has CUSTOM_B", "b has VCPU", "b has CUSTOM_B", "c has VCPU of a",
		"c has CUSTOM_B of a", "c has VCPU of b", "c has CUSTOM_B of b"}
	testproc.Same(t, cmp.Diff(want, got))
}

// TestChangeUUID: a provider below a root gets another uuid, and keeps all else: its generation,
// what it has, its child, and what consumers hold of it, one without a record among them. Another
// server loads everything, and shows the same.
func TestChangeUUID(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db := placementtest.NewRowStore(ledger.State{})
	must(t, open(t, db), func(tx *ledger.Tx) error {
		var errs []error
		note := func(err error) { errs = append(errs, err) }
		for _, p := range []ledger.NewProvider{{UUID: "a"},
			{UUID: "b", Parent: "a"}, {UUID: "c", Parent: "b"}, {UUID: "d", Parent: "a"}} {
			p.Name = "the " + p.UUID
			_, err := tx.CreateProvider(p)
			note(err)
		}
		for _, provider := range []string{"a", "b", "c"} {
			_, err := tx.AddInventory(provider, inventory("VCPU", 9))
			note(err)
		}
		one := int64(1)
		_, err := tx.SetAggregates("b", &one, []string{"g"})
		note(err)
		_, err = tx.SetTraits("b", 2, []string{"COMPUTE_NODE"})
		note(err)
		note(tx.ReplaceAllocations([]ledger.ConsumerAllocations{
			claim("guest", resources{"a": {"VCPU": 1}, "b": {"VCPU": 2}}), claim("other", resources{"c": {"VCPU": 3}}),
		}))
		return errors.Join(errs...)
	})
	class, _ := open(t, db).Current().Class("VCPU")
	stray := ledger.AllocationRow{Provider: 2, Class: class.ID, Consumer: "stray", Used: 1}
	db.AddOrphan(stray)

	server, follower := open(t, db), open(t, db)
	want := testproc.Try(placementtest.DumpOf(server.Current())).Or(t)
	loads := db.Loads
	old := snapshot(t, server)
	now := must(t, server, func(tx *ledger.Tx) error {
		p, err := tx.ChangeUUID("b", "z")
		if err == nil && (p.UUID != "z" || p.Generation != 4) {
			return fmt.Errorf("it is %+v", p)
		}
		return err
	})
	testproc.Equal(t, db.Loads, loads, "the server loaded everything: %d loads")
	for uuid, p := range want.Providers {
		if p.Parent == "b" {
			p.Parent = "z"
		}
		for i, child := range p.Children {
			if child == "b" {
				p.Children = append(slices.Delete(slices.Clone(p.Children), i, i+1), "z")
			}
		}
		delete(want.Providers, uuid)
		want.Providers[strings.Replace(uuid, "b", "z", 1)] = p
	}
	for _, lists := range []map[string][]string{want.Members, want.Traited, want.Offering} {
		for key, list := range lists {
			list = slices.Clone(list)
			for i, uuid := range list {
				list[i] = strings.Replace(uuid, "b", "z", 1)
			}
			lists[key] = list
		}
	}
	guest := want.Consumers["guest"].Allocations
	guest["z"] = guest["b"]
	delete(guest, "b")
	sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	for name, s := range map[string]*ledger.Snapshot{"the server": now, "another server": snapshot(t, follower),
		"loaded": open(t, db).Current()} {
		got := testproc.Try(placementtest.DumpOf(s)).Or(t)
		testproc.Samef(t, cmp.Diff(want, got, sorted, cmpopts.EquateEmpty()), "%s", name)
		testproc.Samef(t, cmp.Diff(placementtest.Rows(now), placementtest.Rows(s)), "the server -, %s +", name)
		if _, found := s.Provider("b"); found {
			t.Errorf("%s finds it by its old uuid", name)
		}
	}
	if p, found := old.Provider("b"); !found || p.Generation != 4 {
		t.Errorf("the state before has changed: %+v", p)
	}
	for name, want := range map[[2]string]ledger.Kind{
		{"a", "y"}: ledger.InvalidParent, {"b", "y"}: ledger.ProviderNotFound, {"c", "d"}: ledger.DuplicateUUID,
	} {
		_, err := server.Update(ctx, func(tx *ledger.Tx) error {
			_, err := tx.ChangeUUID(name[0], name[1])
			return err
		})
		testproc.Equal(t, ledger.KindOf(err), want, "%v to %v: %v", name[0], name[1])
	}
	// The stray consumer can write what it holds by the new uuid.
	must(t, server, func(tx *ledger.Tx) error {
		return tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("stray", resources{"z": {"VCPU": 2}})})
	})
}

func must(t *testing.T, l *transactor.Ledger, fn func(*ledger.Tx) error) *ledger.Snapshot {
	t.Helper()
	return testproc.Try(l.Update(ctx, fn)).Or(t)
}

// TestOverCommitted: provider a has 10 VCPU in use, 6 by c and 4 by d, and
// its inventory is then cut to 5.
func TestOverCommitted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cut := ledger.Inventory{Class: "VCPU", Total: 5, MinUnit: 1, MaxUnit: 6, StepSize: 1, AllocationRatio: 1}
	for _, tc := range []struct {
		name string
		list []ledger.ConsumerAllocations
		want ledger.Kind
	}{
		{"the same again", []ledger.ConsumerAllocations{claim("c", resources{"a": {"VCPU": 6}})}, 0},
		{"less", []ledger.ConsumerAllocations{claim("c", resources{"a": {"VCPU": 3}})}, 0},
		{"moved to another consumer",
			[]ledger.ConsumerAllocations{claim("c", nil), claim("e", resources{"a": {"VCPU": 6}})}, 0},
		{"one grows as the other shrinks",
			[]ledger.ConsumerAllocations{claim("c", resources{"a": {"VCPU": 5}}),
				claim("d", resources{"a": {"VCPU": 5}})}, 0},
		{"more", []ledger.ConsumerAllocations{claim("d", resources{"a": {"VCPU": 5}})}, ledger.CapacityExceeded},
		{"another", []ledger.ConsumerAllocations{claim("e", resources{"a": {"VCPU": 1}})}, ledger.CapacityExceeded},
		{"within its units only",
			[]ledger.ConsumerAllocations{claim("c", nil), claim("e", resources{"a": {"VCPU": 7}})},
			ledger.AllocationConstraint},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := open(t, new(placementtest.MemoryStore))
			must(t, l, func(tx *ledger.Tx) error {
				if err := create("a")(tx); err != nil {
					return err
				}
				if _, err := tx.AddInventory("a", inventory("VCPU", 10)); err != nil {
					return err
				}
				if err := tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c", resources{"a": {"VCPU": 6}}),
					claim("d", resources{"a": {"VCPU": 4}})}); err != nil {
					return err
				}
				_, err := tx.SetInventory("a", 2, cut)
				return err
			})
			_, err := l.Update(ctx, func(tx *ledger.Tx) error { return tx.ReplaceAllocations(tc.list) })
			if ledger.KindOf(err) != tc.want || tc.want == 0 && err != nil {
				t.Errorf("PUT: %v, want %q", err, tc.want)
			}
			l2 := l.Current()
			p, _ := l2.Provider("a")
			if tc.want != 0 && l2.Used(p, "VCPU") != 10 {
				t.Errorf("a refused write left %d in use", l2.Used(p, "VCPU"))
			}
		})
	}
}
