// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package discovery

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"libvirt.org/go/libvirt"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	idleGPU = "0000:82:00.0"
	newUUID = "c0ffee00-0000-4000-8000-000000000002"
)

// watch tells of node devices: "created NAME", "deleted NAME", "updated NAME".
func watch(t *testing.T, c *libvirt.Connect) (eventLog <-chan string, end func()) {
	t.Helper()
	received := make(chan string, 100)
	tell := func(what string, d *libvirt.NodeDevice) {
		if name, err := d.GetName(); err == nil {
			received <- what + " " + name
		}
	}
	life, err := c.NodeDeviceEventLifecycleRegister(nil,
		func(_ *libvirt.Connect, d *libvirt.NodeDevice, e *libvirt.NodeDeviceEventLifecycle) {
			tell(map[libvirt.NodeDeviceEventLifecycleType]string{libvirt.NODE_DEVICE_EVENT_CREATED: "created",
				libvirt.NODE_DEVICE_EVENT_DELETED: "deleted"}[e.Event], d)
		})
	testproc.Check(t, err)
	update, err := c.NodeDeviceEventUpdateRegister(nil,
		func(_ *libvirt.Connect, d *libvirt.NodeDevice) { tell("updated", d) })
	testproc.Check(t, err)
	return received, func() {
		_ = c.NodeDeviceEventDeregister(life) // an error on a dead connection; the reference is dropped anyway
		_ = c.NodeDeviceEventDeregister(update)
	}
}

func await(t *testing.T, eventLog <-chan string, want string) {
	t.Helper()
	timeout := time.NewTimer(testproc.Patience)
	defer timeout.Stop()
	var others []string
	for {
		select {
		case got := <-eventLog:
			if got == want {
				return
			}
			others = append(others, got)
		case <-timeout.C:
			t.Fatalf("no eventLog that %s, only %q", want, others)
		}
	}
}

// closed closes a connection that had callbacks, once the event loop has let go of them.
func closed(t *testing.T, c *libvirt.Connect) {
	t.Helper()
	turn := make(chan struct{})
	testproc.Try(libvirt.EventAddTimeout(0, func(timer int) { _ = libvirt.EventRemoveTimeout(timer); close(turn) })).
		Or(t)
	<-turn
	disconnect(t, c)
}

// nodeDevices are the names of devices, sorted.
func nodeDevices(t *testing.T, c *libvirt.Connect, flags libvirt.ConnectListAllNodeDeviceFlags) (names []string) {
	t.Helper()
	list := testproc.Try(c.ListAllNodeDevices(flags)).Or(t)
	for _, d := range list {
		name := testproc.Try(d.GetName()).Or(t)
		names = append(names, name)
		testproc.Check(t, d.Free())
	}
	slices.Sort(names)
	return names
}

// available is what the reader says of the first type of the idle GPU.
func available(t *testing.T, s *testhost.Sim) int {
	t.Helper()
	h := testproc.Try(Read(s.Root(), nil)).Or(t)
	for _, p := range h.Parents {
		if p.Name == idleGPU {
			return p.Types[0].Available
		}
	}
	t.Fatal("no such parent")
	return 0
}

func TestRealReadWhileDevicesComeAndGo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{})
	c := connect(t, s)
	eventLog, end := watch(t, c)
	name := testhost.MdevName(newUUID, idleGPU)
	must := func(err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	must(s.AddMdev(t.Context(), idleGPU, "nvidia-222", newUUID, 900))
	await(t, eventLog, "created "+name)
	testproc.Equal(t, available(t, s), 15, "%d available")
	must(s.RemoveMdev(t.Context(), newUUID))
	await(t, eventLog, "deleted "+name)
	must(s.PCI(t.Context(), "change", idleGPU))
	await(t, eventLog, "updated "+testhost.NodeDeviceName(idleGPU))

	// Libvirt makes one itself, by way of mdevctl.
	device, err := c.DeviceCreateXML(
		fmt.Sprintf("<device><parent>%s</parent><capability type='mdev'><type "+
			"id='nvidia-222'/><uuid>%s</uuid></capability></device>", testhost.NodeDeviceName(idleGPU), newUUID), 0)
	must(err)
	await(t, eventLog, "created "+name)
	testproc.Equal(t, available(t, s), 15, "%d available")
	must(device.Destroy())
	must(device.Free())
	await(t, eventLog, "deleted "+name)
	testproc.Equal(t, available(t, s), 16, "%d available")
	end()
	closed(t, c)
}

