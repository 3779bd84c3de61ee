// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// change is a host whose tree is of one configuration, with guests, and the agent's start with
// another configuration.
type change struct {
	host          func(*testhost.Host) // what becomes of it meanwhile
	before, after map[string]any
	domains       []testhost.Domain
	odd           map[string]string                    // XML of domains that cannot be read
	tree          func(*testing.T, *providertree.Tree) // what others did to it
	// consumer: provider:CLASS=n ..., names of providers without that of the node
	held map[string]string

	want       map[string]string // nil: as before
	violations []string          // consumer, and parts of its violation, divided by three dots
	unsaid     string
	noNeed     bool // no reshape is needed
}

func consumer(n int) string { return fmt.Sprintf("7a7e0000-0000-4000-8000-%012d", n) }

func guestOf(n, vcpus, memoryMiB int) testhost.Domain {
	return testhost.Domain{Name: fmt.Sprintf("instance-%08d", n), UUID: consumer(n), VCPUs: vcpus, MemoryMiB: memoryMiB}
}

func pinned(d testhost.Domain, cell int, cpus ...int) testhost.Domain {
	for vcpu, cpu := range cpus {
		d.Pins = append(d.Pins, testhost.Pin{VCPU: vcpu, CPUs: []int{cpu}})
	}
	d.Memory = &testhost.MemoryPlacement{Mode: "strict", Cells: []int{cell}}
	return d
}

// parseHeld reads what is held.
func parseHeld(t *testing.T, tree *providertree.Tree, held map[string]string) providertree.Allocations {
	t.Helper()
	out := providertree.Allocations{}
	for who, text := range held {
		c := providertree.ConsumerAllocations{ProjectID: "p", UserID: "u", Resources: providertree.ProviderResources{}}
		for _, word := range strings.Fields(text) {
			var n int64
			at, amount, _ := strings.Cut(word, "=")
			cut := strings.LastIndex(at, ":")
			name, class := nodeName+at[:cut], at[cut+1:]
			p, found := tree.ProviderByName(name)
			if _, err := fmt.Sscan(amount, &n); err != nil || !found {
				t.Fatalf("%s: %v, %v", word, err, found)
			}
			if c.Resources[p.UUID] == nil {
				c.Resources[p.UUID] = map[string]int64{}
			}
			c.Resources[p.UUID][class] = n
		}
		out[who] = c
	}
	return out
}

func heldIn(tree *providertree.Tree, allocations providertree.Allocations) map[string]string {
	out := map[string]string{}
	for who, c := range allocations {
		var words []string
		for provider, amounts := range c.Resources {
			p, _ := tree.Provider(provider)
			for class, n := range amounts {
				words = append(words, fmt.Sprintf("%s:%s=%d", strings.TrimPrefix(p.Name, nodeName), class, n))
			}
		}
		slices.Sort(words)
		out[who] = strings.Join(words, " ")
	}
	return out
}

