// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAllocationAmounts: the bounds of one amount, and new consumers of one write with IDs of their
// own.
func TestAllocationAmounts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := open(t, new(placementtest.MemoryStore))
	most := int64(providertree.MaxUnit)
	update := func(fn func(tx *ledger.Tx) error) (*ledger.Snapshot, error) { return l.Update(t.Context(), fn) }
	testproc.Try(update(func(tx *ledger.Tx) error {
		if _, err := tx.CreateProvider(ledger.NewProvider{UUID: "p", Name: "n"}); err != nil {
			return err
		}
		_, err := tx.SetInventories("p", 0, []ledger.Inventory{
			{Class: "DISK_GB", Total: most, MinUnit: 1, MaxUnit: most, StepSize: 1, AllocationRatio: 4},
		})
		return err
	})).Or(t)
	claim := func(consumer string, amount int64) ledger.ConsumerAllocations {
		return ledger.ConsumerAllocations{Consumer: consumer, Project: "q", User: "u",
			Resources: providertree.ProviderResources{"p": {"DISK_GB": amount}}}
	}
	for amount, want := range map[int64]ledger.Kind{0: ledger.InvalidAllocation, 1: 0, most: 0,
		most + 1: ledger.InvalidAllocation} {
		_, err := update(func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c", amount)})
		})
		if ledger.KindOf(err) != want || (err != nil) != (want != 0) {
			t.Errorf("%d: %v, want %v", amount, err, want)
		}
	}
	s := testproc.Try(update(func(tx *ledger.Tx) error {
		return tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c1", 1), claim("c2", 1), claim("c3", 1)})
	})).Or(t)
	ids := map[int64]string{}
	for c := range s.Consumers() {
		ids[c.ID] = c.UUID
	}
	if len(ids) != 4 {
		t.Errorf("the consumers by ID are %v", ids)
	}
}

// TestCapacity: of 10 VCPU, c has 3 and d has 2.
func TestCapacity(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := open(t, new(placementtest.MemoryStore))
	must(t, l, func(tx *ledger.Tx) error {
		if err := create("a")(tx); err != nil {
			return err
		}
		_, err := tx.AddInventory("a", inventory("VCPU", 10))
		return errors.Join(err,
			tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c", resources{"a": {"VCPU": 3}}),
				claim("d", resources{"a": {"VCPU": 2}})}))
	})
	for amount, want := range map[int64]ledger.Kind{8: 0, 9: ledger.CapacityExceeded} {
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			return cmp.Or(
				tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("c", resources{"a": {"VCPU": amount}})}),
				errUndo)
		})
		if ledger.KindOf(err) != want || want == 0 && !errors.Is(err, errUndo) {
			t.Errorf("c grows to %d: %v, want %q", amount, err, want)
		}
	}
}

// errUndo ends a transaction that is not to be applied.
var errUndo = errors.New("undo")

