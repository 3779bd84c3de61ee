// SPDX-License-Identifier: Apache-2.0

package hosttraits

import (
	"slices"
	"sync"
)

// Host is what traits follow from.
type Host struct {
	// Arch is libvirt's name of the host's architecture.
	Arch string
	// Features are libvirt's names of the CPU's features, all of them.
	Features []string
	// Threaded: some core has more than one thread.
	Threaded bool
	// GuestArches are libvirt's names of the architectures that guests can have.
	GuestArches []string
}

// Traits are the host's, sorted. Features and architectures without a trait are left out: that is most of them.
func (h Host) Traits() []string {
	var traits []string
	has := set(h.Features)
	for _, f := range features[families[h.Arch]] {
		if has[f.libvirt] {
			traits = append(traits, f.traits...)
		}
	}
	if t, ok := architectures[h.Arch]; ok {
		traits = append(traits, t)
	}
	for _, arch := range h.GuestArches {
		if t, ok := emulated[arch]; ok {
			traits = append(traits, t)
		}
	}
	if h.Threaded {
		traits = append(traits, hyperthreading)
	}
	slices.Sort(traits)
	return slices.Compact(traits)
}

// Owned are all traits that Traits can return for any host, sorted. The driver adds and removes these and no others.
var Owned = sync.OnceValue(func() []string {
	traits := []string{hyperthreading}
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
