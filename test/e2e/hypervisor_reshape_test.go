// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHypervisor reshapes a machine under a real libvirtd, with guests that run, on the bundled
// Placement and on OpenStack's.
func TestHypervisor(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	services := placements(t)
	h := inhabit(t)
	for i, story := range []struct {
		name string
		tell func(r *residence, another func() *residence)
	}{
		{"devices, then NUMA cells, and back", devicesThenCells},
		{"all at once", allAtOnce},
		{"dedicated processors", dedicatedProcessors},
		{"contexts of memory encryption", encryptionContexts},
		{"other classes", otherClasses},
		{"unknown consumers", unknownConsumers},
		{"a GPU goes and comes back", goneAndBack},
		{"a GPU died before all is nested", diedBeforeNesting},
		{"adoption of Nova's tree", adoptedFromNova},
	} {
		for _, kind := range slices.Sorted(maps.Keys(services)) {
			if !turn(kind, i) {
				continue
			}
			t.Run(kind+"/"+story.name, func(t *testing.T) {
				another := func() *residence { return h.residence(t, services[kind](t)) }
				story.tell(another(), another)
			})
		}
	}
}

// The machine's layouts in Placement, and what the guests hold in each.
var (
	flatTree = []string{
		"cn1 MEMORY_MB=32768-512/32768 PCPU=8/8 VCPU=8*4/8 +CUSTOM_COMPUTE_AGENT_LAYOUT_LIBVIRT_2 +CUSTOM_GOLD " +
			"+OWNER_NOVA @az1",
		"  cn1:NIC_Switch_agent +CUSTOM_VNIC_TYPE_DIRECT",
		"  cn1_0000:06:00.0 CUSTOM_PCI_15B3_1016=4/4",
		"  cn1_amd_sev MEM_ENCRYPTION_CONTEXT=16/1 +HW_CPU_X86_AMD_SEV +OWNER_NOVA",
		"  cn1_pci_0000_05_00_0 VGPU=16/16 +OWNER_NOVA",
		"  cn1_pci_0000_82_00_0 VGPU=16/16 +OWNER_NOVA",
	}
	novasGPUs = []string{
		"cn1_pci_0000_05_00_0 <cn1 VGPU=16/16 +OWNER_NOVA",
		"cn1_pci_0000_82_00_0 <cn1 VGPU=16/16 +OWNER_NOVA +CUSTOM_NVIDIA_222", // the type's trait is an administrator's
	}
	flatGuests = []string{
		"alice cn1:DISK_GB=1 cn1:MEMORY_MB=64 cn1:PCPU=2 cn1_pci_0000_82_00_0:VGPU=1",
		"bob cn1:MEMORY_MB=48 cn1:VCPU=2 cn1_pci_0000_05_00_0:VGPU=1",
		"carol cn1:MEMORY_MB=48 cn1:VCPU=1 cn1_pci_0000_05_00_0:VGPU=1 cn1_pci_0000_82_00_0:VGPU=1",
		"dave cn1:DISK_GB=1 cn1:MEMORY_MB=48 cn1:VCPU=4",
		"erin cn1:MEMORY_MB=64 cn1:PCPU=2",
		"frank cn1:MEMORY_MB=48 cn1:VCPU=1 cn1_0000:06:00.0:CUSTOM_PCI_15B3_1016=1",
		"grace cn1:MEMORY_MB=32 cn1:VCPU=1 cn1_amd_sev:MEM_ENCRYPTION_CONTEXT=1",
	}
	nestedTree = []string{
		"cn1 +CUSTOM_COMPUTE_AGENT_LAYOUT_LIBVIRT_2 +CUSTOM_GOLD +OWNER_NOVA @az1",
		"  cn1:NIC_Switch_agent +CUSTOM_VNIC_TYPE_DIRECT",
		"  cn1_amd_sev MEM_ENCRYPTION_CONTEXT=16/1 +HW_CPU_X86_AMD_SEV +OWNER_NOVA",
		"  cn1_numa_0 CUSTOM_HUGEPAGES_1G=2/2 CUSTOM_HUGEPAGES_2M=1024/1024 MEMORY_MB=16384-256/16384 PCPU=4/4 " +
			"VCPU=4*4/4 +HW_NUMA_ROOT",
		"    cn1_0000:06:00.0 CUSTOM_PCI_15B3_1016=4/4",
		"    cn1_pci_0000_05_00_0 VGPU=16/16 +OWNER_NOVA",
		"  cn1_numa_1 CUSTOM_HUGEPAGES_1G=2/2 CUSTOM_HUGEPAGES_2M=1024/1024 MEMORY_MB=16384-256/16384 PCPU=4/4 " +
			"VCPU=4*4/4 +HW_NUMA_ROOT",
		"    cn1_pci_0000_82_00_0 VGPU=16/16 +OWNER_NOVA",
	}
	// alice and erin are where they are pinned, frank and grace where their memory is. The others
	// are bound to nothing and go one after the other, the largest first, to where the larger part
	// of the capacity is free: dave to cell 1, where less is taken, then bob and carol to cell 0.
	nestedGuests = []string{
		"alice cn1:DISK_GB=1 cn1_numa_1:MEMORY_MB=64 cn1_numa_1:PCPU=2 cn1_pci_0000_82_00_0:VGPU=1",
		"bob cn1_numa_0:MEMORY_MB=48 cn1_numa_0:VCPU=2 cn1_pci_0000_05_00_0:VGPU=1",
		"carol cn1_numa_0:MEMORY_MB=48 cn1_numa_0:VCPU=1 cn1_pci_0000_05_00_0:VGPU=1 cn1_pci_0000_82_00_0:VGPU=1",
		"dave cn1:DISK_GB=1 cn1_numa_1:MEMORY_MB=48 cn1_numa_1:VCPU=4",
		"erin cn1_numa_0:MEMORY_MB=32 cn1_numa_0:PCPU=1 cn1_numa_1:MEMORY_MB=32 cn1_numa_1:PCPU=1",
		"frank cn1_0000:06:00.0:CUSTOM_PCI_15B3_1016=1 cn1_numa_0:MEMORY_MB=48 cn1_numa_0:VCPU=1",
		"grace cn1_amd_sev:MEM_ENCRYPTION_CONTEXT=1 cn1_numa_0:MEMORY_MB=32 cn1_numa_0:VCPU=1",
	}
)

