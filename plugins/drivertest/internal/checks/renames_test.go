// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRenamesHold: a rename is valid if it is true of some of the guests that have the class, and
// invalid if it is true of none of them.
func TestRenamesHold(t *testing.T) {
	t.Parallel()
	const root, pinned, floating = "0d5a6f1c-5f3e-4c55-8d7a-6a8f2f0c9e11", "aaaaaaaa-0000-0000-0000-000000000000",
		"bbbbbbbb-0000-0000-0000-000000000000"
	of := func(ofPinned, ofFloating map[string]int64) providertree.Allocations {
		return providertree.Allocations{
			pinned:   {Resources: providertree.ProviderResources{root: ofPinned}},
			floating: {Resources: providertree.ProviderResources{root: ofFloating}},
		}
	}
	vcpu, pcpu := map[string]int64{"VCPU": 2}, map[string]int64{"PCPU": 2}
	for _, c := range []struct {
		name    string
		classes []string // that the root has inventory of, after
		given   providertree.Allocations
		after   providertree.Allocations
		renames plugins.ClassRenames
		want    string
	}{
		{"all", []string{"PCPU"}, of(vcpu, vcpu), of(pcpu, pcpu), plugins.ClassRenames{"VCPU": "PCPU"}, ""},
		{"some", []string{"PCPU", "VCPU"}, of(vcpu, vcpu), of(pcpu, vcpu), plugins.ClassRenames{"VCPU": "PCPU"}, ""},
		{"some of one", []string{"PCPU", "VCPU"}, of(vcpu, vcpu), of(map[string]int64{"VCPU": 1, "PCPU": 1}, vcpu),
			plugins.ClassRenames{"VCPU": "PCPU"}, ""},
		{"of a class that no consumer has", []string{"VCPU"}, of(vcpu, vcpu), of(vcpu, vcpu),
			plugins.ClassRenames{"CUSTOM_A": "FPGA"}, ""},
		{"nothing", []string{"VCPU", "PCPU"}, of(vcpu, vcpu), of(vcpu, vcpu), plugins.ClassRenames{"VCPU": "PCPU"},
			"every consumer has as much VCPU as before"},
		{"inventory for all, allocations for some", []string{"PCPU"}, of(vcpu, vcpu), of(pcpu, vcpu),
			plugins.ClassRenames{"VCPU": "PCPU"}, "consumer " + floating + " still has VCPU"},
		{"to itself", []string{"VCPU"}, of(vcpu, vcpu),
			of(vcpu, vcpu), plugins.ClassRenames{"VCPU": "VCPU"}, "renamed to itself"},
	} {
		tree := &providertree.Tree{}
		testproc.Check(t, tree.AddRoot(root, "cn1"))
		for _, class := range c.classes {
			testproc.Try(tree.SetInventory(root, class, providertree.Inventory{Total: 8})).Or(t)
		}
		got := strings.Join(
			renamesHold(nil, &reshaped{given: c.given, allocations: c.after, renames: c.renames, after: tree}), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
