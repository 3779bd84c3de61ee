// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	gpuWithMdev    = "pci_0000_05_00_0"
	gpuWithout     = "pci_0000_82_00_0"
	gpusTypes      = "sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0/mdev_supported_types/"
	traitsOfAnyGPU = "OWNER_NOVA"
)

// traitsOf are those of a GPU's provider.
func traitsOf(t *testing.T, tree *providertree.Tree, device string) string {
	t.Helper()
	p, found := tree.ProviderByName(nodeName + "_" + device)
	if !found {
		t.Fatalf("%s has no provider", device)
	}
	return strings.Join(p.Traits, " ")
}

// typed are the traits of a GPU of a type.
func typed(more ...string) string {
	all := append([]string{traitsOfAnyGPU}, more...)
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestMdevTypeTraitsFollowTheType: they come, change and go with the type, and other
// traits stay.
func TestMdevTypeTraitsFollowTheType(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	h.Device("0000:05:00.0").Mdevs, h.Device("0000:05:00.0").Types[0].Available = nil, 16
	r := newRig(t, h, newDaemon(t, h).open, map[string]any{"enabled_mdev_types": []string{"nvidia-222"}})
	tree := newTree(t)
	step := func(name string, config map[string]any, device, want string) {
		t.Helper()
		testproc.Check(t, r.configure(config))
		r.mustPass(tree)
		diff(t, name, want, traitsOf(t, tree, device))
	}
	of := func(id string) []string {
		i := slices.IndexFunc(h.Device("0000:82:00.0").Types, func(t testhost.MdevType) bool { return t.ID == id })
		return append(inventory.GPUTraits(h.Device("0000:82:00.0").Types[i].Description),
			"CUSTOM_"+strings.ToUpper(strings.ReplaceAll(id, "-", "_")))
	}
	small, large := of("nvidia-222"), of("nvidia-231")
	if len(small) < 10 || len(large) <= len(small) {
		t.Fatalf("the sample's types have %v and %v", small, large)
	}
	types := func(on bool, id string) map[string]any {
		return map[string]any{"enabled_mdev_types": []string{id}, "mdev_type_traits": on}
	}
	step("as Nova", types(false, "nvidia-222"), gpuWithout, typed())
	gpu, _ := tree.ProviderByName(nodeName + "_" + gpuWithout)
	testproc.Try(tree.AddTraits(gpu.UUID, "CUSTOM_RACK_7", "HW_GPU_API_VULKAN")).Or(t)
	others := []string{"CUSTOM_RACK_7", "HW_GPU_API_VULKAN"}
	step("with the type's", types(true, "nvidia-222"), gpuWithout, typed(append(others, small...)...))
	step("on each", types(true, "nvidia-222"), gpuWithMdev, typed(small...))
	step("another type", types(true, "nvidia-231"), gpuWithout, typed(append(others, large...)...))
	write(t, r.chroot, gpusTypes+"nvidia-231/description", "num_heads=2, max_resolution=320x240")
	step("which drives less now", types(true, "nvidia-231"), gpuWithout,
		typed(append(others, "CUSTOM_NVIDIA_231", "HW_GPU_MAX_DISPLAY_HEADS_2", "HW_GPU_RESOLUTION_W320H240")...))
	remove(t, r.chroot, gpusTypes+"nvidia-231/description")
	step("and says nothing of it", types(true, "nvidia-231"), gpuWithout, typed(append(others, "CUSTOM_NVIDIA_231")...))
	step("but the other does", types(true, "nvidia-231"), gpuWithMdev, typed(large...))
	step("none of it is looked at", types(false, "nvidia-231"), gpuWithMdev, typed(large...))
	r.mustPass(tree)
	testproc.Check(t, r.configure(nil))
	r.mustPass(tree)
	if _, found := tree.ProviderByName(nodeName + "_" + gpuWithMdev); found {
		t.Error("no type is enabled, and the provider is still there")
	}
}

// TestDisabledMdevTypesAreNotRead: how many can be made is a call into the vendor's
// driver.
func TestDisabledMdevTypesAreNotRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, map[string]any{"enabled_mdev_types": []string{"nvidia-222"}})
	write(t, r.chroot, gpusTypes+"nvidia-231/available_instances", "the driver is busy")
	r.mustPass(newTree(t))
	testproc.Check(t, r.configure(map[string]any{"enabled_mdev_types": []string{"nvidia-222", "nvidia-231"},
		"mdev_types": map[string]any{"nvidia-231": map[string]any{"device_addresses": []string{"0000:82:00.0"}}}}))
	testproc.Try(r.pass(newTree(t))).ErrorHas(t, gpusTypes+"nvidia-231/available_instances", "%v")
}
