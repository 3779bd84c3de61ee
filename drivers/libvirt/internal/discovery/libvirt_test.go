// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package discovery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestMain(m *testing.M) {
	testhost.SimMain()
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		fmt.Fprintln(os.Stderr, "NOT TESTED with libvirt:", err)
		os.Exit(1)
	}
	go func() {
		for libvirt.EventRunDefaultImpl() == nil {
		}
	}()
	os.Exit(m.Run())
}

func connect(t testing.TB, s *testhost.Sim) *libvirt.Connect {
	t.Helper()
	return testproc.Try(libvirt.NewConnect(s.URI())).Or(t)
}

// disconnect fails if something still refers to the connection.
func disconnect(t testing.TB, c *libvirt.Connect) {
	t.Helper()
	if n, err := c.Close(); n != 0 || err != nil {
		t.Errorf("the connection leaks: %d references, %v", n, err)
	}
}

// seen is what libvirt can say of a host, in the reader's words, without what only one of them
// knows.
type seen struct {
	Cells   []Cell
	Devices []machine.Device
	Parents []MdevParent
}

// viaLibvirt asks the daemon.
func viaLibvirt(t testing.TB, c *libvirt.Connect) seen {
	t.Helper()
	text := testproc.Try(c.GetCapabilities()).Or(t)
	list := testproc.Try(c.ListAllNodeDevices(libvirt.CONNECT_LIST_NODE_DEVICES_ACTIVE)).Or(t)
	return inXML(t, text, descriptions(t, list))
}

func descriptions(t testing.TB, list []libvirt.NodeDevice) (texts []string) {
	t.Helper()
	for _, d := range list {
		text, err := d.GetXMLDesc(0)
		testproc.Check(t, errors.Join(err, d.Free()))
		texts = append(texts, text)
	}
	return texts
}

// inXML reads libvirt's descriptions.
func inXML(t testing.TB, text string, devices []string) (s seen) {
	t.Helper()
	var caps libvirtxml.Caps
	testproc.Check(t, caps.Unmarshal(text))
	if caps.Host.NUMA == nil {
		t.Fatalf("no topology in the capabilities: %.3000s", text)
	}
	for _, x := range caps.Host.NUMA.Cells.Cells {
		cell := Cell{ID: x.ID}
		if x.Memory != nil { // libvirt leaves it out where there is none
			cell.MemoryKiB = x.Memory.Size
		}
		for _, p := range x.PageInfo {
			if p.Size != 4 {
				cell.HugePages = append(cell.HugePages, machine.Pages{SizeKiB: uint64(p.Size), Total: p.Count})
			}
		}
		if x.Distances != nil {
			for _, d := range x.Distances.Siblings {
				cell.Distances = append(cell.Distances, d.Value)
			}
		}
		if x.CPUS != nil {
			for _, p := range x.CPUS.CPUs {
				cell.CPUs = append(cell.CPUs, p.ID)
			}
		}
		s.Cells = append(s.Cells, cell)
	}
	s.readDevices(t, devices)
	return s
}

