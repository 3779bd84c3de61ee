// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestViolationGroupsSayNothingTwice: each consumer is listed once for each problem, each hint
// once, and no violation is missing.
func TestViolationGroupsSayNothingTwice(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const stale, pinned, root, cell = "delete what is stale", "migrate the guest",
		"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	tree := &providertree.Tree{}
	testproc.Check(t, tree.AddRoot(root, "cn1"))
	held := providertree.Allocations{
		"a": {Resources: providertree.ProviderResources{root: {"VCPU": 2, "MEMORY_MB": 10}, cell: {"VGPU": 1}}},
		"b": {Resources: providertree.ProviderResources{root: {"VCPU": 9}}},
	}
	refused := CannotMove(&plugins.ReshapeFailed{Reason: "no way", Hint: "look", Violations: []plugins.Violation{
		{Consumer: "a", Provider: root, Class: "MEMORY_MB", Problem: "no domain", Hint: stale},
		{Consumer: "a", Provider: root, Class: "VCPU", Problem: "no domain", Hint: stale},
		{Consumer: "b", Provider: root, Class: "VCPU", Problem: "no capacity", Hint: pinned},
		{Consumer: "c", Class: "VCPU", Problem: "no domain", Hint: stale},
		{Consumer: "a", Provider: cell, Class: "VGPU", Problem: "no device", Hint: stale},
		{Provider: root, Problem: "no root"},
		{Consumer: "d", Problem: "no owner"},
		{Consumer: "d", Provider: root, Problem: "no place"},
		{Problem: "and 3 more"},
	}}, nil, held, tree)
	want := []ViolationGroup{
		{Problem: "no domain", Concerns: []string{"consumer a, 10 MEMORY_MB and 2 VCPU of cn1", "consumer c, VCPU"}},
		{Problem: "no device", Concerns: []string{"consumer a, 1 VGPU of resource provider " + cell}, Hint: stale},
		{Problem: "no capacity", Concerns: []string{"consumer b, 9 VCPU of cn1"}, Hint: pinned},
		{Problem: "no root", Concerns: []string{"resource provider " + root}},
		{Problem: "no owner", Concerns: []string{"consumer d"}},
		{Problem: "no place", Concerns: []string{"consumer d, cn1"}},
		{Problem: "and 3 more"},
	}
	testproc.Same(t, cmp.Diff(want, refused.ViolationGroups()))
	list := []string{
		"consumer a, 10 MEMORY_MB and 2 VCPU of cn1: no domain", "consumer c, VCPU: no domain",
		"consumer a, 1 VGPU of resource provider " + cell + ": no device",
		"consumer b, 9 VCPU of cn1: no capacity", "resource provider " + root + ": no root", "consumer d: no owner",
		"consumer d, cn1: no place", "and 3 more",
	}
	testproc.Same(t, cmp.Diff(list, refused.List()))
	for what, text := range map[string]string{"error": refused.Error(), "hints": refused.Hints()} {
		for _, once := range []string{stale, pinned, "look", "former configuration"} {
			if n := strings.Count(text, once); n != 1 {
				t.Errorf("%s: %q is there %d times: %s", what, once, n, text)
			}
		}
	}
}
