// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// PCIKind is what Nova calls the type of a PCI device.
type PCIKind string

// The kinds that can be given to guests.
const (
	PCIPlain    PCIKind = "type-PCI"
	PCIPhysical PCIKind = "type-PF"
	PCIVirtual  PCIKind = "type-VF"
)

// PCIKindOf is the kind of a device.
func PCIKindOf(d machine.Device) PCIKind {
	switch {
	case d.Physical != nil:
		return PCIVirtual
	case d.MaxVirtual > 0 || len(d.Virtual) > 0:
		return PCIPhysical
	}
	return PCIPlain
}

// PCIProvider is a resource provider wanted for devices.
type PCIProvider struct {
	// Suffix follows the node's name and an underscore in the provider's name: 0000:06:00.0, in
	// capitals.
	Suffix string
	// Address is the address of the plain device or physical function that the provider stands for.
	Address machine.Address
	// Cell is where it is plugged in, or [machine.NoCell].
	Cell int
	// Class is the one resource class of the provider; its total is the number of Devices, of which
	// all can go to one guest.
	Class string
	// Traits are sorted.
	Traits []string
	// OneTimeUse: once it was allocated, all of it stays reserved until an operator frees it.
	OneTimeUse bool
	// Devices are the devices that guests can get, ordered by address: the device itself, or its
	// virtual functions.
	Devices []PCIPassed
}

// Total is the inventory's total.
func (p PCIProvider) Total() int { return len(p.Devices) }

// Name is the provider's name, which is Nova's.
func (p PCIProvider) Name(node string) string { return node + "_" + p.Suffix }

// PCIPassed is a device that can be given to a guest.
type PCIPassed struct {
	Address machine.Address
	Kind    PCIKind
	// Managed: libvirt binds the device to vfio-pci when a guest gets it. Else that must have been
	// done before.
	Managed bool
}

// Select applies the specs to a host. Specs that would give away indistinguishable devices are a
// [*plugins.ConfigError] (Nova does not start then); what is valid but probably not intended is
// returned as discrepancies. The providers are in the order of their addresses; none without
// pci_report_in_placement.
//
// Cost: O(devices × specs).
func (s PCISpecs) Select(m machine.Machine) ([]PCIProvider, []machine.Discrepancy, error) {
	if !s.report {
		return nil, nil, nil
	}
	h := host{byAddress: make(map[machine.Address]*machine.Device, len(m.Devices)), specs: s.list,
		uses: make([]specUse, len(s.list))}
	devices := slices.Clone(m.Devices)
	slices.SortFunc(devices, func(a, b machine.Device) int { return a.Address.Compare(b.Address) })
	for i := range devices {
		h.byAddress[devices[i].Address] = &devices[i]
	}
	providers := map[machine.Address]*providerBuilder{}
	for i := range devices {
		d := &devices[i]
		sp := h.specOf(d)
		if sp == nil || sp.network != "" {
			continue
		}
		if err := sp.refuse(d); err != nil {
			return nil, nil, err
		}
		at := d.Address
		if d.Physical != nil {
			at = *d.Physical
		}
		if providers[at] == nil {
			providers[at] = &providerBuilder{}
		}
		if err := providers[at].add(d, sp); err != nil {
			return nil, nil, err
		}
	}
	var out []PCIProvider
	for at, b := range providers {
		out = append(out, b.provider(at, h.byAddress[at]))
	}
	slices.SortFunc(out, func(a, b PCIProvider) int { return a.Address.Compare(b.Address) })
	return out, h.discrepancies(m, out), nil
}

