// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// everything is a configuration that looks at all there is.
var everything = map[string]any{
	"enabled_mdev_types": []string{"nvidia-222"}, "pci_report_in_placement": true,
	"pci_device_spec": []any{map[string]any{"vendor_id": "15b3", "product_id": "1016"}},
}

// refused has a pass fail, and sees that the tree stays what it was. It returns the error.
func (r *rig) refused(tree *providertree.Tree) error {
	r.Helper()
	before := tree.Clone()
	_, err := r.pass(tree)
	if err == nil {
		r.Errorf("no error, and the tree is changed like this: %+v", providertree.Diff(before, tree))
	} else if !tree.Equal(before) {
		r.Errorf("the tree was touched: %+v", providertree.Diff(before, tree))
	}
	return err
}

// TestBrokenSysIsNotReadyThenAnError: whatever is wrong with /sys is an error that names the file
// and says what to do. The first time it may pass by itself; the second time it has not. The tree
// stands, and when the files are right again, so does the pass.
func TestBrokenSysIsNotReadyThenAnError(t *testing.T) {
	t.Parallel()
	h := testhost.Sample()
	for _, b := range testhost.Breakages() {
		t.Run(b.Name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			r := newRig(t, h, newDaemon(t, h).open, everything)
			tree := newTree(t)
			r.mustPass(tree)
			good := tree.Clone()
			testproc.Check(t, b.Apply(testhost.Tree(r.chroot)))
			for turn := range 2 {
				err := r.refused(tree)
				if err == nil {
					return
				}
				for _, says := range []string{b.File, "This is temporary"} {
					if !strings.Contains(err.Error(), says) {
						t.Errorf("%v, want %q in it", err, says)
					}
				}
				if wait := errors.Is(err, plugins.ErrNotReady); wait != (turn == 0) {
					t.Errorf("pass %d: NotReady is %v: %v", turn+1, wait, err)
				}
			}
			remove(t, r.chroot, "sys", "proc")
			testproc.Try(h.Sysfs(r.chroot)).Or(t)
			if r.mustPass(tree); !tree.Equal(good) {
				t.Errorf("afterwards it is another tree: %+v", providertree.Diff(good, tree))
			}
		})
	}
}

// TestOneBrokenDeviceIsLeftOut: what is wrong with one PCI device is a warning that names the file.
// What the tree has of the device stays as it is; a tree without it does not get it. The rest of
// the host is reported.
func TestOneBrokenDeviceIsLeftOut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for _, b := range testhost.DeviceBreakages() {
		for _, layout := range []string{"flat", "nested"} {
			t.Run(b.Name+"/"+layout, func(t *testing.T) {
				config := map[string]any{"numa": layout, "enabled_mdev_types": []string{"nvidia-222"},
					"pci_report_in_placement": true, "pci_device_spec": []any{
						map[string]any{"address": "0000:06:00.0", "product_id": "1016"}}}
				r := newRig(t, h, newDaemon(t, h).open, config)
				tree := newTree(t)
				r.mustPass(tree)
				good := tree.Clone()
				testproc.Check(t, b.Apply(testhost.Tree(r.chroot)))
				config["reserved_host_disk_mb"] = 1024 // what else is reported goes on
				testproc.Check(t, r.configure(config))
				want := good.Clone()
				disk, _ := want.Inventory(nodeUUID, "DISK_GB")
				disk.Reserved = 1
				testproc.Try(want.SetInventory(nodeUUID, "DISK_GB", disk)).Or(t)
				if r.mustPass(tree); !tree.Equal(want) {
					t.Errorf("the tree is changed like this: %+v", providertree.Diff(want, tree))
				}
				found := false
				for _, w := range r.Warnings() {
					switch {
					case w.Name == "pci-unread-"+b.Device:
						found = strings.Contains(w.Text, b.File) && strings.Contains(w.Text, "stays as it is")
					case w.Name != "ghw-pci":
						t.Errorf("%+v follows from the other", w)
					}
				}
				if !found {
					t.Errorf("%+v, want pci-unread-%s with %s", r.Warnings(), b.Device, b.File)
				}

				other := newTree(t)
				r.mustPass(other)
				for p := range good.All() {
					gone := p.Name == nodeName+"_"+b.Device || p.Name == nodeName+"_"+testhost.NodeDeviceName(b.Device)
					if _, there := other.ProviderByName(p.Name); there == gone {
						t.Errorf("a new tree: %s is there: %v", p.Name, there)
					}
				}

				remove(t, r.chroot, "sys", "proc")
				testproc.Try(h.Sysfs(r.chroot)).Or(t)
				if r.mustPass(tree); !tree.Equal(want) || len(r.Warnings()) > 0 {
					t.Errorf("afterwards: %+v, %+v", providertree.Diff(want, tree), r.Warnings())
				}
			})
		}
	}
}

