// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// cellsAndCards is the tree of the examples in "Getting on the nested magic train", with NUMA cells
// for its network cards: each cell has a card on network 1 and one on network 2, and a GPU.
// Accelerators of one kind are in cell 1 alone, and one of another kind is in no cell.
func cellsAndCards() testhost.Host {
	h := testhost.Sample()
	for _, gpu := range []string{gpu0, gpu1} {
		d := h.Device(gpu)
		d.Mdevs, d.Types[0].Available = nil, 16
	}
	h.Devices = slices.DeleteFunc(h.Devices,
		func(d testhost.Device) bool { return strings.HasPrefix(d.Address, "0000:06:") })
	for i, bus := range []uint8{0x06, 0x07, 0x83, 0x84} {
		cell := i / 2
		h.Devices = append(h.Devices, testhost.NIC(bus, []string{"0000:00:02.0", "0000:80:02.0"}[cell], cell, 50+20*i,
			fmt.Sprintf("ens%d", i), 8, 4)...)
	}
	accelerator := func(address, parent string, product uint16, cell, group int) testhost.Device {
		return testhost.Device{Address: address, Parent: parent, Vendor: 0x8086, Product: product, Class: 0x0b4000,
			Cell: cell, IOMMUGroup: group}
	}
	h.Devices = append(h.Devices, accelerator("0000:85:00.0", "0000:80:02.0", 0x0443, 1, 150),
		accelerator("0000:86:00.0", "0000:80:02.0", 0x0443, 1, 151),
		accelerator("0000:08:00.0", "0000:00:02.0", 0x0444, testhost.None, 152))
	for i := range h.Devices {
		if d := &h.Devices[i]; d.PF != "" || d.Class == 0x0b4000 { // as libvirt binds what it gives away
			d.Driver = "vfio-pci"
		}
	}
	slices.SortFunc(h.Devices, func(a, b testhost.Device) int { return strings.Compare(a.Address, b.Address) })
	return h
}

// cards says what is on which bus, and in which cell; -1: in no cell.
var cards = map[string]struct {
	what string
	cell int
}{
	"05": {"gpu", 0}, "82": {"gpu", 1}, "06": {"net1", 0}, "07": {"net2", 0}, "83": {"net1", 1}, "84": {"net2", 1},
	"85": {"qat", 1}, "86": {"qat", 1}, "08": {"acc", -1},
}

// cardsOffered is the driver's configuration for them.
const cardsOffered = `
pci_report_in_placement = true
pci_device_spec = [
  { vendor_id = "15b3", product_id = "1016", address = "0000:06:*.*", resource_class = "CUSTOM_VF", traits = "CUSTOM_NET1" },
  { vendor_id = "15b3", product_id = "1016", address = "0000:07:*.*", resource_class = "CUSTOM_VF", traits = "CUSTOM_NET2" },
  { vendor_id = "15b3", product_id = "1016", address = "0000:83:*.*", resource_class = "CUSTOM_VF", traits = "CUSTOM_NET1" },
  { vendor_id = "15b3", product_id = "1016", address = "0000:84:*.*", resource_class = "CUSTOM_VF", traits = "CUSTOM_NET2" },
  { vendor_id = "8086", product_id = "0443", resource_class = "CUSTOM_QAT" },
  { vendor_id = "8086", product_id = "0444", resource_class = "CUSTOM_ACC" },
]
`

// parts are what a guest has of cells and devices, by the cell (-1: no cell) and what it is.
type parts map[int]map[string]int64

func (p parts) add(cell int, what string, n int64) {
	if p[cell] == nil {
		p[cell] = map[string]int64{}
	}
	p[cell][what] += n
}

// String lists the cells in order.
func (p parts) String() string {
	var out []string
	for _, cell := range slices.Sorted(maps.Keys(p)) {
		var all []string
		for _, what := range slices.Sorted(maps.Keys(p[cell])) {
			all = append(all, fmt.Sprintf("%s %d", what, p[cell][what]))
		}
		out = append(out, fmt.Sprintf("%d: %s", cell, strings.Join(all, ", ")))
	}
	return strings.Join(out, "; ")
}

