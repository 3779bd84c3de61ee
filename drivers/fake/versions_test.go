// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// release is the driver at a layout, on a machine that has something of everything.
func release(version int, more string) string {
	return fmt.Sprintf(`{"layout_version":%d,%s "nodes":[{"name":"cn1","traits":["CUSTOM_T"],
		"inventories":{"VCPU":{"total":8},"MEMORY_MB":{"total":6},"VGPU":{"total":4},"FPGA":{"total":2},"DISK_GB":{"total":9}}}]}`, version, more)
}

var outlines = map[int][]string{
	1: {"cn1 CUSTOM_FPGA,DISK_GB,MEMORY_MB,VCPU,VGPU CUSTOM_T"},
	2: {"cn1 CUSTOM_FPGA,DISK_GB,MEMORY_MB,VCPU CUSTOM_T", "  cn1_gpu_0 VGPU ", "  cn1_gpu_1 VGPU "},
	3: {"cn1 CUSTOM_FPGA,DISK_GB CUSTOM_T",
		"  cn1_numa_0 MEMORY_MB,VCPU HW_NUMA_ROOT",
		"    cn1_gpu_0 VGPU ", "  cn1_numa_1 MEMORY_MB,VCPU HW_NUMA_ROOT", "    cn1_gpu_1 VGPU "},
	4: {"cn1 DISK_GB,FPGA CUSTOM_T",
		"  cn1_numa_0 MEMORY_MB,VCPU HW_NUMA_ROOT",
		"    cn1_gpu_0 VGPU ", "  cn1_numa_1 MEMORY_MB,VCPU HW_NUMA_ROOT", "    cn1_gpu_1 VGPU "},
}

func TestLayoutVersionsOfANewNode(t *testing.T) {
	for version, want := range outlines {
		raw := release(version, "")
		testproc.Equal(t, configured(t, raw).LayoutVersion(), version, "version %d")
		tree := reported(t, raw)
		testproc.Samef(t, cmp.Diff(want, outline(tree)), "layout %d", version)
		again := tree.Clone()
		update(t, configured(t, raw), again, "cn1")
		if !again.Equal(tree) {
			t.Errorf("layout %d: called with its own result it changes something", version)
		}
	}
	testproc.Equal(t, configured(t, `{}`).LayoutVersion(), 0, "without the key: %d")
}

// inUse are guests on a flat node, with something elsewhere too.
func inUse() providertree.Allocations {
	return consumers(map[string]providertree.ProviderResources{
		guestA: {rootUUID: {"VCPU": 3, "MEMORY_MB": 2, "VGPU": 2, "CUSTOM_FPGA": 1, "DISK_GB": 1},
			share: {"DISK_GB": 5}},
		guestB: {rootUUID: {"VCPU": 4, "VGPU": 1}, foreign: {"VGPU": 1, "CUSTOM_FPGA": 1}},
	})
}

// TestThreeLayoutsBehind: step by step, as the agent walks them, from a tree that is known to be
// flat and from one of unknown layout.
func TestThreeLayoutsBehind(t *testing.T) {
	for _, from := range []int{0, 1} {
		t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
			d := configured(t, release(4, `"guests":{"`+guestA+`":"gpu_1"},`))
			tree, at := reported(t, release(1, "")), inUse()
			for step := from; step < 4; step++ {
				after := testproc.Try(d.Reshape(context.Background(), tree, "cn1", step, at)).Or(t)
				renames := map[string]string(nil)
				if step == 3 {
					renames = map[string]string{"CUSTOM_FPGA": "FPGA"}
				}
				testproc.Samef(t, cmp.Diff(renames, d.ClassRenames()), "step %d declares", step)
				at = after
				want := outlines[max(step+1, 1)]
				testproc.Samef(t, cmp.Diff(want, outline(tree)), "after step %d", step)
			}
			want := []string{
				"a: 1 DISK_GB on cn1", "a: 1 FPGA on cn1", "a: 2 MEMORY_MB on cn1_numa_0", "a: 2 VGPU on cn1_gpu_1",
				"a: 3 VCPU on cn1_numa_1", "a: 5 DISK_GB on c",
				"b: 1 CUSTOM_FPGA on 9", "b: 1 VGPU on 9", "b: 1 VGPU on cn1_gpu_0", "b: 4 VCPU on cn1_numa_0",
			}
			testproc.Same(t, cmp.Diff(want, held(tree, at)))
			before := tree.Clone()
			if _, err := d.UpdateProviderTree(context.Background(), tree, "cn1", at); err != nil {
				t.Error(err)
			}
			if !tree.Equal(before) || !tree.Equal(reported(t, release(4, ""))) {
				t.Error("the last step does not leave what a new node has")
			}
		})
	}
}

