// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// held is the allocations of consumers, without their owners.
type held map[string]providertree.ProviderResources

func (h held) allocations() providertree.Allocations {
	out := providertree.Allocations{}
	for consumer, resources := range h {
		out[consumer] = providertree.ConsumerAllocations{Resources: resources, ProjectID: "p-" +
			consumer, UserID: "u-" + consumer}
	}
	return out.Clone()
}

func TestMoves(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before held
		moves  Moves
		want   held
	}{
		{
			"to a child; the rest stays",
			held{"c": {"root": {"VCPU": 2, "VGPU": 1}}},
			Moves{{"c", Place{"root", "VGPU"}, Place{"gpu", "VGPU"}, 1}},
			held{"c": {"root": {"VCPU": 2}, "gpu": {"VGPU": 1}}},
		},
		{
			"the last of a provider: no empty resources",
			held{"c": {"root": {"VGPU": 1}}},
			Moves{{"c", Place{"root", "VGPU"}, Place{"gpu", "VGPU"}, 1}},
			held{"c": {"gpu": {"VGPU": 1}}},
		},
		{
			"another name in place, added to what is there",
			held{"c": {"root": {"VCPU": 4, "PCPU": 1}}},
			Moves{{"c", Place{"root", "VCPU"}, Place{"root", "PCPU"}, 4}},
			held{"c": {"root": {"PCPU": 5}}},
		},
		{
			"a later one takes what an earlier one brought",
			held{"c": {"a": {"X": 2}}},
			Moves{{"c", Place{"a", "X"}, Place{"b", "X"}, 2}, {"c", Place{"b", "X"}, Place{"d", "X"}, 1}},
			held{"c": {"b": {"X": 1}, "d": {"X": 1}}},
		},
		{"nothing", held{"c": {"a": {"X": 2}}}, nil, held{"c": {"a": {"X": 2}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.before.allocations()
			after := testproc.Try(tc.moves.Apply(before)).Or(t)
			testproc.Same(t, cmp.Diff(tc.want.allocations(), after))
			testproc.Samef(t, cmp.Diff(tc.before.allocations(), before), "the allocations given were changed")
		})
	}
	if after, err := (Moves{}).Apply(nil); after != nil || err != nil {
		t.Errorf("no allocations became %v, %v", after, err)
	}
}

func TestEveryMoveThatCannotBeMadeIsListed(t *testing.T) {
	before := held{"c": {"a": {"X": 2}, "b": {"X": providertree.MaxUnit}}}.allocations()
	x := Place{"a", "X"}
	_, err := Moves{
		{"c", x, Place{"b", "X"}, 3},
		{"c", x, Place{"b", "X"}, 1},
		{"c", x, x, 1},
		{"c", x, Place{"d", "X"}, 0},
		{"c", x, Place{"d", "X"}, -1},
		{"nobody", x, Place{"d", "X"}, 1},
		{"c", Place{"a", "Y"}, x, 1},
		{"c", x, Place{"d", "X"}, 2}, // this one can be
	}.Apply(before)
	var failed *ReshapeFailed
	if !errors.As(err, &failed) {
		t.Fatalf("%v", err)
	}
	want := []Violation{
		{"c", "a", "X", "3 move to X on b, and 2 are allocated", ""},
		{"c", "a", "X", "1 move to X on b, where 2147483647 are already allocated: more than Placement can store", ""},
		{"c", "a", "X", "source and destination of the move are the same", ""},
		{"c", "a", "X", "the amount to move is 0, must be at least 1", ""},
		{"c", "a", "X", "the amount to move is -1, must be at least 1", ""},
		{"nobody", "a", "X", "1 move to X on d, and the consumer has no allocations in this tree", ""},
		{"c", "a", "Y", "1 move to X on a, and 0 are allocated", ""},
	}
	testproc.Same(t, cmp.Diff(want, failed.Violations))
}

func TestMoveAllAndRenameClass(t *testing.T) {
	before := held{
		"a": {"here": {"CUSTOM_X": 1, "VCPU": 1}, "there": {"CUSTOM_X": 7}},
		"b": {"child": {"CUSTOM_X": 2}},
		"c": {"here": {"VCPU": 1}},
	}.allocations()
	after := testproc.Try(RenameClass(before, "CUSTOM_X", "X", "here", "child").Apply(before)).Or(t)
	if diff := cmp.Diff(held{
		"a": {"here": {"X": 1, "VCPU": 1}, "there": {"CUSTOM_X": 7}},
		"b": {"child": {"X": 2}},
		"c": {"here": {"VCPU": 1}},
	}.allocations(), after); diff != "" {
		t.Error(diff)
	}
	if moves := MoveAll(before, Place{"here", "VCPU"}, Place{"here", "VCPU"}); moves != nil {
		t.Errorf("to where it is: %v", moves)
	}
}

func TestClassRenames(t *testing.T) {
	for _, tc := range []struct {
		renames ClassRenames
		ok      bool
	}{
		{nil, true},
		{ClassRenames{"CUSTOM_A": "A", "CUSTOM_B": "A"}, true},
		{ClassRenames{"A": "A"}, false},
		{ClassRenames{"A": "B", "B": "C"}, false},
		{ClassRenames{"a": "B"}, false},
		{ClassRenames{"A": ""}, false},
	} {
		if err := tc.renames.Validate(); (err == nil) != tc.ok {
			t.Errorf("%v: %v", tc.renames, err)
		}
	}
	got := ClassRenames{"CUSTOM_A": "A"}.Totals(map[string]int64{"CUSTOM_A": 1, "A": 2, "B": 3})
	testproc.Same(t, cmp.Diff(providertree.Resources{"A": 3, "B": 3}, got))
}