// TestOddCells: a flat tree does not depend on the CPUs of the cells: where these are not as on a
// host, a warning says the cause, and the CPUs that are online are reported. A tree of cells is
// refused, with the cause and what to do; the first time that may pass by itself.
func TestOddCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for _, b := range testhost.OddCells() {
		t.Run(b.Name, func(t *testing.T) {
			r := newRig(t, h, newDaemon(t, h).open, nil)
			tree := newTree(t)
			r.mustPass(tree)
			want := tree.Clone()
			vcpu, _ := want.Inventory(nodeUUID, "VCPU")
			vcpu.Total, vcpu.MaxUnit = int64(b.Online), int64(b.Online)
			testproc.Try(want.SetInventory(nodeUUID, "VCPU", vcpu)).Or(t)
			if b.Online < 16 { // one thread of each core is left
				testproc.Try(want.RemoveTraits(nodeUUID, "HW_CPU_HYPERTHREADING")).Or(t)
			}
			testproc.Check(t, b.Apply(testhost.Tree(r.chroot)))
			if r.mustPass(tree); !tree.Equal(want) {
				t.Errorf("the tree is not as wanted: %+v", providertree.Diff(want, tree))
			}
			if w := r.Warnings(); len(w) != 1 || w[0].Name != "numa-odd" || !strings.Contains(w[0].Text, b.Cause) ||
				!strings.Contains(w[0].Text, b.File) {
				t.Errorf("%+v, want numa-odd with %q and %q", w, b.Cause, b.File)
			}

			testproc.Check(t, r.configure(map[string]any{"numa": "nested"}))
			for turn := range 2 {
				err := r.refused(newTree(t))
				for _, says := range []string{
					b.File, b.Cause, `numa = "nested"`, "This is temporary", `set numa = "flat"`,
				} {
					if err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("%v, want %q in it", err, says)
					}
				}
				if wait := errors.Is(err, plugins.ErrNotReady); wait != (turn == 0) {
					t.Errorf("pass %d: NotReady is %v: %v", turn+1, wait, err)
				}
			}
			remove(t, r.chroot, "sys", "proc")
			testproc.Try(h.Sysfs(r.chroot)).Or(t)
			r.mustPass(newTree(t))
		})
	}
}

