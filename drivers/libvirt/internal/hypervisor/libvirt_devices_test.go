// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	gpu      = "0000:82:00.0"
	mdevUUID = "c0ffee00-0000-4000-8000-000000000002"
)

func mdevXML(uuid string) string {
	return fmt.Sprintf("<device><parent>%s</parent><capability type='mdev'><type "+
		"id='nvidia-222'/><uuid>%s</uuid></capability></device>", testhost.NodeDeviceName(gpu), uuid)
}

// names are those of the devices of some kinds, with a mark at those that are only defined.
func names(t *testing.T, c Conn, kinds ...DeviceKind) (list []string) {
	t.Helper()
	devices := testproc.Try(c.NodeDevices(nil, kinds...)).Or(t)
	for _, d := range devices {
		if !d.Active {
			d.Name += " (defined)"
		}
		list = append(list, d.Name)
	}
	return list
}

// TestRealDevicesOfTheTestDriver: the driver for tests knows no devices that are only defined, and
// has no flags to tell them.
func TestRealDevicesOfTheTestDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	c := connect(t, Request{URI: nodeFile(t, h)})
	devices, err := c.NodeDevices(func(d NodeDevice) bool { return d.Name == testhost.NodeDeviceName(gpu) }, PCIDevices)
	if err != nil || len(devices) != len(h.Devices) {
		t.Fatalf("%d devices, want %d: %v", len(devices), len(h.Devices), err)
	}
	for _, d := range devices {
		if !d.Active || (d.XML != "") != (d.Name == testhost.NodeDeviceName(gpu)) {
			t.Errorf("%+v", d)
		}
	}
	if text, err := c.NodeDeviceXML(testhost.NodeDeviceName(gpu)); err != nil ||
		!strings.Contains(text, "<type id='nvidia-222'>") {
		t.Errorf("%s, %v", text, err)
	}
	testproc.Try(c.NodeDeviceXML("pci_ffff_00_00_0")).ErrorIs(t, ErrNotFound, "a device that is not there: %v")
}

func TestRealCallsForAListOfDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	s := testhost.SimForTest(t, h, testhost.SimOptions{})
	counter := count(t, socketOf(t, s.URI()))
	c := connect(t, Request{URI: counter.through(s.URI())})
	counter.since()
	if list := names(t, c, PCIDevices, Mdevs); len(list) <= len(h.Devices) {
		t.Errorf("%v", list)
	}
	testproc.Samef(t, cmp.Diff(map[uint32]int{procListNodeDevices: 2}, counter.since()), "calls")
	parents, err := c.NodeDevices(func(NodeDevice) bool { return true }, MdevParents)
	if err != nil || len(parents) == 0 {
		t.Fatal(parents, err)
	}
	if diff := cmp.Diff(map[uint32]int{procListNodeDevices: 2, procNodeDeviceXML: len(parents)},
		counter.since()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	for _, d := range parents {
		if !strings.Contains(d.XML, "<capability type='mdev_types'>") {
			t.Errorf("%+v", d)
		}
	}
}

// awaitDevice waits for an event of a device.
func awaitDevice(t *testing.T, events <-chan Event, name string) {
	t.Helper()
	for e := await(t, events); e.Device != name; e = await(t, events) {
		t.Logf("another event: %+v", e)
	}
}

func TestRealLifeOfAMediatedDevice(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{})
	events := make(chan Event, 100)
	c := connect(t, Request{URI: s.URI(), Write: true, Event: func(e Event) { events <- e }})
	before := names(t, c, Mdevs)
	made, err := c.CreateDevice(mdevXML(mdevUUID))
	if err != nil || made != testhost.MdevName(mdevUUID, gpu) {
		t.Fatalf("%q, %v", made, err)
	}
	awaitDevice(t, events, made)
	if _, err := c.CreateDevice(mdevXML(mdevUUID)); err == nil {
		t.Error("made twice")
	}
	testproc.Samef(t, cmp.Diff(append([]string{made}, before...), names(t, c, Mdevs), asSets), "made")
	testproc.NoError(t, c.DestroyDevice(made))
	// When a device goes, the daemon asks mdevctl for all definitions, and forgets what is not in
	// the answer, even what was defined meanwhile. It reports the device after that.
	awaitDevice(t, events, made)
	testproc.ErrorIs(t, c.DestroyDevice(made), ErrNotFound, "ended twice: %v")

	defined := testproc.Try(c.DefineDevice(mdevXML(uuid(5)))).Or(t)
	awaitDevice(t, events, defined)
	if diff := cmp.Diff(append([]string{defined + " (defined)"}, before...), names(t, c, Mdevs), asSets); diff != "" {
		t.Errorf("defined (-want +got):\n%s", diff)
	}
	testproc.NoError(t, errors.Join(c.SetDeviceAutostart(defined, true), c.StartDevice(defined)))
	awaitDevice(t, events, defined)
	testproc.Samef(t, cmp.Diff(append([]string{defined}, before...), names(t, c, Mdevs), asSets), "started")
	testproc.NoError(t, errors.Join(c.DestroyDevice(defined), c.UndefineDevice(defined)))
	if _, err := c.CreateDevice(strings.Replace(mdevXML(uuid(6)), "nvidia-222", "nonsense", 1)); err == nil {
		t.Error("a device of a type that is not there was made")
	}
	testproc.Try(c.CreateDevice("<device>")).ErrorIs(t, ErrRefused, "nonsense: %v")
	// A daemon takes a definition out of its list when it sees mdevctl's files change; here they
	// are elsewhere, and read when it starts.
	testproc.Check(t, s.Restart(t.Context()))
	c = connect(t, Request{URI: s.URI()})
	testproc.Samef(t, cmp.Diff(before, names(t, c, Mdevs), asSets), "in the end")
}

// TestRealEventsOfDevices: devices that another process creates and removes are reported as well.
func TestRealEventsOfDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{})
	events := make(chan Event, 100)
	c := connect(t, Request{URI: s.URI(), Event: func(e Event) { events <- e }})
	testproc.Check(t, s.AddMdev(t.Context(), gpu, "nvidia-222", mdevUUID, 77))
	name := testhost.MdevName(mdevUUID, gpu)
	awaitDevice(t, events, name)
	testproc.Check(t, s.PCI(t.Context(), "change", gpu))
	awaitDevice(t, events, testhost.NodeDeviceName(gpu))
	if !c.Alive() {
		t.Error("not alive")
	}
}
