// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// novaTree is a node as Nova leaves it: two pGPUs (one with a type trait by hand), a PCI device, an
// SEV child, neutron's providers, and a storage that is shared.
const novaTree = `
cn1 VCPU=8,ratio=4 MEMORY_MB=1024 DISK_GB=50 CUSTOM_LICENSE=2 COMPUTE_NODE CUSTOM_RACK_7 HW_CPU_X86_AVX OWNER_NOVA @shared @zone
  cn1_pci_0000_84_00_0#r1 VGPU=4 CUSTOM_NVIDIA_11 OWNER_NOVA
  cn1_pci_0000_85_00_0#r2 VGPU=4 OWNER_NOVA
  cn1_0000:81:00.0#r3 CUSTOM_PCI_8086_1=1 COMPUTE_MANAGED_PCI_DEVICE OWNER_NOVA
  cn1_amd_sev#r4 MEM_ENCRYPTION_CONTEXT=15 HW_CPU_X86_AMD_SEV
  ovs_agent
    br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=1000 CUSTOM_PHYSNET_0
nfs DISK_GB=1000 MISC_SHARES_VIA_AGGREGATE @shared`

func TestAdopt(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		known, bare, want string
	}{
		"a tree of Nova's: what the driver says itself, by uuid or name, and standard classes on the root": {
			known: novaTree,
			bare: `
cn1 VCPU=8 MEMORY_MB=1024 HW_CPU_X86_AVX HW_NEW
  cn1_pci_0000_84_00_0#d1 VGPU=4 OWNER_NOVA
  cn1_pci_0000_85_00_0#d2 VGPU=4 OWNER_NOVA
  gpu_new VGPU=4`,
			want: `
cn1 driver DISK_GB:driver MEMORY_MB:driver VCPU:driver HW_CPU_X86_AVX:driver
cn1_pci_0000_84_00_0 driver VGPU:driver OWNER_NOVA:driver
cn1_pci_0000_85_00_0 driver VGPU:driver OWNER_NOVA:driver`,
		},
		"a class that is on children now counts as the driver's on the root still": {
			known: `cn1 VCPU=8 VGPU=4 CUSTOM_GPU=2 CUSTOM_OTHER=1`,
			bare: `
cn1 VCPU=8
  gpu0 CUSTOM_GPU=2`,
			want: `cn1 driver CUSTOM_GPU:driver VCPU:driver VGPU:driver`,
		},
		"by uuid before name": {
			known: `
cn1 VCPU=8
  a#1 VGPU=1 HW_A HW_B
  b#2 VGPU=1`,
			bare: `
cn1 VCPU=8
  b#1 VGPU=1 HW_A
  a#3 VGPU=1 HW_B`,
			want: "cn1 driver VCPU:driver\na driver VGPU:driver HW_A:driver",
		},
		"nothing of a sharing provider": {
			known: `
cn1 VCPU=8
nfs DISK_GB=5 MISC_SHARES_VIA_AGGREGATE`,
			bare: `
cn1 VCPU=8
  nfs#x DISK_GB=5`,
			want: `cn1 driver VCPU:driver`,
		},
		"aggregates that the driver says": {
			known: `cn1 VCPU=8 @a @b`, bare: `cn1 VCPU=8 @b @c`,
			want: "cn1 driver VCPU:driver @" + uid("b") + ":driver",
		},
		"a driver that says nothing": {
			known: `cn1 VCPU=8 CUSTOM_A=1 HW_A`, bare: `cn1`,
			want: `cn1 driver VCPU:driver`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			known := tree(t, c.known)
			r := Adopt(known, tree(t, c.bare), root, "cn1", "fake", nil)
			testproc.Samef(t, cmp.Diff(trim(c.want), owners(r)), "(- want, + got)")
			if r.Root != root || r.Node != "cn1" || r.Driver != "fake" || r.Created {
				t.Errorf("the adopted record: got %+v, want cn1 of fake, not created", r)
			}
			if drift := r.Drift(known); drift != nil {
				t.Errorf("values are not those of Placement: %q", drift)
			}
			testproc.NoErrorf(t, r.validate(), "it cannot be saved")
		})
	}
}

