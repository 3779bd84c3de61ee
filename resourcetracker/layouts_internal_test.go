// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestLayoutTraitsAreOfThisDriverOnly: one with a longer name has traits with the same beginning.
func TestLayoutTraitsAreOfThisDriverOnly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const ours, other = "CUSTOM_COMPUTE_AGENT_SHAPE_ACME_2", "CUSTOM_COMPUTE_AGENT_SHAPE_ACME_GPU_2"
	tracker := New(Config{Name: "acme"})
	node := plugins.Node{Name: "cn1", UUID: "00000001-0000-4000-8000-000000000000"}
	d := draft{Draft: reshape.Draft{Node: node, Known: &providertree.Tree{}}, layout: 2,
		record: &ownership.Record{Providers: map[string]ownership.Provider{
			node.UUID: {Traits: map[string]ownership.Owner{other: ownership.Agent}},
		}}}
	testproc.Check(t, d.Known.Populate([]providertree.Provider{{UUID: node.UUID, Name: "cn1", Generation: 1}}))
	testproc.Try(d.Known.AddTraits(node.UUID, other)).Or(t)
	if traits, former := tracker.layoutTraits(d); tracker.hadLayout(d) || len(traits)+len(former) > 0 {
		t.Errorf("another driver's trait is taken for ours: had a layout %v, traits %q, former %q",
			tracker.hadLayout(d), traits, former)
	}
	testproc.Try(d.Known.AddTraits(node.UUID, ours)).Or(t)
	traits, former := tracker.layoutTraits(d)
	testproc.Same(t, cmp.Diff([][]string{{"CUSTOM_COMPUTE_AGENT_LAYOUT_ACME_2"}, {ours}}, [][]string{traits, former}))
}

// TestHeldBy names ten consumers at most.
func TestHeldBy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var all []string
	for n := range 12 {
		all = append(all, fmt.Sprint("c", n))
	}
	ten := strings.Join(all[:10], ", ")
	for n, want := range map[int]string{
		0: "", 1: " They are held by the consumer c0.", 2: " They are held by the consumers c0, c1.",
		10: " They are held by the consumers " + ten + ".", 11: " They are held by the consumers " + ten +
			" and 1 more.", 12: " They are held by the consumers " + ten + " and 2 more.",
	} {
		testproc.Equal(t, heldBy(all[:n]), want, "%d: %q", n)
	}
}
