// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind of guest to ask libvirt about.
type Kind struct {
	// Emulator is the program; Arch, Machine and Type as in [Capabilities]. Machine is an alias that stands for the newest machine type of
	// a family (pc, q35, virt).
	Emulator, Arch, Machine, Type string
}

// maxKinds is more than an emulator for each architecture makes.
const maxKinds = 256

// Kinds reads, from libvirt's capabilities, which kinds of guests decide about traits: of the architectures that are wanted, with each family of
// machine types, run by KVM where that is possible. These are the ones that Nova asks about (it asks about all architectures). The order is
// that of the capabilities.
func Kinds(capabilities string, wanted func(arch string) bool) ([]Kind, error) {
	var x struct {
		XMLName xml.Name   `xml:"capabilities"`
		Guests  []guestXML `xml:"guest"`
	}
	if err := decodeDomain(capabilities, &x); err != nil {
		return nil, fmt.Errorf("libvirt's capabilities: %w", err)
	}
	var out []Kind
	for _, g := range x.Guests {
		if strings.TrimSpace(g.OSType) != "hvm" || !wanted(g.Arch.Name) {
			continue
		}
		for _, k := range g.kinds() {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
			if len(out) > maxKinds {
				return nil, fmt.Errorf("libvirt's capabilities: there are more than %d families of machine types", maxKinds)
			}
		}
	}
	return out, nil
}

type guestXML struct {
	OSType string `xml:"os_type"`
	Arch   struct {
		Name     string       `xml:"name,attr"`
		Emulator string       `xml:"emulator"`
		Machines []machineXML `xml:"machine"`
		Domains  []struct {
			Type     string       `xml:"type,attr"`
			Emulator string       `xml:"emulator"`
			Machines []machineXML `xml:"machine"`
		} `xml:"domain"`
	} `xml:"arch"`
}

type machineXML struct {
	Canonical string `xml:"canonical,attr"`
	Name      string `xml:",chardata"`
}

// kinds takes KVM if it is there, or else the first way to run guests. A way may have an emulator and machine types of its own.
func (g guestXML) kinds() []Kind {
	if len(g.Arch.Domains) == 0 {
		return nil
	}
	way := g.Arch.Domains[0]
	for _, d := range g.Arch.Domains {
		if d.Type == "kvm" {
			way = d
		}
	}
	k := Kind{Emulator: g.Arch.Emulator, Arch: g.Arch.Name, Type: way.Type}
	machines := g.Arch.Machines
	if way.Emulator != "" {
		k.Emulator = way.Emulator
	}
	if len(way.Machines) > 0 {
		machines = way.Machines
	}
	k.Emulator = strings.TrimSpace(k.Emulator)
	var out []Kind
	for _, m := range machines {
		if m.Canonical != "" {
			k.Machine = strings.TrimSpace(m.Name)
			out = append(out, k)
		}
	}
	if len(out) == 0 { // no aliases: whatever libvirt takes by default
		out = append(out, k)
	}
	return out
}