func (s *seen) readDevices(t testing.TB, devices []string) {
	t.Helper()
	var mdevs []libvirtxml.NodeDevice
	for _, text := range devices {
		var x libvirtxml.NodeDevice
		testproc.Check(t, x.Unmarshal(text))
		switch {
		case x.Capability.PCI != nil:
			s.pci(t, x)
		case x.Capability.MDev != nil:
			mdevs = append(mdevs, x)
		}
	}
	slices.SortFunc(s.Devices, func(a, b machine.Device) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(s.Parents, compareParents)
	for _, x := range mdevs {
		m := x.Capability.MDev
		i := slices.IndexFunc(s.Parents, func(p MdevParent) bool { return p.Name == m.ParentAddr })
		if i < 0 {
			continue // a parent that is no PCI device
		}
		s.Parents[i].Mdevs = append(s.Parents[i].Mdevs, machine.Mdev{UUID: m.UUID, Type: m.Type.ID, Active: true})
	}
	for _, p := range s.Parents {
		slices.SortFunc(p.Mdevs, func(a, b machine.Mdev) int { return strings.Compare(a.UUID, b.UUID) })
	}
}

func (s *seen) pci(t testing.TB, x libvirtxml.NodeDevice) {
	t.Helper()
	p := x.Capability.PCI
	d := machine.Device{Cell: None}
	var err error
	if d.Address, err = address(strings.NewReplacer("_", ":").Replace(x.Name[len("pci_"):len(x.Name)-2]) + "." +
		x.Name[len(x.Name)-1:]); err != nil {
		t.Fatal(x.Name, err)
	}
	number := func(text string, width int) uint32 {
		n, err := hexadecimal(width)(text)
		if err != nil {
			t.Fatal(x.Name, text, err)
		}
		return n
	}
	d.Vendor, d.Product, d.Class = uint16(number(p.Vendor.ID, 16)),
		uint16(number(p.Product.ID, 16)), number(p.Class, 24)
	if x.Driver != nil {
		d.Driver = x.Driver.Name
	}
	if p.NUMA != nil {
		d.Cell = p.NUMA.Node
	}
	for _, c := range p.Capabilities {
		switch {
		case c.VirtFunctions != nil:
			d.MaxVirtual = c.VirtFunctions.MaxCount
			for _, a := range c.VirtFunctions.Address {
				d.Virtual = append(d.Virtual, pciAddress(a))
			}
		case c.PhysFunction != nil:
			pf := pciAddress(c.PhysFunction.Address)
			d.Physical = &pf
		case c.MDevTypes != nil:
			parent := MdevParent{Name: d.Address.String(), Address: &d.Address}
			for _, t := range c.MDevTypes.Types {
				parent.Types = append(parent.Types,
					machine.MdevType{ID: t.ID, Name: t.Name, API: t.DeviceAPI, Available: int(t.AvailableInstances)})
			}
			slices.SortFunc(parent.Types, func(a, b machine.MdevType) int { return strings.Compare(a.ID, b.ID) })
			s.Parents = append(s.Parents, parent)
		}
	}
	s.Devices = append(s.Devices, d)
}

func pciAddress(a libvirtxml.NodeDevicePCIAddress) machine.Address {
	return machine.Address{Domain: uint32(*a.Domain), Bus: uint8(*a.Bus), Slot: uint8(*a.Slot),
		Function: uint8(*a.Function)}
}

// common is the part of what the reader saw that libvirt can know, too.
func common(h Host) (s seen) {
	for _, c := range h.Cells {
		if h.NoNUMA { // libvirt makes up a cell as well, which it cannot here: this machine's kernel does have NUMA
			break
		}
		c.HugePages = slices.Clone(c.HugePages)
		for i := range c.HugePages {
			c.HugePages[i].Free = 0
		}
		c.Tier = 0 // libvirt does not know tiers
		s.Cells = append(s.Cells, c)
	}
	s.Devices = slices.Clone(h.Devices)
	for i := range s.Devices {
		s.Devices[i].GivesToGuests = false // nor what a driver is for
	}
	for _, p := range h.Parents {
		if p.Address == nil {
			continue
		}
		p.Types = slices.Clone(p.Types)
		for i := range p.Types {
			p.Types[i].Description = "" // libvirt does not tell
		}
		s.Parents = append(s.Parents, p)
	}
	return s
}

// TestRealLibvirtAndTheReaderAgree: what a real libvirtd says of a host is what the reader says of
// the same tree.
func TestRealLibvirtAndTheReaderAgree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, host := range presets {
		t.Run(name, func(t *testing.T) {
			s := testhost.SimForTest(t, host(), testhost.SimOptions{})
			c := connect(t, s)
			defer disconnect(t, c)
			h := testproc.Try(Read(s.Root(), nil)).Or(t)
			testproc.Samef(t, cmp.Diff(common(h), viaLibvirt(t, c), cmpopts.EquateEmpty()), "- sysfs, + libvirt")
			var parents []string
			for _, p := range h.Machine("x86_64").Parents {
				parents = append(parents, p.Name)
			}
			slices.Sort(parents)
			if diff := cmp.Diff(nodeDevices(t, c, libvirt.CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES), parents,
				cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("- libvirt's names of parents, + the machine's:\n%s", diff)
			}
		})
	}
}