// TestUnreadableLibvirtDataIsADiscrepancy: what is wrong with one thing is no reason to say nothing
// of the host: a warning says what is not known for it, and nothing less is reported.
func TestUnreadableLibvirtDataIsADiscrepancy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	h.Module, h.SEV = "kvm_amd", &testhost.SEV{SEV: true, ES: true, Guests: 410, ESGuests: 99}
	domains := []testhost.Domain{{Name: "one", UUID: guestUUID, VCPUs: 1, MemoryMiB: 64},
		{Name: "two", UUID: otherUUID, VCPUs: 1, MemoryMiB: 64}}
	caps := sevCapabilities(410, 99)
	for name, tc := range map[string]struct {
		break_ func(*daemon)
		warns  string
		says   string
	}{
		"cut XML of a device": {func(d *daemon) { d.devices[1].XML = "<device><name>x" },
			"node-devices", "cannot compare"},
		"no XML of a device": {func(d *daemon) { d.devices[1].XML = "" },
			"node-devices", h.NodeDevices()[1].Name},
		"an invalid address": {func(d *daemon) {
			d.devices[1].XML = strings.Replace(d.devices[1].XML, "<bus>",
				"<bus>999", 1)
		}, "node-devices", h.NodeDevices()[1].Name},
		"no list of devices": {func(d *daemon) { d.noDevices = errors.New("udev is asleep") },
			"node-devices", "udev is asleep"},
		"a domain without end": {func(d *daemon) { d.odd = map[string]string{otherUUID: "<domain>"} },
			"domain-" + otherUUID, "two"},
		"a domain that is another": {func(d *daemon) {
			d.odd =
				map[string]string{otherUUID: domains[0].XML("qemu")}
		}, "domain-" + otherUUID, "another uuid"},
		"a domain with odd pins": {func(d *daemon) { d.odd = map[string]string{otherUUID: oddPins} }, "domain-" +
			otherUUID, "cannot read libvirt's XML"},
		"no domain capabilities": {func(d *daemon) { d.noCaps = errors.New("the emulator crashed") },
			"domain-capabilities", "the emulator crashed"},
		"domain capabilities refused": {func(d *daemon) { d.noCaps = hypervisor.ErrReadOnly },
			"domain-capabilities", "write access"},
		"cut domain capabilities": {func(d *daemon) { d.guestCaps = d.guestCaps[:100] },
			"domain-capabilities", "XML"},
		"negative numbers of guests": {func(d *daemon) { d.guestCaps = sevCapabilities(-4, 0) },
			"domain-capabilities", "invalid syntax"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, h)
			d.domains, d.guestCaps = domains, caps
			r := newRig(t, h, d.open, everything)
			tree := newTree(t)
			r.mustPass(tree)
			if _, sev := tree.ProviderByName(nodeName + "_amd_sev_es"); !sev {
				t.Fatal("there is no provider of encrypted guests that could be lost")
			}
			good := tree.Clone()
			tc.break_(d)
			r.connections.Add(1) // earlier answers are requested again
			r.domainCache.known = nil
			if _, err := r.pass(tree); err != nil || !tree.Equal(good) {
				t.Errorf("%v, and the tree is changed like this: %+v", err, providertree.Diff(good, tree))
			}
			i := slices.IndexFunc(r.Warnings(), func(w plugins.Warning) bool { return w.Name == tc.warns })
			if i < 0 || !strings.Contains(r.Warnings()[i].Text, tc.says) {
				t.Errorf("%+v, want %s with %q", r.Warnings(), tc.warns, tc.says)
			}
			*d = *newDaemon(t, h)
			d.domains, d.guestCaps = domains, caps
			for range 2 * lookAgain {
				r.mustPass(tree)
			}
			if w := r.Warnings(); len(w) > 0 || !tree.Equal(good) {
				t.Errorf("when all is well again: %+v", w)
			}
		})
	}
}

const oddPins = `<domain type='qemu'><name>two</name><uuid>` + otherUUID +
	`</uuid><memory unit='MiB'>64</memory><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='all'/></cputune></domain>`

func sevCapabilities(guests, esGuests int) string {
	return fmt.Sprintf("<domainCapabilities><path>/usr/bin/qemu</path><domain>qemu</domain><arch>x86_64</"+
		"arch><features><sev supported='yes'>"+
		"<cbitpos>51</cbitpos><reducedPhysBits>1</reducedPhysBits><maxGuests>%d</maxGuests><maxESGuests>%d</"+
		"maxESGuests></sev></features></domainCapabilities>", guests, esGuests)
}

