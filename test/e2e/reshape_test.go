// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// timeout is when a wait is given up.
func timeout() <-chan time.Time { return time.After(patience) }

// The consumers of the scenarios.
const (
	guest     = "01000000-0000-0000-0000-000000000000"
	large     = "02000000-0000-0000-0000-000000000000" // with a disk on shared storage
	leaving   = "03000000-0000-0000-0000-000000000000" // evacuated: it has allocations on cn2 too
	plain     = "04000000-0000-0000-0000-000000000000" // uses nothing that moves to GPUs
	migration = "05000000-0000-0000-0000-000000000000"
)

// machine is the driver's configuration of one machine in a layout.
func machine(layout string, keys ...string) string {
	return machineWith("VGPU", 4, layout, keys...)
}

// machineWith names the class of its GPUs, and how far its processors are overcommitted.
func machineWith(gpu string, ratio int, layout string, keys ...string) string {
	return fmt.Sprintf(`layout = %q
%s
nodes = [{name = "cn1", traits = ["CUSTOM_FAST"], inventories = {VCPU = {total = 8, allocation_ratio = %d.0}, MEMORY_MB = {total = 8192},
  SRIOV_NET_VF = {total = 8}, DISK_GB = {total = 100}, %s = {total = 8}}}]`, layout, strings.Join(keys, "\n"), ratio, gpu)
}

// busy is a host in use: instances, one with shared storage, one that is being evacuated, and a
// migration.
func busy(gpu string) holding {
	return holding{
		guest:     {"cn1": {"VCPU": 2, "MEMORY_MB": 1024, gpu: 1}},
		large:     {"cn1": {"VCPU": 6, "MEMORY_MB": 4000, gpu: 3, "SRIOV_NET_VF": 2}, "nfs": {"DISK_GB": 50}},
		leaving:   {"cn1": {"VCPU": 1, gpu: 1}, "cn2": {"VCPU": 1, "VGPU": 1}},
		plain:     {"cn1": {"VCPU": 1, "DISK_GB": 10}},
		migration: {"cn1": {"VCPU": 2, "MEMORY_MB": 1024, gpu: 1}},
	}
}

var renamed = map[string]string{"CUSTOM_GPU": "VGPU"}

// scenario is one host whose machine gets other layouts.
type scenario struct {
	name string
	// steps are what the driver is configured to, one start after the other; claims come after the
	// first.
	steps  []string
	claims holding
	// want is where the consumers are in the end; nil: only the sums are checked.
	want holding
	// inventory is where inventory of these classes is in the end.
	inventory map[string][]string
	// tooOld: a Placement older than March 2025 refuses it, since it checks the capacity of
	// unchanged allocations too.
	tooOld bool
}

// reshapes are the specification's examples and variations of them.
var reshapes = []scenario{
	{
		name:   "VGPU from the root to one child per GPU",
		steps:  []string{machine("flat"), machine("vgpu-children", `guests = {"`+guest+`" = "gpu_1"}`)},
		claims: busy("VGPU"),
		want: holding{
			guest: {"cn1": {"VCPU": 2, "MEMORY_MB": 1024}, "cn1_gpu_1": {"VGPU": 1}},
			large: {"cn1": {"VCPU": 6, "MEMORY_MB": 4000, "SRIOV_NET_VF": 2},
				"cn1_gpu_1": {"VGPU": 3}, "nfs": {"DISK_GB": 50}},
			leaving:   {"cn1": {"VCPU": 1}, "cn1_gpu_0": {"VGPU": 1}, "cn2": {"VCPU": 1, "VGPU": 1}},
			plain:     {"cn1": {"VCPU": 1, "DISK_GB": 10}},
			migration: {"cn1": {"VCPU": 2, "MEMORY_MB": 1024}, "cn1_gpu_0": {"VGPU": 1}},
		},
		inventory: map[string][]string{"VGPU": {"cn1_gpu_0", "cn1_gpu_1", "cn2"}, "VCPU": {"cn1", "cn2"}},
	},
	{
		name:  "processors, memory and VFs from the root to NUMA nodes",
		steps: []string{machine("vgpu-children"), machine("numa")},
		claims: holding{guest: {"cn1": {"VCPU": 2, "MEMORY_MB": 1024, "SRIOV_NET_VF": 1}, "cn1_gpu_0": {"VGPU": 1}},
			large: {"cn1": {"VCPU": 6, "MEMORY_MB": 4000}, "nfs": {"DISK_GB": 5}}, migration: {"cn1": {"VCPU": 2}}},
		inventory: map[string][]string{"VCPU": {"cn1_numa_0", "cn1_numa_1", "cn2"},
			"MEMORY_MB":    {"cn1_numa_0", "cn1_numa_1", "cn2"},
			"SRIOV_NET_VF": {"cn1_numa_0", "cn1_numa_1"}, "DISK_GB": {"cn1", "nfs"}},
	},
	{
		name: "a custom class renamed to a standard one",
		steps: []string{machineWith("CUSTOM_GPU", 4, "flat"),
			machine("flat", `class_renames = {CUSTOM_GPU = "VGPU"}`)},
		claims:    busy("CUSTOM_GPU"),
		want:      busy("VGPU"),
		inventory: map[string][]string{"VGPU": {"cn1", "cn2"}, "CUSTOM_GPU": nil},
	},
	{
		name: "three layouts behind, with a rename on the way",
		steps: []string{machineWith("CUSTOM_GPU", 4, "flat"),
			machine("numa", `class_renames = {CUSTOM_GPU = "VGPU"}`)},
		claims: busy("CUSTOM_GPU"),
		inventory: map[string][]string{"VGPU": {"cn1_gpu_0", "cn1_gpu_1", "cn2"},
			"VCPU": {"cn1_numa_0", "cn1_numa_1", "cn2"}, "CUSTOM_GPU": nil},
	},
	{
		name:      "there and back, one step at a time",
		steps:     []string{machine("flat"), machine("vgpu-children"), machine("numa"), machine("flat")},
		claims:    busy("VGPU"),
		want:      busy("VGPU"),
		inventory: map[string][]string{"VGPU": {"cn1", "cn2"}, "VCPU": {"cn1", "cn2"}},
	},
	{
		name:  "no allocations",
		steps: []string{machine("flat"), machine("numa")},
		want:  holding{},
		inventory: map[string][]string{"VGPU": {"cn1_gpu_0", "cn1_gpu_1", "cn2"},
			"VCPU": {"cn1_numa_0", "cn1_numa_1", "cn2"}},
	},
	{
		name:      "overcommitted beyond what is allowed now, on the provider that the VGPUs leave",
		steps:     []string{machine("flat"), machineWith("VGPU", 1, "flat"), machineWith("VGPU", 1, "vgpu-children")},
		claims:    busy("VGPU"),
		inventory: map[string][]string{"VGPU": {"cn1_gpu_0", "cn1_gpu_1", "cn2"}, "VCPU": {"cn1", "cn2"}},
		tooOld:    true,
	},
}