// TestOldRecords: a database of an old Placement has allocations without a consumer record, which
// count as used and are not shown, and records without allocations. Each write makes what is left
// of them whole, for the server that did it, for another one and in the database.
func TestOldRecords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	state := func() ledger.State {
		named := func(name string) []ledger.NamedRow { return []ledger.NamedRow{{ID: 1, Name: name}} }
		return ledger.State{
			Classes: []ledger.NamedRow{{ID: 0, Name: "VCPU"}}, Projects: named("q"), Users: named("u"),
			Providers: []ledger.ProviderRow{{ID: 1, UUID: "a", Name: "a", Root: 1}},
			Inventories: []ledger.InventoryRow{{Provider: 1, Total: 10, MinUnit: 1, MaxUnit: 10,
				StepSize: 1, AllocationRatio: 1}},
			Consumers: []ledger.ConsumerRow{{ID: 7, UUID: "idle", Generation: 4, Project: 1, User: 1}},
			Allocations: []ledger.AllocationRow{{Provider: 1, Consumer: "old1", Used: 1},
				{Provider: 1, Consumer: "old2", Used: 2}},
		}
	}
	none, four := ledger.ConsumerAllocations{CheckGeneration: true}, int64(4)
	put := func(consumer string, base ledger.ConsumerAllocations, held resources) func(*ledger.Tx) error {
		base.Consumer, base.Project, base.User, base.Resources = consumer, "q", "u", held
		return func(tx *ledger.Tx) error { return tx.ReplaceAllocations([]ledger.ConsumerAllocations{base}) }
	}
	five := resources{"a": {"VCPU": 5}}
	for _, tc := range []struct {
		name    string
		do      func(*ledger.Tx) error
		refused ledger.Kind
		used    int64
		missing int
		shown   map[string]int64 // generations
	}{
		{"nothing", func(*ledger.Tx) error { return nil }, 0, 3, 2, map[string]int64{}},
		{"the record gets allocations", put("idle", none, five), 0, 8, 2, map[string]int64{"idle": 1}},
		{"the record is expected", put("idle", ledger.ConsumerAllocations{CheckGeneration: true, Generation: &four},
			five), ledger.ConsumerGenerationConflict, 3, 2, map[string]int64{}},
		{"the record stays empty", put("idle", none, nil), 0, 3, 2, map[string]int64{}},
		{"the record has nothing to delete", func(tx *ledger.Tx) error { return tx.DeleteAllocations("idle") },
			ledger.AllocationNotFound, 3, 2, map[string]int64{}},
		{"the allocations are replaced", put("old2", none, five), 0, 6, 1, map[string]int64{"old2": 1}},
		{"the allocations are removed", put("old2", none, nil), 0, 1, 1, map[string]int64{}},
		{"the allocations are hidden", func(tx *ledger.Tx) error { return tx.DeleteAllocations("old1") },
			ledger.AllocationNotFound, 3, 2, map[string]int64{}},
		{"capacity", put("new", none, resources{"a": {"VCPU": 8}}), ledger.CapacityExceeded, 3, 2, map[string]int64{}},
		{"no record is added", adopt(-1, 0), 0, 3, 2, map[string]int64{}},
		{"one record is added", adopt(1, 1), 0, 3, 1, map[string]int64{"old1": 0}},
		{"all records are added", adopt(9, 2), 0, 3, 0, map[string]int64{"old1": 0, "old2": 0}},
		{"added and updated", func(tx *ledger.Tx) error {
			return cmp.Or(adopt(9, 2)(tx), put("old1", ledger.ConsumerAllocations{}, five)(tx))
		}, 0, 7, 0,
			map[string]int64{"old1": 1, "old2": 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db := placementtest.NewRowStore(state())
			server, other := open(t, db), open(t, db)
			if _, err := server.Update(ctx, tc.do); ledger.KindOf(err) != tc.refused || tc.refused == 0 && err != nil {
				t.Fatalf("%v, want %q", err, tc.refused)
			}
			loads := db.Loads
			snapshot(t, other)
			if db.Loads != loads {
				t.Error("the other server loaded everything again")
			}
			for where, l := range map[string]*transactor.Ledger{"server": server,
				"other server": other, "database": open(t, db)} {
				s := l.Current()
				if _, err := placementtest.DumpOf(s); err != nil {
					t.Errorf("%s: %v", where, err)
				}
				p, _ := s.Provider("a")
				if s.Used(p, "VCPU") != tc.used || s.MissingConsumers() != tc.missing {
					t.Errorf("%s: %d VCPU used and %d consumers missing, want %d and %d",
						where, s.Used(p, "VCPU"), s.MissingConsumers(), tc.used, tc.missing)
				}
				shown, on := map[string]int64{}, map[string]int64{}
				for c := range s.Consumers() {
					shown[c.UUID] = c.Generation
				}
				for _, c := range s.ConsumersOn("a") {
					on[c.UUID] = c.Generation
				}
				if !maps.Equal(shown, tc.shown) || !maps.Equal(on, tc.shown) {
					t.Errorf("%s: consumers %v, on the provider %v, want %v", where, shown, on, tc.shown)
				}
				if _, ok := s.Consumer("old1"); ok != hasKey(tc.shown, "old1") {
					t.Errorf("%s: consumer old1 is found: %v", where, ok)
				}
			}
		})
	}
}

