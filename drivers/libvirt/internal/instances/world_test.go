// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	node     = "cn1"
	rootUUID = "00000000-0000-4000-8000-0000000000ff"
	gpuUUID  = "00000000-0000-4000-8000-0000000000fe"
	nicUUID  = "00000000-0000-4000-8000-0000000000fd"
	cardUUID = "00000000-0000-4000-8000-0000000000fc"
	gpuName  = "pci_0000_82_00_0"
	cardName = "pci_0000_41_00_0"
)

func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

// world is a hypervisor without a host.
type world struct {
	mu      sync.Mutex
	domains map[string]*body
	devices map[string]bool // by name; whether they are active
	lastID  int
	// writes are the calls so far that change something. The one with the number fail does not do
	// what it is to do, or does it and its connection breaks before it can say so.
	writes  []string
	fail    int
	how     failMode
	started int // starts that worked
	ignores int // how many requests to shut down the guests do not hear
	away    bool
	stuck   bool          // starts that are under way stay so
	tough   bool          // domains are not switched off
	reads   int           // XML that was asked for
	hold    chan struct{} // starts wait for it, if it is not nil
	before  func()        // each write
	starts  func(domain.Domain) error
	qemu    *User
	card    testhost.VGPUCard // makes vGPUs on the functions below
	busy    int               // removals of vGPUs that the card still refuses
	console error             // of each that is to be opened
	opened  int               // consoles
	events  []func(hypervisor.Event)
}

type failMode int

const (
	refuses failMode = iota
	breaks
	breaksAfter
)

// body is a domain.
type body struct {
	hypervisor.Domain
	asked     int
	autostart bool
}

func newWorld() *world { return &world{domains: map[string]*body{}, devices: map[string]bool{}} }

type conn struct {
	hypervisor.Conn // the calls that no test makes
	*world
	write bool
	dead  bool
}

func (w *world) open(r hypervisor.Request) (hypervisor.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return nil, errors.New("the daemon is down")
	}
	w.events = append(w.events, r.Event)
	return &conn{world: w, write: r.Write}, nil
}

func (c *conn) Close() error { return nil }
func (c *conn) Alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.dead
}

func (c *conn) Domains(want func(hypervisor.Domain) bool) ([]hypervisor.Domain, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []hypervisor.Domain
	for _, uuid := range slices.Sorted(maps.Keys(c.domains)) {
		d := c.domains[uuid].Domain
		text := d.XML
		d.XML = ""
		if want != nil && want(d) {
			d.XML = text
			c.reads++
		}
		out = append(out, d)
	}
	return out, nil
}

func (c *conn) NodeDevices(
	func(hypervisor.NodeDevice) bool, ...hypervisor.DeviceKind,
) ([]hypervisor.NodeDevice, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []hypervisor.NodeDevice
	for _, name := range slices.Sorted(maps.Keys(c.devices)) {
		out = append(out, hypervisor.NodeDevice{Name: name, Active: c.devices[name]})
	}
	return out, nil
}

