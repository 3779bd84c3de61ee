// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// daemon is a libvirt that says whatever a test wants.
type daemon struct {
	hypervisor.Conn // what no test asks

	mu       sync.Mutex
	kind     string
	hostname string
	node     hypervisor.NodeInfo
	cpuMap   []bool
	noMap    error
	caps     string
	expanded string
	noExpand error
	away     error
	expands  int // calls of ExpandCPU
	models   map[string][]string

	devices   []testhost.NodeDevice
	noDevices error
	looks     int // calls of NodeDevices
	domains   []testhost.Domain
	odd       map[string]string // XML of domains, by uuid, that is not what it should be
	started   map[string]int    // how often a domain was started again
	noDomains error
	lists     int // calls of Domains
	dumps     int // XML that it asked for
	guestCaps string
	noCaps    error
	hang      chan struct{} // the next call of Domains waits for it
}

// sampleFeatures are those that stand behind the sample's CPU model, in libvirt's words.
var sampleFeatures = []string{"fpu", "sse", "sse2", "ssse3", "sse4.1", "sse4.2", "aes", "avx", "avx2", "avx512f",
	"vmx", "pni", "pclmuldq", "pcid"}

func newDaemon(t *testing.T, h testhost.Host) *daemon {
	t.Helper()
	return &daemon{
		kind: "QEMU", hostname: "lv1.example.org", devices: h.NodeDevices(), caps: h.Capabilities("i686", "x86_64"),
		cpuMap: cpuMap(h), expanded: cpuXML(sampleFeatures...),
		node: hypervisor.NodeInfo{CPUs: uint(len(h.OnlineCPUs())), MemoryKiB: h.MemoryKiB()},
	}
}

// cpuMap is libvirt's map of a host's CPUs.
func cpuMap(h testhost.Host) []bool {
	present := h.PresentCPUs()
	m := make([]bool, present[len(present)-1]+1)
	for _, cpu := range h.OnlineCPUs() {
		m[cpu] = true
	}
	return m
}

func cpuXML(features ...string) string {
	var b strings.Builder
	b.WriteString("<cpu mode='custom' match='exact'><model fallback='forbid'>m</model>")
	for _, f := range features {
		fmt.Fprintf(&b, "<feature policy='require' name='%s'/>", f)
	}
	return b.String() + "</cpu>"
}

func (d *daemon) open(hypervisor.Request) (hypervisor.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away != nil {
		return nil, d.away
	}
	return d, nil
}

func (d *daemon) Type() (string, error)                  { return d.kind, nil }
func (d *daemon) Hostname() (string, error)              { return d.hostname, nil }
func (d *daemon) NodeInfo() (hypervisor.NodeInfo, error) { return d.node, nil }
func (d *daemon) CPUMap() ([]bool, error)                { return d.cpuMap, d.noMap }
func (d *daemon) Capabilities() (string, error)          { return d.caps, nil }
func (d *daemon) Versions() (uint64, uint64, error)      { return 9000000, 7002000, nil }

func (d *daemon) CPUModels(string) ([]string, error) {
	return slices.Sorted(maps.Keys(d.models)), nil
}

// ExpandCPU expands the models that it knows, and all others as the host's.
func (d *daemon) ExpandCPU(cpu string) (string, error) {
	d.expands++
	for model, features := range d.models {
		if strings.Contains(cpu, "<model>"+model+"</model>") {
			return cpuXML(features...), nil
		}
	}
	if !strings.Contains(cpu, "<vendor>") {
		return "", fmt.Errorf("unknown CPU model in %s", cpu)
	}
	return d.expanded, d.noExpand
}

func (d *daemon) SEV() (hypervisor.SEV, error) { return hypervisor.SEV{}, hypervisor.ErrUnsupported }

func (d *daemon) DomainCapabilities(hypervisor.Emulator) (string, error) {
	if d.noCaps != nil {
		return "", d.noCaps
	}
	if d.guestCaps == "" {
		return "", hypervisor.ErrUnsupported
	}
	return d.guestCaps, nil
}