// TestRenameClassOfOldRecords: allocations without a consumer record get the new name of their
// class as well, and another one in the same transaction.
func TestRenameClassOfOldRecords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	state := ledger.State{Classes: []ledger.NamedRow{{ID: 10000, Name: "CUSTOM_A"}},
		Providers:   []ledger.ProviderRow{{ID: 1, UUID: "a", Name: "a", Root: 1}},
		Inventories: []ledger.InventoryRow{{Provider: 1, Class: 10000, Total: 100}}}
	for i := range 100 {
		state.Allocations = append(state.Allocations,
			ledger.AllocationRow{Provider: 1, Class: 10000, Consumer: fmt.Sprint("old", i), Used: 1})
	}
	db := placementtest.NewRowStore(state)
	l := open(t, db)
	s := must(t, l, func(tx *ledger.Tx) error {
		return errors.Join(tx.RenameClass("CUSTOM_A", "CUSTOM_B"),
			tx.RenameClass("CUSTOM_B", "CUSTOM_C"), adopt(100, 100)(tx))
	})
	if diff := gocmp.Diff(placementtest.Rows(open(t, db).Current()), placementtest.Rows(s)); diff != "" {
		t.Errorf("loaded -, server +\n%s", diff)
	}
}

// TestChangesOfConsumers: a write that moves only the generation of a consumer does not write its
// owners and type, whose indexes a database would have to change.
func TestChangesOfConsumers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db := placementtest.NewRowStore(ledger.State{})
	l := open(t, db)
	vm := "VM"
	write := func(class, project string, kind *string) []string {
		t.Helper()
		must(t, l, func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations(
				[]ledger.ConsumerAllocations{{Consumer: "c", Project: project, User: "u", Type: kind,
					Resources: providertree.ProviderResources{"a": {class: 1}}}})
		})
		var kinds []string
		for _, c := range db.Commits[len(db.Commits)-1] {
			switch c.(type) {
			case ledger.InsertConsumer, ledger.UpdateConsumer, ledger.BumpConsumer:
				kinds = append(kinds, fmt.Sprintf("%T", c))
			}
		}
		return kinds
	}
	must(t, l, func(tx *ledger.Tx) error {
		_, err := tx.CreateProvider(ledger.NewProvider{UUID: "a", Name: "a"})
		for _, class := range []string{"VCPU", "MEMORY_MB"} {
			_, add := tx.AddInventory("a", ledger.Inventory{Class: class, Total: 8, MinUnit: 1, MaxUnit: 8,
				StepSize: 1, AllocationRatio: 1})
			err = errors.Join(err, add)
		}
		return err
	})
	for _, tc := range []struct {
		class, project string
		kind           *string
		want           string
	}{
		{"VCPU", "q", nil, "ledger.InsertConsumer"},
		{"MEMORY_MB", "q", nil, "ledger.BumpConsumer"},
		{"MEMORY_MB", "other", nil, "ledger.UpdateConsumer"},
		{"VCPU", "other", &vm, "ledger.UpdateConsumer"},
		{"MEMORY_MB", "other", &vm, "ledger.BumpConsumer"},
	} {
		if diff := gocmp.Diff([]string{tc.want}, write(tc.class, tc.project, tc.kind)); diff != "" {
			t.Errorf("%s of %s: -want +got:\n%s", tc.class, tc.project, diff)
		}
	}
	if diff := gocmp.Diff(placementtest.Rows(open(t, db).Current()), placementtest.Rows(l.Current())); diff != "" {
		t.Errorf("loaded -, server +\n%s", diff)
	}
}