// held are the parts that a guest has by Placement.
func held(t *testing.T, allocations map[string]map[string]int64) parts {
	t.Helper()
	p := parts{}
	for provider, amounts := range allocations {
		at := regexp.MustCompile(`^cn1_(?:numa_(\d+)|pci_0000_(..)_00_0|0000:(..):00\.0)$`).FindStringSubmatch(provider)
		switch {
		case provider == "cn1":
			delete(amounts, "DISK_GB")
			for class, n := range amounts {
				p.add(-1, class, n)
			}
		case at == nil:
			t.Errorf("an unknown provider: %s", provider)
		case at[1] != "":
			cell := testproc.Try(strconv.Atoi(at[1])).Or(t)
			for class, n := range amounts {
				p.add(cell, class, n)
			}
		default:
			card := cards[at[2]+at[3]]
			for _, n := range amounts {
				p.add(card.cell, card.what, n)
			}
		}
	}
	return p
}

// domainXML is what libvirt says of a guest.
type domainXML struct {
	Memory int64 `xml:"memory"` // in KiB
	Pins   []struct {
		VCPU int    `xml:"vcpu,attr"`
		CPUs string `xml:"cpuset,attr"`
	} `xml:"cputune>vcpupin"`
	On struct {
		Mode  string `xml:"mode,attr"`
		Cells string `xml:"nodeset,attr"`
	} `xml:"numatune>memory"`
	Nodes []struct {
		Node  int    `xml:"cellid,attr"`
		Mode  string `xml:"mode,attr"`
		Cells string `xml:"nodeset,attr"`
	} `xml:"numatune>memnode"`
	Guest []struct {
		Node   int    `xml:"id,attr"`
		CPUs   string `xml:"cpus,attr"`
		Memory int64  `xml:"memory,attr"`
		Unit   string `xml:"unit,attr"`
	} `xml:"cpu>numa>cell"`
	Devices []struct {
		Type    string `xml:"type,attr"`
		Address struct {
			UUID string `xml:"uuid,attr"`
			Bus  string `xml:"bus,attr"`
		} `xml:"source>address"`
	} `xml:"devices>hostdev"`
}

// Where processors of the machine are: the first cell has 0-3 and 8-11, the other the rest. What is
// shared is as in novasOptions.
var (
	ofCell = []map[int]bool{set("0-3,8-11"), set("4-7,12-15")}
	shared = set("0-1,4-5,8-9,12-13")
)

// set are numbers as libvirt writes them.
func set(text string) map[int]bool {
	out := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		first, last, is := strings.Cut(part, "-")
		if !is {
			last = first
		}
		from, _ := strconv.Atoi(first)
		to, _ := strconv.Atoi(last)
		for n := from; n <= to; n++ {
			out[n] = true
		}
	}
	return out
}

// within reports whether all of a are in b.
func within(a, b map[int]bool) bool {
	for n := range a {
		if !b[n] {
			return false
		}
	}
	return true
}

// given are the parts that a guest has by libvirt. mdevs are libvirt's names of all virtual GPUs.
func (d *domainXML) given(t *testing.T, mdevs string) parts {
	t.Helper()
	p := parts{}
	cellOf := map[int]int{} // of the host, by virtual processor
	for _, pin := range d.Pins {
		cpus := set(pin.CPUs)
		cell := slices.IndexFunc(ofCell, func(all map[int]bool) bool { return within(cpus, all) })
		what := "VCPU"
		if len(cpus) == 1 && !within(cpus, shared) {
			what = "PCPU"
		} else if !within(cpus, shared) {
			t.Errorf("processor %d is on %s, which are not all shared", pin.VCPU, pin.CPUs)
		}
		cellOf[pin.VCPU] = cell
		p.add(cell, what, 1)
	}
	testproc.Equal(t, d.On.Mode, "strict", "the memory is bound as %q")
	if len(d.Nodes) == 0 {
		cell := testproc.Try(strconv.Atoi(d.On.Cells)).Or(t)
		p.add(cell, "MEMORY_MB", d.Memory/1024)
	}
	for _, node := range d.Nodes {
		cell := testproc.Try(strconv.Atoi(node.Cells)).Or(t)
		for _, of := range d.Guest {
			if of.Node != node.Node {
				continue
			}
			if of.Unit != "KiB" || node.Mode != "strict" {
				t.Errorf("node %d: %+v, %+v", node.Node, node, of)
			}
			p.add(cell, "MEMORY_MB", of.Memory/1024)
			for cpu := range set(of.CPUs) {
				if cellOf[cpu] != cell {
					t.Errorf("processor %d of node %d is in cell %d, its memory in %d",
						cpu, node.Node, cellOf[cpu], cell)
				}
			}
		}
	}
	for _, device := range d.Devices {
		bus := strings.TrimPrefix(device.Address.Bus, "0x")
		if device.Type == "mdev" {
			name := "mdev_" + strings.ReplaceAll(device.Address.UUID, "-", "_") + "_0000_"
			_, after, _ := strings.Cut(mdevs, name)
			bus = after[:min(2, len(after))]
		}
		card, known := cards[bus]
		if !known {
			t.Errorf("an unknown device: %+v", device)
		}
		p.add(card.cell, card.what, 1)
	}
	return p
}

