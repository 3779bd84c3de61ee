// SPDX-License-Identifier: Apache-2.0

package pcispec

import (
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// doubts tells what of the specs is legal but hardly meant.
func (h *host) doubts(m machine.Machine, providers []Provider) []machine.Doubt {
	var doubts []machine.Doubt
	for i := range h.specs {
		if d, ok := h.unused(&h.specs[i], h.uses[i]); ok {
			doubts = append(doubts, d)
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
			doubts = append(doubts, h.aboutDevice(passed, mdevs)...)
		}
	}
	return doubts
}

// unused tells that a spec has nothing to govern.
func (h *host) unused(s *spec, u use) (machine.Doubt, bool) {
	if u.governed > 0 {
		return machine.Doubt{}, false
	}
	why := "no device of the host matches it"
	switch {
	case u.late > 0:
		why = fmt.Sprintf("earlier entries govern all devices that match it (%d)", u.late)
	case len(u.bridges) > 0:
		why = "only bridges match it (" + list(u.bridges) + "), which cannot be given to guests"
	}
	return machine.Doubtf(fmt.Sprintf("pci-unused-%d", s.index), "%s does nothing: %s", s.key(), why), true
}

func (h *host) aboutDevice(p Passed, mdevs map[machine.Address]bool) []machine.Doubt {
	d := h.byAddress[p.Address]
	at := d.Address.String()
	var doubts []machine.Doubt
	if !p.Managed && d.Driver != "vfio-pci" {
		has := "no driver"
		if d.Driver != "" {
			has = "the driver " + d.Driver
		}
		doubts = append(doubts, machine.Doubtf("pci-unmanaged-"+at,
			"PCI device %s is not managed by libvirt, but has %s: guests cannot be given it until it is bound to vfio-pci", at, has))
	}
	if p.Kind == KindPhysical && len(d.Virtual) > 0 {
		doubts = append(doubts, machine.Doubtf("pci-physical-"+at,
			"PCI device %s can be given to guests while %d of its virtual functions are switched on: they go away when a guest gets it", at, len(d.Virtual)))
	}
	taken := mdevs[d.Address]
	for _, vf := range d.Virtual {
		taken = taken || mdevs[vf]
	}
	if taken {
		doubts = append(doubts, machine.Doubtf("pci-mdevs-"+at,
			"PCI device %s can be given to guests while it has mediated devices: whoever gets it takes them away from their guests", at))
	}
	return doubts
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