func TestRealLibvirtAndTheReaderAgreeOnAnyHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for seed := range 20 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			host := testhost.Random().Example(seed)
			s := testhost.SimForTest(t, host, testhost.SimOptions{})
			c := connect(t, s)
			defer disconnect(t, c)
			h := testproc.Try(Read(s.Root(), nil)).Or(t)
			libvirt := viaLibvirt(t, c)
			testproc.Samef(t, cmp.Diff(common(h), libvirt, cmpopts.EquateEmpty()), "- sysfs, + libvirt")
			// What the model says libvirt says.
			var devices []string
			for _, d := range host.NodeDevices() {
				if !d.Inactive {
					devices = append(devices, d.XML)
				}
			}
			made := inXML(t, host.Capabilities(), devices)
			if host.NoNUMA { // as in common
				made.Cells = nil
			}
			testproc.Samef(t, cmp.Diff(libvirt, made, cmpopts.EquateEmpty()), "- libvirt, + the model's XML")
		})
	}
}

// TestRealLibvirtsTestDriverReadsTheModel: the test driver takes devices and domains from the
// model's file; it drops the drivers.
func TestRealLibvirtsTestDriverReadsTheModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	domain := testhost.Domain{
		Name: "guest & co", UUID: "00000000-0000-4000-8000-000000000001", VCPUs: 2, MemoryMiB: 512,
		Pins: []testhost.Pin{{VCPU: 1, CPUs: []int{3, 11}}}, EmulatorPin: []int{0},
		Memory:       &testhost.MemoryPlacement{Mode: "strict", Cells: []int{1}},
		GuestCells:   []testhost.GuestCell{{VCPUs: []int{0, 1}, MemoryMiB: 512}},
		HugePagesKiB: 2048, PCI: []string{"0000:06:01.0"}, Mdevs: []string{"b7c7d4b0-0c1e-4a3d-8a3e-000000000001"},
	}
	off := testhost.Domain{Name: "off", UUID: "00000000-0000-4000-8000-000000000002",
		Off: true, VCPUs: 1, MemoryMiB: 64}
	file := filepath.Join(t.TempDir(), "node.xml")
	testproc.Check(t, os.WriteFile(file, []byte(h.NodeXML(domain, off)), 0o600))
	c := testproc.Try(libvirt.NewConnect("test://" + file)).Or(t)
	defer disconnect(t, c)
	list := testproc.Try(c.ListAllNodeDevices(0)).Or(t)
	var got seen
	got.readDevices(t, descriptions(t, list))
	tree := testproc.Try(Read(string(render(t, h, scratch(t))), nil)).Or(t)
	want := common(tree)
	want.Cells = nil
	for i := range want.Devices {
		want.Devices[i].Driver = ""
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(MdevParent{}, "Mdevs")); diff != "" {
		t.Errorf("- sysfs, + test driver:\n%s", diff)
	}
	if info, err := c.GetNodeInfo(); err != nil || info.Memory != h.MemoryKiB() || info.Cpus != 16 {
		t.Errorf("%+v, %v", info, err)
	}
	running, err := c.ListAllDomains(libvirt.CONNECT_LIST_DOMAINS_ACTIVE)
	if err != nil || len(running) != 1 {
		t.Fatal(running, err)
	}
	text, err := running[0].GetXMLDesc(0)
	testproc.Check(t, errors.Join(err, running[0].Free()))
	for _, part := range []string{"guest &amp; co", "<vcpupin vcpu='1' cpuset='3,11'/>", "<emulatorpin cpuset='0'/>",
		"mode='strict' nodeset='1'", "<page size='2048'", domain.Mdevs[0], "bus='0x06' slot='0x01' function='0x0'"} {
		testproc.Contains(t, text, part, "no %s in %s", part)
	}
}
