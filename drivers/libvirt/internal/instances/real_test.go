// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package instances

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// These tests have a real daemon on a made-up host, and QEMU's own emulation of processors.

func TestMain(m *testing.M) {
	testhost.SimMain()
	os.Exit(m.Run())
}

// realRig is a manager over a real daemon.
type realRig struct {
	*Manager
	*testhost.Sim
	t                 *testing.T
	links             []*hypervisor.Link
	dir, images       string
	shared, dedicated []int
	sites             map[string]assignment.Provider
}

func realHost(t *testing.T, h testhost.Host, o testhost.SimOptions) *realRig {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		testproc.NotRun(t, "the guests of this test are of the architecture x86_64")
	}
	if testhost.FindEmulator("x86_64") == "" {
		testproc.NotRun(t, "no QEMU (Debian package: qemu-system-x86)")
	}
	s := testhost.SimForTest(t, h, o)
	r := &realRig{Sim: s, t: t, dir: t.TempDir(), images: t.TempDir()}
	eventLog := hypervisor.NewEventLog()
	for i := range 3 {
		settings := hypervisor.Settings{URI: s.URI(), Open: hypervisor.OpenLibvirt, Write: i > 0,
			ConnectTimeout: 20 * time.Second, CallTimeout: 60 * time.Second, Explain: hypervisor.Explain}
		if i == 0 {
			settings.EventLog = eventLog
		}
		r.links = append(r.links, hypervisor.NewLink(settings))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testproc.Patience)
		defer cancel()
		for _, l := range r.links {
			testproc.NoErrorf(t, l.Close(ctx), "a connection leaks")
		}
	})
	settings := testproc.Try(Parse(Config{ImagesPath: r.images, VirtType: "qemu", ShutdownTimeout: "300ms"})).Or(t)
	r.Manager = New(eventLog)
	r.SetSetup(&Setup{
		Settings: settings, Node: func(context.Context) (string, error) { return node, nil },
		Directory: func(context.Context) (string, error) { return r.dir, nil },
		Discover:  r.look, Read: r.links[0], Write: r.links[1:],
	})
	return r
}

func (r *realRig) look(ctx context.Context, _ *providertree.Tree, _ string) (Host, error) {
	read, err := discovery.Read(r.Root(), func(string) bool { return true })
	if err != nil {
		return Host{}, err
	}
	h := Host{Machine: read.Machine("x86_64"), Shared: r.shared, Dedicated: r.dedicated, Providers: r.sites}
	list, err := hypervisor.Domains(ctx, r.links[0], func(hypervisor.Domain) bool { return true })
	if err != nil {
		return Host{}, err
	}
	for _, d := range list {
		parsed, err := domain.Parse([]byte(d.XML))
		if err != nil {
			return Host{}, err
		}
		h.Domains = append(h.Domains, parsed)
	}
	return h, nil
}

// domains are all there are.
func (r *realRig) domains() []domain.Domain {
	r.t.Helper()
	h := testproc.Try(r.look(r.t.Context(), nil, node)).Or(r.t)
	return h.Domains
}

// mdevs are all there are.
func (r *realRig) mdevs() []string {
	r.t.Helper()
	names, err := hypervisor.Call(r.t.Context(),
		r.links[0], "mediated devices", func(c hypervisor.Conn) (names []string, err error) {
			list, err := c.NodeDevices(nil, hypervisor.Mdevs)
			for _, d := range list {
				names = append(names, d.Name)
			}
			return names, err
		})
	testproc.Check(r.t, err)
	return names
}

// nothingLeft checks that the host is empty of instances, and has the mediated devices that it had.
func (r *realRig) nothingLeft(mdevs []string) {
	r.t.Helper()
	if got := r.domains(); len(got) > 0 {
		r.t.Errorf("domains are left: %+v", got)
	}
	diff(r.t, "mediated devices", mdevs, r.mdevs())
	files, err := os.ReadDir(r.dir)
	if err != nil || len(files) > 0 {
		r.t.Errorf("files are left: %v, %v", files, err)
	}
}