// TestKeepGenerations: of the restricted providers, here b, the generation grows only of one on
// which an amount changes; a consumer that stays as it is keeps its generation, too. What
// is checked is checked all the same, and a reshape is as always.
func TestKeepGenerations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	two, vm := int64(2), "VM"
	all := resources{"a": {"VCPU": 1}, "b": {"VCPU": 1, "PCPU": 2}}
	onA := resources{"a": {"VCPU": 1}}
	owned := func(project string, kind *string) ledger.ConsumerAllocations {
		return ledger.ConsumerAllocations{Consumer: "x", Project: project, User: "u", Type: kind, Resources: all}
	}
	for _, tc := range []struct {
		name     string
		claim    ledger.ConsumerAllocations
		a, b, x  int64 // the generations after it, 0 for a consumer that is gone
		refused  ledger.Kind
		reshapes bool
	}{
		{name: "the same", claim: claim("x", all), a: 3, b: 4, x: 1},
		{name: "the same, with the type", claim: owned("q", &vm), a: 4, b: 4, x: 2},
		{name: "the same in a reshape", claim: claim("x", all), a: 4, b: 5, x: 2, reshapes: true},
		{name: "a generation that is wrong",
			claim: ledger.ConsumerAllocations{Consumer: "x", Project: "q", User: "u", Resources: all,
				CheckGeneration: true, Generation: &two}, a: 3, b: 4, x: 1,
			refused: ledger.ConsumerGenerationConflict},
		{name: "another owner", claim: owned("p", nil), a: 4, b: 4, x: 2},
		{name: "more of a", claim: claim("x", resources{"a": {"VCPU": 2}, "b": {"VCPU": 1, "PCPU": 2}}), a: 4, b: 4,
			x: 2},
		{name: "less of b", claim: claim("x", resources{"a": {"VCPU": 1}, "b": {"VCPU": 1, "PCPU": 1}}), a: 4, b: 5,
			x: 2},
		{name: "a class less of b", claim: claim("x", resources{"a": {"VCPU": 1}, "b": {"VCPU": 1}}), a: 4, b: 5, x: 2},
		{name: "no a", claim: claim("x", resources{"b": {"VCPU": 1, "PCPU": 2}}), a: 3, b: 4, x: 2},
		{name: "nothing", claim: claim("x", nil), a: 4, b: 5},
		{name: "the same of a only", claim: claim("y", onA), a: 4, b: 4, x: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := open(t, new(placementtest.MemoryStore))
			must(t, l, func(tx *ledger.Tx) error {
				err := errors.Join(create("a")(tx), create("b")(tx))
				for _, p := range []string{"a", "b"} {
					_, add := tx.AddInventory(p, inventory("VCPU", 8))
					err = errors.Join(err, add)
				}
				_, add := tx.AddInventory("b", inventory("PCPU", 8))
				return errors.Join(err, add,
					tx.ReplaceAllocations([]ledger.ConsumerAllocations{claim("x", all), claim("y", onA)}))
			})
			must(t, l, func(tx *ledger.Tx) error {
				return tx.ReplaceAllocations(
					[]ledger.ConsumerAllocations{claim("z", all)})
			})
			_, err := l.Update(ctx, func(tx *ledger.Tx) error {
				tx.KeepGenerations(func(p *ledger.Provider) bool { return p.UUID == "b" })
				if tc.reshapes {
					return tx.Reshape(ledger.Reshape{Allocations: []ledger.ConsumerAllocations{tc.claim}})
				}
				return tx.ReplaceAllocations([]ledger.ConsumerAllocations{tc.claim})
			})
			if ledger.KindOf(err) != tc.refused || tc.refused == 0 && err != nil {
				t.Fatalf("%v, want %q", err, tc.refused)
			}
			now := l.Current()
			a, _ := now.Provider("a")
			b, _ := now.Provider("b")
			x := int64(0)
			if c, ok := now.Consumer("x"); ok {
				x = c.Generation
			}
			if a.Generation != tc.a || b.Generation != tc.b || x != tc.x {
				t.Errorf("the generations are %d, %d and %d, want %d, %d and %d",
					a.Generation, b.Generation, x, tc.a, tc.b, tc.x)
			}
		})
	}
}

func hasKey(m map[string]int64, key string) bool { _, ok := m[key]; return ok }

// adopt adds records up to a limit, and expects a number.
func adopt(limit, want int) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		if n := tx.AddMissingConsumers("q", "u", limit); n != want {
			return fmt.Errorf("%d records were added, want %d", n, want)
		}
		return nil
	}
}
