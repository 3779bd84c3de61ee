// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/fake/internal/faults"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	guestA = "aaaaaaaa-0000-0000-0000-000000000000"
	guestB = "bbbbbbbb-0000-0000-0000-000000000000"
	share  = "cccccccc-0000-0000-0000-000000000000" // a sharing provider
)

// laidOut is the same node in a layout, with more keys.
func laidOut(layout, more string) string {
	return fmt.Sprintf(`{"layout":%q,%s "nodes":[{"name":"cn1","inventories":{"VCPU":{"total":8},`+
		`"MEMORY_MB":{"total":5},"VGPU":{"total":4},"DISK_GB":{"total":9}}}]}`, layout, more)
}

func reported(t *testing.T, raw string) *providertree.Tree {
	t.Helper()
	tree := newTree(t, "cn1")
	update(t, configured(t, raw), tree, "cn1")
	return tree
}

func consumers(resources map[string]providertree.ProviderResources) providertree.Allocations {
	out := providertree.Allocations{}
	for consumer, r := range resources {
		out[consumer] = providertree.ConsumerAllocations{Resources: r}
	}
	return out.Clone()
}

// held is what consumers hold in words, with providers by name.
func held(tree *providertree.Tree, allocations providertree.Allocations) []string {
	var out []string
	for consumer, c := range allocations {
		for provider, amounts := range c.Resources {
			name := provider[:1]
			if p, ok := tree.Provider(provider); ok {
				name = p.Name
			}
			for class, n := range amounts {
				out = append(out, fmt.Sprintf("%s: %d %s on %s", consumer[:1], n, class, name))
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestLayoutsOfANewNode(t *testing.T) {
	for layout, want := range map[string][]string{
		"":     {"cn1 DISK_GB,MEMORY_MB,VCPU,VGPU "},
		"flat": {"cn1 DISK_GB,MEMORY_MB,VCPU,VGPU "},
		"vgpu-children": {
			"cn1 DISK_GB,MEMORY_MB,VCPU ", "  cn1_gpu_0 VGPU ", "  cn1_gpu_1 VGPU "},
		"numa": {
			"cn1 DISK_GB ", "  cn1_gpu_0 VGPU ", "  cn1_gpu_1 VGPU ", "  cn1_numa_0 MEMORY_MB,VCPU HW_NUMA_ROOT",
			"  cn1_numa_1 MEMORY_MB,VCPU HW_NUMA_ROOT"},
	} {
		tree := reported(t, laidOut(layout, ""))
		testproc.Samef(t, cmp.Diff(want, outline(tree)), "%s", layout)
		total := map[string]int64{}
		for p := range tree.All() {
			for class, inv := range p.Inventories {
				total[class] += inv.Total
			}
		}
		if diff := cmp.Diff(map[string]int64{"VCPU": 8, "MEMORY_MB": 5, "VGPU": 4, "DISK_GB": 9}, total); diff != "" {
			t.Errorf("%s: inventory: %s", layout, diff)
		}
	}
	few := reported(t, `{"layout":"vgpu-children","gpus":3,"nodes":[{"name":"cn1",`+
		`"inventories":{"VGPU":{"total":2}}}]}`)
	if diff := cmp.Diff([]string{"cn1  ", "  cn1_gpu_0 VGPU ", "  cn1_gpu_1 VGPU ", "  cn1_gpu_2  "},
		outline(few)); diff != "" {
		t.Errorf("fewer units than children: %s", diff)
	}
}

// reshape asks without allocations and then with them, as the agent does.
func reshape(
	t *testing.T, d *Driver, tree *providertree.Tree, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	t.Helper()
	untouched := tree.Clone()
	if _, err := d.UpdateProviderTree(context.Background(),
		tree, "cn1", nil); !errors.Is(err, plugins.ErrReshapeNeeded) {
		t.Fatalf("without allocations: %v", err)
	}
	if !tree.Equal(untouched) {
		t.Error("the tree was edited though a reshape is needed")
	}
	return d.UpdateProviderTree(context.Background(), tree, "cn1", allocations)
}

// TestEveryLayoutFromEveryOther: allocations follow the inventory, whatever the layout before;
// nothing of other providers moves; the result is what the layout gives a new node, and needs
// nothing more.
func TestEveryLayoutFromEveryOther(t *testing.T) {
	names := []string{"flat", "vgpu-children", "numa"}
	for _, from := range names {
		for _, to := range names {
			if from == to {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				tree := reported(t, laidOut("flat", ""))
				before := consumers(map[string]providertree.ProviderResources{
					guestA: {rootUUID: {"VCPU": 3, "MEMORY_MB": 2, "VGPU": 2, "DISK_GB": 1}, share: {"DISK_GB": 5}},
					guestB: {rootUUID: {"VCPU": 4, "VGPU": 1}, foreign: {"VGPU": 1}},
				})
				sums := func(a providertree.Allocations) providertree.ProviderResources {
					out := providertree.ProviderResources{}
					for consumer, c := range a {
						out[consumer] = c.Totals()
					}
					return out
				}
				at := before
				for _, layout := range []string{from, to} {
					if layout == "flat" && from == "flat" {
						continue // it is the first
					}
					after := testproc.Try(reshape(t, configured(t, laidOut(layout, "")), tree, at)).Or(t)
					at = after
				}
				testproc.Samef(t, cmp.Diff(sums(before), sums(at)), "sums")
				if at[guestA].Resources[share]["DISK_GB"] != 5 || at[guestB].Resources[foreign]["VGPU"] != 1 {
					t.Errorf("what is elsewhere was touched: %v", held(tree, at))
				}
				want := reported(t, laidOut(to, ""))
				if !tree.Equal(want) {
					t.Errorf("tree: %s", cmp.Diff(outline(want), outline(tree)))
				}
				for p := range tree.All() {
					for class, used := range at.Used(p.UUID) {
						if inv, ok := p.Inventories[class]; !ok || used > inv.Capacity() {
							t.Errorf("%d of %s in use on %s: %+v", used, class, p.Name, inv)
						}
					}
				}
				again := tree.Clone()
				update(t, configured(t, laidOut(to, "")), again, "cn1")
				if !again.Equal(tree) {
					t.Error("called with its own result it changes something")
				}
			})
		}
	}
}

func TestGuestsAreWhereTheirDevicesAre(t *testing.T) {
	tree := reported(t, laidOut("flat", ""))
	d := configured(t, laidOut("vgpu-children", `"guests":{"`+guestA+`":"gpu_1"},`))
	after := testproc.Try(reshape(t, d, tree, consumers(map[string]providertree.ProviderResources{
		guestA: {rootUUID: {"VGPU": 1, "VCPU": 1}}, guestB: {rootUUID: {"VGPU": 2}}}))).Or(t)
	testproc.Same(t, cmp.Diff([]string{"a: 1 VCPU on cn1", "a: 1 VGPU on cn1_gpu_1", "b: 2 VGPU on cn1_gpu_0"},
		held(tree, after)))
}

func TestAClassIsRenamed(t *testing.T) {
	tree := reported(t, `{"nodes":[{"name":"cn1","inventories":{"CUSTOM_GPU":{"total":4},"VCPU":{"total":8}}}]}`)
	before := consumers(
		map[string]providertree.ProviderResources{guestA: {rootUUID: {"CUSTOM_GPU": 1, "VCPU": 1},
			foreign: {"CUSTOM_GPU": 1}}})
	for _, c := range []struct {
		layout string
		want   []string
	}{
		{"flat", []string{"a: 1 CUSTOM_GPU on 9", "a: 1 VCPU on cn1", "a: 1 VGPU on cn1"}},
		{"vgpu-children", []string{"a: 1 CUSTOM_GPU on 9", "a: 1 VCPU on cn1", "a: 1 VGPU on cn1_gpu_0"}},
	} {
		d := configured(t, `{"layout":"`+c.layout+
			`","class_renames":{"CUSTOM_GPU":"VGPU"},"nodes":[{"name":"cn1","inventories":{"VGPU":{"total":4},`+
			`"VCPU":{"total":8}}}]}`)
		testproc.Same(t, cmp.Diff(map[string]string{"CUSTOM_GPU": "VGPU"}, d.ClassRenames()))
		after := tree.Clone()
		got := testproc.Try(reshape(t, d, after, before)).Or(t)
		testproc.Same(t, cmp.Diff(c.want, held(after, got)))
		if out := strings.Join(outline(after), "\n"); strings.Contains(out, "CUSTOM_GPU") ||
			!strings.Contains(out, "VGPU") {
			t.Errorf("tree:\n%s", out)
		}
	}
}

// TestWhatIsNoReshape: inventory that goes or comes without a counterpart is changed at once.
func TestWhatIsNoReshape(t *testing.T) {
	tree := reported(t, laidOut("vgpu-children", ""))
	for _, raw := range []string{
		laidOut("vgpu-children", `"gpus":1,`),                              // taken out
		laidOut("vgpu-children", `"gpus":4,`),                              // put in
		`{"nodes":[{"name":"cn1","inventories":{"DISK_GB":{"total":9}}}]}`, // no VGPU any more
	} {
		update(t, configured(t, raw), tree.Clone(), "cn1")
	}
}

func TestWhatDoesNotFitFails(t *testing.T) {
	tree := reported(t, laidOut("flat", ""))
	_, err := reshape(t, configured(t, laidOut("numa", "")), tree, consumers(map[string]providertree.ProviderResources{
		guestA: {rootUUID: {"VGPU": 3, "VCPU": 9}}, guestB: {rootUUID: {"VGPU": 2, "MEMORY_MB": 6}}}))
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) {
		t.Fatalf("%v", err)
	}
	var got []string
	for _, o := range failed.Violations {
		got = append(got, o.Consumer[:1]+" "+o.Class)
	}
	if diff := cmp.Diff([]string{"b MEMORY_MB", "a VCPU", "b VGPU"}, got); diff != "" {
		t.Errorf("all of them are named: %s\n%v", diff, err)
	}
}

func TestFaultsOfAReshape(t *testing.T) {
	before := map[string]providertree.ProviderResources{guestA: {rootUUID: {"VGPU": 1, "VCPU": 1}},
		guestB: {rootUUID: {"VGPU": 2}}}
	for _, how := range faults.Reshapes[1:] {
		if how == faults.Ignore || how == faults.Repeat { // they ask at the wrong time, see the next test
			continue
		}
		t.Run(how, func(t *testing.T) {
			tree := reported(t, laidOut("flat", ""))
			good, err := reshape(t, configured(t, laidOut("vgpu-children", "")), tree.Clone(), consumers(before))
			testproc.Check(t, err)
			got, err := reshape(t, configured(t, laidOut("vgpu-children", `"faults":{"reshape":"`+how+`"},`)), tree,
				consumers(before))
			var failed *plugins.ReshapeFailed
			switch {
			case how == faults.Again:
				testproc.ErrorIs(t, err, plugins.ErrReshapeNeeded, "%v")
			case how == "fail":
				if !errors.As(err, &failed) || len(failed.Violations) != 2 {
					t.Errorf("%v", err)
				}
			case err != nil:
				t.Error(err)
			case cmp.Equal(good, got):
				t.Error("nothing is wrong with it")
			}
		})
	}
	sane := reported(t, laidOut("flat", `"faults":{"reshape":"lose"},`)) // only a reshape is spoiled
	testproc.Same(t, cmp.Diff(outline(reported(t, laidOut("flat", ""))), outline(sane)))
}

// TestReshapesAskedForAtTheWrongTime: one release asks for none although the tree is another one,
// and leaves what it does not know; one asks at every pass.
func TestReshapesAskedForAtTheWrongTime(t *testing.T) {
	children := reported(t, laidOut("vgpu-children", ""))
	tree := children.Clone()
	testproc.Try(configured(t, laidOut("flat", `"faults":{"reshape":"ignore"},`)).
		UpdateProviderTree(t.Context(), tree, "cn1", nil)).Or(t)
	if _, there := tree.Inventory(rootUUID, "VGPU"); !there || tree.Len() != children.Len() {
		t.Errorf("VGPU is on the root: %t, with %d of %d providers", there, tree.Len(), children.Len())
	}
	driver := configured(t, laidOut("vgpu-children", `"faults":{"reshape":"repeat"},`))
	for range 2 {
		if _, err := driver.UpdateProviderTree(t.Context(),
			children.Clone(), "cn1", nil); !errors.Is(err, plugins.ErrReshapeNeeded) {
			t.Errorf("without allocations: %v", err)
		}
		if _, err := driver.UpdateProviderTree(t.Context(),
			children.Clone(), "cn1", providertree.Allocations{}); err != nil {
			t.Errorf("with allocations: %v", err)
		}
	}
}

func TestMistakesAboutLayoutsAreNamedByTheirKey(t *testing.T) {
	for raw, key := range map[string]string{
		`{"layout":"round"}`:                    "layout",
		`{"gpus":-1}`:                           "gpus",
		`{"numa_cells":1001}`:                   "numa_cells",
		`{"class_renames":{"A":"A"}}`:           "class_renames",
		`{"guests":{"x":"gpu_0"}}`:              "guests.x",
		`{"guests":{"` + guestA + `":""}}`:      "guests." + guestA,
		`{"class_renames":{"VCPU":"CUSTOM_X"}}`: "class_renames.VCPU",
		`{"layout":"vgpu-children","nodes":[{"name":"a","inventories":{"VGPU":{"total":2}},` +
			`"children":[{"name":"gpu_1"}]}]}`: "nodes[0].children",
	} {
		var config *plugins.ConfigError
		if err := New().Configure(context.Background(),
			json.RawMessage(raw), plugins.HostInfo{Name: "h"}); !errors.As(err, &config) || config.Key != key {
			t.Errorf("%s: want key %s, got %v", raw, key, err)
		}
	}
}