// TestRealDevicesAreUnpluggedAndPlugged: a network card is taken out with its functions, and put
// back: libvirt hears of each, and agrees with the reader each time.
func TestRealDevicesAreUnpluggedAndPlugged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	s := testhost.SimForTest(t, h, testhost.SimOptions{})
	c := connect(t, s)
	eventLog, end := watch(t, c)
	agree := func(devices int) {
		t.Helper()
		read := testproc.Try(Read(s.Root(), nil)).Or(t)
		if len(read.Devices) != devices {
			t.Errorf("%d devices, want %d", len(read.Devices), devices)
		}
		testproc.Samef(t, cmp.Diff(common(read), viaLibvirt(t, c), cmpopts.EquateEmpty()), "- sysfs, + libvirt")
	}
	testproc.Check(t, s.Unplug(t.Context(), "0000:06:00.0"))
	await(t, eventLog, "deleted pci_0000_06_00_0")
	agree(len(h.Devices) - 5)
	card := slices.DeleteFunc(slices.Clone(h.Devices),
		func(d testhost.Device) bool { return !strings.HasPrefix(d.Address, "0000:06:") })
	testproc.Check(t, s.Plug(t.Context(), card...))
	await(t, eventLog, "created pci_0000_06_01_3")
	agree(len(h.Devices))
	testproc.ErrorIs(t, s.Plug(t.Context(), card[0]), fs.ErrExist, "plugged in twice: %v")
	end()
	closed(t, c)
}

// TestRealInactiveDevices: devices that are only defined are libvirt's knowledge, not the kernel's.
func TestRealInactiveDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	h.Device(idleGPU).Mdevs = []testhost.Mdev{{UUID: newUUID, Type: "nvidia-231", Inactive: true}}
	s := testhost.SimForTest(t, h, testhost.SimOptions{})
	c := connect(t, s)
	defer disconnect(t, c)
	const mdev = libvirt.CONNECT_LIST_NODE_DEVICES_CAP_MDEV
	active, inactive := nodeDevices(t, c, mdev|libvirt.CONNECT_LIST_NODE_DEVICES_ACTIVE),
		nodeDevices(t, c, mdev|libvirt.CONNECT_LIST_NODE_DEVICES_INACTIVE)
	want := []string{testhost.MdevName("b7c7d4b0-0c1e-4a3d-8a3e-000000000001", "0000:05:00.0")}
	testproc.Same(t, cmp.Diff(want, active))
	testproc.Same(t, cmp.Diff([]string{testhost.MdevName(newUUID, idleGPU)}, inactive))
}

// TestRealSimulatedDaemonRestarts: the daemon hangs, dies and comes back; what it says then is what
// it said before.
func TestRealSimulatedDaemonRestarts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{})
	c := connect(t, s)
	before := viaLibvirt(t, c)
	_, end := watch(t, c)
	testproc.Check(t, s.Freeze())
	answered := make(chan error, 1)
	go func() { _, err := c.GetCapabilities(); answered <- err }()
	testproc.Check(t, s.Thaw())
	testproc.NoErrorf(t, <-answered, "after it went on")
	testproc.Check(t, s.Kill(t.Context()))
	testproc.Equal(t, s.PID(), 0, "pid %d of a dead daemon")
	if _, err := c.GetCapabilities(); err == nil {
		t.Error("a dead daemon answers")
	}
	end()
	closed(t, c)
	if _, err := libvirt.NewConnect(s.URI()); err == nil {
		t.Error("connected to a dead daemon")
	}
	testproc.Check(t, s.Launch(t.Context()))
	testproc.Check(t, s.Restart(t.Context()))
	c = connect(t, s)
	defer disconnect(t, c)
	testproc.Same(t, cmp.Diff(before, viaLibvirt(t, c)))
}

