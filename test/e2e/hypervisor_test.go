// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// hypervisor is a made-up machine with a real libvirtd and running guests, on which tests start and
// end agents. It has AMD's memory encryption.
//
//	cell 0   CPUs 0-3, 8-11 (threads 0+8, 1+9, …)    GPU 0000:05:00.0
//	         network card 0000:06:00.0 with four virtual functions
//	cell 1   CPUs 4-7, 12-15                         GPU 0000:82:00.0
type hypervisor struct {
	*testhost.Sim
	// encrypts: libvirt believes that it can have guests with encrypted memory, and there is one.
	encrypts bool
	// instances is the directory of the guests' disks, diskGB the size of its file system.
	instances string
	diskGB    int64
}

const (
	gpu0, gpu1 = "0000:05:00.0", "0000:82:00.0"
	someVF     = "0000:06:01.2"
	gpuType    = "nvidia-222"
)

// mediated are the virtual GPUs of the guests.
var mediated = map[string][]struct{ gpu, uuid string }{
	"alice": {{gpu1, "00000000-0000-4000-8000-00000000a11c"}},
	"bob":   {{gpu0, "00000000-0000-4000-8000-000000000b0b"}},
	"carol": {{gpu0, "00000000-0000-4000-8000-00000000ca01"}, {gpu1, "00000000-0000-4000-8000-00000000ca02"}},
}

// inhabitants are the guests: alice is pinned to a core of cell 1, erin to one processor of each
// cell; bob, carol and dave are free to be anywhere; frank is switched off, and has his memory in
// cell 0 and a virtual function of the network card; grace is switched off and has her memory, in
// cell 0 too, encrypted.
func inhabitants() []testhost.Domain {
	in := func(cells ...int) *testhost.MemoryPlacement {
		return &testhost.MemoryPlacement{Mode: "strict", Cells: cells}
	}
	spread := in(0, 1)
	spread.Nodes = []testhost.MemoryNode{{GuestCell: 0, Mode: "strict", Cells: []int{0}},
		{GuestCell: 1, Mode: "strict", Cells: []int{1}}}
	guests := []testhost.Domain{
		{Name: "alice", VCPUs: 2, MemoryMiB: 64,
			Pins: []testhost.Pin{{VCPU: 0, CPUs: []int{6}}, {VCPU: 1, CPUs: []int{14}}}, Memory: in(1)},
		{Name: "bob", VCPUs: 2, MemoryMiB: 48},
		{Name: "carol", VCPUs: 1, MemoryMiB: 48},
		{Name: "dave", VCPUs: 4, MemoryMiB: 48},
		{
			Name: "erin", VCPUs: 2, MemoryMiB: 64,
			Pins: []testhost.Pin{{VCPU: 0, CPUs: []int{2}}, {VCPU: 1, CPUs: []int{7}}}, Memory: spread,
			GuestCells: []testhost.GuestCell{{VCPUs: []int{0}, MemoryMiB: 32}, {VCPUs: []int{1}, MemoryMiB: 32}},
		},
		{Name: "frank", VCPUs: 1, MemoryMiB: 48, Memory: in(0), PCI: []string{someVF}, Off: true},
		{Name: encrypted, VCPUs: 1, MemoryMiB: 32, Memory: in(0), Off: true},
	}
	for i := range guests {
		guests[i].UUID = uuidFor(guests[i].Name)
		for _, m := range mediated[guests[i].Name] {
			guests[i].Mdevs = append(guests[i].Mdevs, m.uuid)
		}
	}
	return guests
}

// heldFlat is what the guests hold as Nova's scheduler gave it to them, with all on the root but
// PCI devices. What is pinned is called cpu.
func (h *hypervisor) heldFlat(cpu string) []string {
	return h.possible([]string{
		"claim alice cn1:" + cpu + "=2 cn1:MEMORY_MB=64 cn1:DISK_GB=1 cn1:VGPU=1",
		"claim bob cn1:VCPU=2 cn1:MEMORY_MB=48 cn1:VGPU=1",
		"claim carol cn1:VCPU=1 cn1:MEMORY_MB=48 cn1:VGPU=2",
		"claim dave cn1:VCPU=4 cn1:MEMORY_MB=48 cn1:DISK_GB=1",
		"claim erin cn1:" + cpu + "=2 cn1:MEMORY_MB=64",
		"claim frank cn1:VCPU=1 cn1:MEMORY_MB=48 cn1_0000:06:00.0:CUSTOM_PCI_15B3_1016=1",
		"claim grace cn1:VCPU=1 cn1:MEMORY_MB=32 cn1:MEM_ENCRYPTION_CONTEXT=1",
	})
}

// machineOfGuests is the machine with the virtual GPUs that the guests have.
func machineOfGuests() testhost.Host {
	host, amd, group := testhost.Sample(), testhost.GPUHost(), 130
	host.Processor, host.Module, host.SEV = amd.Processor, amd.Module, amd.SEV
	for _, gpu := range []string{gpu0, gpu1} {
		d := host.Device(gpu)
		d.Mdevs, d.Types[0].Available = nil, 16
		for _, guest := range slices.Sorted(maps.Keys(mediated)) {
			for _, m := range mediated[guest] {
				if m.gpu == gpu {
					d.Mdevs = append(d.Mdevs, testhost.Mdev{UUID: m.uuid, Type: gpuType, IOMMUGroup: group})
					d.Types[0].Available--
					group++
				}
			}
		}
	}
	return host
}