// Uncertain are the suffixes of the providers that may stand for devices that are unread, as far as
// a spec may match these: the device's own, and that of its physical function.
//
// Cost: O(devices + unread devices × specs).
func (s PCISpecs) Uncertain(m machine.Machine) []string {
	if !s.report || len(m.Unread) == 0 {
		return nil
	}
	physical := map[machine.Address]machine.Address{}
	for _, d := range m.Devices {
		for _, vf := range d.Virtual {
			physical[vf] = d.Address
		}
	}
	var out []string
	for _, u := range m.Unread {
		if u.Address == nil {
			continue
		}
		addresses := []machine.Address{*u.Address}
		if pf, known := physical[*u.Address]; known {
			addresses = append(addresses, pf)
		}
		if u.Physical != nil {
			addresses = append(addresses, *u.Physical)
		}
		if slices.ContainsFunc(s.list, func(one spec) bool { return one.network == "" && one.mayMatch(addresses) }) {
			for _, a := range addresses {
				out = append(out, pciSuffix(a))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mayMatch reports whether a spec may match a device of which only these addresses are known.
func (s *spec) mayMatch(addresses []machine.Address) bool {
	return slices.ContainsFunc(addresses, s.address.match)
}

func pciSuffix(a machine.Address) string { return strings.ToUpper(a.String()) }

// host has the devices of a host and the specs that they are matched with.
type host struct {
	byAddress map[machine.Address]*machine.Device
	specs     []spec
	uses      []specUse
}

// specUse counts what a spec matches.
type specUse struct {
	governed int               // devices whose first spec it is
	shadowed int               // devices that it matches, but that an earlier one governs
	bridges  []machine.Address // bridges that it matches
}

// specOf finds the first spec that matches a device.
func (h *host) specOf(d *machine.Device) *spec {
	var first *spec
	for i := range h.specs {
		if !h.match(&h.specs[i], d) {
			continue
		}
		switch {
		case d.Class>>16 == classBridge:
			h.uses[i].bridges = append(h.uses[i].bridges, d.Address)
		case first != nil:
			h.uses[i].shadowed++
		default:
			h.uses[i].governed++
			first = &h.specs[i]
		}
	}
	return first
}

// classBridge is the base class of bridges. What is behind one is the host's; it cannot be given
// away.
const classBridge = 0x06

// match is Nova's rule. A spec with the whole address of a physical function matches its virtual
// functions as well.
func (h *host) match(s *spec, d *machine.Device) bool {
	switch {
	case s.vendor != nil && *s.vendor != d.Vendor, s.product != nil && *s.product != d.Product,
		d.Class>>(24-s.classBits) != s.classPrefix:
		return false
	case s.address.match(d.Address):
		return true
	case d.Physical == nil || s.address.single == nil:
		return false
	}
	named := h.byAddress[*s.address.single]
	return named != nil && named.MaxVirtual > 0 && s.address.match(*d.Physical)
}

// refuse is the error about an impossible request of a spec.
func (s *spec) refuse(d *machine.Device) error {
	if s.remote && PCIKindOf(*d) == PCIPhysical {
		return s.configError("remote_managed",
			"matches the physical function %s; only virtual functions can have remote_managed. Use their product_id",
			d.Address)
	}
	return nil
}

// providerBuilder is a provider under construction.
type providerBuilder struct {
	devices []*machine.Device
	specs   []*spec
}

// add takes a device in, unless it does not fit to those that are in.
func (b *providerBuilder) add(d *machine.Device, s *spec) error {
	b.devices, b.specs = append(b.devices, d), append(b.specs, s)
	if len(b.devices) == 1 {
		return nil
	}
	first, by := b.devices[0], b.specs[0]
	switch {
	case (first.Physical == nil) != (d.Physical == nil):
		pf, vf, pfBy, vfBy := first, d, by, s
		if first.Physical != nil {
			pf, vf, pfBy, vfBy = d, first, s, by
		}
		return vfBy.configError("",
			"matches %s, a virtual function of %s, which %s matches; only one of the two can be given to guests. "+
				"Restrict one spec by address or product_id (%04x is the physical function, %04x the virtual one)",
			vf.Address, pf.Address, pfBy.key(), pf.Product, vf.Product)
	case pciClassName(s, d) != pciClassName(by, first):
		return s.configError("resource_class",
			"is %s for %s, but its sibling %s has %s (%s); all virtual functions of %s must have the same",
			pciClassName(s, d), d.Address, first.Address, pciClassName(by, first), by.key(), d.Physical)
	case !slices.Equal(s.traits, by.traits):
		return s.configError("traits",
			"are %s for %s, but its sibling %s has %s (%s); all virtual functions of %s must have the same",
			strings.Join(s.traits, ","), d.Address, first.Address, strings.Join(by.traits, ","), by.key(), d.Physical)
	}
	return nil
}

func pciClassName(s *spec, d *machine.Device) string {
	if s.resourceClass != "" {
		return s.resourceClass
	}
	return fmt.Sprintf("CUSTOM_PCI_%04X_%04X", d.Vendor, d.Product)
}

// provider is the finished one; of is its device, nil if the host hides the physical function of
// its virtual ones.
func (b *providerBuilder) provider(at machine.Address, of *machine.Device) PCIProvider {
	p := PCIProvider{
		Suffix: pciSuffix(at), Address: at, Cell: machine.NoCell,
		Class:  pciClassName(b.specs[0], b.devices[0]),
		Traits: slices.Clone(b.specs[0].traits), OneTimeUse: b.specs[0].oneTime,
	}
	if of != nil {
		p.Cell = of.Cell
	}
	for i, d := range b.devices {
		p.Devices = append(p.Devices, PCIPassed{d.Address, PCIKindOf(*d), b.specs[i].managed})
		if p.Cell == machine.NoCell {
			p.Cell = d.Cell
		}
	}
	return p
}

// discrepancies adds what is valid about the specs but probably not intended.
func (h *host) discrepancies(m machine.Machine, providers []PCIProvider) []machine.Discrepancy {
	var discrepancies []machine.Discrepancy
	unread := slices.Collect(maps.Keys(machine.UnreadAddresses(m.Unread)))
	for i := range h.specs {
		if d, ok := h.unused(&h.specs[i], h.uses[i]); ok && !h.specs[i].mayMatch(unread) {
			discrepancies = append(discrepancies, d)
		}
	}
	mdevs := map[machine.Address]bool{}
	for _, p := range m.Parents {
		for _, mdev := range p.Mdevs {
			if mdev.Active && p.Address != nil {
				mdevs[*p.Address] = true
			}
		}
	}
	for _, p := range providers {
		for _, passed := range p.Devices {
			discrepancies = append(discrepancies, h.deviceDiscrepancies(passed, mdevs)...)
		}
	}
	return discrepancies
}

// unused adds a discrepancy about a spec that selects nothing.
func (h *host) unused(s *spec, u specUse) (machine.Discrepancy, bool) {
	if u.governed > 0 {
		return machine.Discrepancy{}, false
	}
	why := "no device of the host matches it"
	switch {
	case u.shadowed > 0:
		why = fmt.Sprintf("earlier entries match all its devices (%d)", u.shadowed)
	case len(u.bridges) > 0:
		why = "only bridges match it (" + list(u.bridges) + "), which cannot be given to guests"
	}
	return machine.Discrepancyf(fmt.Sprintf("pci-unused-%d", s.index), "%s does nothing: %s", s.key(), why), true
}

func (h *host) deviceDiscrepancies(p PCIPassed, mdevs map[machine.Address]bool) []machine.Discrepancy {
	d := h.byAddress[p.Address]
	at := d.Address.String()
	var discrepancies []machine.Discrepancy
	if !p.Managed && !d.GivesToGuests {
		discrepancies = append(discrepancies, machine.Discrepancyf("pci-unmanaged-"+at,
			"PCI device %s is not managed by libvirt, but has %s: it cannot be given to guests until it is bound "+
				"to vfio-pci, or to a variant of it for the device", at, driverText(d)))
	}
	if p.Kind == PCIPhysical && len(d.Virtual) > 0 {
		discrepancies = append(discrepancies, machine.Discrepancyf("pci-physical-"+at,
			"PCI device %s can be given to guests while %d of its virtual functions are enabled: they disappear "+
				"when a guest gets it", at, len(d.Virtual)))
	}
	taken := mdevs[d.Address]
	for _, vf := range d.Virtual {
		taken = taken || mdevs[vf]
	}
	if taken {
		discrepancies = append(discrepancies, machine.Discrepancyf("pci-mdevs-"+at,
			"PCI device %s can be given to guests while it has mediated devices: a guest that gets it takes them "+
				"from their guests", at))
	}
	return discrepancies
}

// list names some addresses, not hundreds.
func list(addresses []machine.Address) string {
	const most = 5
	var texts []string
	for i, a := range addresses {
		if i == most {
			texts = append(texts, fmt.Sprintf("%d more", len(addresses)-most))
			break
		}
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// driverText names the driver of a device.
func driverText(d *machine.Device) string {
	if d.Driver == "" {
		return "no driver"
	}
	return "the driver " + d.Driver
}