// example is a server by its flavor, and what is to come of it.
type example struct {
	name         string
	vcpus, ramMB int
	specs        string
	// want are the parts of the guest, with N and M for two cells in any order, and | between what
	// is as good; "": refused, with "No valid host was found.".
	want string
	// error is what the client prints when the flavor is refused.
	error string
}

// agrees reports whether parts are as wanted.
func (e example) agrees(p parts) bool {
	for want := range strings.SplitSeq(e.want, "|") {
		for _, cells := range [][]string{{"N:", "0:", "M:", "1:"}, {"N:", "1:", "M:", "0:"}} {
			some := strings.Split(strings.NewReplacer(cells...).Replace(want), "; ")
			slices.Sort(some)
			if strings.Join(some, "; ") == p.String() {
				return true
			}
		}
	}
	return false
}

// inCell0 is a place: the cell with a trait, which an administrator gave it.
const inCell0 = " trait_P:CUSTOM_FAST=required same_subtree:place=_P,_NUMA0 group_policy=none"

// examples are those of the specifications, and others for each policy of affinity.
func examples(cpuTrait string) []example {
	const vfs = "resources_A:CUSTOM_VF=1 resources_B:CUSTOM_VF=1"
	return []example{
		// "VCPU, memory and a device from the same NUMA node."
		{"subtree", 2, 64, "resources_ACCEL:VGPU=1 same_subtree:near=_NUMA0,_ACCEL",
			"N: MEMORY_MB 64, VCPU 2, gpu 1", ""},
		// "Two VFs from the same NIC, one on each of network NET1 and NET2".
		{"networks", 1, 64, vfs +
			" trait_A:CUSTOM_NET1=required trait_B:CUSTOM_NET2=required trait_NIC:HW_NUMA_ROOT=required " +
			"same_subtree:nic=_NIC,_A,_B group_policy=none",
			"N: MEMORY_MB 64, VCPU 1, net1 1, net2 1", ""},
		// "Two VFs from different PFs on the same NIC", and from any.
		{"isolated", 1, 64, vfs + " same_subtree:nic=_NUMA0,_A,_B group_policy=isolate",
			"N: MEMORY_MB 64, VCPU 1, net1 1, net2 1", ""},
		{"together", 1, 64, vfs + " same_subtree:nic=_NUMA0,_A,_B group_policy=none",
			"N: MEMORY_MB 64, VCPU 1, net1 1, net2 1|N: MEMORY_MB 64, VCPU 1, net1 2|N: MEMORY_MB 64, VCPU 1, net2 2",
			""},
		// Traits of processors are on the cells, too.
		{"trait", 1, 64, "trait:" + cpuTrait + "=required hw:numa_nodes=1", "N: MEMORY_MB 64, VCPU 1", ""},
		{"no-trait", 1, 64, "trait:" + cpuTrait + "=forbidden", "", ""},
		{"place", 1, 64, strings.TrimSpace(inCell0), "0: MEMORY_MB 64, VCPU 1", ""},
		// How near devices are.
		{"required", 2, 64, "resources:VGPU=1 hw:pci_numa_affinity_policy=required",
			"N: MEMORY_MB 64, VCPU 2, gpu 1", ""},
		{"legacy", 1, 64, "resources:CUSTOM_QAT=1", "1: MEMORY_MB 64, VCPU 1, qat 1", ""},
		{"preferred", 1, 64, "resources:CUSTOM_QAT=1 hw:pci_numa_affinity_policy=preferred" + inCell0,
			"0: MEMORY_MB 64, VCPU 1; 1: qat 1", ""},
		{"legacy-far", 1, 64, "resources:CUSTOM_QAT=1 hw:pci_numa_affinity_policy=legacy" + inCell0, "", ""},
		{"required-far", 1, 64, "resources:CUSTOM_QAT=1 hw:pci_numa_affinity_policy=required" + inCell0, "", ""},
		{"legacy-root", 1, 64, "resources:CUSTOM_ACC=1", "-1: acc 1; N: MEMORY_MB 64, VCPU 1", ""},
		{"required-root", 1, 64, "resources:CUSTOM_ACC=1 hw:pci_numa_affinity_policy=required", "", ""},
		{"socket", 1, 64, "resources:VGPU=1 hw:pci_numa_affinity_policy=socket", "",
			"no resource provider stands for a socket"},
		// Two cells of other sizes, and dedicated processors.
		{"uneven", 3, 192,
			"hw:numa_nodes=2 hw:numa_cpus.0=0 hw:numa_cpus.1=1,2 hw:numa_mem.0=64 hw:numa_mem.1=128 " +
				"resources_G:VGPU=1 same_subtree:g=_NUMA1,_G",
			"N: MEMORY_MB 64, VCPU 1; M: MEMORY_MB 128, VCPU 2, gpu 1", ""},
		{"dedicated", 2, 64, "hw:cpu_policy=dedicated resources:VGPU=1 hw:pci_numa_affinity_policy=required",
			"N: MEMORY_MB 64, PCPU 2, gpu 1", ""},
	}
}