// change is a write.
func (c *conn) change(what string, do func() error) error {
	if c.before != nil {
		c.before()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.write {
		return hypervisor.ErrReadOnly
	}
	c.writes = append(c.writes, what)
	if len(c.writes) != c.fail {
		return do()
	}
	switch c.how {
	case refuses:
		return errors.New("internal error: no")
	case breaksAfter:
		_ = do()
	}
	c.dead = true
	return errors.New("the client socket is closed")
}

func (c *conn) withDomain(what, uuid string, do func(*body) error) error {
	err := c.change(what, func() error {
		b, there := c.domains[uuid]
		if !there {
			return hypervisor.ErrNotFound
		}
		return do(b)
	})
	c.tell(hypervisor.Event{Domain: uuid})
	return err
}

func (w *world) tell(e hypervisor.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.events {
		f(e)
	}
}

func (c *conn) DefineDomain(xml string) (string, error) {
	d, err := domain.Parse([]byte(xml))
	if err != nil {
		return "", errors.Join(hypervisor.ErrRefused, err)
	}
	err = c.change("define", func() error {
		c.domains[d.UUID] = &body{Domain: hypervisor.Domain{UUID: d.UUID, Name: d.Name, ID: hypervisor.NotRunning,
			State: hypervisor.ShutOff, XML: xml}}
		return nil
	})
	c.tell(hypervisor.Event{Domain: d.UUID})
	return d.UUID, err
}

func (c *conn) StartDomain(uuid string) error {
	if c.hold != nil {
		<-c.hold
	}
	return c.withDomain("start", uuid, func(b *body) error {
		if b.ID != hypervisor.NotRunning {
			if b.State == hypervisor.Paused && b.Reason == pausedStarting && !c.stuck {
				b.State = hypervisor.Running // it waits for the other start
			}
			return hypervisor.ErrState
		}
		d, err := domain.Parse([]byte(b.XML))
		if err != nil {
			return err
		}
		for _, m := range d.Mdevs {
			if !c.devices["mdev_"+strings.ReplaceAll(m, "-", "_")+"_0000_82_00_0"] {
				return fmt.Errorf("mediated device %s not found", m)
			}
		}
		if c.starts != nil {
			if err := c.starts(d); err != nil {
				return err
			}
		}
		c.lastID++
		c.started++
		b.ID, b.State, b.Reason, b.asked = c.lastID, hypervisor.Running, 1, 0
		return nil
	})
}

func (b *body) off(reason int) {
	b.ID, b.State, b.Reason = hypervisor.NotRunning, hypervisor.ShutOff, reason
}

func (c *conn) DestroyDomain(uuid string) error {
	return c.withDomain("destroy", uuid, func(b *body) error {
		if b.ID == hypervisor.NotRunning || c.tough {
			return hypervisor.ErrState
		}
		b.off(offDestroyed)
		return nil
	})
}

func (c *conn) ShutdownDomain(uuid string) error {
	return c.withDomain("shutdown", uuid, func(b *body) error {
		if b.ID == hypervisor.NotRunning {
			return hypervisor.ErrState
		}
		if b.asked++; b.asked > c.ignores {
			b.off(offShutdown)
		}
		return nil
	})
}

func (c *conn) ResumeDomain(uuid string) error {
	return c.withDomain("resume", uuid, func(b *body) error { b.State = hypervisor.Running; return nil })
}

func (c *conn) UndefineDomain(uuid string) error {
	return c.withDomain("undefine", uuid, func(b *body) error {
		if b.ID != hypervisor.NotRunning {
			return errors.New("it runs")
		}
		delete(c.domains, uuid)
		return nil
	})
}

func (c *conn) SetDomainAutostart(uuid string, on bool) error {
	return c.withDomain("autostart", uuid, func(b *body) error { b.autostart = on; return nil })
}

func (c *conn) CreateDevice(xml string) (name string, err error) {
	err = c.change("make device", func() error {
		_, rest, _ := strings.Cut(xml, "<uuid>")
		uuid, _, _ := strings.Cut(rest, "</uuid>")
		name = "mdev_" + strings.ReplaceAll(uuid, "-", "_") + "_0000_82_00_0"
		if _, there := c.devices[name]; there || !strings.Contains(xml, "<parent>"+gpuName+"</parent>") ||
			!strings.Contains(xml, `<type id="nvidia-222">`) {
			return fmt.Errorf("%w: %s", hypervisor.ErrRefused, xml)
		}
		c.devices[name] = true
		return nil
	})
	return name, err
}

func (c *conn) StartDevice(name string) error {
	return c.change("start device", func() error { c.devices[name] = true; return nil })
}

func (c *conn) DestroyDevice(name string) error {
	return c.change("end device", func() error {
		if !c.devices[name] {
			return hypervisor.ErrNotFound
		}
		delete(c.devices, name)
		return nil
	})
}

// rig is a manager over a world.
type rig struct {
	*Manager
	*world
	t        *testing.T
	dir      string // of the instances
	images   string
	eventLog *hypervisor.EventLog
	used     Setup
}

func machineOf(w *world) machine.Machine {
	m := machine.Machine{Arch: "x86_64",
		Cells: []machine.Cell{{MemoryKiB: 16 << 20, CPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}}}
	for i := range 8 {
		m.CPUs = append(m.CPUs, machine.CPU{ID: i, Online: true, Core: i})
	}
	at := machine.Address{Bus: 0x82}
	m.Parents = []machine.MdevParent{{Name: gpuName,
		Address: &at, Types: []machine.MdevType{{ID: "nvidia-222", API: "vfio-pci", Available: 4}}}}
	for name, active := range w.devices {
		uuid := strings.ReplaceAll(name[len("mdev_"):len("mdev_")+36], "_", "-")
		m.Parents[0].Mdevs = append(m.Parents[0].Mdevs, machine.Mdev{UUID: uuid, Type: "nvidia-222", Active: active})
	}
	m.Devices = []machine.Device{{Address: machine.Address{Bus: 6}}}
	card := machine.MdevParent{Name: cardName, Address: &machine.Address{Bus: 0x41}}
	for _, address := range vgpuFunctions {
		f := machine.VGPUFunction{Address: address}
		if has := w.card.Current[address.String()]; has != 0 {
			f.Type = fmt.Sprintf("nvidia-%d", has)
		} else {
			for _, t := range w.card.Creatable() {
				f.Creatable = append(f.Creatable, fmt.Sprintf("nvidia-%d", t.ID))
			}
		}
		card.Functions = append(card.Functions, f)
	}
	m.Parents = append(m.Parents, card)
	return m
}

// look is what the driver would see.
func (w *world) look(context.Context, *providertree.Tree, string) (Host, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := Host{
		Machine: machineOf(w), Shared: []int{0, 1}, Dedicated: []int{2, 3, 4, 5, 6, 7}, KVM: true,
		Providers: sites(), QEMU: w.qemu,
		Traits: map[string]bool{"COMPUTE_GRAPHICS_MODEL_QXL": false, "COMPUTE_GRAPHICS_MODEL_VGA": true,
			"COMPUTE_SECURITY_TPM_1_2": false},
	}
	for _, b := range w.domains {
		d, err := domain.Parse([]byte(b.XML))
		if err != nil {
			return Host{}, err
		}
		h.Domains = append(h.Domains, d)
	}
	return h, nil
}

func sites() map[string]assignment.Provider {
	return map[string]assignment.Provider{
		rootUUID: {Kind: assignment.Root},
		gpuUUID:  {Kind: assignment.MdevParent, Parent: gpuName, Type: "nvidia-222", Class: "VGPU"},
		cardUUID: {Kind: assignment.MdevParent, Parent: cardName, Type: "nvidia-1151", Class: "VGPU"},
		nicUUID: {Kind: assignment.PCI, Class: "CUSTOM_NIC",
			Devices: []machine.PassedDevice{{Address: machine.Address{Bus: 6}, Managed: true}}},
	}
}

func newRig(t *testing.T, c Config) *rig {
	t.Helper()
	dir, err := testhost.Scratch() // in memory: disks are waited for until they are written
	testproc.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{world: newWorld(), t: t, dir: dir, images: t.TempDir(), eventLog: hypervisor.NewEventLog()}
	if c.ImagesPath == "" {
		c.ImagesPath = r.images
	}
	s := testproc.Try(Parse(c)).Or(t)
	links := r.connect()
	r.Manager = New(r.eventLog)
	r.used = Setup{
		Settings: s, Node: func(context.Context) (string, error) { return node, nil },
		Directory: func(context.Context) (string, error) { return r.dir, nil },
		Discover:  r.look, Read: links[0], Write: links[1:],
	}
	r.SetSetup(&r.used)
	return r
}

// rename gives the node another name, in a driver that was started again.
func (r *rig) rename(to string, former map[string]string) {
	r.used.Node, r.used.Former = func(context.Context) (string, error) { return to, nil }, former
	r.Manager = New(r.eventLog)
	r.SetSetup(&r.used)
}

// connect is one connection for lists and others with write access.
func (r *rig) connect() []*hypervisor.Link {
	var links []*hypervisor.Link
	for i := range 4 {
		settings := hypervisor.Settings{URI: "fake:///", Open: r.open, Write: i > 0, ConnectTimeout: 10 * time.Second,
			CallTimeout: 30 * time.Second}
		if i == 0 {
			settings.EventLog = r.eventLog
		}
		links = append(links, hypervisor.NewLink(settings))
	}
	r.t.Cleanup(func() {
		for _, l := range links {
			testproc.NoError(r.t, l.Close(context.Background()))
		}
	})
	return links
}

// request is a guest with two processors of its own, a virtual GPU and disks.
func request(n int) plugins.InstanceSpec {
	return plugins.InstanceSpec{
		UUID: id(n), Name: fmt.Sprintf("server %d", n), ProjectID: "p", UserID: "u",
		Flavor: plugins.Flavor{Name: "gpu", VCPUs: 2, MemoryMB: 512, RootGB: 1, SwapMB: 64},
		Allocations: providertree.ProviderResources{
			rootUUID: {"PCPU": 2, "MEMORY_MB": 512, "DISK_GB": 2}, gpuUUID: {"VGPU": 1},
		},
		UserData: []byte("#cloud-config\n"),
	}
}

func (r *rig) spawn(spec plugins.InstanceSpec) (plugins.Instance, error) {
	return r.Spawn(r.t.Context(), node, spec, nil)
}

func (r *rig) check(spec plugins.InstanceSpec) error {
	return r.CheckSpawn(r.t.Context(), node, spec, nil)
}

func (r *rig) mustSpawn(spec plugins.InstanceSpec) {
	r.t.Helper()
	is, err := r.spawn(spec)
	if err != nil || is.UUID != spec.UUID || is.Name != spec.Name || is.Power != plugins.PowerRunning ||
		is.HypervisorName != domain.Name(spec.UUID) {
		r.t.Fatalf("%+v, %v", is, err)
	}
}

// left is everything that there is.
func (r *rig) left() []string {
	r.t.Helper()
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	var out []string
	for _, b := range r.domains {
		out = append(out, "domain "+b.Name)
	}
	for name := range r.devices {
		out = append(out, "device "+name)
	}
	files := testproc.Try(filepath.Glob(filepath.Join(r.dir, "*"))).Or(r.t)
	for _, f := range files {
		out = append(out, "file "+filepath.Base(f))
	}
	slices.Sort(out)
	return out
}

// defined is the domain of an instance.
func (r *rig) defined(n int) domain.Domain {
	r.t.Helper()
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	b, there := r.domains[id(n)]
	if !there {
		r.t.Fatalf("no domain %d", n)
	}
	return testproc.Try(domain.Parse([]byte(b.XML))).Or(r.t)
}

// unmanaged puts a domain there that the driver did not create.
func (r *rig) unmanaged(n int) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	xml := fmt.Sprintf("<domain type='kvm'><name>theirs-%d</name><uuid>%s</uuid><memory>1024</memory><vcpu>1</"+
		"vcpu></domain>", n, id(n))
	r.domains[id(n)] = &body{Domain: hypervisor.Domain{UUID: id(n), Name: fmt.Sprintf("theirs-%d", n), ID: 77,
		State: hypervisor.Running, XML: xml}}
}

func (r *rig) write(name, text string) {
	r.t.Helper()
	testproc.Check(r.t, os.WriteFile(name, []byte(text), 0o600))
}
