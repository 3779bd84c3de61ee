// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// mergeCase is one rule: what is there, what is ours of it, what the driver and the layers say, and
// what comes of it.
type mergeCase struct {
	known, record string
	// answer is the driver's, about known without the layers' items; "" hands on what it was given.
	answer   string
	agent    []string // traits of the root
	operator map[string]LayerProvider
	reshape  bool
	unborn   bool // nil record

	want, wantRecord string
	kept, conflicts  []string
}

func entryFor(name string, inventories providertree.Inventories, traits ...string) map[string]LayerProvider {
	return map[string]LayerProvider{uid(name): {Inventories: inventories, Traits: traits}}
}

var mergeCases = map[string]mergeCase{
	"what the driver makes of an unborn node is the driver's": {
		unborn: true, known: `cn1 !`, answer: `
cn1 VCPU=8 HW_A @agg
  gpu0 VGPU=4 !`,
		agent: []string{"COMPUTE_NODE"},
		want: `
cn1 VCPU=8 HW_A COMPUTE_NODE @agg
  gpu0 VGPU=4`,
		wantRecord: "cn1 driver VCPU:driver @" +
			uid("agg") + ":driver COMPUTE_NODE:agent HW_A:driver\ngpu0 driver VGPU:driver",
	},
	"a driver that replaces all traits does not remove an administrator's": {
		known: `cn1 VCPU=8 CUSTOM_RACK_7 HW_A HW_B`, record: `cn1 driver VCPU:driver HW_A:driver HW_B:driver`,
		answer: `cn1 VCPU=8 HW_A`,
		want:   `cn1 VCPU=8 CUSTOM_RACK_7 HW_A`, wantRecord: `cn1 driver VCPU:driver HW_A:driver`,
		kept: []string{"removed the trait CUSTOM_RACK_7 of resource provider cn1"},
	},
	"a driver that replaces all inventories and aggregates leaves those of others": {
		known: `cn1 VCPU=8 CUSTOM_LICENSE=3 @rack @own`, record: "cn1 driver VCPU:driver @own:driver",
		answer: `cn1 VCPU=16`,
		want:   `cn1 VCPU=16 CUSTOM_LICENSE=3 @rack`, wantRecord: `cn1 driver VCPU:driver`,
		kept: []string{"removed the aggregate " + uid("rack"), "removed the inventory CUSTOM_LICENSE"},
	},
	"a value that an operator edited and the driver hands on stays": {
		known: `cn1 VCPU=8,ratio=2.5`, record: `cn1 driver VCPU:driver`,
		want: `cn1 VCPU=8,ratio=2.5`, wantRecord: `cn1 driver VCPU:driver`,
	},
	"what the driver changes of another client's becomes the driver's": {
		known: `cn1 VCPU=8`, record: `cn1 driver`,
		answer: `cn1 VCPU=4`,
		want:   `cn1 VCPU=4`, wantRecord: `cn1 driver VCPU:driver`,
	},
	"neutron's child survives a driver that rebuilds the tree": {
		known: `
cn1 VCPU=8
  ovs_agent
    br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=1000 CUSTOM_PHYSNET_0`, record: `cn1 driver VCPU:driver`,
		answer: `cn1 VCPU=8`,
		want: `
cn1 VCPU=8
  ovs_agent
    br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=1000 CUSTOM_PHYSNET_0`, wantRecord: `cn1 driver VCPU:driver`,
		kept: []string{"removed resource provider br_eth0", "removed resource provider ovs_agent"},
	},
	"a foreign provider that is renamed and moved is put back": {
		known: `
cn1 VCPU=8
  gpu0
  ovs_agent`, record: "cn1 driver VCPU:driver\ngpu0 driver",
		answer: `
cn1 VCPU=8
  gpu0
    mine#ovs_agent HW_NEW`,
		want: `
cn1 VCPU=8
  gpu0
  ovs_agent HW_NEW`, wantRecord: "cn1 driver VCPU:driver\ngpu0 driver\novs_agent HW_NEW:driver",
		kept: []string{"moved resource provider ovs_agent", "renamed resource provider ovs_agent"},
	},
	"the driver's own providers can be renamed, moved and removed": {
		known: `
cn1 VCPU=8
  numa0
  gpu0 VGPU=4
  gpu1 VGPU=4 CUSTOM_BY_HAND`, record: "cn1 driver VCPU:driver\nnuma0 driver\ngpu0 driver VGPU:driver\ngpu1 driver VGPU:driver",
		answer: `
cn1 VCPU=8
  numa0
    gpu_a#gpu0 VGPU=4`,
		want: `
cn1 VCPU=8
  numa0
    gpu_a#gpu0 VGPU=4`, wantRecord: "cn1 driver VCPU:driver\nnuma0 driver\ngpu_a driver VGPU:driver",
	},
	"a provider that stays keeps its ancestors, without what was ours on them": {
		known: `
cn1 VCPU=8
  numa0 VCPU=4 HW_NUMA_ROOT CUSTOM_BY_HAND
    cell
      cyborg FPGA=1`, record: "cn1 driver VCPU:driver\nnuma0 driver VCPU:driver HW_NUMA_ROOT:driver\ncell driver",
		answer: `cn1 VCPU=8`,
		want: `
cn1 VCPU=8
  numa0 CUSTOM_BY_HAND
    cell
      cyborg FPGA=1`, wantRecord: "cn1 driver VCPU:driver\nnuma0 driver\ncell driver",
		kept: []string{"removed resource provider cyborg"},
	},
	"items of the driver on a foreign provider go when it no longer says them": {
		known: `
cn1 VCPU=8
  ovs_agent HW_A NET_BW_EGR_KILOBIT_PER_SEC=5`, record: "cn1 driver VCPU:driver\novs_agent HW_A:driver",
		answer: `
cn1 VCPU=8
  ovs_agent NET_BW_EGR_KILOBIT_PER_SEC=5`,
		want: `
cn1 VCPU=8
  ovs_agent NET_BW_EGR_KILOBIT_PER_SEC=5`, wantRecord: "cn1 driver VCPU:driver",
	},
	"a child that Nova marked goes without a record": {
		known: `
cn1 VCPU=8
  cn1_0000:81:00.0 CUSTOM_PCI_1=1 COMPUTE_MANAGED_PCI_DEVICE
  cn1_pci_0000_84_00_0 VGPU=4 OWNER_NOVA`, record: `cn1 driver VCPU:driver`,
		answer: `cn1 VCPU=8`,
		want:   `cn1 VCPU=8`, wantRecord: `cn1 driver VCPU:driver`,
	},
	"a marked child with another client's below it stays for that, without inventory": {
		known: `
cn1 VCPU=8
  pf CUSTOM_PCI_1=1 COMPUTE_MANAGED_PCI_DEVICE
    cyborg FPGA=1`, record: `cn1 driver VCPU:driver`,
		answer: `cn1 VCPU=8`,
		want: `
cn1 VCPU=8
  pf COMPUTE_MANAGED_PCI_DEVICE
    cyborg FPGA=1`, wantRecord: `cn1 driver VCPU:driver`,
		kept: []string{"removed resource provider cyborg"},
	},
	"OWNER_NOVA is no mark where provider.yaml speaks of the provider": {
		known: `
cn1 VCPU=8
  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5 CUSTOM_X OWNER_NOVA`, record: `cn1 driver VCPU:driver`,
		answer: `cn1 VCPU=8`, operator: entryFor("br_eth0", nil, "CUSTOM_X"),
		want: `
cn1 VCPU=8
  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5 CUSTOM_X OWNER_NOVA`, wantRecord: "cn1 driver VCPU:driver\nbr_eth0 CUSTOM_X:operator",
		kept: []string{"removed resource provider br_eth0"},
	},
	"a mark that the driver made itself does not count": {
		known: `
cn1 VCPU=8
  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5 OWNER_NOVA`, record: "cn1 driver VCPU:driver\nbr_eth0 OWNER_NOVA:driver",
		answer: `cn1 VCPU=8`,
		want: `
cn1 VCPU=8
  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5`, wantRecord: "cn1 driver VCPU:driver",
		kept: []string{"removed resource provider br_eth0"},
	},
	"in a reshape inventories of the node's own providers go without a record, traits do not": {
		reshape: true,
		known: `
cn1 VCPU=8 CUSTOM_VGPU=4 CUSTOM_T
  pf CUSTOM_B=1 CUSTOM_C=1 COMPUTE_MANAGED_PCI_DEVICE
  br_eth0 CUSTOM_BW=1`, record: `cn1 driver VCPU:driver`,
		answer: `
cn1 VCPU=8
  pf CUSTOM_B=1
  br_eth0
  gpu0 VGPU=4 !`,
		want: `
cn1 VCPU=8 CUSTOM_T
  pf CUSTOM_B=1 COMPUTE_MANAGED_PCI_DEVICE
  br_eth0 CUSTOM_BW=1
  gpu0 VGPU=4`, wantRecord: "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver",
		kept: []string{"removed the inventory CUSTOM_BW of resource provider br_eth0",
			"removed the trait CUSTOM_T of resource provider cn1",
			"removed the trait COMPUTE_MANAGED_PCI_DEVICE of resource provider pf"},
	},
	"outside of a reshape inventory of another client's on the root stays": {
		known: `cn1 VCPU=8 CUSTOM_VGPU=4`, record: `cn1 driver VCPU:driver`,
		answer: `cn1 VCPU=8`,
		want:   `cn1 VCPU=8 CUSTOM_VGPU=4`, wantRecord: `cn1 driver VCPU:driver`,
		kept: []string{"removed the inventory CUSTOM_VGPU"},
	},
	"an item that left provider.yaml goes": {
		known: `
cn1 VCPU=8 CUSTOM_LICENSE=3 CUSTOM_X CUSTOM_Y
  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5 CUSTOM_Z`, record: "cn1 driver VCPU:driver CUSTOM_LICENSE:operator CUSTOM_X:operator CUSTOM_Y:operator\nbr_eth0 CUSTOM_Z:operator",
		operator: entryFor("cn1", nil, "CUSTOM_X"),
		want: `
cn1 VCPU=8 CUSTOM_X
  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5`, wantRecord: "cn1 driver VCPU:driver CUSTOM_X:operator",
	},
	"what Nova wrote for the same provider.yaml becomes the operator's without a write": {
		known: `cn1 VCPU=8 CUSTOM_LICENSE=3 CUSTOM_X`, record: `cn1 driver VCPU:driver`,
		operator:   entryFor("cn1", providertree.Inventories{"CUSTOM_LICENSE": {Total: 3}}, "CUSTOM_X"),
		want:       `cn1 VCPU=8 CUSTOM_LICENSE=3 CUSTOM_X`,
		wantRecord: `cn1 driver CUSTOM_LICENSE:operator VCPU:driver CUSTOM_X:operator`,
	},
	"provider.yaml changes a value": {
		known: `cn1 VCPU=8 CUSTOM_LICENSE=3`, record: `cn1 driver VCPU:driver CUSTOM_LICENSE:operator`,
		operator: entryFor("cn1", providertree.Inventories{"CUSTOM_LICENSE": {Total: 5}}),
		want:     `cn1 VCPU=8 CUSTOM_LICENSE=5`, wantRecord: `cn1 driver CUSTOM_LICENSE:operator VCPU:driver`,
	},
	"provider.yaml cannot take a class or trait of the driver's": {
		known:  `cn1 VCPU=8 CUSTOM_A=1 CUSTOM_B=2 CUSTOM_T`,
		record: `cn1 driver VCPU:driver CUSTOM_A:driver CUSTOM_B:driver CUSTOM_T:driver`,
		operator: entryFor("cn1", providertree.Inventories{"CUSTOM_A": {Total: 7}, "CUSTOM_B": {Total: 2}}, "CUSTOM_T",
			"CUSTOM_U"),
		want:       `cn1 VCPU=8 CUSTOM_A=1 CUSTOM_B=2 CUSTOM_T CUSTOM_U`,
		wantRecord: `cn1 driver CUSTOM_A:driver CUSTOM_B:driver VCPU:driver CUSTOM_T:driver CUSTOM_U:operator`,
		conflicts: []string{"the inventory CUSTOM_A of resource provider cn1",
			"the inventory CUSTOM_B of resource provider cn1", "the trait CUSTOM_T of resource provider cn1"},
	},
	"what the driver begins to say is the driver's though provider.yaml says it too": {
		known: `cn1 VCPU=8 CUSTOM_A=7`, record: `cn1 driver VCPU:driver CUSTOM_A:operator`,
		answer: `cn1 VCPU=8 CUSTOM_A=1`, operator: entryFor("cn1", providertree.Inventories{"CUSTOM_A": {Total: 7}}),
		want: `cn1 VCPU=8 CUSTOM_A=1`, wantRecord: `cn1 driver CUSTOM_A:driver VCPU:driver`,
		conflicts: []string{"the inventory CUSTOM_A of resource provider cn1"},
	},
	"provider.yaml gets a class that the driver gives up": {
		known: `cn1 VCPU=8 CUSTOM_A=1`, record: `cn1 driver VCPU:driver CUSTOM_A:driver`,
		answer: `cn1 VCPU=8`, operator: entryFor("cn1", providertree.Inventories{"CUSTOM_A": {Total: 7}}),
		want: `cn1 VCPU=8 CUSTOM_A=7`, wantRecord: `cn1 driver CUSTOM_A:operator VCPU:driver`,
	},
	"an entry of provider.yaml for a provider that is not there waits": {
		known: `cn1 VCPU=8`, record: `cn1 driver VCPU:driver`,
		operator: entryFor("br_eth0", nil, "CUSTOM_X"),
		want:     `cn1 VCPU=8`, wantRecord: `cn1 driver VCPU:driver`,
	},
	"a trait of the agent's and of the operator's is recorded once": {
		known: `cn1 VCPU=8`, record: `cn1 driver VCPU:driver`,
		agent: []string{"CUSTOM_LAYOUT_2"}, operator: entryFor("cn1", nil, "CUSTOM_LAYOUT_2"),
		want: `cn1 VCPU=8 CUSTOM_LAYOUT_2`, wantRecord: `cn1 driver VCPU:driver CUSTOM_LAYOUT_2:agent`,
	},
	"COMPUTE_STATUS_DISABLED that another client set survives": {
		known: `cn1 VCPU=8 COMPUTE_STATUS_DISABLED`, record: `cn1 driver VCPU:driver`,
		answer: `cn1 VCPU=8`, agent: []string{"COMPUTE_NODE"},
		want:       `cn1 VCPU=8 COMPUTE_NODE COMPUTE_STATUS_DISABLED`,
		wantRecord: `cn1 driver VCPU:driver COMPUTE_NODE:agent`,
		kept:       []string{"removed the trait COMPUTE_STATUS_DISABLED"},
	},
	"COMPUTE_STATUS_DISABLED that the agent set goes": {
		known:  `cn1 VCPU=8 COMPUTE_NODE COMPUTE_STATUS_DISABLED`,
		record: `cn1 driver VCPU:driver COMPUTE_NODE:agent COMPUTE_STATUS_DISABLED:agent`,
		agent:  []string{"COMPUTE_NODE"},
		want:   `cn1 VCPU=8 COMPUTE_NODE`, wantRecord: `cn1 driver VCPU:driver COMPUTE_NODE:agent`,
	},
	"a trait that the driver says is no matter for the agent": {
		known: `cn1 VCPU=8 COMPUTE_NODE`, record: `cn1 driver VCPU:driver COMPUTE_NODE:driver`,
		agent: []string{"COMPUTE_NODE"},
		want:  `cn1 VCPU=8 COMPUTE_NODE`, wantRecord: `cn1 driver VCPU:driver COMPUTE_NODE:driver`,
	},
	"a trait that the driver gives up and the agent says stays, as the agent's": {
		known: `cn1 VCPU=8 COMPUTE_NODE`, record: `cn1 driver VCPU:driver COMPUTE_NODE:driver`,
		answer: `cn1 VCPU=8`, agent: []string{"COMPUTE_NODE"},
		want: `cn1 VCPU=8 COMPUTE_NODE`, wantRecord: `cn1 driver VCPU:driver COMPUTE_NODE:agent`,
	},
	"a sharing provider that the driver leaves out stays, and only what is ours on it goes": {
		reshape: true,
		known: `
cn1 VCPU=8 @shared
nfs DISK_GB=100 CUSTOM_A=1 MISC_SHARES_VIA_AGGREGATE OWNER_NOVA @shared`, record: "cn1 driver VCPU:driver\nnfs CUSTOM_A:driver",
		answer: `cn1 VCPU=8 @shared`,
		want: `
cn1 VCPU=8 @shared
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE OWNER_NOVA @shared`, wantRecord: "cn1 driver VCPU:driver",
		kept: []string{"removed resource provider nfs"},
	},
	"in a reshape inventory of a sharing provider stays": {
		reshape: true,
		known: `
cn1 VCPU=8
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE`, record: "cn1 driver VCPU:driver",
		answer: `
cn1 VCPU=8
nfs MISC_SHARES_VIA_AGGREGATE`,
		want: `
cn1 VCPU=8
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE`, wantRecord: "cn1 driver VCPU:driver",
		kept: []string{"removed the inventory DISK_GB of resource provider nfs"},
	},
	"a new provider waits for a name that is another client's, with what is below it": {
		known: `
cn1 VCPU=8
  gpu0#theirs VGPU=1`, record: "cn1 driver VCPU:driver",
		answer: `
cn1 VCPU=8
  gpu0#ours VGPU=4 !
    slice0 VGPU=1 !
  gpu1 VGPU=4 !`,
		want: `
cn1 VCPU=8
  gpu0#theirs VGPU=1
  gpu1 VGPU=4`, wantRecord: "cn1 driver VCPU:driver\ngpu1 driver VGPU:driver",
		kept: []string{"removed resource provider gpu0"},
		conflicts: []string{"resource provider gpu0 (" + uid("ours") + ") from the driver: its name is that of " +
			uid("theirs"), "resource provider slice0"},
	},
	"providers pass names on only as far as they are free": {
		known: `
cn1 VCPU=8
  a#theirs
  b#1
  c#2`, record: "cn1 driver VCPU:driver\nb driver\nc driver",
		answer: `
cn1 VCPU=8
  a#1
  b#2
  c#3 !`,
		want: `
cn1 VCPU=8
  a#theirs
  b#1
  c#2`, wantRecord: "cn1 driver VCPU:driver\nb driver\nc driver",
		kept: []string{"removed resource provider a"},
		conflicts: []string{"resource provider b (", "resource provider c (" + uid("2"),
			"resource provider c (" + uid("3")},
	},
	"nothing comes into another tree": {
		known: `
cn1 VCPU=8
  ours
    theirs
nfs DISK_GB=5`, record: "cn1 driver VCPU:driver\nours driver",
		answer: `
cn1 VCPU=8
nfs DISK_GB=5
  ours
    theirs`,
		want: `
cn1 VCPU=8
  ours
    theirs
nfs DISK_GB=5`, wantRecord: "cn1 driver VCPU:driver\nours driver",
		conflicts: []string{"resource provider ours"},
	},
	"nothing is moved when that would put what stays below itself": {
		known: `
cn1 VCPU=8
  ours
    theirs`, record: "cn1 driver VCPU:driver\nours driver",
		answer: `
cn1 VCPU=8
  theirs
    ours`,
		want: `
cn1 VCPU=8
  ours
    theirs`, wantRecord: "cn1 driver VCPU:driver\nours driver",
		kept:      []string{"moved resource provider theirs"},
		conflicts: []string{"resource provider ours"},
	},
	"what the driver has elsewhere now goes from where it was, also if another client made that": {
		known: `
cn1 MEMORY_MB=4
  numa0 VCPU=4 HW_NUMA_ROOT
  bridge NET_BW=10`, record: "cn1 driver MEMORY_MB:driver",
		answer: `
cn1 MEMORY_MB=4 VCPU=8
  numa0
  bridge`,
		reshape: true,
		want: `
cn1 MEMORY_MB=4 VCPU=8
  bridge NET_BW=10
  numa0 HW_NUMA_ROOT`, wantRecord: "cn1 driver MEMORY_MB:driver VCPU:driver",
		kept: []string{"removed the inventory NET_BW", "removed the trait HW_NUMA_ROOT"},
	},
	"a provider that goes in a reshape, and is not the driver's, stays without what moved": {
		known: `
cn1
  numa0 VCPU=4 NET_BW=10`, record: "cn1 driver",
		answer: `
cn1 VCPU=8`,
		reshape: true,
		want: `
cn1 VCPU=8
  numa0 NET_BW=10`, wantRecord: "cn1 driver VCPU:driver",
		kept: []string{"removed resource provider numa0"},
	},
	"in a reshape a trait goes from where it was to where the driver has it now, also if another client set it": {
		known: `
cn1 MEM_ENCRYPTION_CONTEXT=15 VCPU=8 CUSTOM_RACK_7 HW_CPU_X86_AMD_SEV HW_CPU_X86_AMD_SEV_ES
  sev_es HW_CPU_X86_AMD_SEV_ES`, record: "cn1 driver MEM_ENCRYPTION_CONTEXT:driver VCPU:driver\nsev_es driver",
		answer: `
cn1 VCPU=8
  sev MEM_ENCRYPTION_CONTEXT=15 HW_CPU_X86_AMD_SEV !
  sev_es HW_CPU_X86_AMD_SEV_ES`,
		reshape: true,
		want: `
cn1 VCPU=8 CUSTOM_RACK_7 HW_CPU_X86_AMD_SEV_ES
  sev MEM_ENCRYPTION_CONTEXT=15 HW_CPU_X86_AMD_SEV
  sev_es HW_CPU_X86_AMD_SEV_ES`, wantRecord: "cn1 driver VCPU:driver\nsev driver MEM_ENCRYPTION_CONTEXT:driver HW_CPU_X86_AMD_SEV:driver\nsev_es driver",
		kept: []string{"removed the trait CUSTOM_RACK_7", "removed the trait HW_CPU_X86_AMD_SEV_ES"},
	},
	"outside of a reshape a trait of another client's stays though another provider gets it": {
		known: `
cn1 VCPU=8
  gpu0 VGPU=4 CUSTOM_FAST`, record: "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver",
		answer: `
cn1 VCPU=8
  gpu0 VGPU=4
  gpu1 VGPU=4 CUSTOM_FAST !`,
		want: `
cn1 VCPU=8
  gpu0 VGPU=4 CUSTOM_FAST
  gpu1 VGPU=4 CUSTOM_FAST`, wantRecord: "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver\ngpu1 driver VGPU:driver CUSTOM_FAST:driver",
		kept: []string{"removed the trait CUSTOM_FAST of resource provider gpu0"},
	},
	"a trait that moves stays where provider.yaml has it": {
		known: `cn1 VGPU=4 CUSTOM_FAST`, record: "cn1 driver VGPU:driver",
		answer: `
cn1
  gpu0 VGPU=4 CUSTOM_FAST !`,
		operator: entryFor("cn1", nil, "CUSTOM_FAST"), reshape: true,
		want: `
cn1 CUSTOM_FAST
  gpu0 VGPU=4 CUSTOM_FAST`, wantRecord: "cn1 driver CUSTOM_FAST:operator\ngpu0 driver VGPU:driver CUSTOM_FAST:driver",
	},
	"no trait moves off a provider that is taken away and stays, nor from beside the node, nor aggregates, nor a " +
		"mark of Nova's": {
		known: `
cn1 VCPU=8 @rack
  br_eth0 NET_BW=10 CUSTOM_PHYSNET_0
  pf CUSTOM_B=1 OWNER_NOVA
nfs DISK_GB=100 CUSTOM_FAST`, record: "cn1 driver VCPU:driver\npf driver CUSTOM_B:driver",
		answer: `
cn1 VCPU=8
  pf CUSTOM_B=1
  pf1 CUSTOM_B=1 CUSTOM_FAST CUSTOM_PHYSNET_0 OWNER_NOVA @rack !
nfs DISK_GB=100`,
		reshape: true,
		want: `
cn1 VCPU=8 @rack
  br_eth0 NET_BW=10 CUSTOM_PHYSNET_0
  pf CUSTOM_B=1 OWNER_NOVA
  pf1 CUSTOM_B=1 CUSTOM_FAST CUSTOM_PHYSNET_0 OWNER_NOVA @rack
nfs DISK_GB=100 CUSTOM_FAST`,
		wantRecord: "cn1 driver VCPU:driver\npf driver CUSTOM_B:driver\npf1 driver CUSTOM_B:driver @" + uid("rack") +
			":driver CUSTOM_FAST:driver CUSTOM_PHYSNET_0:driver OWNER_NOVA:driver",
		kept: []string{"removed resource provider br_eth0",
			"removed the aggregate " + uid("rack"), "removed the trait CUSTOM_FAST of resource provider nfs",
			"removed the trait OWNER_NOVA of resource provider pf"},
	},
	"a trait does not move to beside the node": {
		known: `
cn1 VCPU=8 CUSTOM_FAST
nfs DISK_GB=100`, record: "cn1 driver VCPU:driver",
		answer: `
cn1 VCPU=8
nfs DISK_GB=100 CUSTOM_FAST`,
		reshape: true,
		want: `
cn1 VCPU=8 CUSTOM_FAST
nfs DISK_GB=100`, wantRecord: "cn1 driver VCPU:driver",
		kept: []string{"removed the trait CUSTOM_FAST of resource provider cn1",
			"added the trait CUSTOM_FAST of resource provider nfs"},
	},
	"a class that was elsewhere all along has not moved there": {
		known: `
cn1 VCPU=8
  a VGPU=4
  b VGPU=4`, record: "cn1 driver VCPU:driver\na driver\nb driver VGPU:driver",
		answer: `
cn1 VCPU=8
  a
  b VGPU=4`,
		want: `
cn1 VCPU=8
  a VGPU=4
  b VGPU=4`, wantRecord: "cn1 driver VCPU:driver\na driver\nb driver VGPU:driver",
		kept: []string{"removed the inventory VGPU of resource provider a"},
	},
	"a name that a provider which must wait has had is free for another": {
		known: `
cn1 VCPU=8
  f
    theirs_f
  g
    theirs_g
  d`, record: "cn1 driver VCPU:driver\nf driver\ng driver\nd driver",
		answer: `
cn1 VCPU=8
  theirs_f
  theirs_g
  g#d
  f#p
    d#c`,
		want: `
cn1 VCPU=8
  f
    theirs_f
  g
    theirs_g
  d`, wantRecord: "cn1 driver VCPU:driver\nd driver\nf driver\ng driver",
		kept: []string{"moved resource provider theirs_f", "moved resource provider theirs_g"},
		conflicts: []string{"from the driver: its parent provider is ignored too",
			"from the driver: the new name g is that of", "from the driver: its name is that of"},
	},
	"the driver gives a new uuid to a provider of its own": {
		known: `
cn1 VCPU=8
  gpu0#old VGPU=1`, record: "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver",
		answer: `
cn1 VCPU=8
  gpu0#new VGPU=1 !`,
		want: `
cn1 VCPU=8
  gpu0#new VGPU=1`, wantRecord: "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver",
	},
}

