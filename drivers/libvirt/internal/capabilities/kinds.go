// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"cmp"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// Kind is a kind of guest to ask libvirt about.
type Kind struct {
	// Emulator is the program; Arch, Machine and Type as in [Domain]. Machine is an alias that
	// stands for the newest machine type of a family (pc, q35, virt).
	Emulator, Arch, Machine, Type string
}

// Kinds are the kinds of guests that decide about traits: of the architectures that are wanted,
// with each family of machine types, run by KVM where that is possible. These are the ones that
// Nova asks about (it asks about all architectures). The order is that of the capabilities.
func (h Host) Kinds(wanted func(arch string) bool) []Kind {
	var out []Kind
	for _, g := range h.guests {
		if strings.TrimSpace(g.OSType) != "hvm" || !wanted(g.Arch.Name) {
			continue
		}
		for _, k := range kindsOf(g.Arch) {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

// kindsOf takes KVM if it is there, or else the first way to run guests. A way may have an emulator
// and machine types of its own.
func kindsOf(arch libvirtxml.CapsGuestArch) []Kind {
	if len(arch.Domains) == 0 {
		return nil
	}
	way := arch.Domains[0]
	for _, d := range arch.Domains {
		if d.Type == "kvm" {
			way = d
		}
	}
	k := Kind{Emulator: strings.TrimSpace(cmp.Or(way.Emulator, arch.Emulator)), Arch: arch.Name, Type: way.Type}
	machines := arch.Machines
	if len(way.Machines) > 0 {
		machines = way.Machines
	}
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
