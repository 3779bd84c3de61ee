// SPDX-License-Identifier: Apache-2.0

package hosttraits

import (
	"slices"
	"sync"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domcaps"
)

// Host is what traits follow from.
type Host struct {
	// Arch is libvirt's name of the host's architecture.
	Arch string
	// Features are libvirt's names of the features of the CPU that guests see, all of them. FeaturesUnknown: libvirt does not say which
	// these are.
	Features        []string
	FeaturesUnknown bool
	// Threaded: some core has more than one thread.
	Threaded bool
	// GuestArches are libvirt's names of the architectures that guests can have.
	GuestArches []string
	// Domains are what libvirt says that guests can have, one for each of the [domcaps.Kinds] that are Asked about. Empty if it does not say: then
	// nothing is known of their devices, and the traits about them stay as they are.
	Domains []domcaps.Capabilities
	// Libvirt is the version of the daemon, QEMU that of the emulator, 0 if not known.
	Libvirt, QEMU Version
	// KernelAsked says that it is known what the kernel may encrypt, or that it may nothing.
	KernelAsked bool
	Config      Config
}

// Asked chooses the architectures of guests whose domain capabilities count: the host's own, and those that have a trait. (Nova asks about
// all that have an emulator. What the others can have, one of these can have, too.)
func Asked(host string) func(guest string) bool {
	return func(guest string) bool { return guest == host || emulated[guest] != "" }
}

// Verdicts says of each trait of the root that the driver owns whether the host has it. What is true goes on the root, what is false off it.
// A trait that the host's silence leaves open is not named: it stays as it is, since to know less is not to have less.
//
// Cost: some 150 entries, a few microseconds; see BenchmarkVerdicts.
func (h Host) Verdicts() map[string]bool {
	out := make(map[string]bool, len(Owned()))
	for family, list := range features {
		if h.FeaturesUnknown {
			break
		}
		has := map[string]bool{}
		if family == families[h.Arch] {
			has = set(h.Features)
		}
		for _, f := range list {
			for _, t := range f.traits {
				out[t] = has[f.libvirt]
			}
		}
	}
	for arch, t := range architectures {
		out[t] = arch == h.Arch
	}
	guestArches := set(h.GuestArches)
	for arch, t := range emulated {
		out[t] = guestArches[arch]
	}
	out[hyperthreading] = h.Threaded
	h.encryptionVerdicts(out)
	g := h.guests()
	for _, r := range rules {
		if v := r.of(g); v != unknown {
			out[r.trait] = v == yes
		}
	}
	for _, r := range more {
		switch h.Config.More {
		case Report:
			if v := r.of(g); v != unknown {
				out[r.trait] = v == yes
			}
		case Remove:
			out[r.trait] = false
		}
	}
	return out
}

// Owned are the traits that the driver owns on a root, sorted.
var Owned = sync.OnceValue(func() []string {
	traits := append([]string{hyperthreading}, sevTraits...)
	for _, family := range features {
		for _, f := range family {
			traits = append(traits, f.traits...)
		}
	}
	for _, table := range []map[string]string{architectures, emulated} {
		for _, t := range table {
			traits = append(traits, t)
		}
	}
	for _, list := range [][]rule{rules, more} {
		for _, r := range list {
			traits = append(traits, r.trait)
		}
	}
	slices.Sort(traits)
	return slices.Compact(traits)
})

// FromKernel translates the flags of /proc/cpuinfo into libvirt's names of those features that have a trait.
func FromKernel(arch string, flags []string) []string {
	has := set(flags)
	var names []string
	for _, f := range features[families[arch]] {
		if f.kernel != "" && has[f.kernel] {
			names = append(names, f.libvirt)
		}
	}
	return names
}

// Disagreement compares, among the features that have a trait and that both can name, what libvirt and the kernel say:
// those that only libvirt sees, and those that only the kernel does, in libvirt's names.
func Disagreement(arch string, libvirt, flags []string) (onlyLibvirt, onlyKernel []string) {
	hasLibvirt, hasKernel := set(libvirt), set(flags)
	for _, f := range features[families[arch]] {
		switch {
		case f.kernel == "" || hasLibvirt[f.libvirt] == hasKernel[f.kernel]:
		case hasLibvirt[f.libvirt]:
			onlyLibvirt = append(onlyLibvirt, f.libvirt)
		default:
			onlyKernel = append(onlyKernel, f.libvirt)
		}
	}
	return onlyLibvirt, onlyKernel
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}