func TestMerge(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cases := maps.Clone(mergeCases)
	maps.Copy(cases, sharingCases)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			known := tree(t, c.known)
			in := Input{Root: root, Node: "cn1", Driver: "fake", Known: known, Reshape: c.reshape}
			if !c.unborn {
				in.Record = owned(t, known, c.record)
			}
			in.Answer = Strip(known, in.Record)
			if c.answer != "" {
				in.Answer = tree(t, c.answer)
			}
			in.Layers = []Layer{
				{Owner: Agent, Providers: map[string]LayerProvider{root: {Traits: c.agent}}},
				{Owner: Operator, Providers: c.operator},
			}
			before := lines(known)
			out := testproc.Try(Merge(in)).Or(t)
			sameTree(t, tree(t, c.want), out.Tree)
			testproc.Samef(t, cmp.Diff(trim(c.wantRecord), owners(out.Record)), "record (- want, + got)")
			checkTexts(t, "kept", c.kept, out.Kept)
			checkTexts(t, "conflicts", c.conflicts, out.Conflicts)
			if lines(known) != before {
				t.Error("the merge has changed what is known")
			}
			atRest(t, in, out)
			afterACrash(t, in, out, leaving(in, out))
		})
	}
}

// checkTexts checks that each sentence holds what it should, in order.
func checkTexts[S interface{ String() string }](t *testing.T, what string, want []string, got []S) {
	t.Helper()
	for i, g := range got {
		if i >= len(want) || !strings.Contains(g.String(), want[i]) {
			t.Errorf("%s %d: %s", what, i, g)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d %s, want %d: %q", len(got), what, len(want), want)
	}
}