// TestReshape starts an agent, lets other clients claim what it reports, and starts it again with
// the same machine in another layout.
func TestReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for kind, empty := range placements(t) {
		for i, tc := range reshapes {
			if !turn(kind, i) && !tc.tooOld {
				continue
			}
			t.Run(kind+"/"+tc.name, func(t *testing.T) {
				newWorld(t, empty(t)).goThrough(tc, kind == "openstack" && tc.tooOld)
			})
		}
	}
}

// goThrough lets agents take the steps of a scenario, and checks what Placement has then. refused
// says that Placement refuses them.
func (w *world) goThrough(tc scenario, refused bool) {
	t := w.t
	t.Helper()
	w.write(tc.steps[0], "")
	w.settle()
	w.others()
	w.claim(tc.claims)
	before := w.look()
	if refused {
		w.refusedAsTooOld(tc.steps[1:], before)
		return
	}
	for _, step := range tc.steps[1:] {
		w.write(step, "")
		if w.settle() == 0 {
			t.Error("nothing was written")
		}
		testproc.Samef(t, cmp.Diff(tc.claims.sums(renamed), w.look().Holding.sums(renamed)), "sums")
	}
	after := w.look()
	if tc.want != nil {
		testproc.Samef(t, cmp.Diff(tc.want, after.Holding), "allocations")
	}
	w.checkLayout(before, after, tc.inventory)

	testproc.Equal(t, w.settle(), 0, "%d writes at the next start")
	testproc.Samef(t, cmp.Diff(after, w.look()), "the next start changed something")
}

// checkLayout checks that inventory is where it should be, and that the reshape left alone what
// does not belong to it.
func (w *world) checkLayout(before, after picture, inventory map[string][]string) {
	w.t.Helper()
	for class, want := range inventory {
		for name, inventories := range after.Inventories {
			_, has := inventories[class]
			wanted := false
			for _, p := range want {
				wanted = wanted || p == name
			}
			testproc.Equal(w.t, has, wanted, "%s on %s: %v", class, name)
		}
	}
	testproc.Samef(w.t, cmp.Diff(before.Owners, after.Owners), "owners")
	for _, name := range []string{"cn1", "cn2", "nfs"} {
		if diff := cmp.Diff([]any{before.Traits[name], before.Aggregates[name]},
			[]any{after.Traits[name], after.Aggregates[name]}); diff != "" {
			w.t.Errorf("traits and aggregates of %s: %s", name, diff)
		}
	}
	for _, name := range []string{"cn2", "nfs"} {
		testproc.Samef(w.t, cmp.Diff(before.Inventories[name], after.Inventories[name]), "inventory of %s", name)
	}
}

// refusedAsTooOld: what this Placement cannot do ends with exit code 3, if it is configured so, and
// with every allocation where it was.
func (w *world) refusedAsTooOld(steps []string, before picture) {
	w.t.Helper()
	for _, step := range steps[:len(steps)-1] {
		w.write(step, "")
		w.settle()
	}
	w.write(steps[len(steps)-1], "[reshape]\non_failure = \"exit\"")
	agent := w.run()
	testproc.Equal(w.t, agent.exit(), 3, "exit code %d")
	testproc.Samef(w.t, cmp.Diff(before.Holding, w.look().Holding), "allocations")
}