// TestEncryptionContextsStayWhileLibvirtDoesNotAnswer: a root that has the contexts itself, as
// before 2025.2, keeps them while libvirt does not report them: there is no saying where they are
// to go.
func TestEncryptionContextsStayWhileLibvirtDoesNotAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.GPUHost()
	d := newDaemon(t, h)
	d.noCaps = errors.New("the emulator crashed")
	r := newRig(t, h, d.open, nil)
	tree := newTree(t)
	testproc.Try(tree.SetInventory(nodeUUID, "MEM_ENCRYPTION_CONTEXT", inv(410, 0, 1))).Or(t)
	if err := r.refused(tree); !errors.Is(err, plugins.ErrNotReady) ||
		!strings.Contains(err.Error(), "the emulator crashed") {
		t.Errorf("%v, want NotReady with the cause", err)
	}
}

// TestConfigurationThatDoesNotFitTheHost: a configuration that contradicts the host: an error that
// names the key where guests would get what is not there, a warning where something only has no
// effect.
func TestConfigurationThatDoesNotFitTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	h.CPUs[15].Offline = true
	list := func(v ...any) []any { return v }
	table := func(kv ...any) map[string]any {
		out := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i].(string)] = kv[i+1]
		}
		return out
	}
	for name, tc := range map[string]struct {
		config map[string]any
		key    string // of the error; "": a warning
		warns  string
		says   []string
	}{
		"a shared CPU that is offline": {table("cpu_shared_set", "0-15"), "cpu_shared_set",
			"", []string{"offline (15)", "chcpu -e 15"}},
		"a dedicated CPU that is offline": {table("cpu_dedicated_set", "14,15"), "cpu_dedicated_set",
			"", []string{"offline (15)"}},
		"a CPU that the host does not have": {table("cpu_dedicated_set", "4,99"), "cpu_dedicated_set",
			"", []string{"does not have (99)"}},
		"more CPUs reserved than shared": {table("cpu_shared_set", "0", "reserved_host_cpus", 2),
			"reserved_host_cpus", "", []string{"reserves 2 of VCPU", "only 1"}},
		"more memory reserved than there is": {table("reserved_host_memory_mb", 1<<20), "reserved_host_memory_mb",
			"", []string{"reserves 1048576", "32768"}},
		"in cells too": {table("reserved_host_memory_mb", 1<<20, "numa", "nested"),
			"reserved_host_memory_mb", "", []string{"NUMA cells have only 32768"}},
		"more disk reserved than there is": {table("reserved_host_disk_mb", 1<<40),
			"reserved_host_disk_mb", "", []string{"DISK_GB"}},
		"a function and the card that has it": {table("pci_report_in_placement", true,
			"pci_device_spec", list(table("vendor_id", "15b3"))), "pci_device_spec[0]",
			"", []string{"only one of the two", "0000:06:00.0"}},
		"siblings with different classes": {table("pci_report_in_placement", true,
			"pci_device_spec", list(table("address", "0000:06:01.0", "resource_class", "CUSTOM_A"),
				table("product_id", "1016"))), "pci_device_spec[1].resource_class", "", []string{"sibling"}},
		"a type that no device makes": {table("enabled_mdev_types", list("nvidia-999")), "",
			"mdev-unused-nvidia-999", []string{"no device"}},
		"a GPU that is not there": {table("enabled_mdev_types", list("nvidia-222"),
			"mdev_types", table("nvidia-222", table("device_addresses", list("0000:83:00.0")))), "",
			"mdev-address-pci_0000_83_00_0", []string{"does not have"}},
		"a GPU that does not make the type": {table("enabled_mdev_types", list("nvidia-999"),
			"mdev_types", table("nvidia-999", table("device_addresses", list("0000:82:00.0")))), "",
			"mdev-address-pci_0000_82_00_0", []string{"does not support this type"}},
		"a second type for all": {table("enabled_mdev_types", list("nvidia-222", "nvidia-231")), "",
			"mdev-dropped-nvidia-231", []string{"not used"}},
		"a device for guests that is not there": {table("pci_report_in_placement", true,
			"pci_device_spec", list(table("address", "0000:99:00.0"))), "",
			"pci-unused-0", []string{"pci_device_spec[0]"}},
		"huge pages of a cell that is not there": {table(
			"reserved_huge_pages", list(table("node", 7, "size", "2M", "count", 1))), "",
			"hugepages-reserved_huge_pages[0]", []string{"no NUMA cell 7"}},
		"huge pages of a size that is not there": {table(
			"reserved_huge_pages", list(table("node", 0, "size", "16G", "count", 1))), "",
			"hugepages-reserved_huge_pages[0]", []string{"16G"}},
		"more huge pages than there are": {table(
			"reserved_huge_pages", list(table("node", 0, "size", "2M", "count", 99999))), "",
			"hugepages-reserved_huge_pages[0]", []string{"only"}},
		"a namespace that is not there": {table("pmem_namespaces", list("SMALL:ns7")), "", "", []string{"ns7"}},
		"encrypted guests on a host without": {table("num_memory_encrypted_guests", 4), "",
			"sev-unusable", []string{"num_memory_encrypted_guests is 4"}},
		"a shared disk without a provider": {table("shared_disk", true), "",
			"shared-disk", []string{"no sharing provider"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, h, newDaemon(t, h).open, nil)
			tree := newTree(t)
			r.mustPass(tree)
			testproc.Checkf(t, r.configure(tc.config), "Configure must not depend on the host")
			if tc.key != "" {
				err := r.refused(tree)
				var wrong *plugins.ConfigError
				if !errors.As(err, &wrong) || wrong.Key != tc.key {
					t.Errorf("%v, want a ConfigError of %s", err, tc.key)
				}
				if errors.Is(err, plugins.ErrNotReady) {
					t.Errorf("%v: waiting does not help", err)
				}
				for _, says := range tc.says {
					if err != nil && !strings.Contains(err.Error(), says) {
						t.Errorf("%v, want %q in it", err, says)
					}
				}
				return
			}
			r.mustPass(tree)
			var texts []string
			for _, w := range r.Warnings() {
				if tc.warns == "" || w.Name == tc.warns {
					texts = append(texts, w.Text)
				}
			}
			if len(texts) == 0 {
				t.Errorf("%+v, want %s", r.Warnings(), tc.warns)
			}
			for _, says := range tc.says {
				if !strings.Contains(strings.Join(texts, "\n"), says) {
					t.Errorf("%q, want %q in it", texts, says)
				}
			}
		})
	}
}

// TestFailedReshapeLeavesTheTreeUnchanged: a reshape that cannot be leaves tree and allocations as
// they were, though half of it was made by then.
func TestFailedReshapeLeavesTheTreeUnchanged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, nil)
	tree := newTree(t)
	r.mustPass(tree)
	testproc.Check(t, r.configure(map[string]any{"numa": "nested"}))
	if err := r.refused(tree); !errors.Is(err, plugins.ErrReshapeNeeded) {
		t.Fatalf("%v", err)
	}
	allocations := providertree.Allocations{otherUUID: {Resources: providertree.ProviderResources{nodeUUID: {"VCPU": 2,
		"MEMORY_MB": 64}}}}
	before, given := tree.Clone(), allocations.Clone()
	after, err := r.UpdateProviderTree(t.Context(), tree, nodeName, allocations)
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) || after != nil || !strings.Contains(err.Error(), otherUUID) {
		t.Fatalf("%v, %v: want ReshapeFailed that names the consumer", after, err)
	}
	if !tree.Equal(before) {
		t.Errorf("the tree was touched: %+v", providertree.Diff(before, tree))
	}
	diff(t, "allocations", given, allocations)
}
