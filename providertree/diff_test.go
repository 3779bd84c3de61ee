// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
)

// TestDiffNamesEachChange edits one thing of a tree at a time.
func TestDiffNamesEachChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(tree *providertree.Tree) error
		want []string // kinds of the change
		line string
	}{
		"nothing":    {edit: func(*providertree.Tree) error { return nil }},
		"generation": {edit: func(tree *providertree.Tree) error { return tree.SetGeneration(childUUID(1), 9) }},
		"added": {func(tree *providertree.Tree) error {
			return tree.AddChild(rootUUID, childUUID(3), "cn1_3")
		}, []string{"added"}, "cn1_3 (" + childUUID(3) + ") added"},
		"removed": {func(tree *providertree.Tree) error {
			_, err := tree.Remove(childUUID(1))
			return err
		}, []string{"removed"}, "cn1_1 (" + childUUID(1) + ") removed"},
		"renamed": {func(tree *providertree.Tree) error {
			_, err := tree.Rename(childUUID(1), "cn1_9")
			return err
		}, []string{"renamed"}, "cn1_1: renamed to cn1_9"},
		"moved": {func(tree *providertree.Tree) error {
			_, err := tree.Move(childUUID(1), childUUID(2))
			return err
		}, []string{"moved"}, `cn1_1: moved below "` + childUUID(2) + `", was below "` + rootUUID + `"`},
		"inventory": {func(tree *providertree.Tree) error {
			_, err := tree.RemoveInventory(childUUID(1), "VGPU")
			return err
		}, []string{"inventories"},
			"cn1_1: VGPU removed (total 4, reserved 0, min_unit 1, max_unit 2147483647, step_size 1, ratio 1)"},
		"trait": {func(tree *providertree.Tree) error {
			_, err := tree.AddTraits(childUUID(1), "CUSTOM_A")
			return err
		}, []string{"traits"}, "cn1_1: trait CUSTOM_A added"},
		"aggregate": {func(tree *providertree.Tree) error {
			_, err := tree.AddAggregates(childUUID(1), poolUUID)
			return err
		}, []string{"aggregates"}, "cn1_1: aggregate " + poolUUID + " added"},
	} {
		t.Run(name, func(t *testing.T) {
			before := &providertree.Tree{}
			if err := before.AddRoot(rootUUID, "cn1"); err != nil {
				t.Fatal(err)
			}
			if err := before.AddChild(rootUUID, childUUID(1), "cn1_1"); err != nil {
				t.Fatal(err)
			}
			if err := before.AddChild(rootUUID, childUUID(2), "cn1_2"); err != nil {
				t.Fatal(err)
			}
			_, err := before.SetInventory(childUUID(1), "VGPU", providertree.Inventory{Total: 4})
			if err != nil {
				t.Fatal(err)
			}
			after := before.Clone()
			if err := c.edit(after); err != nil {
				t.Fatal(err)
			}
			got := providertree.Diff(before, after)
			var kinds []string
			note := func(kind string, is bool) {
				if is {
					kinds = append(kinds, kind)
				}
			}
			note("added", len(got.Added) > 0)
			note("removed", len(got.Removed) > 0)
			for _, change := range got.Changed {
				note("renamed", change.Renamed())
				note("moved", change.Moved())
				note("inventories", change.Inventories())
				note("traits", change.Traits())
				note("aggregates", change.Aggregates())
			}
			if d := cmp.Diff(c.want, kinds); d != "" ||
				got.Empty() != (c.want == nil) || before.Equal(after) != got.Empty() {
				t.Errorf("equal %t, empty %t; (-want +got):\n%s", before.Equal(after), got.Empty(), d)
			}
			if lines := got.Lines(); c.line != "" && (len(lines) != 1 || lines[0] != c.line) {
				t.Errorf("%q, want %q", lines, c.line)
			}
		})
	}
}

// TestViolationsListsTwenty says how many it leaves out only if there are more.
func TestViolationsListsTwenty(t *testing.T) {
	t.Parallel()
	all := make(providertree.Violations, 21)
	if text := all[:20].Error(); strings.Contains(text, "the first") {
		t.Error(text)
	}
	if text := all.Error(); !strings.HasPrefix(text, "21 violations, the first 20 of them: (1)") ||
		strings.Contains(text, "(21)") {
		t.Error(text)
	}
}
