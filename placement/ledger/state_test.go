// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ctx = context.Background()

func create(name string) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		_, err := tx.CreateProvider(ledger.NewProvider{UUID: name, Name: name})
		return err
	}
}

// TestSwallowedError: a reshape that failed midway cannot be applied by a
// function that hides it.
func TestSwallowedError(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := open(t, new(placementtest.MemoryStore))
	_, err := l.Update(ctx, func(tx *ledger.Tx) error {
		if err := create("p")(tx); err != nil {
			return err
		}
		_ = tx.Reshape(ledger.Reshape{
			Inventories: map[string]ledger.ProviderInventories{"p": {Inventories: []ledger.Inventory{inventory(
				"VCPU", 1)}}},
			Allocations: []ledger.ConsumerAllocations{{Consumer: "c", Project: "q", User: "u",
				Resources: providertree.ProviderResources{"p": {"VCPU": 2}}}},
		})
		return nil
	})
	if ledger.KindOf(err) != ledger.AllocationConstraint {
		t.Errorf("got %v, want the reshape's own error", err)
	}
	testproc.Equal(t, l.Current().ProviderCount(), 0, "%d providers were applied")
}

func TestBadState(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, state := range map[string]ledger.State{
		"missing parent": {Providers: []ledger.ProviderRow{{ID: 1, UUID: "a", Parent: 2}}},
		"loop": {Providers: []ledger.ProviderRow{{ID: 1, UUID: "a", Parent: 2},
			{ID: 2, UUID: "b", Parent: 1}}},
		"missing class": {Providers: []ledger.ProviderRow{{ID: 1, UUID: "a"}},
			Inventories: []ledger.InventoryRow{{Provider: 1, Class: 10000}}},
		"missing trait": {Providers: []ledger.ProviderRow{{ID: 1, UUID: "a"}},
			ProviderTraits: []ledger.LinkRow{{Provider: 1, Target: 1}}},
		"missing project": {Consumers: []ledger.ConsumerRow{{ID: 1, UUID: "c", Project: 1, User: 1}}},
		"missing type": {Projects: []ledger.NamedRow{{ID: 1, Name: "q"}}, Users: []ledger.NamedRow{{ID: 1, Name: "u"}},
			Consumers: []ledger.ConsumerRow{{ID: 1, UUID: "c", Project: 1, User: 1, Type: 1}}},
		"host without its name": {Hosts: []ledger.HostRow{{ID: 1, Kind: ledger.HostClass, Name: "VCPU", Amount: 1}}},
		"lost allocation":       {Allocations: []ledger.AllocationRow{{Provider: 1, Consumer: "c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := transactor.Open(ctx, &placementtest.MemoryStore{State: state},
				transactor.Options{}); !errors.Is(err, ledger.ErrBadState) {
				t.Errorf("got %v, want ErrBadState", err)
			}
		})
	}
}

// TestNamesOfHosts: a name that a database cannot store, or that is empty, is refused; what an
// earlier version stored without a name does not keep the ledger from opening, nor from writing.
func TestNamesOfHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	store := &placementtest.MemoryStore{State: ledger.State{Hosts: []ledger.HostRow{
		{ID: 1, Kind: ledger.HostItself}, {ID: 1, Kind: ledger.HostClass, Name: "VCPU", Amount: 1},
		{ID: 2, Kind: ledger.HostItself, Name: "a\x01"},
	}}}
	l := testproc.Try(transactor.Open(ctx, store, transactor.Options{})).Or(t)
	defer func() { testproc.NoError(t, l.Close()) }()
	for _, name := range []string{"", "a\xff", "a\x00", "a\n", "\x7f"} {
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			_, err := tx.SetHost(ledger.Host{Name: name})
			return err
		})
		if refused := new(ledger.Error); !errors.As(err, &refused) || refused.Kind != ledger.InvalidName {
			t.Errorf("%q: got %v, want InvalidName", name, err)
		}
	}
	must(t, l, func(tx *ledger.Tx) error {
		h, err := tx.SetHost(ledger.Host{Name: "h"})
		if err == nil && h.ID != 3 {
			t.Errorf("the host has the ID %d, want 3", h.ID)
		}
		return err
	})
}

// TestNamesThatAreOneAlready: two providers whose names differ only in spaces at the end, of a
// database of an older version, are found by their own names, and by others the first one. Neither
// gets a name that is the other's.
func TestNamesThatAreOneAlready(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, names := range [][]string{{"node", "node "}, {"node ", "node  "}, {"node  ", "node"}} {
		store := &placementtest.MemoryStore{State: ledger.State{Providers: []ledger.ProviderRow{
			{ID: 1, UUID: "a", Name: names[0], Root: 1}, {ID: 2, UUID: "b", Name: names[1], Root: 2},
		}}}
		l := testproc.Try(transactor.Open(ctx, store, transactor.Options{})).Or(t)
		found := func(name, uuid string) {
			t.Helper()
			if p, ok := l.Current().ProviderByName(name); (uuid != "") != ok || ok && p.UUID != uuid {
				t.Errorf("with %q, %q is found as %+v", names, name, p)
			}
		}
		rename := func(uuid, to string) error {
			_, err := l.Update(ctx, func(tx *ledger.Tx) error {
				_, err := tx.UpdateProvider(uuid, ledger.ProviderUpdate{Name: to})
				return err
			})
			return err
		}
		found(names[0], "a")
		found(names[1], "b")
		for _, uuid := range []string{"a", "b"} {
			for _, name := range []string{"node", "node ", "node  ", "node   "} {
				if name == names[map[string]int{"a": 0, "b": 1}[uuid]] {
					continue
				}
				if err := rename(uuid, name); ledger.KindOf(err) != ledger.DuplicateName {
					t.Errorf("with %q, rename %s to %q: %v", names, uuid, name, err)
				}
			}
		}
		testproc.Check(t, rename("a", "other"))
		testproc.Check(t, rename("b", "node   "))
		found(names[0], "b")
		found("node     ", "b")
		_, err := l.Update(ctx, func(tx *ledger.Tx) error { return tx.DeleteProvider("b") })
		testproc.Check(t, err)
		found("node", "")
		found("node   ", "")
		testproc.Check(t, l.Close())
	}
}
