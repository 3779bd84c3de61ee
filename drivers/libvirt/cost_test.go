// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// many are guests.
func many(n int) (list []testhost.Domain) {
	for i := range n {
		list = append(list, testhost.Domain{Name: fmt.Sprintf("instance-%08x", i),
			UUID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i), VCPUs: 2, MemoryMiB: 512, Metadata: novaInstance})
	}
	return list
}

// asked is what a pass asked of libvirt.
type asked struct {
	Lists, Domains, Devices, Expansions int
}

func (d *daemon) asked() asked { return asked{d.lists, d.dumps, d.looks, d.expands} }

// TestCallsOfAPass: one list (with its states) of the domains for each pass, and no XML of those
// that nothing happened to, nor a look at the devices.
func TestCallsOfAPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const guests = 200
	h := testhost.Sample()
	d := newDaemon(t, h)
	d.domains, d.started = many(guests), map[string]int{}
	r := newRig(t, h, d.open, everything)
	tree := newTree(t)
	var before asked
	step := func(what string, want asked) {
		t.Helper()
		testproc.Try(r.pass(tree)).Or(t)
		now := d.asked()
		diff(t, what, want, asked{now.Lists - before.Lists, now.Domains - before.Domains, now.Devices - before.Devices,
			now.Expansions - before.Expansions})
		before = now
	}
	step("the first pass", asked{1, guests, 1, 1})
	step("nothing changed", asked{1, 0, 0, 0})
	d.started[d.domains[7].UUID]++
	step("one guest started", asked{1, 1, 0, 0})
	d.domains = append(d.domains, testhost.Domain{Name: "new", UUID: guestUUID, VCPUs: 1, MemoryMiB: 64})
	step("one came", asked{1, 1, 0, 0})
	d.domains = d.domains[:guests]
	step("it went", asked{1, 0, 0, 0})
	testproc.Check(t, r.configure(map[string]any{"enabled_mdev_types": []string{"nvidia-222"},
		"reserved_host_memory_mb": 1024}))
	step("the configuration changed", asked{1, 0, 1, 0})
	write(t, r.chroot, "sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0/mdev_supported_types/nvidia-222/"+
		"available_instances", "3\n")
	step("the kernel says something else of a device", asked{1, 0, 1, 0})
	if len(r.Warnings()) != 0 {
		t.Errorf("%+v, want none: libvirt may not know it yet", r.Warnings())
	}
	step("in the next pass too", asked{1, 0, 1, 0})
	if len(r.Warnings()) != 1 {
		t.Errorf("%+v, want one: libvirt does not know of it", r.Warnings())
	}
	step("and goes on to", asked{1, 0, 0, 0})
	r.connections.Add(1)
	step("another connection", asked{1, 0, 1, 1})
}

// TestDomainsAreReadAgainWithoutEvents: without an event, the XML of each domain is read again
// after some passes, at different ones; and so is what disagreed.
func TestDomainsAreReadAgainWithoutEvents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const guests = 200
	h := testhost.Sample()
	d := newDaemon(t, h)
	d.domains, d.devices = many(guests), d.devices[2:]
	r := newRig(t, h, d.open, everything)
	tree := newTree(t)
	most := 0
	for pass := range 2 * lookAgain {
		dumps := d.dumps
		testproc.Try(r.pass(tree)).Or(t)
		if pass > 0 {
			most = max(most, d.dumps-dumps)
		}
		if pass == lookAgain-1 && d.dumps != guests {
			t.Errorf("%d XML in the first %d passes, want %d", d.dumps, lookAgain, guests)
		}
	}
	if d.dumps != 2*guests || most > guests/lookAgain {
		t.Errorf("%d XML in %d passes, at most %d at once; want each domain twice, and %d",
			d.dumps, 2*lookAgain, most, guests/lookAgain)
	}
	if d.looks != 2 {
		t.Errorf("%d looks at the devices that disagree in %d passes, want 2", d.looks, 2*lookAgain)
	}
}

// TestAbandonedCallDoesNotAffectLaterPasses: a pass that was given up leaves its call, and in time
// the connection, to libvirt. When that call goes on after all, it does so beside later passes,
// which must not mind (run with -race).
func TestAbandonedCallDoesNotAffectLaterPasses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := testhost.Sample()
		d := newDaemon(t, h)
		hang := make(chan struct{})
		d.domains, d.hang = many(1000), hang
		r := newRig(t, h, d.open, map[string]any{"call_timeout": "100ms", "connect_timeout": "100ms"})
		tree := newTree(t)
		if err := r.refused(tree); !errors.Is(err, plugins.ErrNotReady) ||
			!strings.Contains(err.Error(), "the domains") {
			t.Fatalf("%v, want NotReady that says what hangs", err)
		}
		eventually(t, func() error { _, err := r.pass(tree); return err })
		close(hang)
		for range 5 {
			testproc.Try(r.Guests(t.Context(), tree, nodeName)).Or(t)
		}
		r.mustPass(tree)
	})
}