// bootable is the start of a disk whose boot sector writes a word to the first serial port and
// halts.
func bootable(word string) []byte {
	disk := make([]byte, 1<<20)
	copy(disk, "\x31\xc0\x8e\xd8\xfc\xbe\x16\x7c\xba\xf8\x03\xac\x84\xc0\x74\x03\xee\xeb\xf8\xf4\xeb\xfd"+word+"\x00")
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

// own is a uuid that no other guest of this machine has: its process is looked for by it.
func own(n int) string { return fmt.Sprintf("5e1f0001-0000-4000-8000-%08x%04x", os.Getpid(), n) }

// threads are the processors on which each thread of a guest's emulator may run, by the thread's
// name.
func (r *realRig) threads(t *testing.T, uuid string) map[string]string {
	t.Helper()
	files := testproc.Try(filepath.Glob("/proc/[0-9]*/cmdline")).Or(t)
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "-uuid\x00"+uuid) || !strings.Contains(string(text), r.dir) {
			continue // other tests have guests with the same uuid
		}
		tasks := testproc.Try(filepath.Glob(filepath.Join(filepath.Dir(file), "task", "*", "status"))).Or(t)
		for _, task := range tasks {
			status, err := os.ReadFile(task)
			if err != nil {
				continue // it ended
			}
			name, cpus := "", ""
			for line := range strings.Lines(string(status)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
				switch key {
				case "Name":
					name = value
				case "Cpus_allowed_list":
					cpus = value
				}
			}
			out[name] = cpus
		}
	}
	return out
}

func (r *realRig) eventually(what string, is func() bool) {
	r.t.Helper()
	testproc.Eventually(r.t, testproc.Patience, what, testproc.True(is))
}

func (r *realRig) power(uuid string, want plugins.PowerState) {
	r.t.Helper()
	list, err := r.Instances(r.t.Context(), node)
	at := slices.IndexFunc(list, func(i plugins.Instance) bool { return i.UUID == uuid })
	if err != nil || at < 0 || list[at].Power != want {
		r.t.Errorf("%+v, %v; want %s of %s", list, err, want, uuid)
	}
}