func (c change) run(t *testing.T, stepwise bool) {
	h := testhost.Sample()
	d := newDaemon(t, h)
	d.domains, d.odd = c.domains, c.odd
	old := newRig(t, h, d.open, c.before)
	tree := newTree(t)
	old.mustPass(tree)
	if c.tree != nil {
		c.tree(t, tree)
	}
	allocations := parseHeld(t, tree, c.held)
	if c.host != nil {
		c.host(&h)
	}
	d2 := newDaemon(t, h)
	d2.domains, d2.odd = c.domains, c.odd
	r := newRig(t, h, d2.open, c.after)
	ctx := zerolog.New(r.log).WithContext(t.Context())
	if !stepwise {
		_, err := r.UpdateProviderTree(ctx, tree.Clone(), nodeName, nil)
		if needed := errors.Is(err, plugins.ErrReshapeNeeded); needed == c.noNeed || err != nil && !needed {
			t.Errorf("asked without allocations: %v", err)
		}
	}
	given, before, answer := allocations, tree.Clone(), tree.Clone()
	check := func(what string, err error, after providertree.Allocations) {
		t.Helper()
		testproc.Checkf(t, err, "%s", what)
		for _, provider := range answer.Subtree(nodeUUID) {
			for class, used := range after.Used(provider) {
				if inv, has := answer.Inventory(provider, class); !has || inv.Capacity() < used {
					p, _ := answer.Provider(provider)
					t.Errorf("%s: %d of %s are allocated on %s, which has %+v", what, used, class, p.Name, inv)
				}
			}
		}
		for who, held := range after {
			for provider, amounts := range held.Resources {
				if len(amounts) > 0 && !answer.Exists(provider) {
					p, _ := before.Provider(provider)
					t.Errorf("%s: %s holds %v of %s, which is gone", what, who, amounts, p.Name)
				}
			}
		}
	}
	var err error
	refused := func(err error) bool {
		var failed *plugins.ReshapeFailed
		if c.violations == nil || !errors.As(err, &failed) {
			return false
		}
		var said []string
		for _, o := range failed.Violations {
			said = append(said, o.Consumer+": "+o.Problem+". "+o.Hint)
		}
		same := slices.EqualFunc(c.violations, said, func(want, text string) bool {
			for _, part := range strings.Split(want, "...") {
				var found bool
				if _, text, found = strings.Cut(text, part); !found {
					return false
				}
			}
			return c.unsaid == "" || !strings.Contains(text, c.unsaid)
		})
		if !same {
			t.Errorf("violations:\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(c.violations, "\n"))
		}
		return true
	}
	if stepwise {
		given, err = r.Reshape(ctx, answer, nodeName, 1, given.Clone())
		if refused(err) {
			return
		}
		check("the step", err, given)
	}
	after, err := r.UpdateProviderTree(ctx, answer, nodeName, given.Clone())
	if refused(err) {
		return
	}
	check("the reshape", err, after)
	if c.violations != nil {
		t.Fatalf("nothing is refused, want %v", c.violations)
	}
	want := c.want
	if want == nil {
		want = c.held
	}
	normal := maps.Clone(want)
	for who, text := range normal {
		normal[who] = strings.Join(slices.Sorted(slices.Values(strings.Fields(text))), " ")
	}
	diff(t, "what is held", normal, heldIn(answer, after))
	if _, err := r.UpdateProviderTree(ctx, answer.Clone(), nodeName, nil); err != nil {
		t.Errorf("the next pass: %v", err)
	}
}

func runChanges(t *testing.T, changes map[string]change) {
	t.Helper()
	for name, c := range changes {
		for _, stepwise := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stepwise=%v", name, stepwise), func(t *testing.T) { c.run(t, stepwise) })
		}
	}
}

var withGPUs = map[string]any{"enabled_mdev_types": []string{"nvidia-222"}}