// TestStepsAreIdempotent: whatever layout a tree has, the steps up to it change nothing, be
// it for want of a better number or after an interruption.
func TestStepsAreIdempotent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		has := rapid.IntRange(0, 4).Draw(rt, "the tree's layout") // 0: an empty one
		release4 := configured(t, release(4, ""))
		tree, at := newTree(t, "cn1"), providertree.Allocations{}
		if has > 0 {
			tree, at = reported(t, release(1, "")), inUse()
			for step := 1; step < has; step++ {
				after := testproc.Try(release4.Reshape(context.Background(), tree, "cn1", step, at)).Or(rt)
				at = after
			}
		}
		wasTree, was := tree.Clone(), at.Clone()
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			most := 3
			if has > 0 {
				most = has - 1
			}
			from := rapid.IntRange(0, most).Draw(rt, "from")
			after := testproc.Try(release4.Reshape(context.Background(), tree, "cn1", from, at)).Or(rt)
			at = after
		}
		if !tree.Equal(wasTree) {
			rt.Errorf("the tree changed: %s", cmp.Diff(outline(wasTree), outline(tree)))
		}
		testproc.Samef(rt, cmp.Diff(was, at), "allocations changed")
	})
}

// TestAllStepsAtOnce is for agents that know nothing of layouts: they ask as they ask any driver.
func TestAllStepsAtOnce(t *testing.T) {
	for has := 1; has < 4; has++ {
		tree, at := reported(t, release(1, "")), inUse()
		if has > 1 {
			var err error
			if at, err = reshape(t, configured(t, release(has, "")), tree, at); err != nil {
				t.Fatal(err)
			}
		}
		d := configured(t, release(4, ""))
		got := testproc.Try(reshape(t, d, tree, at)).Or(t)
		if !tree.Equal(reported(t, release(4, ""))) {
			t.Errorf("from layout version %d: %v", has, outline(tree))
		}
		testproc.Same(t, cmp.Diff(map[string]string{"CUSTOM_FPGA": "FPGA"}, d.ClassRenames()))
		renames := plugins.ClassRenames(d.ClassRenames())
		for consumer, c := range inUse() {
			if diff := cmp.Diff(renames.Totals(c.Totals()), renames.Totals(got[consumer].Totals())); diff != "" {
				t.Errorf("from layout version %d: %s", has, diff)
			}
		}
	}
}

// TestALaterLayoutIsNotMovedBack: an older release does not know where things are; it must not make
// a mess of that.
func TestALaterLayoutIsNotMovedBack(t *testing.T) {
	tree := reported(t, release(4, ""))
	_, err := reshape(t, configured(t, release(2, "")), tree, providertree.Allocations{})
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) || len(failed.Violations) != 4 {
		t.Errorf("got %v", err)
	}
}

func TestStepsThatCannotBe(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		raw, node string
		from      int
	}{
		{release(2, ""), "cn1", 2}, {release(2, ""), "cn2", 1}, {release(2, `"not_ready":"asleep",`), "cn1", 1},
		{release(2, `"faults":{"reshape":"again"},`), "cn1", 1},
		{release(2, `"faults":{"reshape":"fail"},`), "cn1", 1},
	} {
		tree := reported(t, release(1, ""))
		if _, err := configured(t, c.raw).Reshape(ctx, tree, c.node, c.from, inUse()); err == nil {
			t.Errorf("%s, node %s, from %d: no error", c.raw, c.node, c.from)
		}
	}
	if _, err := configured(t, release(2, "")).
		Reshape(ctx, newTree(t, "cn3"), "cn3", 1, providertree.Allocations{}); err == nil {
		t.Error("a node that is not configured: no error")
	}
}