// TestRealInstance: a guest boots from its image through the layer above it, runs where it was
// placed, and is known to the next daemon and the next agent.
func TestRealInstance(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := realHost(t, testhost.SingleNode(), testhost.SimOptions{Emulators: true})
	r.shared, r.sites = []int{0}, map[string]assignment.Provider{rootUUID: {Kind: assignment.Root}}
	pinned := runtime.NumCPU() > 1
	spec := plugins.InstanceSpec{
		UUID: own(1), Name: "web <1>", ProjectID: "p", UserID: "u", Image: "hello", UserData: []byte("#cloud-config\n"),
		Flavor:      plugins.Flavor{Name: "tiny", VCPUs: 1, MemoryMB: 32, RootGB: 1, EphemeralGB: 1, SwapMB: 16},
		Allocations: providertree.ProviderResources{rootUUID: {"VCPU": 1, "MEMORY_MB": 32, "DISK_GB": 3}},
	}
	if pinned {
		r.dedicated = []int{1}
		spec.Allocations[rootUUID] = map[string]int64{"PCPU": 1, "MEMORY_MB": 32, "DISK_GB": 3}
	} else {
		t.Log("NOT TESTED: where the threads of a pinned guest run: this machine has one processor")
	}
	testproc.Check(t, os.WriteFile(filepath.Join(r.images, "hello"), bootable("hello, world"), 0o644))
	testproc.Check(t, os.Chmod(r.images, 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	received, ended := make(chan string, 1000), make(chan error, 1)
	go func() { ended <- r.Watch(ctx, func(_, uuid string) { received <- uuid }) }()
	defer func() {
		cancel()
		<-ended
	}()

	is, err := r.Spawn(t.Context(), node, spec, nil)
	if err != nil || is.Power != plugins.PowerRunning || is.Name != "web <1>" {
		t.Fatalf("%+v, %v", is, err)
	}
	r.eventually("an event", func() bool {
		select {
		case uuid := <-received:
			return uuid == spec.UUID
		default:
			return false
		}
	})
	console := filepath.Join(r.dir, domain.Name(spec.UUID), consoleLog)
	r.eventually("a word of the guest", func() bool {
		text, _ := os.ReadFile(console)
		return strings.Contains(string(text), "hello, world")
	})
	if pinned {
		diff(t, "pins", [][]int{{1}}, r.domains()[0].Pins)
		all := r.threads(t, spec.UUID)
		if len(all) == 0 || all["CPU 0/TCG"] != "1" {
			t.Errorf("the threads of the guest may run on %v", all)
		}
	}
	diff(t, "memory", []int{0}, map[bool][]int{true: r.domains()[0].Memory.Nodes, false: {0}}[pinned])

	// The guest does not listen, and is switched off.
	if is, err = r.SetPower(t.Context(), node, spec.UUID, plugins.PowerShutdown, false); err != nil ||
		is.Power != plugins.PowerShutdown {
		t.Errorf("%+v, %v", is, err)
	}
	if is, err = r.Spawn(t.Context(), node, spec, nil); err != nil || is.Power != plugins.PowerShutdown {
		t.Errorf("a repeated Spawn started it: %+v, %v", is, err)
	}
	testproc.Check(t, r.Restart(t.Context()))
	r.eventually("a list from the new daemon", func() bool {
		for _, l := range r.links {
			if l.State() != nil {
				return false
			}
		}
		_, err := r.Instances(t.Context(), node)
		return err == nil
	})
	r.power(spec.UUID, plugins.PowerShutdown)
	if is, err = r.Spawn(t.Context(), node, spec, nil); err != nil || is.Power != plugins.PowerShutdown {
		t.Errorf("a repeated Spawn started it, with a new daemon: %+v, %v", is, err)
	}
	for range 2 {
		if is, err = r.SetPower(t.Context(), node, spec.UUID, plugins.PowerRunning, false); err != nil ||
			is.Power != plugins.PowerRunning {
			t.Errorf("%+v, %v", is, err)
		}
	}
	r.power(spec.UUID, plugins.PowerRunning)
	for range 2 {
		testproc.NoError(t, r.Manager.Destroy(t.Context(), node, spec.UUID))
	}
	r.nothingLeft(nil)
	if text, err := os.ReadFile(filepath.Join(r.images, "hello")); err != nil ||
		string(text) != string(bootable("hello, world")) {
		t.Errorf("the image is another one (%v)", err)
	}
}

// TestRealDaemonRefusals: unmanaged guests, and starts that libvirt refuses.
func TestRealDaemonRefusals(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := realHost(t, testhost.Sample(), testhost.SimOptions{Emulators: true})
	const gpu = "0000:82:00.0"
	r.shared, r.dedicated = []int{0}, nil
	r.sites = map[string]assignment.Provider{
		rootUUID: {Kind: assignment.Root},
		gpuUUID: {Kind: assignment.MdevParent, Parent: testhost.NodeDeviceName(gpu),
			Type: "nvidia-222", Class: "VGPU"},
	}
	before := r.mdevs()
	spec := plugins.InstanceSpec{
		UUID: own(2), Name: "gpu", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 32, RootGB: 1},
		Allocations: providertree.ProviderResources{rootUUID: {"VCPU": 1, "MEMORY_MB": 32, "DISK_GB": 1},
			gpuUUID: {"VGPU": 1}},
	}
	// There is a mediated device, as libvirt sees it, and none that QEMU could open.
	if _, err := r.Spawn(t.Context(), node, spec, nil); !isFault(err) {
		t.Errorf("%v, want a fault", err)
	}
	r.nothingLeft(before)

	spec.ImageProperties = map[string]string{"hw_machine_type": "no-such-board"}
	if _, err := r.Spawn(t.Context(), node, spec, nil); !isFault(err) {
		t.Errorf("%v, want a fault", err)
	}
	r.nothingLeft(before)

	theirs := testhost.Domain{Name: "theirs", UUID: own(3), VCPUs: 1, MemoryMiB: 16}
	testproc.Check(t, r.defineTheirs(theirs.XML("qemu")))
	spec.UUID = theirs.UUID
	if _, err := r.Spawn(t.Context(), node, spec, nil); !isFault(err) {
		t.Errorf("%v, want a fault", err)
	}
	if err := r.Manager.Destroy(t.Context(), node, theirs.UUID); !isFault(err) {
		t.Errorf("%v, want a fault", err)
	}
	if got := r.domains(); len(got) != 1 || got[0].Name != "theirs" {
		t.Errorf("%+v", got)
	}
}

func (r *realRig) defineTheirs(xml string) error {
	_, err := hypervisor.Call(r.t.Context(), r.links[1],
		"an unmanaged one", func(c hypervisor.Conn) (string, error) { return c.DefineDomain(xml) })
	return err
}

// TestRealInstancesWithDevices: guests with virtual GPUs, a virtual function of a network card, and
// processors of the cell that their GPU is in.
func TestRealInstancesWithDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := realHost(t, testhost.Sample(), testhost.SimOptions{Passthrough: true})
	const gpu = "0000:82:00.0"
	var vf machine.Address
	h := testproc.Try(r.look(t.Context(), nil, node)).Or(t)
	for _, d := range h.Machine.Devices {
		if d.Physical != nil {
			vf = d.Address
		}
	}
	testproc.Check(t, r.Tree().Bind(vf.String(), "vfio-pci"))
	r.shared = []int{0, 8}
	for cpu := 1; cpu < 16; cpu++ {
		if cpu != 8 {
			r.dedicated = append(r.dedicated, cpu)
		}
	}
	r.sites = map[string]assignment.Provider{
		rootUUID: {Kind: assignment.Root},
		nicUUID: {Kind: assignment.PCI, Class: "CUSTOM_NIC",
			Devices: []machine.PassedDevice{{Address: vf, Managed: true}}},
		gpuUUID: {Kind: assignment.MdevParent, Parent: testhost.NodeDeviceName(gpu),
			Type: "nvidia-222", Class: "VGPU"},
	}
	before := r.mdevs()
	for n := 1; n <= 2; n++ {
		spec := plugins.InstanceSpec{
			UUID: own(10 + n), Name: "gpu " + strconv.Itoa(n),
			Flavor: plugins.Flavor{VCPUs: 2, MemoryMB: 32, RootGB: 1},
			Allocations: providertree.ProviderResources{rootUUID: {"PCPU": 2, "MEMORY_MB": 32, "DISK_GB": 1},
				gpuUUID: {"VGPU": 1}},
		}
		if n == 1 {
			spec.Allocations[nicUUID] = map[string]int64{"CUSTOM_NIC": 1}
		}
		if is, err := r.Spawn(t.Context(), node, spec, nil); err != nil || is.Power != plugins.PowerRunning {
			t.Fatalf("%+v, %v", is, err)
		}
	}
	list := r.domains()
	host := assignment.NewHost(h.Machine)
	taken := map[int]bool{}
	for _, d := range list {
		if len(d.Mdevs) != 1 || len(d.Pins) != 2 || (len(d.PCI) == 1) != (d.UUID == own(11)) {
			t.Errorf("%+v", d)
		}
		if d.UUID == own(12) { // near its GPU; the first is near its network card
			diff(t, "memory", map[int]uint64{1: 32 << 10}, host.Facts(d).MemoryKiB)
		}
		for _, pins := range d.Pins {
			if len(pins) != 1 || taken[pins[0]] {
				t.Errorf("pins %v, and %v are taken", pins, taken)
			}
			taken[pins[0]] = true
		}
	}
	if got := r.mdevs(); len(list) != 2 || len(got) != len(before)+2 {
		t.Errorf("%d domains, mediated devices %v", len(list), got)
	}
	r.unevenCells(h.Machine, own(13))
	for n := 1; n <= 3; n++ {
		testproc.NoError(t, r.Manager.Destroy(t.Context(), node, own(10+n)))
	}
	r.nothingLeft(before)
}

