// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// passes is an agent and a plugin that call each other without a socket.
type passes struct {
	tb            failer
	agent, plugin Memory
}

// failer is a test, or one draw of a property.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// pass is one call of UpdateProviderTree for a driver that edits the tree.
func (p *passes) pass(tree *providertree.Tree, edit func(*providertree.Tree)) (after *providertree.Tree, echoed bool) {
	p.tb.Helper()
	fatal := func(err error) {
		if err != nil {
			p.tb.Helper()
			p.tb.Fatal(err)
		}
	}
	sent, err := p.agent.Encode("cn1", tree)
	fatal(err)
	req := &driverv1.UpdateProviderTreeRequest{Node: "cn1"}
	sent.Put(req)
	client, server := ClientCodec(sent), ServerCodec()
	raw, err := client.Marshal(req)
	fatal(err)

	came := &driverv1.UpdateProviderTreeRequest{}
	fatal(server.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw.Materialize())}, came))
	edited, known, err := p.plugin.Decode(came)
	fatal(err)
	edit(edited)
	reply := &driverv1.UpdateProviderTreeResponse{CapabilityTraits: map[string]bool{"CUSTOM_T": true}}
	p.plugin.Reply(reply, known, edited)
	raw, err = server.Marshal(reply)
	fatal(err)

	got := &driverv1.UpdateProviderTreeResponse{}
	fatal(client.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw.Materialize())}, got))
	if !got.GetCapabilityTraits()["CUSTOM_T"] {
		p.tb.Fatal("the rest of the reply is missing")
	}
	if client.Echoed() {
		return sent.Tree(), true
	}
	after, err = ToTree(got.GetTree())
	fatal(err)
	return after, false
}

// TestPassesTellWhatDriversDo: however the tree changes between the calls and within them, on either side, what arrives is what plain
// messages would have brought.
func TestPassesTellWhatDriversDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &passes{tb: t}
		tree := anyTree(t)
		for range rapid.IntRange(1, 8).Draw(t, "passes") {
			switch rapid.IntRange(0, 3).Draw(t, "before the pass") {
			case 0:
				tree = anyTree(t)
			case 1:
				change(t, tree)
			}
			edits := rapid.IntRange(0, 1).Draw(t, "edits")
			var want []record
			after, echoed := p.pass(tree, func(edited *providertree.Tree) {
				if diff := cmp.Diff(list(tree), list(edited)); diff != "" {
					t.Fatal("what the driver sees: ", diff)
				}
				for range edits {
					change(t, edited)
				}
				want = list(edited)
			})
			if diff := cmp.Diff(want, list(after)); diff != "" {
				t.Fatal("what the agent sees: ", diff)
			}
			if same := cmp.Equal(want, list(tree)); same != echoed {
				t.Fatalf("echoed: %v, the same tree: %v", echoed, same)
			}
			if rapid.Bool().Draw(t, "goes on with it") {
				tree = after
			}
		}
	})
}

// change changes one thing in a tree, if it has a provider.
func change(t *rapid.T, tree *providertree.Tree) {
	uuids := tree.UUIDs()
	if len(uuids) == 0 {
		must(t, tree.AddRoot(someUUID, "new"))
		return
	}
	uuid := rapid.SampledFrom(uuids).Draw(t, "of")
	p, _ := tree.Provider(uuid)
	var err error
	switch rapid.IntRange(0, 6).Draw(t, "change") {
	case 0:
		err = tree.SetGeneration(uuid, p.Generation+1)
	case 1:
		_, err = tree.SetInventory(uuid, "VCPU", providertree.Inventory{Total: rapid.Int64Range(1, 9).Draw(t, "total"), AllocationRatio: 1.0000001})
	case 2:
		_, err = tree.AddTraits(uuid, rapid.SampledFrom([]string{"CUSTOM_X", "CUSTOM_Y"}).Draw(t, "trait"))
	case 3:
		_, err = tree.Remove(uuid)
	case 4:
		_, err = tree.Rename(uuid, p.Name+"x")
	case 5:
		_, err = tree.Move(uuid, "") // to the end of the roots
	case 6:
		_, err = tree.SetResources(uuid, map[string][]providertree.Resource{"PMEM": {{Identifier: rapid.String().Draw(t, "unit")}}})
	}
	must(t, err)
}

// TestSteadyPassConvertsNothing: from the second pass on, neither side allocates anything for a provider.
func TestSteadyPassConvertsNothing(t *testing.T) {
	allocations := func(n int) float64 {
		p, tree := &passes{tb: t}, deviceTree(t, n)
		return testing.AllocsPerRun(10, func() {
			after, echoed := p.pass(tree, func(edited *providertree.Tree) {
				_, err := edited.AddTraits(tree.Roots()[0])
				if err != nil {
					t.Fatal(err)
				}
			})
			if !echoed || after.Len() != n {
				t.Fatal("the pass is not steady")
			}
		})
	}
	small, large := allocations(100), allocations(5000)
	if perProvider := (large - small) / 4900; perProvider > 0.1 { // the maps of a tree have many parts
		t.Errorf("%v allocations with 100 providers, %v with 5000", small, large)
	}
}

