// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	emptyCard = "pci_0000_41_00_0"
	usedCard  = "pci_0000_c1_00_0" // an operator made a vGPU of nvidia-1151 on it
)

// TestVGPUsOnVirtualFunctions: each card is one provider below its NUMA cell, with what it has of
// the type and what can still be made; making one changes neither total.
func TestVGPUsOnVirtualFunctions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.VGPUHost()
	r := newRig(t, h, newDaemon(t, h).open, map[string]any{"numa": "nested",
		"enabled_mdev_types": []string{"nvidia-1151"}, "mdev_type_traits": true})
	tree := newTree(t)
	cards := func() map[string]string {
		t.Helper()
		r.mustPass(tree)
		out := map[string]string{}
		for p := range tree.All() {
			if strings.Contains(p.Name, "_pci_") {
				parent, _ := tree.Provider(p.ParentUUID)
				inv := p.Inventories["VGPU"]
				out[p.Name] = fmt.Sprintf("%s total %d max %d reserved %d",
					parent.Name, inv.Total, inv.MaxUnit, inv.Reserved)
			}
		}
		return out
	}
	want := map[string]string{
		nodeName + "_" + emptyCard: nodeName + "_numa_0 total 8 max 8 reserved 0",
		nodeName + "_" + usedCard:  nodeName + "_numa_1 total 8 max 8 reserved 0",
	}
	diff(t, "the cards", want, cards())
	if got := traitsOf(t, tree, emptyCard); !strings.Contains(got, "CUSTOM_NVIDIA_1151") ||
		!strings.Contains(got, "HW_GPU_MAX_DISPLAY_HEADS_4") || !strings.Contains(got, "HW_GPU_RESOLUTION_W7680H4320") {
		t.Errorf("the traits of the type are %s", got)
	}
	for _, function := range h.Device("0000:41:00.0").VFs[:8] {
		testproc.Check(t, testhost.Tree(r.chroot).SetVGPU(h, function, 1151))
		diff(t, "with one more", want, cards())
	}

	testproc.Check(t, r.configure(map[string]any{"numa": "nested", "enabled_mdev_types": []string{"nvidia-1153"}}))
	diff(t, "another type, which does not fit beside what is there", map[string]string{}, cards())
	for _, function := range h.Device("0000:41:00.0").VFs[:8] {
		testproc.Check(t, testhost.Tree(r.chroot).SetVGPU(h, function, 0))
	}
	diff(t, "after the first card was cleared", map[string]string{
		nodeName + "_" + emptyCard: nodeName + "_numa_0 total 4 max 4 reserved 0",
	}, cards())
}

// TestACardThatCannotBeReadIsNamed: it is not offered, or stays as it is if it was; the other card
// stays, and the discrepancy says which file.
func TestACardThatCannotBeReadIsNamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.VGPUHost()
	r := newRig(t, h, newDaemon(t, h).open, map[string]any{"enabled_mdev_types": []string{"nvidia-1151"}})
	tree := newTree(t)
	at := testproc.Try(testhost.Tree(r.chroot).DevicePath("0000:41:00.4")).Or(t)
	testproc.Check(t, testhost.Tree(r.chroot).Write(at+"/nvidia/current_vgpu_type", "?\n"))
	r.mustPass(tree)
	if _, found := tree.ProviderByName(nodeName + "_" + emptyCard); found {
		t.Error("the card that cannot be read is reported")
	}
	if _, found := tree.ProviderByName(nodeName + "_" + usedCard); !found {
		t.Error("the other card is not reported")
	}
	testproc.Check(t, testhost.Tree(r.chroot).Write(at+"/nvidia/current_vgpu_type", "0\n"))
	r.mustPass(tree)
	offered, found := tree.ProviderByName(nodeName + "_" + emptyCard)
	testproc.Check(t, testhost.Tree(r.chroot).Write(at+"/nvidia/current_vgpu_type", "?\n"))
	r.mustPass(tree)
	kept, still := tree.ProviderByName(nodeName + "_" + emptyCard)
	testproc.Equal(t, found && still, true, "the card was reported, and stays: %v")
	diff(t, "what was offered of it", offered, kept)

	testproc.Check(t, r.configure(nil))
	r.mustPass(tree)
	if _, found := tree.ProviderByName(nodeName + "_" + emptyCard); found {
		t.Error("no type is enabled, and the card that cannot be read is still reported")
	}

	log := r.log.String()
	if !strings.Contains(log, "vgpu-unread-"+emptyCard) || !strings.Contains(log, "current_vgpu_type") {
		t.Errorf("the log does not name the card and its file: %s", r.log)
	}
}