func TestMistakesAboutVersionsAreNamedByTheirKey(t *testing.T) {
	for raw, key := range map[string]string{
		`{"layout_version":5}`:                 "layout_version",
		`{"layout_version":-1}`:                "layout_version",
		`{"layout_version":1,"layout":"flat"}`: "layout",
		// by the names up to 0.2.0
		`{"shape":"round"}`:                      "shape",
		`{"shape_version":5}`:                    "shape_version",
		`{"shape_version":1,"shape":"flat"}`:     "shape",
		`{"shape":"flat","layout":"flat"}`:       "shape",
		`{"shape_version":1,"layout_version":1}`: "shape_version",
		`{"layout_version":1,"class_renames":{"CUSTOM_A":"FPGA","CUSTOM_B":"FPGA"}}`: "class_renames.CUSTOM_B",
		`{"layout_version":1,"nodes":[{"name":"a",` +
			`"inventories":{"CUSTOM_FPGA":{"total":2}}}]}`: "class_renames.CUSTOM_FPGA",
		`{"layout_version":3,"nodes":[{"name":"a","inventories":{"VCPU":{"total":2}},` +
			`"children":[{"name":"numa_1"}]}]}`: "nodes[0].children",
		`{"layout_version":2,"nodes":[{"name":"b"},{"name":"a","inventories":{"VGPU":{"total":2}},` +
			`"children":[{"name":"gpu_1"}]}]}`: "nodes[1].children",
	} {
		var config *plugins.ConfigError
		if err := New().Configure(context.Background(),
			json.RawMessage(raw), plugins.HostInfo{Name: "h"}); !errors.As(err, &config) || config.Key != key {
			t.Errorf("%s: want key %s, got %v", raw, key, err)
		}
	}
}

// TestFormerKeysWorkWithAWarning: they do what the keys do that took their place, also where a
// scenario names the one and then the other.
func TestFormerKeysWorkWithAWarning(t *testing.T) {
	const nodes = `"nodes":[{"name":"cn1","inventories":{"VCPU":{"total":8},"VGPU":{"total":4}}}]}`
	for former, current := range map[string]string{`{"shape":"numa",`: `{"layout":"numa",`,
		`{"shape_version":2,`: `{"layout_version":2,`} {
		d, want := configured(t, former+nodes), configured(t, current+nodes)
		testproc.Same(t, cmp.Diff(outline(reported(t, current+nodes)), outline(reported(t, former+nodes))))
		testproc.Equal(t, d.LayoutVersion(), want.LayoutVersion(), former+" layout version %d")
		key, _, _ := strings.Cut(former[2:], `"`)
		warnings := d.Warnings()
		if len(warnings) != 1 || warnings[0].Name != "former-key."+key ||
			!strings.Contains(warnings[0].Text, "the key "+key+" is called "+formerKeys[key]+" now") {
			t.Errorf("%s: %v", former, warnings)
		}
		if warnings = want.Warnings(); len(warnings) > 0 {
			t.Errorf("%s: %v", current, warnings)
		}
	}
	err := New().Configure(context.Background(),
		json.RawMessage(`{"shape_version":1,"class_renames":{"CUSTOM_A":"FPGA","CUSTOM_B":"FPGA"}}`),
		plugins.HostInfo{Name: "h"})
	if err == nil || !strings.Contains(err.Error(), "with shape_version a class has one former name only") {
		t.Errorf("%v", err)
	}
	acts := testproc.Try(
		parseScenario([]byte(
			"shape = \"flat\"\n[[then]]\nafter = \"1s\"\nlayout = \"numa\"\n[[then]]\nafter = \"2s\"\nshape = "+
				"\"vgpu-children\"\n"),
			time.Unix(0, 0), plugins.HostInfo{Name: "cn1"})).Or(t)
	var got []string
	for _, a := range acts {
		got = append(got, a.cfg.Layout)
	}
	testproc.Same(t, cmp.Diff([]string{"flat", "numa", "vgpu-children"}, got))
}
