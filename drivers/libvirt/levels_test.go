// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// simulated is a driver on a simulated host, with the real library between.
func simulated(t *testing.T, s *testhost.Sim, config map[string]any) *rig {
	t.Helper()
	all := map[string]any{"uri": s.URI(), "chroot": s.Root()}
	for k, v := range config {
		all[k] = v
	}
	return newRig(t, testhost.SingleNode(), hypervisor.OpenLibvirt, all).hundredGiB()
}

// invented is a driver on libvirt's test driver.
func invented(t *testing.T, h testhost.Host, domains []testhost.Domain, config map[string]any) *rig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.xml")
	testproc.Check(t, os.WriteFile(file, []byte(h.NodeXML(domains...)), 0o600))
	all := map[string]any{"uri": "test://" + file}
	for k, v := range config {
		all[k] = v
	}
	return newRig(t, h, hypervisor.OpenLibvirt, all).hundredGiB()
}

// TestRealTreeEqualsTheModelThroughLibvirtsTestDriver: the model again, with libvirt's test driver:
// it knows memory and domains, and the rest comes from the made-up /sys. It reads no parents of
// mediated devices that are no PCI devices.
func TestRealTreeEqualsTheModelThroughLibvirtsTestDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		h := testhost.Random().Draw(rt, "host")
		h.Virtual = nil
		w := drawWish(rt, h)
		r := invented(t, h, w.domains(), w.config())
		defer func() { _ = r.Shutdown(context.Background()) }()
		tree := newTree(t)
		r.mustPass(tree)
		if d := compareTo(h, w, tree, nodeName); d != "" {
			rt.Fatalf("of %+v (-model +tree):\n%s", w, d)
		}
	})
}

// TestRealTestDriverWithoutChroot: without a /sys of its own, the test driver's host is a number of
// CPUs, memory and devices: as a flat tree it is whole, and as a nested one it has one cell, with
// the devices.
func TestRealTestDriverWithoutChroot(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for i := range h.Devices {
		h.Devices[i].Cell = testhost.None
	}
	h.CPUs, h.Cells = testhost.Grid{Packages: 1, CoresPerDie: 8, ThreadsPerCore: 2, MemoryKiB: h.MemoryKiB()}.Build()
	w := wish{shared: []int{0, 1, 2, 3}, dedicated: []int{4, 15}, reservedMB: 512,
		specs: []wantedSpec{{vendor: 0x15b3, product: 0x1016}}, types: []wantedType{{id: "nvidia-222", class: "VGPU"}}}
	for _, w.nested = range []bool{false, true} {
		config := w.config()
		config["chroot"] = "/"
		r := invented(t, h, nil, config)
		tree := newTree(t)
		r.mustPass(tree)
		testproc.Samef(t, compareTo(h, w, tree, nodeName), "nested %v (-model +tree)", w.nested)
	}
}

// TestRealTreeEqualsTheModelThroughLibvirtd: the model once more, with a real daemon on top of the
// made-up /sys, some hosts that were drawn before and are the same each time. Kernels without NUMA
// are left out: of these libvirt asks the kernel itself, which is this machine's.
func TestRealTreeEqualsTheModelThroughLibvirtd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	drawn := 0
	for seed := 1; drawn < 4; seed++ {
		h := testhost.Random().Example(seed)
		if h.NoNUMA || len(h.Devices) < 3 || len(h.Cells) < 2 {
			continue
		}
		drawn++
		w := rapid.Custom(func(rt *rapid.T) wish { return drawWish(rt, h) }).Example(seed)
		w.taken = nil // there are no emulators, so no domains
		s := testhost.SimForTest(t, h, testhost.SimOptions{})
		r := simulated(t, s, w.config())
		tree := newTree(t)
		for _, nested := range []bool{w.nested, !w.nested} {
			w.nested = nested
			config := w.config()
			config["uri"], config["chroot"] = s.URI(), s.Root()
			testproc.Check(t, r.configure(config))
			eventually(t, func() error {
				_, err := r.UpdateProviderTree(t.Context(), tree, nodeName, providertree.Allocations{})
				return err
			})
			r.mustPass(tree)
			if d := compareTo(h, w, tree, nodeName); d != "" {
				t.Errorf("seed %d, nested %v, of %+v (-model +tree):\n%s", seed, nested, w, d)
			}
		}
		if line := disagreement.FindString(r.log.String()); line != "" {
			t.Errorf("seed %d: witnesses of the same host disagree: %s\n%s", seed, line, r.log)
		}
	}
}

// BenchmarkPassOverLibvirtd is a steady pass with guests that are defined, over a real daemon: its
// time too.
func BenchmarkPassOverLibvirtd(b *testing.B) {
	if _, err := os.Stat("/usr/bin/qemu-system-x86_64"); err != nil {
		b.Skipf("NOT MEASURED: no QEMU (Debian package: qemu-system-x86)")
	}
	s := testhost.SimForTest(b, testhost.Sample(), testhost.SimOptions{Emulators: true})
	c := testproc.Try(hypervisor.OpenLibvirt(hypervisor.Request{URI: s.URI(), Write: true})).Or(b)
	for _, guest := range many(200) {
		testproc.Try(c.DefineDomain(guest.XML("qemu"))).Or(b)
	}
	testproc.NoError(b, c.Close())
	benchmarkPass(b, newDriver(hypervisor.OpenLibvirt),
		map[string]any{"uri": s.URI(), "chroot": s.Root(), "instances_path": s.Root(), "call_timeout": "2m"})
}