// flavor is the command that makes the flavor of an example, and boot the one that makes a server.
func (e example) flavor() string {
	words := []string{"flavor create --vcpus", strconv.Itoa(e.vcpus), "--ram", strconv.Itoa(e.ramMB), "--disk 1"}
	for _, spec := range strings.Fields(e.specs) {
		words = append(words, "--property", spec)
	}
	return strings.Join(append(words, e.name), " ")
}

func (e example) boot() string {
	return fmt.Sprintf("server create --flavor %s --image= --network none %[1]s", e.name)
}

// TestOpenstackNUMA: the examples of the specifications as "openstack server create", on a host
// with NUMA cells and devices, with libvirt: each guest has of each cell what its flavor says, the
// same in Placement and in its domain; what cannot be is refused.
func TestOpenstackNUMA(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Heavy)
	c := newEmptyCloud(t, nil, "quota.cores = 100", "scheduler.enable_isolated_aggregate_filtering = true")
	h := simulate(t, cellsAndCards(), testhost.SimOptions{Cache: filepath.Join(binaries.Dir(), "cache")})
	h.instances = testproc.SocketDir(t)
	check(t, os.Chmod(h.instances, 0o755)) // QEMU runs as another user
	o := newOpenstack(t, c.osc()...)
	r := h.residence(t, c.placement)
	r.configure(novasOptions, withGPUs, nested, cardsOffered, fmt.Sprintf(`
[drivers.libvirt.config.instances]
virt_type = "qemu"
shutdown_timeout = "300ms"
[cell_client]
url = %q`, c.cellURL("cell1")))
	agent := r.run()
	agent.awaitAny(passDone)
	agent.awaitAny("Registered this host with the cell.")
	c.until("the host reports its node", func() bool {
		var body struct{ Services []any }
		c.ask(http.MethodGet, "/os-services", nil, &body)
		return len(body.Services) > 0
	})
	c.world.Discover()
	traits := r.see().Traits
	cpuTrait := traits["cn1_numa_0"][slices.IndexFunc(traits["cn1_numa_0"],
		func(trait string) bool { return strings.HasPrefix(trait, "HW_CPU_X86_") })]
	r.mark("cn1_numa_0", "CUSTOM_FAST")
	r.mark("cn1", "CUSTOM_LICENSED")

	all := examples(cpuTrait)
	var commands []string
	for _, e := range all {
		if commands = append(commands, e.flavor()); e.error == "" {
			commands = append(commands, e.boot())
		}
	}
	said := o.all(commands...)
	p := r.settled(c, h, said, all)
	for _, e := range all {
		if e.want == "" && len(p[e.name]) > 0 {
			t.Errorf("%s is refused, and holds %s", e.name, p[e.name])
		}
	}

	// "Forbidden aggregates": hosts that are licensed for some are not for the others.
	licensed := []example{
		{"unlicensed", 1, 64, "", "", ""},
		{"licensed", 1, 64, "trait:CUSTOM_LICENSED=required", "N: MEMORY_MB 64, VCPU 1", ""},
	}
	commands = []string{"aggregate create --property trait:CUSTOM_LICENSED=required windows",
		"aggregate add host windows cn1"}
	for _, e := range licensed {
		commands = append(commands, e.flavor(), e.boot())
	}
	r.settled(c, h, o.all(commands...), licensed)

	var list struct{ Servers []struct{ ID string } }
	c.ask(http.MethodGet, "/servers", nil, &list)
	for _, s := range list.Servers {
		c.ask(http.MethodDelete, "/servers/"+s.ID, nil, nil)
	}
	testproc.Eventually(t, patience, "nothing is left", func() error {
		if n := len(r.look().Holding); n > 0 {
			return fmt.Errorf("%d consumers hold resources", n)
		}
		return nil
	})
	if left, err := h.Virsh(t.Context(), "list", "--all", "--name"); err != nil || strings.TrimSpace(left) != "" {
		t.Errorf("guests are left: %s, %v", left, err)
	}
	agent.stop()
}