var (
	drawnProviders = []string{"p0", "p1", "p2", "p3"}
	drawnClasses   = []string{"CUSTOM_X", "X", "Y"}
	drawnRenames   = ClassRenames{"CUSTOM_X": "X"}
)

func drawAllocations(t *rapid.T) providertree.Allocations {
	amounts := rapid.Map(rapid.MapOfN(rapid.SampledFrom(drawnClasses), rapid.Int64Range(1, 9), 1, 3),
		func(m map[string]int64) providertree.Resources { return m })
	resources := rapid.Map(rapid.MapOfN(rapid.SampledFrom(drawnProviders), amounts, 1, 4),
		func(m map[string]providertree.Resources) providertree.ProviderResources { return m })
	return held(rapid.MapOfN(rapid.StringMatching(`c[0-9]`), resources, 0, 6).Draw(t, "allocations")).allocations()
}

// drawMove moves something that is there, within a class or along a declared rename.
func drawMove(t *rapid.T, allocations providertree.Allocations) (Move, bool) {
	var all []Move
	for _, consumer := range slices.Sorted(maps.Keys(allocations)) {
		for _, provider := range slices.Sorted(maps.Keys(allocations[consumer].Resources)) {
			for _, class := range slices.Sorted(maps.Keys(allocations[consumer].Resources[provider])) {
				all = append(all, Move{Consumer: consumer,
					From: Place{provider, class}, Amount: allocations[consumer].Resources[provider][class]})
			}
		}
	}
	if len(all) == 0 {
		return Move{}, false
	}
	m := rapid.SampledFrom(all).Draw(t, "held")
	m.Amount = rapid.Int64Range(1, m.Amount).Draw(t, "amount")
	m.To = Place{rapid.SampledFrom(drawnProviders).Draw(t, "to"), m.From.Class}
	if rapid.Bool().Draw(t, "rename") {
		m.To.Class = drawnRenames.Present(m.To.Class)
	}
	return m, m.From != m.To
}

// checkConserved checks what must hold after whatever moves: owners and sums as before, nothing
// below 1, nothing empty.
func checkConserved(t *rapid.T, before, after providertree.Allocations) {
	if len(before) != len(after) {
		t.Fatalf("%d consumers became %d", len(before), len(after))
	}
	for consumer, was := range before {
		is := after[consumer]
		if diff := cmp.Diff(drawnRenames.Totals(was.Totals()), drawnRenames.Totals(is.Totals())); diff != "" {
			t.Fatalf("sums of %s: %s", consumer, diff)
		}
		if was.ProjectID != is.ProjectID || was.UserID != is.UserID {
			t.Fatalf("the owner of %s changed", consumer)
		}
		for provider, amounts := range is.Resources {
			if len(amounts) == 0 {
				t.Fatalf("%s holds nothing on %s", consumer, provider)
			}
			for class, n := range amounts {
				if n < 1 {
					t.Fatalf("%s holds %d of %s on %s", consumer, n, class, provider)
				}
			}
		}
	}
}

func TestMovesConserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawAllocations(t)
		after := before
		var moves Moves
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			m, ok := drawMove(t, after)
			if !ok {
				continue
			}
			next := testproc.Try(Moves{m}.Apply(after)).Or(t)
			moves, after = append(moves, m), next
		}
		checkConserved(t, before, after)
		if at, err := moves.Apply(before); err != nil || !cmp.Equal(at, after) {
			t.Fatalf("one by one and all at once differ: %v\n%s", err, cmp.Diff(after, at))
		}
		if back, err := moves.Inverse().Apply(after); err != nil || !cmp.Equal(back, before) {
			t.Fatalf("there and back: %v\n%s", err, cmp.Diff(before, back))
		}
	})
}

// TestMovesNeverSpoil: whatever is asked for, there is either an error or a result in which nothing
// was lost.
func TestMovesNeverSpoil(t *testing.T) {
	place := rapid.Custom(func(t *rapid.T) Place {
		return Place{rapid.SampledFrom(drawnProviders).Draw(t, "provider"), "Y"}
	})
	move := rapid.Custom(func(t *rapid.T) Move {
		return Move{fmt.Sprintf("c%d", rapid.IntRange(0, 9).Draw(t, "c")), place.Draw(t, "from"), place.Draw(t, "to"),
			rapid.Int64Range(-1, 5).Draw(t, "n")}
	})
	rapid.Check(t, func(t *rapid.T) {
		before := drawAllocations(t)
		after, err := Moves(rapid.SliceOfN(move, 0, 6).Draw(t, "moves")).Apply(before)
		if err != nil {
			if failed := (*ReshapeFailed)(nil); !errors.As(err, &failed) ||
				len(failed.Violations) == 0 || after != nil {
				t.Fatalf("%v, %v", after, err)
			}
			return
		}
		checkConserved(t, before, after)
	})
}