func with(base map[string]any, more ...any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

func unplug(address string) func(*testhost.Host) {
	return func(h *testhost.Host) {
		h.Devices = slices.DeleteFunc(h.Devices, func(d testhost.Device) bool { return d.Address == address })
	}
}

func TestAllocatedInventoryThatIsRemovedDoesNotBlockAReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dave := pinned(guestOf(1, 1, 64), 0, 1)
	flatGPU := map[string]string{consumer(1): ":VCPU=1 :MEMORY_MB=64 _pci_0000_82_00_0:VGPU=1"}
	nestedGPU := map[string]string{consumer(1): "_numa_0:VCPU=1 _numa_0:MEMORY_MB=64 _pci_0000_82_00_0:VGPU=1"}
	runChanges(t, map[string]change{
		"a GPU died before the host is nested": {
			host: unplug("0000:82:00.0"), before: withGPUs,
			after: with(withGPUs, "numa", "nested"), domains: []testhost.Domain{dave}, held: flatGPU, want: nestedGPU,
		},
		"a GPU died before the host is taken over": {
			host: unplug("0000:82:00.0"), before: withGPUs,
			after: withGPUs, domains: []testhost.Domain{dave}, held: flatGPU, noNeed: true,
		},
		"mdevs are switched off and the host nested": {
			before: withGPUs, after: map[string]any{"numa": "nested"}, domains: []testhost.Domain{dave},
			held: flatGPU, want: nestedGPU,
		},
		"the disk is shared and the host nested": {
			after: map[string]any{"numa": "nested", "shared_disk": true}, domains: []testhost.Domain{dave},
			held: map[string]string{consumer(1): ":VCPU=1 :MEMORY_MB=64 :DISK_GB=1"},
			want: map[string]string{consumer(1): "_numa_0:VCPU=1 _numa_0:MEMORY_MB=64 :DISK_GB=1"},
		},
		"a host with disks of others is taken over": {
			after: map[string]any{"shared_disk": true}, domains: []testhost.Domain{dave},
			held: map[string]string{consumer(1): ":VCPU=1 :MEMORY_MB=64 :DISK_GB=1"}, noNeed: true,
		},
		"a GPU died below its cell before the host is flat": {
			host: unplug("0000:82:00.0"), before: with(withGPUs, "numa", "nested"), after: withGPUs,
			domains: []testhost.Domain{dave}, held: nestedGPU, want: flatGPU,
		},
		"all processors are dedicated, and guests float": {
			after:   map[string]any{"cpu_dedicated_set": "0-15"},
			domains: []testhost.Domain{guestOf(1, 1, 64), pinned(guestOf(2, 2, 64), 1, 4, 5)},
			held:    map[string]string{consumer(1): ":VCPU=1 :MEMORY_MB=64", consumer(2): ":VCPU=2 :MEMORY_MB=64"},
			want:    map[string]string{consumer(1): ":VCPU=1 :MEMORY_MB=64", consumer(2): ":PCPU=2 :MEMORY_MB=64"},
		},
	})
}

func TestUnreadableDomainIsNotTreatedAsDeleted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	one := guestOf(1, 2, 64)
	garbled := map[string]string{consumer(1): "<domain"}
	runChanges(t, map[string]change{
		"nested": {
			after: map[string]any{"numa": "nested"}, domains: []testhost.Domain{one}, odd: garbled,
			held:       map[string]string{consumer(1): ":VCPU=2 :MEMORY_MB=64"},
			violations: []string{consumer(1) + "...cannot be read...virsh", consumer(1) + "...cannot be read...virsh"},
			unsaid:     "allocation delete",
		},
		"dedicated processors": {
			after:   map[string]any{"cpu_shared_set": "0-3", "cpu_dedicated_set": "4-7"},
			domains: []testhost.Domain{one}, odd: garbled,
			held:       map[string]string{consumer(1): ":VCPU=2 :MEMORY_MB=64"},
			violations: []string{consumer(1) + "...cannot be read...virsh"}, unsaid: "allocation delete",
		},
	})
}

func TestDedicatedProcessorsWithoutGuestsNeedNoReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	sets := func(numa string) map[string]any {
		return map[string]any{"numa": numa, "cpu_shared_set": "0-1,4-5", "cpu_dedicated_set": "2-3,6-7"}
	}
	runChanges(t, map[string]change{
		"flat": {after: sets("flat"), domains: []testhost.Domain{guestOf(1, 2, 64)},
			held: map[string]string{consumer(1): ":VCPU=2"}, noNeed: true},
		"nested": {before: map[string]any{"numa": "nested"}, after: sets("nested"),
			domains: []testhost.Domain{guestOf(1, 2, 64)},
			held:    map[string]string{consumer(1): "_numa_0:VCPU=2"}, noNeed: true},
		"a cell that keeps none": {
			before:  map[string]any{"numa": "nested"},
			after:   map[string]any{"numa": "nested", "cpu_shared_set": "4-7", "cpu_dedicated_set": "0-3"},
			domains: []testhost.Domain{guestOf(1, 2, 64)},
			held:    map[string]string{consumer(1): "_numa_0:VCPU=2"},
			want:    map[string]string{consumer(1): "_numa_1:VCPU=2"},
		},
	})
}

