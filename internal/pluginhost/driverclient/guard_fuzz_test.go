// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var symbol = regexp.MustCompile(`^[A-Z0-9_]{1,255}$`)

// naive says why Placement would refuse what a reply says, or "". It is written from Placement's
// rules, shares nothing with the border, and takes its time.
func naive(reply *driverv1.UpdateProviderTreeResponse) string {
	providers := reply.GetTree().GetProviders()
	id := func(s string) string {
		u, err := uuid.Parse(s)
		if err != nil {
			return ""
		}
		return u.String()
	}
	for i, p := range providers {
		if id(p.GetUuid()) == "" {
			return "uuid"
		}
		if n := len([]rune(p.GetName())); n < 1 || n > 200 {
			return "name"
		}
		for _, other := range providers[:i] {
			if id(other.GetUuid()) == id(p.GetUuid()) || other.GetName() == p.GetName() {
				return "twice"
			}
		}
		at, steps := p, 0
		for at.GetParentUuid() != "" {
			above := slices.IndexFunc(providers,
				func(q *driverv1.ResourceProvider) bool { return id(q.GetUuid()) == id(at.GetParentUuid()) })
			if above < 0 || steps > len(providers) {
				return "no root"
			}
			at, steps = providers[above], steps+1
		}
		for class, v := range p.GetInventories() {
			if problem := naiveInventory(class, v); problem != "" {
				return problem
			}
		}
		for _, trait := range p.GetTraits() {
			if !symbol.MatchString(trait) {
				return "trait"
			}
		}
		for _, aggregate := range p.GetAggregates() {
			if id(aggregate) == "" {
				return "aggregate"
			}
		}
	}
	for consumer, c := range reply.GetAllocations().GetConsumers() {
		if id(consumer) == "" || c != nil && c.Generation != nil && c.GetGeneration() < 0 {
			return "consumer"
		}
		for provider, r := range c.GetResources() {
			if id(provider) == "" {
				return "provider of an allocation"
			}
			for class, n := range r.GetAmounts() {
				if !symbol.MatchString(class) || n < 1 || n > math.MaxInt32 {
					return "amount"
				}
			}
		}
	}
	return ""
}

func naiveInventory(class string, v *driverv1.Inventory) string {
	within := func(n int64, low, unset int64) bool { return n >= low && n <= math.MaxInt32 || n == unset }
	r := v.GetAllocationRatio()
	switch {
	case !symbol.MatchString(class) || class == "CUSTOM_":
		return "class"
	case v.GetTotal() < 1 || v.GetTotal() > math.MaxInt32 || v.GetReserved() < 0 || v.GetReserved() > v.GetTotal():
		return "total or reserved"
	case !within(v.GetMinUnit(), 1, 0) || !within(v.GetMaxUnit(), 1, 0) || !within(v.GetStepSize(), 1, 0):
		return "units"
	case r != r || r < 0 || r > math.MaxFloat32 || r != 0 && float32(r) == 0:
		return "ratio"
	}
	return ""
}

// FuzzReply: whatever a process sends is either refused, in one printable line, or valid for
// Placement.
func FuzzReply(f *testing.F) {
	seed := func(reply *driverv1.UpdateProviderTreeResponse) {
		raw := testproc.Try(proto.Marshal(reply)).Or(f)
		f.Add(raw, reply.GetAllocations() != nil)
	}
	all := func(edit func(root *driverv1.ResourceProvider),
		more ...*driverv1.ResourceProvider) *driverv1.UpdateProviderTreeResponse {
		root := wireRoot()
		if edit != nil {
			edit(root)
		}
		return reply(append(append([]*driverv1.ResourceProvider{root, wireChild()}, wirePool()...), more...)...)
	}
	seed(&driverv1.UpdateProviderTreeResponse{})
	seed(all(nil))
	seed(all(nil, wireProvider(childUUID(2), "cn1_2", childUUID(1), -1)))
	seed(all(nil, wireProvider(childUUID(2), "cn1_2", childUUID(3), -1),
		wireProvider(childUUID(3), "cn1_3", childUUID(2), -1)))
	for _, ratio := range []float64{0, 1, -1, math.NaN(), math.Inf(-1), 1e-300, 1e300} {
		seed(all(func(p *driverv1.ResourceProvider) {
			p.Inventories = map[string]*driverv1.Inventory{"VCPU": {Total: 8, Reserved: 1, MinUnit: 1, MaxUnit: 8,
				StepSize: 1, AllocationRatio: ratio}, "CUSTOM_A": {Total: 1 << 31}}
			p.Traits, p.Aggregates = []string{"CUSTOM_A", "HW_X"}, []string{poolUUID}
			p.Resources = []*driverv1.NamedResource{{ResourceClass: "CUSTOM_A", Identifier: "a", Metadata: "m"}}
		}))
	}
	moved := all(nil)
	moved.Allocations = protocol.FromAllocations(
		providertree.Allocations{otherUUID: {Resources: providertree.ProviderResources{rootUUID: {"VCPU": 1}},
			ProjectID: "p"}})
	moved.ClassRenames = map[string]string{"A": "B"}
	seed(moved)

	f.Fuzz(func(t *testing.T, raw []byte, reshape bool) {
		reply := &driverv1.UpdateProviderTreeResponse{}
		if proto.Unmarshal(raw, reply) != nil {
			return
		}
		var given providertree.Allocations
		if reshape {
			given = providertree.Allocations{}
		}
		before := nodeAndPool(t)
		tree, allocations, err := checkReply(before, "cn1", given, reply)
		if !before.Equal(nodeAndPool(t)) {
			t.Fatal("the tree that was given has changed")
		}
		if err != nil {
			text := err.Error()
			if tree != nil || allocations != nil || text == "" || len(text) > 64<<10 ||
				strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("refused badly: %q", text)
			}
			return
		}
		if problem := naive(reply); problem != "" {
			t.Fatalf("Placement would refuse it: %s", problem)
		}
		if (given == nil) != (allocations == nil) ||
			!tree.Exists(rootUUID) || !tree.Exists(poolUUID) || len(tree.Roots()) != 2 {
			t.Fatal("it was taken, and is not what was asked for")
		}
		// What was taken once is taken again.
		again, _, err := checkReply(before, "cn1", nil,
			&driverv1.UpdateProviderTreeResponse{Tree: protocol.FromTree(tree)})
		if err != nil || !again.Equal(tree) {
			t.Fatalf("it is refused on its way back: %v", err)
		}
	})
}
