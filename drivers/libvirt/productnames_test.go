// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// gpusAndFunctions offers the GPUs' mediated devices, and the virtual functions of network cards.
var gpusAndFunctions = map[string]any{
	"enabled_mdev_types": []string{"nvidia-222"}, "pci_report_in_placement": true,
	"pci_device_spec": []any{map[string]any{"vendor_id": "15b3", "product_id": "1016"}},
}

const (
	gpuName = "NVIDIA Corporation TU104GL [Tesla T4]"
	nicName = "Mellanox Technologies MT27710 Family [ConnectX-4 Lx]"
)

func TestProvidersHaveProductNames(t *testing.T) {
	t.Setenv("PCIDB_PATH", filepath.Join("testdata", "pci.ids"))
	h := testhost.Sample()
	d := newDaemon(t, h)
	r := newRig(t, h, d.open, gpusAndFunctions)
	if got := r.ProductNames(nodeName); got != nil {
		t.Errorf("before the first pass: %v", got)
	}
	tree := newTree(t)
	r.mustPass(tree)
	named := map[string]string{"cn1_pci_0000_05_00_0": gpuName,
		"cn1_pci_0000_82_00_0": gpuName, "cn1_0000:06:00.0": nicName}
	diff(t, "the names", named, r.ProductNames(nodeName))
	for provider := range named {
		if _, found := tree.ProviderByName(provider); !found {
			t.Errorf("the tree has no resource provider %s", provider)
		}
	}
}

// TestProductNamesAreReadOnce: names are read again when the configuration or the devices have
// changed, not in each pass.
func TestProductNamesAreReadOnce(t *testing.T) {
	database := filepath.Join(t.TempDir(), "pci.ids")
	t.Setenv("PCIDB_PATH", database)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, gpusAndFunctions)
	tree := newTree(t)
	step := func(what, text string, want string) {
		t.Helper()
		testproc.Check(t, os.WriteFile(database, []byte(text), 0o600))
		testproc.Try(r.pass(tree)).Or(t)
		diff(t, what, want, r.ProductNames(nodeName)["cn1_pci_0000_05_00_0"])
	}
	step("the first pass", "10de  First\n\t1eb8  One\n", "First One")
	step("nothing changed", "10de  Second\n\t1eb8  Two\n", "First One")
	testproc.Check(t, r.configure(gpusAndFunctions))
	step("configured again", "10de  Third\n", "Third")
	write(t, r.chroot, "sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0/device", "0x1eb9\n")
	step("another device", "10de  Fourth\n\t1eb8  Four\n", "Fourth Four")
}

// TestMissingProductNames: without a database, or if ghw lists nothing, the inventory is the same.
func TestMissingProductNames(t *testing.T) {
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, gpusAndFunctions)
	t.Setenv("PCIDB_PATH", filepath.Join("testdata", "pci.ids"))
	tree := newTree(t)
	r.mustPass(tree)
	if len(r.ProductNames(nodeName)) == 0 {
		t.Fatal("no names with everything in place")
	}
	step := func(what string) {
		t.Helper()
		testproc.Check(t, r.configure(gpusAndFunctions))
		after := tree.Clone()
		r.mustPass(after)
		if !after.Equal(tree) {
			t.Errorf("%s: %+v", what, providertree.Diff(tree, after))
		}
		diff(t, what, map[string]string{}, r.ProductNames(nodeName))
	}
	t.Setenv("PCIDB_PATH", filepath.Join(r.chroot, "missing"))
	step("without a database")
	t.Setenv("PCIDB_PATH", filepath.Join("testdata", "pci.ids"))
	testproc.Check(t, os.Remove(filepath.Join(r.chroot, "sys/bus/pci/devices/0000:00:02.0/modalias")))
	step("with a device that ghw cannot read")
}