// compare compares what Placement had last with what it must have.
func (r *residence) compare(what string, want ...[]string) {
	r.t.Helper()
	testproc.Samef(r.t, cmp.Diff(r.host.possible(slices.Concat(want...)), r.sketch()), "%s", what)
}

// reshape starts the agent, which must change the tree without changing what any consumer holds.
// The next start changes nothing.
func (r *residence) reshape(renames map[string]string) {
	r.t.Helper()
	before := r.see()
	if r.settle() <= r.vain() {
		r.t.Error("nothing was written")
	}
	if diff := cmp.Diff(r.byName(before.Holding.sums(renames)), r.byName(r.see().Holding.sums(renames))); diff != "" {
		r.t.Errorf("what the guests hold in all: %s", diff)
	}
	testproc.Samef(r.t, cmp.Diff(before.Owners, r.seen.Owners), "whose they are")
	r.quiet("after a reshape")
}

// quiet starts the agent, which must change nothing.
func (r *residence) quiet(when string) {
	r.t.Helper()
	before := r.seen
	if n, want := r.settle(), r.vain(); n != want {
		r.t.Errorf("%s: %d writes at the next start, want %d", when, n, want)
	}
	testproc.Samef(r.t, cmp.Diff(before, r.see()), "%s: the next start changed something", when)
}

// vain is how many writes of each start of the agent change nothing on this Placement. One with
// older os-traits than the driver's refuses the traits of the root, and then receives only those
// that it knows.
func (r *residence) vain() int64 {
	r.t.Helper()
	var got struct{ Traits []string }
	r.must("GET", "/traits?name=in:COMPUTE_NET_VIRTIO_PACKED", nil, &got)
	return int64(2 * (1 - len(got.Traits)))
}

// devicesThenCells: virtual GPUs and contexts of memory encryption leave the root; then processors,
// memory and devices go to NUMA cells, which is undone, done again, and taken back by the
// configuration.
func devicesThenCells(r *residence, _ func() *residence) {
	r.others(r.host.novasFlat("PCPU"))
	r.configure(novasOptions, withVFs, withGPUs)
	r.reshape(nil)
	r.compare("devices", flatTree, flatGuests)
	flat, gpu := r.seen, r.uuids["cn1_pci_0000_82_00_0"]

	r.configure(novasOptions, withVFs, withGPUs, nested)
	r.reshape(nil)
	r.compare("cells", nestedTree, nestedGuests)
	testproc.Equal(r.t, r.uuids["cn1_pci_0000_82_00_0"], gpu, "the GPU's provider was %s and is %s", gpu)
	r.together()

	r.undo()
	if diff := cmp.Diff(flat.Holding, r.see().Holding); diff != "" {
		r.t.Errorf("what the guests hold before the reshape, and after it was undone: %s", diff)
	}
	r.configure(novasOptions, withVFs, withGPUs)
	r.settle()
	r.see()
	r.compare("undone", flatTree, flatGuests)
	r.quiet("after an undo")

	r.configure(novasOptions, withVFs, withGPUs, nested)
	r.settle()
	r.see()
	r.compare("cells again", nestedTree, nestedGuests)
	r.configure(novasOptions, withVFs, withGPUs)
	r.reshape(nil)
	r.compare("flat again", flatTree, flatGuests)
}

