// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

var symbol = regexp.MustCompile(`^[A-Z0-9_]{1,255}$`)

// naive says why Placement would refuse what a reply says, or "". It is written from Placement's rules, shares nothing with the border,
// and takes its time.
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
			above := slices.IndexFunc(providers, func(q *driverv1.ResourceProvider) bool { return id(q.GetUuid()) == id(at.GetParentUuid()) })
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

// FuzzReply: whatever a process sends, it is either refused, in one line that can be read, or Placement could be told it.
func FuzzReply(f *testing.F) {
	seed := func(reply *driverv1.UpdateProviderTreeResponse) {
		raw, err := proto.Marshal(reply)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, reply.GetAllocations() != nil)
	}
	all := func(edit func(root *driverv1.ResourceProvider), more ...*driverv1.ResourceProvider) *driverv1.UpdateProviderTreeResponse {
		root := wireRoot()
		if edit != nil {
			edit(root)
		}
		return reply(append(append([]*driverv1.ResourceProvider{root, wireChild()}, wirePool()...), more...)...)
	}
	seed(&driverv1.UpdateProviderTreeResponse{})
	seed(all(nil))
	seed(all(nil, wireProvider(childUUID(2), "cn1_2", childUUID(1), -1)))
	seed(all(nil, wireProvider(childUUID(2), "cn1_2", childUUID(3), -1), wireProvider(childUUID(3), "cn1_3", childUUID(2), -1)))
	for _, ratio := range []float64{0, 1, -1, math.NaN(), math.Inf(-1), 1e-300, 1e300} {
		seed(all(func(p *driverv1.ResourceProvider) {
			p.Inventories = map[string]*driverv1.Inventory{"VCPU": {Total: 8, Reserved: 1, MinUnit: 1, MaxUnit: 8, StepSize: 1, AllocationRatio: ratio}, "CUSTOM_A": {Total: 1 << 31}}
			p.Traits, p.Aggregates = []string{"CUSTOM_A", "HW_X"}, []string{poolUUID}
			p.Resources = []*driverv1.NamedResource{{ResourceClass: "CUSTOM_A", Identifier: "a", Metadata: "m"}}
		}))
	}
	moved := all(nil)
	moved.Allocations = wire.FromAllocations(providertree.Allocations{otherUUID: {Resources: map[string]map[string]int64{rootUUID: {"VCPU": 1}}, ProjectID: "p"}})
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
			if tree != nil || allocations != nil || text == "" || len(text) > 64<<10 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("refused badly: %q", text)
			}
			if errors.Is(err, providertree.ErrInvalid) && strings.HasPrefix(text, providertree.ErrInvalid.Error()) || errors.Is(err, providertree.ErrParent) && strings.HasPrefix(text, providertree.ErrParent.Error()) {
				t.Fatalf("refused and not explained: %s", text)
			}
			return
		}
		if problem := naive(reply); problem != "" {
			t.Fatalf("Placement would refuse it: %s", problem)
		}
		if (given == nil) != (allocations == nil) || !tree.Exists(rootUUID) || !tree.Exists(poolUUID) || len(tree.Roots()) != 2 {
			t.Fatal("it was taken, and is not what was asked for")
		}
		// What was taken once is taken again.
		again, _, err := checkReply(before, "cn1", nil, &driverv1.UpdateProviderTreeResponse{Tree: wire.FromTree(tree)})
		if err != nil || !again.Equal(tree) {
			t.Fatalf("it is refused on its way back: %v", err)
		}
	})
}

