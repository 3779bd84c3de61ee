// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// edited is a database whose deltas are changed on the way.
type edited struct {
	*placementtest.RowStore
	edit func(*ledger.Delta) error
}

func (e edited) Changes(ctx context.Context, since int64) (*ledger.Delta, error) {
	delta, err := e.RowStore.Changes(ctx, since)
	return delta, errors.Join(err, e.edit(delta))
}

// follows are the commits of other servers that a ledger has read.
type follows []transactor.Follow

func (f *follows) Committed(transactor.Commit)    {}
func (f *follows) Followed(one transactor.Follow) { *f = append(*f, one) }

// TestRefresh: a delta that does not fit the snapshot makes a server load everything; after one
// that does, it has loaded nothing. Either way it shows what the database has. There is a root
// with a child and a grandchild; another server renamed the root.
func TestRefresh(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type delta = *ledger.Delta
	for _, tc := range []struct {
		name  string
		whole bool
		edit  func(d delta)
	}{
		{"as it is", false, func(delta) {}},
		{"a provider, a consumer, a class and a trait came and went", false, func(d delta) {
			d.ProviderIDs, d.ConsumerIDs = append(d.ProviderIDs, 99), append(d.ConsumerIDs, 99)
			d.ClassIDs, d.TraitIDs = append(d.ClassIDs, 10099), append(d.TraitIDs, 9999)
		}},
		{"a class has another name", true, func(d delta) {
			d.ClassIDs, d.Classes = []int64{10000}, []ledger.NamedRow{{ID: 10000, Name: "CUSTOM_B"}}
		}},
		{"a trait has another name", true, func(d delta) {
			d.TraitIDs, d.Traits = []int64{1}, []ledger.NamedRow{{ID: 1, Name: "CUSTOM_B"}}
		}},
		{"a parent does not exist", true, func(d delta) { d.Providers[0].Parent = 99 }},
		{"a parent is below", true, func(d delta) { d.Providers[0].Parent = 2 }},
		{"a parent is below in the delta", true, func(d delta) {
			d.ProviderIDs = append(d.ProviderIDs, 4, 5)
			d.Providers = append(d.Providers, ledger.ProviderRow{ID: 4, UUID: "x", Name: "x", Parent: 5},
				ledger.ProviderRow{ID: 5, UUID: "y", Name: "y", Parent: 4})
		}},
		{"a parent is not named as changed", true, func(d delta) {
			d.ProviderIDs = append(d.ProviderIDs, 4)
			d.Providers = append(d.Providers, ledger.ProviderRow{ID: 4, UUID: "x", Name: "x", Parent: 5},
				ledger.ProviderRow{ID: 5, UUID: "y", Name: "y"})
		}},
		{"a root is not named as changed", true, func(d delta) {
			d.ProviderIDs = append(d.ProviderIDs, 4)
			d.Providers = append(d.Providers, ledger.ProviderRow{ID: 4, UUID: "x", Name: "x", Parent: 2},
				ledger.ProviderRow{ID: 2, UUID: "child", Name: "child"})
		}},
		{"the root is gone", true, func(d delta) { d.Providers = nil }},
		{"a parent is gone", true, func(d delta) { d.ProviderIDs = append(d.ProviderIDs, 2) }},
		{"an inventory of no class", true,
			func(d delta) { d.Inventories = []ledger.InventoryRow{{Provider: 1, Class: 10099}} }},
		{"an inventory of no provider", true, func(d delta) { d.Inventories = []ledger.InventoryRow{{Provider: 99}} }},
		{"no trait", true, func(d delta) { d.ProviderTraits = []ledger.LinkRow{{Provider: 1, Target: 9999}} }},
		{"no aggregate", true, func(d delta) { d.ProviderAggregates = []ledger.LinkRow{{Provider: 1, Target: 9}} }},
		{"an allocation of no provider", true,
			func(d delta) { d.Allocations = []ledger.AllocationRow{{Provider: 99, Consumer: "c", Used: 1}} }},
		{"what a host may report came and went", false, func(d delta) { d.HostIDs = []int64{9} }},
		{"what a host may report, without its name", true, func(d delta) {
			d.HostIDs, d.Hosts = []int64{9}, []ledger.HostRow{{ID: 9, Kind: ledger.HostClass, Name: "VCPU", Amount: 1}}
		}},
		{"a consumer of no project", true,
			func(d delta) { d.Consumers = []ledger.ConsumerRow{{ID: 1, UUID: "c", Project: 1, User: 1}} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seen follows
			db := placementtest.NewRowStore(ledger.State{})
			l, err := transactor.Open(ctx, edited{db, func(d delta) error { tc.edit(d); return nil }},
				transactor.Options{Observer: &seen})
			testproc.Check(t, err)
			defer func() { testproc.NoError(t, l.Close()) }()
			must(t, l, func(tx *ledger.Tx) error {
				_, _, err := tx.CreateClass("CUSTOM_A")
				for _, p := range []ledger.NewProvider{{UUID: "root", Name: "root"},
					{UUID: "child", Name: "child", Parent: "root"},
					{UUID: "grandchild", Name: "grandchild", Parent: "child"}} {
					_, err2 := tx.CreateProvider(p)
					err = errors.Join(err, err2)
				}
				return err
			})
			other := open(t, db)
			must(t, other, func(tx *ledger.Tx) error {
				_, err := tx.UpdateProvider("root", ledger.ProviderUpdate{Name: "renamed"})
				return err
			})
			loads := db.Loads
			s := snapshot(t, l)
			testproc.Equal(t, db.Loads != loads, tc.whole, "everything was loaded: %v")
			if want := (transactor.Follow{Versions: 1, Whole: tc.whole}); len(seen) != 1 ||
				seen[0].Versions != want.Versions || seen[0].Whole != want.Whole {
				t.Errorf("observed %+v, want %+v", seen, want)
			}
			if diff := cmp.Diff(placementtest.Rows(other.Current()), placementtest.Rows(s)); diff != "" {
				t.Errorf("the other server -, this one +\n%s", diff)
			}
			if _, err := placementtest.DumpOf(s); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRefreshMoves: what another server moved stands where it stands in the database. There are the
// roots a, with b and d, and e; c is below b.
func TestRefreshMoves(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	none := ""
	for name, move := range map[string]func(*ledger.Tx) error{
		"before its siblings":   moved("c", "a"),
		"below a later sibling": moved("b", "d"),
		"to another tree":       moved("b", "e"),
		"to a tree of its own":  func(tx *ledger.Tx) error { return reparent(tx, "b", &none) },
		"a root below another":  moved("a", "e"),
		"there and back": func(tx *ledger.Tx) error {
			return errors.Join(
				moved("b", "e")(tx), moved("b", "a")(tx))
		},
		"a child of one that was": func(tx *ledger.Tx) error {
			return errors.Join(moved("c", "a")(tx), tx.DeleteProvider("b"), moved("c", "d")(tx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := placementtest.NewRowStore(ledger.State{})
			server, other := open(t, db), open(t, db)
			must(t, server, func(tx *ledger.Tx) error {
				var errs []error
				for _, p := range []ledger.NewProvider{{UUID: "a"}, {UUID: "b", Parent: "a"}, {UUID: "c", Parent: "b"},
					{UUID: "d", Parent: "a"}, {UUID: "e"}} {
					p.Name = p.UUID
					_, err := tx.CreateProvider(p)
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
			snapshot(t, other)
			loads := db.Loads
			must(t, server, move)
			for where, s := range map[string]*ledger.Snapshot{"server": snapshot(t, server),
				"other server": snapshot(t, other)} {
				if _, err := placementtest.DumpOf(s); err != nil {
					t.Errorf("%s: %v", where, err)
				}
				if db.Loads != loads {
					t.Errorf("%s loaded everything", where)
				}
			}
			want := placementtest.Rows(open(t, db).Current())
			for where, l := range map[string]*transactor.Ledger{"server": server, "other server": other} {
				testproc.Samef(t, cmp.Diff(want, placementtest.Rows(l.Current())), "loaded -, %s +", where)
			}
		})
	}
}

func moved(uuid, parent string) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error { return reparent(tx, uuid, &parent) }
}

func reparent(tx *ledger.Tx, uuid string, parent *string) error {
	_, err := tx.UpdateProvider(uuid, ledger.ProviderUpdate{Parent: parent, AllowReparent: true})
	return err
}

// TestDeletedAndCreatedAgain: a class, a trait and a provider that were deleted are gone, and get
// new numbers when they are created again; another server sees either.
func TestDeletedAndCreatedAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, backwards := range []bool{false, true} {
		db := placementtest.NewRowStore(ledger.State{})
		db.Backwards = backwards
		server, other, late := open(t, db), open(t, db), open(t, db)
		createAll := func(tx *ledger.Tx) error {
			_, _, err := tx.CreateClass("CUSTOM_C")
			_, _, err2 := tx.CreateTrait("CUSTOM_T")
			return errors.Join(err, err2, create("p")(tx))
		}
		numbers := func(l *transactor.Ledger) [3]int64 {
			var out [3]int64
			s := snapshot(t, l)
			if c, ok := s.Class("CUSTOM_C"); ok {
				out[0] = c.ID
			}
			if trait, ok := s.Trait("CUSTOM_T"); ok {
				out[1] = trait.ID
			}
			if p, ok := s.Provider("p"); ok {
				out[2] = p.ID
			}
			return out
		}
		check := func(what string, want [3]int64, servers ...*transactor.Ledger) {
			for i, l := range servers {
				testproc.Equal(t, numbers(l), want, "newest first %v, server %d: %s: %v", backwards, i, what)
			}
		}
		trait := int64(len(ledger.StandardTraits()) + 1)
		must(t, server, createAll)
		check("created", [3]int64{10000, trait, 1}, server, other, late)
		must(t, server, func(tx *ledger.Tx) error {
			return errors.Join(tx.DeleteClass("CUSTOM_C"), tx.DeleteTrait("CUSTOM_T"), tx.DeleteProvider("p"))
		})
		check("deleted", [3]int64{}, server, other)
		must(t, server, createAll)
		check("created again", [3]int64{10001, trait + 1, 2}, server, other, late)
	}
}

// TestRefreshFails: a server that cannot read what others changed does not answer from old state.
func TestRefreshFails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	disk := errors.New("the disk is gone")
	db := placementtest.NewRowStore(ledger.State{})
	l := open(t, edited{db, func(*ledger.Delta) error { return disk }})
	must(t, open(t, db), create("a"))
	if s, err := l.Snapshot(ctx); !errors.Is(err, disk) || s != nil {
		t.Errorf("got %v, %v", s, err)
	}
	testproc.Try(l.Update(ctx, create("b"))).ErrorIs(t, disk, "a write: %v")
}