// together asks for processors and memory and a virtual GPU, which a scheduler gets in one cell if
// it asks for that.
func (r *residence) together() {
	r.t.Helper()
	query := url.Values{
		"resources": {"DISK_GB:1"}, "resources_C": {"PCPU:1,MEMORY_MB:512"},
		"resources_G": {"VGPU:1"}, "group_policy": {"none"},
	}
	pairs := func() []string {
		r.t.Helper()
		var got struct {
			Requests []struct{ Mappings map[string][]string } `json:"allocation_requests"`
		}
		r.must("GET", "/allocation_candidates?"+query.Encode(), nil, &got)
		names := map[string]string{}
		for name, uuid := range r.uuids {
			names[uuid] = name
		}
		var out []string
		for _, request := range got.Requests {
			out = append(out, names[request.Mappings["_C"][0]]+" "+names[request.Mappings["_G"][0]])
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff([]string{
		"cn1_numa_0 cn1_pci_0000_05_00_0", "cn1_numa_0 cn1_pci_0000_82_00_0", "cn1_numa_1 cn1_pci_0000_05_00_0",
		"cn1_numa_1 cn1_pci_0000_82_00_0",
	}, pairs()); diff != "" {
		r.t.Errorf("candidates, wherever (-want +got):\n%s", diff)
	}
	query["same_subtree"] = []string{"_C,_G"}
	if diff := cmp.Diff([]string{"cn1_numa_0 cn1_pci_0000_05_00_0", "cn1_numa_1 cn1_pci_0000_82_00_0"},
		pairs()); diff != "" {
		r.t.Errorf("candidates in one cell (-want +got):\n%s", diff)
	}
}

// undo undoes the last reshape while no agent runs.
func (r *residence) undo() {
	r.t.Helper()
	var history struct {
		Reshapes []struct{ ID int64 }
	}
	check(r.t, json.Unmarshal([]byte(r.command("reshape", "history", "--output", "json")), &history))
	if len(history.Reshapes) != 2 {
		r.t.Fatalf("%d reshapes in the history", len(history.Reshapes))
	}
	r.command("reshape", "undo", strconv.FormatInt(history.Reshapes[1].ID, 10))
	if text := r.command("reshape", "history"); !strings.Contains(text, "undone") {
		r.t.Errorf("the history does not say that it was undone:\n%s", text)
	}
}

// allAtOnce: from the oldest tree to the newest in one reshape, and what comes of it is what comes
// of single steps.
func allAtOnce(r *residence, _ func() *residence) {
	r.others(r.host.novasFlat("VCPU"))
	r.configure(novasOptions, withVFs, withGPUs, nested)
	r.settle()
	r.see()
	r.compare("cells", nestedTree, nestedGuests)
	r.quiet("after all at once")
}

// dedicatedProcessors: guests that are pinned to them hold PCPU instead of VCPU once
// cpu_dedicated_set is there; the others keep VCPU.
func dedicatedProcessors(r *residence, _ func() *residence) {
	r.others(r.host.novasFlat("VCPU"))
	r.configure(withVFs, withGPUs)
	r.reshape(nil)
	shared := func(lines []string) []string {
		var out []string
		for _, line := range lines {
			out = append(out,
				strings.ReplaceAll(strings.ReplaceAll(line, "PCPU=8/8 VCPU=8*4/8", "VCPU=16*4/16"), "PCPU=", "VCPU="))
		}
		return out
	}
	r.compare("all processors are shared", shared(flatTree), shared(flatGuests))
	r.configure(novasOptions, withVFs, withGPUs)
	r.settle()
	r.see()
	r.compare("some are dedicated", flatTree, flatGuests)
	r.quiet("after VCPU became PCPU")
}

// otherClasses: the operator gives virtual functions and virtual GPUs classes of their own, and
// takes them back.
func otherClasses(r *residence, _ func() *residence) {
	r.others(r.host.novasFlat("PCPU"))
	r.configure(novasOptions, withVFs, withGPUs)
	r.reshape(nil)
	renamed := func(lines []string) []string {
		var out []string
		for _, line := range lines {
			out = append(out,
				strings.ReplaceAll(strings.ReplaceAll(line, "CUSTOM_PCI_15B3_1016=", "CUSTOM_FAST_NIC="), "VGPU=",
					"CUSTOM_T4="))
		}
		return out
	}
	r.configure(novasOptions, strings.Replace(withVFs, `"1016"`, `"1016", resource_class = "fast_nic"`, 1), withGPUs,
		`mdev_types = { "nvidia-222" = { mdev_class = "CUSTOM_T4" } }`)
	r.reshape(map[string]string{"CUSTOM_PCI_15B3_1016": "CUSTOM_FAST_NIC", "VGPU": "CUSTOM_T4"})
	r.compare("renamed", renamed(flatTree), renamed(flatGuests))
	r.configure(novasOptions, withVFs, withGPUs)
	r.reshape(map[string]string{"CUSTOM_FAST_NIC": "CUSTOM_PCI_15B3_1016", "CUSTOM_T4": "VGPU"})
	r.compare("renamed back", flatTree, flatGuests)
}