// mark gives a resource provider one more trait, as an administrator does.
func (r *residence) mark(provider, trait string) {
	r.t.Helper()
	p := r.look()
	r.must("PUT", "/traits/"+trait, nil, nil)
	r.must("PUT", "/resource_providers/"+r.uuids[provider]+"/traits", map[string]any{
		"resource_provider_generation": p.Generations[provider], "traits": append(p.Traits[provider], trait),
	}, nil)
}

// settled waits until all servers have come to something, and compares each with its example. It
// returns what they hold.
func (r *residence) settled(c *cloud, h *hypervisor, said string, all []example) map[string]parts {
	t := r.t
	t.Helper()
	type server struct {
		ID, Name, Status string
		Fault            struct{ Message string }
	}
	var list struct{ Servers []server }
	testproc.Eventually(t, patience, "every server has come to something", func() error {
		list.Servers = nil
		c.ask(http.MethodGet, "/servers/detail", nil, &list)
		var building []string
		for _, s := range list.Servers {
			if s.Status == "BUILD" {
				building = append(building, s.Name)
			}
		}
		if len(building) > 0 {
			return fmt.Errorf("in BUILD: %v", building)
		}
		return nil
	})
	holding := r.look().Holding
	mdevs := testproc.Try(h.Virsh(t.Context(), "nodedev-list", "--cap", "mdev")).Or(t)
	out := map[string]parts{}
	var missing []string
	defer func() {
		if len(missing) > 0 {
			t.Errorf("there are no servers %v, or they were not refused as they are to be; the client printed:\n%s",
				missing, said)
		}
	}()
	for _, e := range all {
		i := slices.IndexFunc(list.Servers, func(s server) bool { return s.Name == e.name })
		if i < 0 || e.error != "" {
			if i >= 0 || e.error == "" || !strings.Contains(said, e.error) {
				missing = append(missing, e.name)
			}
			continue
		}
		s := list.Servers[i]
		out[e.name] = held(t, holding[s.ID])
		if e.want == "" {
			if s.Status != "ERROR" || !strings.HasPrefix(s.Fault.Message, "No valid host was found.") {
				t.Errorf("%s is %s, and holds %s; its fault: %s", e.name, s.Status, out[e.name], s.Fault.Message)
			}
			continue
		}
		if s.Status != "ACTIVE" || !e.agrees(out[e.name]) {
			t.Errorf("%s is %s, and holds %s, not %s; its fault: %s",
				e.name, s.Status, out[e.name], e.want, s.Fault.Message)
			continue
		}
		text := testproc.Try(h.Virsh(t.Context(), "dumpxml", s.ID)).Or(t)
		var d domainXML
		check(t, xml.Unmarshal([]byte(text), &d))
		if got := d.given(t, mdevs); got.String() != out[e.name].String() {
			t.Errorf("%s holds %s, and libvirt gives it %s:\n%s", e.name, out[e.name], got, text)
		}
	}
	return out
}
