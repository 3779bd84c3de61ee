// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestLayoutTrait: the driver's name with what a trait can have, and the least number of those that
// the tree has.
func TestLayoutTrait(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const driver = LayoutTraits("az`{AZ@[09/:é-_")
	const prefix = "CUSTOM_COMPUTE_AGENT_LAYOUT_AZ__AZ__09______"
	if got := driver.Trait(12); got != prefix+"12" {
		t.Errorf("%s, want %s12", got, prefix)
	}
	for want, numbers := range map[int]string{0: "",
		3: "12 3 7", 4: "0 4 5", 5: "5 X 4X 99999999999999999999", 8: "8"} {
		tree := &providertree.Tree{}
		check(tree.AddRoot(gNode.UUID, "cn1"))
		must(tree.AddTraits(gNode.UUID, "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_1"))
		for _, n := range strings.Fields(numbers) {
			must(tree.AddTraits(gNode.UUID, prefix+n))
		}
		testproc.Equal(t, driver.InTree(tree, gNode.UUID), want, "of %q the layout version is %d", numbers)
		former := strings.Replace(prefix, "_LAYOUT_", "_SHAPE_", 1) // up to 0.2.0
		for _, n := range strings.Fields(numbers) {
			must(tree.RemoveTraits(gNode.UUID, prefix+n))
			must(tree.AddTraits(gNode.UUID, former+n))
		}
		testproc.Equal(t, driver.InTree(tree, gNode.UUID), want,
			"of %q by the former name the layout version is %d", numbers)
	}
}

// TestReshapedIsAnyChangeOfTheTree but for traits and aggregates.
func TestReshapedIsAnyChangeOfTheTree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		edit func(*Draft)
		want bool
	}{
		"nothing": {func(*Draft) {}, false},
		"traits, aggregates": {func(d *Draft) {
			must(d.Answer.AddTraits(gNode.UUID, "A"))
			must(d.Answer.AddAggregates(gNode.UUID, id(7, 7)))
		}, false},
		"inventory": {func(d *Draft) {
			must(
				d.Answer.SetInventory(gNode.UUID, "VCPU", providertree.Inventory{Total: 3}))
		}, true},
		"a provider that came": {func(d *Draft) { check(d.Answer.AddChild(gNode.UUID, id(4, 8), "cn1_new")) }, true},
		"one that went":        {func(d *Draft) { must(d.Answer.Remove(id(4, 0))) }, true},
		"one for another": {func(d *Draft) {
			must(d.Answer.Remove(id(4, 0)))
			check(d.Answer.AddChild(gNode.UUID, id(4, 8), "cn1_new"))
		}, true},
		"one renamed":          {func(d *Draft) { must(d.Answer.Rename(id(4, 0), "cn1_new")) }, true},
		"one moved":            {func(d *Draft) { must(d.Answer.Move(id(4, 0), id(4, 1))) }, true},
		"allocations":          {func(d *Draft) { d.After[id(9, 3)].Resources[gNode.UUID]["VCPU"] = 3 }, true},
		"no allocations given": {func(d *Draft) { d.Before = nil; must(d.Answer.Remove(id(4, 0))) }, false},
	} {
		d := vgpus()
		d.Base, d.Answer, d.Before = d.Desired, d.Desired.Clone(), d.After.Clone()
		c.edit(&d)
		if d.Changed() != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}
