// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// withheld are the classes that the driver reports and gives to no guest, and what a guest that was
// granted some of it gets as the reason.
var withheld = map[string]string{
	"CUSTOM_PMEM_NAMESPACE_SMALL": "this driver cannot give persistent memory to instances",
}

// TestWhatIsReportedCanBeGranted: an instance gets what it was granted of each class that the
// driver can report, or a reason why it does not.
func TestWhatIsReportedCanBeGranted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, s := range map[string]inventory.Settings{"flat": settings(), "nested": nestedSettings()} {
		h := everything(t)
		refused := map[string]bool{}
		w := want(t, h, s)
		for _, p := range w.Providers {
			for _, desired := range p.Inventories {
				_, err := assignment.Decide(granting(h, w, p.Name, desired.Class))
				why, no := withheld[desired.Class]
				if !no {
					testproc.NoErrorf(t, err, "%s: %s of %s", name, desired.Class, p.Name)
					continue
				}
				refused[desired.Class] = true
				var fault *plugins.InstanceFault
				if says := fmt.Sprintf("it was granted %s, but %s", desired.Class, why); !errors.As(err, &fault) ||
					fault.Reason != says {
					t.Errorf("%s: %s of %s: %v, want %q", name, desired.Class, p.Name, err, says)
				}
			}
		}
		if len(refused) != len(withheld) {
			t.Errorf("%s: only %q of what is withheld is reported", name, slices.Sorted(maps.Keys(refused)))
		}
	}
}

// granting asks for an instance of one processor and 1 GiB of memory that was granted one of a
// class, in place of its processor or memory if the class is one of those.
func granting(h inventory.Host, w inventory.Wanted, provider, class string) assignment.Request {
	const gib = 1 << 10
	m := machine.Machine{Arch: "x86_64", Cells: slices.Clone(h.Cells)}
	for i, cell := range m.Cells {
		m.Cells[i].Pages = []machine.Pages{{SizeKiB: 2048, Total: 2048, Free: 2048},
			{SizeKiB: 1 << 20, Total: 2, Free: 2}}
		for core, cpu := range cell.CPUs {
			m.CPUs = append(m.CPUs, machine.CPU{ID: cpu, Online: true, Cell: cell.ID, Package: cell.ID, Core: core})
		}
	}
	for _, d := range h.Mdevs {
		m.Parents = append(m.Parents, machine.MdevParent{Name: d.Device, Address: d.Address, Cell: d.Cell,
			Types: []machine.MdevType{{ID: d.Type, Available: 4}}})
	}
	for _, d := range h.PCI {
		for _, passed := range d.Devices {
			m.Devices = append(m.Devices, machine.Device{Address: passed.Address, Cell: d.Cell})
		}
	}
	r := assignment.Request{
		Instance: plugins.InstanceSpec{UUID: "7a3a2f5f-5d0c-4bb5-9d4c-6c6a2b6e8a11",
			Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: gib}},
		Providers: map[string]assignment.Provider{}, Machine: m, Shared: h.Shared, Dedicated: h.Dedicated,
	}
	computing := w.Providers[0].Name
	for _, p := range w.Providers {
		r.Providers[p.Name] = p.Site
		if p.Site.Kind == assignment.Cell && (computing == w.Providers[0].Name || p.Name == provider) {
			computing = p.Name
		}
	}
	grants := providertree.ProviderResources{computing: {"VCPU": 1, "MEMORY_MB": gib}}
	pages, huge := selection.PagesSize(class)
	switch {
	case class == "VCPU", class == "MEMORY_MB":
	case class == "PCPU":
		grants[computing] = providertree.Resources{"PCPU": 1, "MEMORY_MB": gib}
	case huge:
		grants[computing][class] = gib * 1024 / int64(pages)
		r.Instance.Flavor.ExtraSpecs = map[string]string{"hw:mem_page_size": fmt.Sprint(pages)}
	case provider == computing:
		grants[computing][class] = 1
	default:
		grants[provider] = providertree.Resources{class: 1}
	}
	r.Instance.Allocations = grants
	return r
}