func (d *daemon) Domains(want func(hypervisor.Domain) bool) ([]hypervisor.Domain, error) {
	d.mu.Lock()
	hang := d.hang
	d.hang = nil
	d.mu.Unlock()
	if hang != nil {
		<-hang
		for _, one := range d.domains {
			want(hypervisor.Domain{UUID: one.UUID})
		}
		return nil, nil
	}
	d.lists++
	if d.noDomains != nil {
		return nil, d.noDomains
	}
	var out []hypervisor.Domain
	for i, one := range d.domains {
		listed := hypervisor.Domain{UUID: one.UUID,
			Name: one.Name, ID: 1 + i + 1000*d.started[one.UUID], State: hypervisor.Running}
		if want(listed) {
			d.dumps++
			listed.XML = one.XML("qemu")
			if odd, found := d.odd[one.UUID]; found {
				listed.XML = odd
			}
		}
		out = append(out, listed)
	}
	return out, nil
}

func (d *daemon) NodeDevices(
	want func(hypervisor.NodeDevice) bool, _ ...hypervisor.DeviceKind,
) ([]hypervisor.NodeDevice, error) {
	d.looks++
	if d.noDevices != nil {
		return nil, d.noDevices
	}
	var out []hypervisor.NodeDevice
	for _, one := range d.devices {
		listed := hypervisor.NodeDevice{Name: one.Name, Active: !one.Inactive}
		if want(listed) {
			listed.XML = one.XML
		}
		out = append(out, listed)
	}
	return out, nil
}

func (d *daemon) Close() error { return nil }
func (d *daemon) Alive() bool  { return true }

const (
	nodeName = "cn1"
	nodeUUID = "3f4e1c2a-0000-4000-8000-000000000001"
)

// rig is a driver with a made-up host below it.
type rig struct {
	*testing.T
	*Driver
	chroot, instances string
	log               *strings.Builder
}

// scratch is a directory for a made-up host.
func scratch(t testing.TB) string {
	t.Helper()
	dir := testproc.Try(testhost.Scratch()).Or(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newRig(t *testing.T, h testhost.Host, open hypervisor.Open, config map[string]any) *rig {
	t.Helper()
	r := &rig{T: t, Driver: newDriver(open), chroot: scratch(t), instances: t.TempDir(), log: &strings.Builder{}}
	testproc.Try(h.Sysfs(r.chroot)).Or(t)
	testproc.Check(t, r.configure(config))
	t.Cleanup(func() { testproc.NoError(t, r.Shutdown(context.Background())) })
	return r
}

func (r *rig) configure(config map[string]any) error {
	all := map[string]any{"chroot": r.chroot, "instances_path": r.instances}
	for k, v := range config {
		all[k] = v
	}
	raw := testproc.Try(json.Marshal(all)).Or(r)
	return r.Configure(r.Context(), raw, plugins.HostInfo{Name: nodeName})
}

// pass runs one pass over a tree and returns the root.
func (r *rig) pass(tree *providertree.Tree) (providertree.Provider, error) {
	r.Helper()
	ctx := zerolog.New(r.log).WithContext(r.Context())
	allocations, err := r.UpdateProviderTree(ctx, tree, nodeName, nil)
	if allocations != nil {
		r.Errorf("allocations %v came out of none", allocations)
	}
	root, _ := tree.ProviderByName(nodeName)
	return root, err
}

func (r *rig) mustPass(tree *providertree.Tree) providertree.Provider {
	r.Helper()
	root := testproc.Try(r.pass(tree)).Or(r)
	again := tree.Clone()
	if _, err := r.pass(again); err != nil || !again.Equal(tree) {
		r.Errorf("a second pass changes the tree (%v): %+v", err, providertree.Diff(tree, again))
	}
	return root
}

func newTree(t *testing.T) *providertree.Tree {
	t.Helper()
	var tree providertree.Tree
	testproc.Check(t, tree.AddRoot(nodeUUID, nodeName))
	return &tree
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	testproc.Samef(t, cmp.Diff(want, got), "%s", what)
}

func eventually(t *testing.T, is func() error) {
	t.Helper()
	testproc.Eventually(t, testproc.Patience, "what the test waits for", is)
}