// unevenCells makes a guest of two NUMA nodes, the first of them in the second cell of the host.
func (r *realRig) unevenCells(m machine.Machine, uuid string) {
	r.t.Helper()
	cells := []string{own(0x70), own(0x71)}
	for i, cell := range cells {
		r.sites[cell] = assignment.Provider{Kind: assignment.Cell, Cell: i}
	}
	spec := plugins.InstanceSpec{
		UUID: uuid, Name: "uneven",
		Flavor: plugins.Flavor{VCPUs: 3, MemoryMB: 48, RootGB: 1, ExtraSpecs: map[string]string{
			"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2", "hw:numa_cpus.0": "0,2", "hw:numa_cpus.1": "1",
			"hw:numa_mem.0": "32", "hw:numa_mem.1": "16",
		}},
		Allocations: providertree.ProviderResources{rootUUID: {"DISK_GB": 1}, cells[0]: {"PCPU": 1, "MEMORY_MB": 16},
			cells[1]: {"PCPU": 2, "MEMORY_MB": 32}},
	}
	if is, err := r.Spawn(r.t.Context(), node, spec, nil); err != nil || is.Power != plugins.PowerRunning {
		r.t.Fatalf("%+v, %v", is, err)
	}
	for _, d := range r.domains() {
		if d.UUID != uuid {
			continue
		}
		facts := assignment.NewHost(m).Facts(d)
		diff(r.t, "processors", map[int]int{0: 1, 1: 2}, facts.Dedicated)
		diff(r.t, "memory", map[int]uint64{0: 16 << 10, 1: 32 << 10}, facts.MemoryKiB)
		decided, _ := d.Decision()
		diff(r.t, "NUMA nodes", []domain.Share{{Host: 1, VCPUs: []int{0, 2}, MemoryKiB: 32 << 10},
			{Host: 0, VCPUs: []int{1}, MemoryKiB: 16 << 10}}, decided.Cells)
		return
	}
	r.t.Error("there is no domain")
}