// TestRealTheTreeChanges: the tree is edited under the daemon: the next answer is another.
func TestRealTheTreeChanges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{})
	c := connect(t, s)
	defer disconnect(t, c)
	at := testproc.Try(s.Tree().DevicePath("0000:06:00.0")).Or(t)
	testproc.Check(t, s.Tree().Remove(at+"/virtfn3"))
	read := testproc.Try(Read(s.Root(), nil)).Or(t)
	if len(read.Unread) != 1 || !strings.Contains(read.Unread[0].Problem, filepath.Join(at, "sriov_numvfs")) {
		t.Errorf("the reader does not see that a function is missing: %+v", read.Unread)
	}
	for _, d := range viaLibvirt(t, c).Devices {
		if d.Address.String() == "0000:06:00.0" && len(d.Virtual) != 3 {
			t.Errorf("libvirt sees %d virtual functions, want 3", len(d.Virtual))
		}
	}
}

func TestRealClosedSimulationLeavesNoFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testhost.SimForTest(t, testhost.SingleNode(), testhost.SimOptions{})
	pid := s.PID()
	ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
	defer cancel()
	testproc.Check(t, s.Close(ctx))
	testproc.NoErrorf(t, s.Close(ctx), "closed twice")
	if err := s.Launch(ctx); err == nil {
		t.Error("launched after it was closed")
	}
	if found, err := filepath.Glob(filepath.Dir(s.Root()) + "*"); err != nil || len(found) > 0 {
		t.Errorf("on disk: %v, %v", found, err)
	}
	if found, err := filepath.Glob(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || len(found) > 0 {
		t.Errorf("the daemon still runs: %v, %v", found, err)
	}
}

// TestRealGuestsRun: with emulators, guests run on the made-up host: on the CPUs that there really
// are, until the simulation ends.
func TestRealGuestsRun(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if _, err := os.Stat("/usr/bin/qemu-system-x86_64"); err != nil {
		testproc.NotRun(t, "no QEMU (Debian package: qemu-system-x86)")
	}
	cache := filepath.Join(t.TempDir(), "cache")
	s := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{Emulators: true, Cache: cache})
	c := connect(t, s)
	defer disconnect(t, c)
	guest := testhost.Domain{Name: "guest", UUID: "00000000-0000-4000-8000-000000000001", VCPUs: 1, MemoryMiB: 16}
	running := testproc.Try(c.DomainDefineXML(guest.XML("qemu"))).Or(t)
	defer func() { _ = running.Free() }()
	testproc.Check(t, running.Create())
	stored := testhost.Domain{
		Name: "stored", UUID: "00000000-0000-4000-8000-000000000002", VCPUs: 2, MemoryMiB: 64,
		Pins:   []testhost.Pin{{VCPU: 0, CPUs: []int{12}}},
		Memory: &testhost.MemoryPlacement{Mode: "strict", Cells: []int{1}}, PCI: []string{"0000:06:01.0"},
		Mdevs: []string{"b7c7d4b0-0c1e-4a3d-8a3e-000000000001"},
	}
	defined := testproc.Try(c.DomainDefineXML(stored.XML("qemu"))).Or(t)
	defer func() { _ = defined.Free() }()
	for d, want := range map[*libvirt.Domain]bool{running: true, defined: false} {
		if active, err := d.IsActive(); err != nil || active != want {
			t.Errorf("active %v, %v, want %v", active, err, want)
		}
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) == 0 {
		t.Errorf("nothing is kept of what was learnt of the emulators: %v", err)
	}
}