// TestHonestEditsAlwaysPass: whatever a driver does to its own with the methods of a tree arrives as it is.
func TestHonestEditsAlwaysPass(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before := nodeAndPool(t)
		after := before.Clone()
		own := func() string {
			return rapid.SampledFrom(after.Subtree(rootUUID)).Draw(rt, "provider")
		}
		must := func(_ any, err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		class := rapid.StringMatching(`(CUSTOM_)?[A-Z][A-Z0-9_]{0,20}`).Filter(func(s string) bool { return s != "CUSTOM_" })
		for i := range rapid.IntRange(0, 20).Draw(rt, "edits") {
			switch rapid.IntRange(0, 6).Draw(rt, "edit") {
			case 0:
				must(nil, after.AddChild(own(), childUUID(1000+i), fmt.Sprint("cn1_new_", i)))
			case 1:
				total := rapid.Int64Range(1, math.MaxInt32).Draw(rt, "total")
				low := rapid.Int64Range(0, math.MaxInt32).Draw(rt, "min")
				must(after.SetInventory(own(), class.Draw(rt, "class"), providertree.Inventory{
					Total: total, Reserved: rapid.Int64Range(0, total).Draw(rt, "reserved"), MinUnit: low, MaxUnit: rapid.Int64Range(max(low, 1), math.MaxInt32).Draw(rt, "max"),
					StepSize: rapid.Int64Range(0, math.MaxInt32).Draw(rt, "step"), AllocationRatio: rapid.Float64Range(minRatio, 3.4e38).Draw(rt, "ratio")}))
			case 2:
				must(after.AddTraits(own(), class.Draw(rt, "trait")))
			case 3:
				must(after.AddAggregates(own(), poolUUID))
			case 4:
				if p := own(); p != rootUUID {
					must(after.Remove(p))
				}
			case 5:
				if p := own(); p != rootUUID {
					must(after.Rename(p, fmt.Sprintf("%s ä cn1 %d", p, i)))
				}
			case 6:
				if p, to := own(), own(); p != rootUUID && !slices.Contains(after.Subtree(p), to) {
					must(after.Move(p, to))
				}
			}
		}
		got, _, err := checkReply(before, "cn1", nil, &driverv1.UpdateProviderTreeResponse{Tree: wire.FromTree(after)})
		if err != nil {
			rt.Fatal(err)
		}
		if !got.Equal(after) {
			rt.Fatal("it did not arrive as it was sent")
		}
	})
}

// hostileTrees are replies of n providers in shapes that are slow to check for who checks them carelessly.
var hostileTrees = map[string]func(n int) []*driverv1.ResourceProvider{
	"chain": func(n int) []*driverv1.ResourceProvider {
		out := []*driverv1.ResourceProvider{wireRoot()}
		for i := 1; i < n; i++ {
			out = append(out, wireProvider(childUUID(i), fmt.Sprint("cn1_", i), out[i-1].GetUuid(), -1))
		}
		return out
	},
	"chain from its end": func(n int) []*driverv1.ResourceProvider {
		out := []*driverv1.ResourceProvider{wireRoot()}
		for i := 1; i < n; i++ {
			parent := childUUID(i + 1)
			if i == n-1 {
				parent = rootUUID
			}
			out = append(out, wireProvider(childUUID(i), fmt.Sprint("cn1_", i), parent, -1))
		}
		return out
	},
	"loop": func(n int) []*driverv1.ResourceProvider {
		out := []*driverv1.ResourceProvider{wireRoot()}
		for i := 1; i < n; i++ {
			out = append(out, wireProvider(childUUID(i), fmt.Sprint("cn1_", i), childUUID(i%(n-1)+1), -1))
		}
		return out
	},
	"siblings": func(n int) []*driverv1.ResourceProvider {
		out := []*driverv1.ResourceProvider{wireRoot()}
		for i := 1; i < n; i++ {
			out = append(out, wireProvider(childUUID(i), fmt.Sprint("cn1_", i), rootUUID, -1))
		}
		return out
	},
	"one name": func(n int) []*driverv1.ResourceProvider {
		out := []*driverv1.ResourceProvider{wireRoot()}
		for i := 1; i < n; i++ {
			out = append(out, wireProvider(childUUID(i), "cn1_1", rootUUID, -1))
		}
		return out
	},
}

// largeTree is fifty times the design limit.
const largeTree = 50_000

// TestHostileTreesOfTheLargestSize: of these only the siblings are a tree that a machine could have. A check that
// compared each with each, or walked to the root from each, would not end before the test's deadline.
func TestHostileTreesOfTheLargestSize(t *testing.T) {
	for name, want := range map[string]string{
		"chain": "levels below its root", "chain from its end": "levels below its root", "loop": "in a loop of 49999 providers", "siblings": "", "one name": "its name is also that of",
	} {
		tree, _, err := checkReply(oneNode(t), "cn1", nil, reply(hostileTrees[name](largeTree)...))
		switch {
		case want == "" && (err != nil || tree.Len() != largeTree):
			t.Errorf("%s: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 10_000):
			t.Errorf("%s: %.1000v", name, err)
		}
	}
}

// BenchmarkCheckReply is the border for trees that come in full. The time for each provider must not depend on their number.
func BenchmarkCheckReply(b *testing.B) {
	for name, make := range hostileTrees {
		for _, n := range []int{largeTree / 8, largeTree} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				before, msg := oneNode(b), reply(make(n)...)
				b.ReportAllocs()
				for b.Loop() {
					_, _, _ = checkReply(before, "cn1", nil, msg)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/provider")
			})
		}
	}
}