// simulate starts a made-up machine.
func simulate(t *testing.T, host testhost.Host, o testhost.SimOptions) *hypervisor {
	t.Helper()
	for program, debian := range map[string]string{"qemu-system-x86_64": "qemu-system-x86",
		"virsh": "libvirt-clients"} {
		if _, err := exec.LookPath(program); err != nil {
			testproc.NotRun(t, fmt.Sprintf("%v (Debian's package %s)", err, debian))
		}
	}
	o.Passthrough = true
	s, err := testhost.StartSim(t.Context(), host, o)
	if errors.Is(err, testhost.ErrNotRoot) || errors.Is(err, libvirtd.ErrNotInstalled) {
		testproc.NotRun(t, err.Error())
	}
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testproc.NoError(t, s.Close(ctx))
	})
	return &hypervisor{Sim: s, instances: t.TempDir()}
}

// inhabit starts the machine and its guests.
func inhabit(t *testing.T) *hypervisor {
	t.Helper()
	cache := t.TempDir()
	// encrypt changes the cache
	h := simulate(t, machineOfGuests(), testhost.SimOptions{Cache: cache, OneProcessor: true})
	h.encrypts = h.encrypt(t, cache)
	var fs syscall.Statfs_t
	check(t, syscall.Statfs(h.instances, &fs))
	h.diskGB = int64(fs.Blocks) * fs.Frsize >> 30
	for _, guest := range inhabitants() {
		xml := guest.XML("qemu")
		if guest.Name == encrypted && h.encrypts {
			xml = strings.Replace(xml, "</devices>",
				"</devices><launchSecurity type='sev'><policy>0x0003</policy></launchSecurity>", 1)
		}
		check(t, h.Define(t.Context(), xml))
		if !guest.Off {
			check(t, h.Boot(t.Context(), guest.Name))
		}
	}
	return h
}

// residence is an agent's place on a hypervisor, with a Placement of its own.
type residence struct {
	*play
	host *hypervisor
	seen picture
}

func (h *hypervisor) residence(t *testing.T, url string) *residence {
	t.Helper()
	r := &residence{play: newPlay(t, url), host: h}
	check(t, os.MkdirAll(r.state(), 0o700))
	check(t, os.WriteFile(filepath.Join(r.state(), resourcetracker.IdentityFile), []byte(nodeUUID+"\n"), 0o600))
	return r
}

// What the configurations have in common: Nova's options for this machine.
const (
	novasOptions = `
cpu_shared_set = "0-1,4-5,8-9,12-13"
cpu_dedicated_set = "2-3,6-7,10-11,14-15"
`
	withSEV = `
num_memory_encrypted_guests = 16
`
	withVFs = `
pci_report_in_placement = true
pci_device_spec = [{ vendor_id = "15b3", product_id = "1016" }]
`
	withGPUs = `
enabled_mdev_types = ["nvidia-222"]
`
	nested = `numa = "nested"`
)

// configure writes the configuration of the agent, with these lines in the table of the libvirt
// driver.
func (r *residence) configure(lines ...string) {
	r.t.Helper()
	check(r.t, os.WriteFile(r.config, []byte(hastyAgent(r.dir, r.url)+fmt.Sprintf(`
[reshape]
on_failure = "exit"
[drivers.libvirt.config]
uri = %q
chroot = %q
instances_path = %q
%s
`, r.host.URI(), r.host.Root(), r.host.instances, strings.Join(append(r.host.possible([]string{withSEV}), lines...), "\n"))), 0o600))
}

// command runs the agent's program with the residence's configuration.
func (r *residence) command(args ...string) string {
	r.t.Helper()
	out, code := command(r.t, append(args, "--config", r.config)...)
	if code != 0 {
		r.t.Fatalf("%q ended with %d: %s", args, code, out)
	}
	return out
}

// see reads Placement.
func (r *residence) see() picture {
	r.t.Helper()
	r.seen = r.look()
	return r.seen
}

// sketch is what Placement said last, without the traits that follow from this machine's processor
// and emulators, and without the size of its disk.
func (r *residence) sketch() []string {
	p := r.seen
	p.Traits, p.Inventories = maps.Clone(p.Traits), maps.Clone(p.Inventories)
	for name, traits := range p.Traits {
		p.Traits[name] = slices.DeleteFunc(slices.Clone(traits), func(trait string) bool {
			return (strings.HasPrefix(trait, "HW_") || strings.HasPrefix(trait, "COMPUTE_")) &&
				trait != "HW_NUMA_ROOT" && trait != "HW_CPU_X86_AMD_SEV"
		})
		p.Inventories[name] = maps.Clone(p.Inventories[name])
		delete(p.Inventories[name], "DISK_GB")
	}
	return p.draw(r.names)
}

// byName are sums by the consumers' names.
func (r *residence) byName(sums map[string]map[string]int64) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	for consumer, amounts := range sums {
		out[r.names[consumer]] = amounts
	}
	return out
}

// novasFlat is the machine as an early Nova reported it, with the guests on it: all virtual GPUs
// and contexts of memory encryption on the root. cpu is what pinned processors are called.
func (h *hypervisor) novasFlat(cpu string) []string {
	root := "cn1 VCPU=8*4/8 PCPU=8/8"
	if cpu == "VCPU" {
		root = "cn1 VCPU=16*4/16"
	}
	contexts := ""
	if h.encrypts {
		contexts = " MEM_ENCRYPTION_CONTEXT=16/1"
	}
	return append([]string{
		root + fmt.Sprintf(
			" MEMORY_MB=32768-512/32768 DISK_GB=%d/%d VGPU=32/32 +COMPUTE_NODE +OWNER_NOVA +CUSTOM_GOLD @az1",
			h.diskGB, h.diskGB) + contexts,
		"cn1_0000:06:00.0 <cn1 CUSTOM_PCI_15B3_1016=4/4 +COMPUTE_MANAGED_PCI_DEVICE",
		"cn1:NIC_Switch_agent <cn1 +CUSTOM_VNIC_TYPE_DIRECT",
	}, h.heldFlat(cpu)...)
}