// TestConversionsAllocateLittle bounds what each provider of a tree that did change costs.
func TestConversionsAllocateLittle(t *testing.T) {
	const n = 5000
	tree := deviceTree(t, n)
	msg := FromTree(tree)
	for name, c := range map[string]struct {
		most    float64
		convert func() error
	}{
		"FromTree":   {2.1, func() error { FromTree(tree); return nil }},
		"ToTree":     {6.2, func() error { _, err := ToTree(msg); return err }},
		"ToTreeLike": {0.1, func() error { _, err := ToTreeLike(msg, tree); return err }},
	} {
		got := testing.AllocsPerRun(5, func() {
			if err := c.convert(); err != nil {
				t.Fatal(err)
			}
		}) / n
		if got > c.most {
			t.Errorf("%s: %.2f allocations a provider, at most %.2f are expected", name, got, c.most)
		}
	}
}

// TestTreesOfOtherSDKs: messages that another implementation may send for the same.
func TestTreesOfOtherSDKs(t *testing.T) {
	tree := deviceTree(t, 3)
	marshal := func(m proto.Message) []byte {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	msg := FromTree(tree)
	first := &driverv1.ProviderTree{Providers: msg.GetProviders()[:1]}
	rest := &driverv1.ProviderTree{Providers: msg.GetProviders()[1:]}
	named := marshal(&driverv1.UpdateProviderTreeRequest{Node: "cn1"})
	later := protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "of a later version")
	for name, raw := range map[string][]byte{
		"as it is":            marshal(&driverv1.UpdateProviderTreeRequest{Node: "cn1", Tree: msg}),
		"the tree last":       append(slices.Clone(named), marshal(&driverv1.UpdateProviderTreeRequest{Tree: msg})...),
		"in two parts":        slices.Concat(marshal(&driverv1.UpdateProviderTreeRequest{Tree: first}), named, marshal(&driverv1.UpdateProviderTreeRequest{Tree: rest})),
		"with unknown fields": slices.Concat(later, marshal(&driverv1.UpdateProviderTreeRequest{Node: "cn1", Tree: msg}), later),
	} {
		t.Run(name, func(t *testing.T) {
			var memory Memory
			for range 2 {
				req := &driverv1.UpdateProviderTreeRequest{}
				if err := ServerCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, req); err != nil {
					t.Fatal(err)
				}
				got, _, err := memory.Decode(req)
				if err != nil || req.GetNode() != "cn1" || !got.Same(tree) {
					t.Fatalf("%v, node %q", err, req.GetNode())
				}
			}
		})
	}
}

// TestMemoryIsBounded: nodes without number do not make a plugin grow.
func TestMemoryIsBounded(t *testing.T) {
	var memory Memory
	tree := deviceTree(t, 3000)
	for i := range 200 {
		if _, err := memory.Encode(fmt.Sprint(i), tree); err != nil {
			t.Fatal(err)
		}
	}
	bytes := 0
	for _, k := range memory.byNode {
		bytes += len(k.encoded)
	}
	if bytes != memory.bytes || bytes > maxMemory || bytes < maxMemory/2 {
		t.Errorf("%d bytes are held, %d are counted, %d are allowed", bytes, memory.bytes, maxMemory)
	}
}

// FuzzCodec: whatever bytes come, they mean what plain protobuf makes of them.
func FuzzCodec(f *testing.F) {
	whole, err := proto.Marshal(&driverv1.UpdateProviderTreeRequest{
		Node: "cn1", Tree: &driverv1.ProviderTree{Providers: []*driverv1.ResourceProvider{{Uuid: someUUID, Name: "cn1", Traits: []string{"T"}}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(slices.Clone(whole), whole...))
	f.Add([]byte{0x08, 0x01})
	f.Add([]byte{0x0a, 0x00})
	f.Add([]byte{0x0a, 0x02, 0xff, 0xff})
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, raw []byte) {
		plain, ours := &driverv1.UpdateProviderTreeRequest{}, &driverv1.UpdateProviderTreeRequest{}
		wantErr := proto.Unmarshal(raw, plain)
		if err := ServerCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, ours); err != nil {
			if wantErr == nil {
				t.Fatal(err)
			}
			return
		}
		want, wantTreeErr := ToTree(plain.GetTree())
		var memory Memory
		for range 2 {
			got, _, err := memory.Decode(proto.CloneOf(ours))
			switch {
			case wantErr == nil && (err == nil) != (wantTreeErr == nil), wantErr != nil && err == nil:
				t.Fatalf("plain: %v, %v; ours: %v", wantErr, wantTreeErr, err)
			case err == nil && (!got.Same(want) || ours.GetNode() != plain.GetNode()):
				t.Fatal("another tree")
			}
		}
	})
}