// filesOf is how many files and directories of the host are read in a pass.
func filesOf(t testing.TB, chroot string, types func(string) bool) int {
	t.Helper()
	reader := testproc.Try(discovery.Open(chroot)).Or(t)
	defer func() { _ = reader.Close() }()
	testproc.Try(reader.Read(types)).Or(t)
	return reader.Files()
}

// large is a host of 8 cells with 64 CPUs each and n devices.
func large(n int) testhost.Host {
	h := testhost.Sample()
	h.CPUs, h.Cells = testhost.Grid{Packages: 8, CoresPerDie: 32, ThreadsPerCore: 2,
		Interleaved: true, MemoryKiB: 16 << 20}.Build()
	h.Devices = nil
	for i := 0; len(h.Devices) < n; i++ {
		cell := i % 8
		port := testhost.Port(testhost.Address(0, uint8(8*i), 1, 0), cell)
		h.Devices = append(h.Devices, port,
			testhost.GPU(testhost.Address(0, uint8(8*i+1), 0, 0), port.Address, cell, 100*i, i))
		left := n - len(h.Devices)
		if left > 1 {
			h.Devices = append(h.Devices,
				testhost.NIC(uint8(8*i+2), port.Address,
					cell, 100*i+1, fmt.Sprintf("ens%d", i), 16, min(16, left-1))...)
		}
	}
	return h
}

// TestFilesOfAPass: what is read of the kernel follows from what there is: so many files for each
// CPU and device, and not one more for what is of no use.
func TestFilesOfAPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	small, big := large(20), large(200)
	small.CPUs, small.Cells = testhost.Grid{Packages: 1, CoresPerDie: 8, ThreadsPerCore: 2, MemoryKiB: 16 << 20}.Build()
	for i := range small.Devices {
		small.Devices[i].Cell = 0
	}
	for _, tc := range []struct {
		host                  testhost.Host
		perCPU, perDevice, of int
	}{{small, 6, 12, 100}, {big, 6, 12, 300}} {
		dir := scratch(t)
		testproc.Try(tc.host.Sysfs(dir)).Or(t)
		files := filesOf(t, dir, func(id string) bool { return id == "nvidia-222" })
		t.Logf("%d CPUs, %d devices: %d files", len(tc.host.CPUs), len(tc.host.Devices), files)
		if bound := tc.perCPU*len(tc.host.CPUs) + tc.perDevice*len(tc.host.Devices) + tc.of; files > bound {
			t.Errorf("%d CPUs, %d devices: %d files are read, want at most %d",
				len(tc.host.CPUs), len(tc.host.Devices), files, bound)
		}
	}
}

// BenchmarkPass is a steady pass of a host with 8 cells of 64 CPUs each, devices and guests,
// without libvirt's own time.
func BenchmarkPass(b *testing.B) {
	for _, bc := range []struct {
		devices, guests int
		numa            string
	}{{0, 0, "flat"}, {200, 0, "flat"}, {200, 0, "nested"}, {200, 200, "nested"}} {
		b.Run(fmt.Sprintf("devices=%d/guests=%d/%s", bc.devices, bc.guests, bc.numa), func(b *testing.B) {
			h := large(bc.devices)
			chroot := scratch(b)
			testproc.Try(h.Sysfs(chroot)).Or(b)
			d := &daemon{
				kind: "QEMU", caps: h.Capabilities("x86_64"), cpuMap: cpuMap(h), expanded: cpuXML(sampleFeatures...),
				devices: h.NodeDevices(), domains: many(bc.guests),
				node: hypervisor.NodeInfo{CPUs: uint(len(h.OnlineCPUs())), MemoryKiB: h.MemoryKiB()},
			}
			benchmarkPass(b, newDriver(d.open),
				map[string]any{"chroot": chroot, "instances_path": chroot, "numa": bc.numa})
			b.ReportMetric(float64(filesOf(b, chroot, func(id string) bool { return id == "nvidia-222" })), "files")
		})
	}
}

// benchmarkPass measures steady passes.
func benchmarkPass(b *testing.B, driver *Driver, config map[string]any) {
	b.Helper()
	for k, v := range everything {
		config[k] = v
	}
	raw, err := json.Marshal(config)
	if err == nil {
		err = driver.Configure(b.Context(), raw, plugins.HostInfo{Name: nodeName})
	}
	testproc.Check(b, err)
	defer func() { testproc.NoError(b, driver.Shutdown(context.Background())) }()
	var tree providertree.Tree
	testproc.Check(b, tree.AddRoot(nodeUUID, nodeName))
	pass := func() {
		testproc.Try(driver.UpdateProviderTree(b.Context(), &tree, nodeName, nil)).Or(b)
	}
	pass()
	b.ReportAllocs()
	for b.Loop() {
		pass()
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "live-MiB")
}