// TestTreeWithAnEmptyCellIsFlat: an agent that was ended between making providers and moving what
// is allocated leaves cells with nothing in them; and where another program has a provider below a
// cell, it stays when the host is flat again.
func TestTreeWithAnEmptyCellIsFlat(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	runChanges(t, map[string]change{"left over": {
		tree: func(t *testing.T, tree *providertree.Tree) {
			uuid, err := providertree.ChildUUID(nodeUUID, "numa_0")
			for _, err := range []error{err, tree.AddChild(nodeUUID, uuid, nodeName+"_numa_0"),
				second(tree.AddTraits(uuid, "HW_NUMA_ROOT")), tree.AddChild(uuid, otherUUID, "cyborg's")} {
				testproc.Check(t, err)
			}
		},
		held: map[string]string{consumer(1): ":VCPU=2"}, noNeed: true,
	}})
}

// TestReshapeMovesEverythingAtOnce: whatever an operator changes at once, no guest loses anything.
func TestReshapeMovesEverythingAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	mdev := "b7c7d4b0-0c1e-4a3d-8a3e-000000000001" // the sample's, of the first GPU
	dedicated, floating := pinned(guestOf(1, 2, 64), 1, 6, 7), guestOf(2, 2, 64)
	floating.Mdevs = []string{mdev}
	nic := map[string]any{"vendor_id": "15b3", "product_id": "1016"}
	runChanges(t, map[string]change{
		"there": {
			before: with(withGPUs, "pci_report_in_placement", true, "pci_device_spec", []any{nic}),
			after: map[string]any{
				"numa": "nested", "cpu_shared_set": "0-3",
				"cpu_dedicated_set": "4-7", "shared_disk": true, "enabled_mdev_types": []string{"nvidia-222"},
				"mdev_types":              map[string]any{"nvidia-222": map[string]any{"mdev_class": "CUSTOM_SLICE"}},
				"pci_report_in_placement": true, "pci_device_spec": []any{with(nic, "resource_class", "CUSTOM_NIC")},
			},
			host: unplug("0000:82:00.0"), domains: []testhost.Domain{dedicated, floating},
			held: map[string]string{
				consumer(
					1): ":VCPU=2 :MEMORY_MB=64 :DISK_GB=1 _pci_0000_82_00_0:VGPU=1 " +
					"_0000:06:00.0:CUSTOM_PCI_15B3_1016=1",
				consumer(2): ":VCPU=2 :MEMORY_MB=64 :DISK_GB=1 _pci_0000_05_00_0:VGPU=1",
			},
			want: map[string]string{
				consumer(
					1): "_numa_1:PCPU=2 _numa_1:MEMORY_MB=64 :DISK_GB=1 _pci_0000_82_00_0:VGPU=1 " +
					"_0000:06:00.0:CUSTOM_NIC=1",
				consumer(2): "_numa_0:VCPU=2 _numa_0:MEMORY_MB=64 :DISK_GB=1 _pci_0000_05_00_0:CUSTOM_SLICE=1",
			},
		},
	})
}

// TestSpawnIsRefusedWhileADomainIsUnreadable: what a domain has that cannot be read is not given to
// an instance as if it were free.
func TestSpawnIsRefusedWhileADomainIsUnreadable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	d := newDaemon(t, h)
	d.domains, d.odd = []testhost.Domain{guestOf(1, 1, 64), guestOf(2, 1, 64)},
		map[string]string{consumer(2): "<domain"}
	r := newRig(t, h, d.open, nil)
	tree := newTree(t)
	r.mustPass(tree)
	_, err := r.discoverHost(t.Context(), tree, nodeName)
	var notReady *plugins.NotReady
	if !errors.As(err, &notReady) || !strings.Contains(err.Error(), consumer(2)) ||
		!strings.Contains(err.Error(), "virsh edit") {
		t.Errorf("%v, want NotReady that names the domain", err)
	}
	d.odd = nil
	if _, err := r.discoverHost(t.Context(), tree, nodeName); err != nil {
		t.Error(err)
	}
}