// TestAdoptOfDeniedTraits: what the host does not have was set on its root by the former agent, and
// on a child perhaps by any client.
func TestAdoptOfDeniedTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VCPU=8 HW_A HW_B\n  gpu0 VGPU=1 HW_A")
	r := Adopt(known, tree(t, "cn1 VCPU=8\n  gpu0 VGPU=1"), root, "cn1", "fake", []string{"HW_A"})
	if diff := cmp.Diff("cn1 driver VCPU:driver HW_A:driver\ngpu0 driver VGPU:driver", owners(r)); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
}

func TestAdoptOfNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, known := range []*providertree.Tree{nil, {}} {
		if r := Adopt(known, nil, root, "cn1", "fake", nil); len(r.Providers) != 0 || r.Root != root {
			t.Errorf("Adopt of an empty tree: got %+v, want no providers", r)
		}
	}
	if got := owners(Adopt(tree(t, "cn1 VCPU=1 CUSTOM_A=1"), nil, root, "cn1", "fake",
		nil)); got != "cn1 driver VCPU:driver" {
		t.Error(got)
	}
}

// TestNovasTreeIsTakenOverWithoutAWrite: a driver that finds its children by name and says what
// Nova said changes nothing, and from then on a device that is gone goes.
func TestNovasTreeIsTakenOverWithoutAWrite(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, novaTree)
	bare := tree(t, `
cn1 VCPU=8,ratio=4 MEMORY_MB=1024 DISK_GB=50 HW_CPU_X86_AVX
  cn1_pci_0000_84_00_0#d1 VGPU=4
  cn1_pci_0000_85_00_0#d2 VGPU=4
  cn1_0000:81:00.0#d3 CUSTOM_PCI_8086_1=1
  cn1_amd_sev#d4 MEM_ENCRYPTION_CONTEXT=15 HW_CPU_X86_AMD_SEV`)
	record := Adopt(known, bare, root, "cn1", "fake", nil)
	layers := []Layer{{Owner: Agent, Providers: entryFor("cn1", nil, "COMPUTE_NODE", "OWNER_NOVA")}}
	in := Input{Root: root, Node: "cn1", Driver: "fake",
		Known: known, Answer: Strip(known, record), Record: record, Layers: layers}
	first := testproc.Try(Merge(in)).Or(t)
	sameTree(t, known, first.Tree)
	if len(first.Kept)+len(first.Conflicts) > 0 {
		t.Errorf("adopting Nova's tree: kept %v, conflicts %v, want none", first.Kept, first.Conflicts)
	}
	atRest(t, in, first)

	in.Known, in.Record, in.Answer = first.Tree, first.Record, Strip(first.Tree, first.Record)
	for _, gone := range []string{"r1", "r3", "r4"} {
		testproc.Try(in.Answer.Remove(uid(gone))).Or(t)
	}
	second := testproc.Try(Merge(in)).Or(t)
	want := known.Clone()
	for _, gone := range []string{"r1", "r3", "r4"} {
		testproc.Try(want.Remove(uid(gone))).Or(t)
	}
	sameTree(t, want, second.Tree)
}

// TestVGPULeavesTheRootAtTheFirstContact: the driver that comes after an upgrade has VGPU on
// children, so what is on the root is what it reported before.
func TestVGPULeavesTheRootAtTheFirstContact(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, `cn1 VCPU=8 VGPU=4 CUSTOM_LICENSE=1`)
	answer := tree(t, `
cn1 VCPU=8
  gpu0 VGPU=4 !`)
	out, err := Merge(Input{Root: root, Node: "cn1",
		Known: known, Answer: answer, Record: Adopt(known, answer, root, "cn1", "fake", nil)})
	testproc.Check(t, err)
	sameTree(t, tree(t, `
cn1 VCPU=8 CUSTOM_LICENSE=1
  gpu0 VGPU=4`), out.Tree)
}
