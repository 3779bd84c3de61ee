// SPDX-License-Identifier: Apache-2.0

package hosttraits

import "slices"

// Version is one of libvirt's or QEMU's, in libvirt's notation: 9.1.2 is 9001002. 0 is not known.
type Version uint64

// guests are what the guests of a host can have, whichever architecture and machine type they choose: the union of the domain capabilities.
type guests struct {
	// asked says that libvirt gave domain capabilities. Without, little is known.
	asked bool
	// types are how guests run, arches their architectures.
	types, arches              map[string]bool
	buses, videos, filesystems map[string]bool
	// What follows is about guests of the host's own architecture.
	secureBoot, bios, uefi bool
	tpmEnabled             bool
	tpmBackends            map[string]bool
	tpmModels, tpmVersions map[string]bool
	libvirt, qemu          Version
}

func (h Host) guests() guests {
	g := guests{
		asked: len(h.Domains) > 0, types: map[string]bool{}, arches: map[string]bool{},
		buses: map[string]bool{}, videos: map[string]bool{}, filesystems: map[string]bool{},
		tpmBackends: map[string]bool{}, tpmModels: map[string]bool{}, tpmVersions: map[string]bool{},
		tpmEnabled: h.Config.SWTPM, libvirt: h.Libvirt, qemu: h.QEMU,
	}
	for _, d := range h.Domains {
		g.types[d.Type] = true
		g.arches[d.Arch] = true
		add(g.buses, d.DiskBuses)
		add(g.videos, d.VideoModels)
		add(g.filesystems, d.Filesystems)
		if d.Arch != h.Arch {
			continue
		}
		g.secureBoot = g.secureBoot || d.Loader.Secure
		// Only PCs have a BIOS, which comes with the emulator and is in no list before libvirt 11.
		g.bios = g.bios || families[d.Arch] == "x86" && slices.Contains(d.Loader.Types, "rom") || slices.Contains(d.Loader.Firmware, "bios")
		g.uefi = g.uefi || slices.Contains(d.Loader.Firmware, "efi") || d.Loader.Files && slices.Contains(d.Loader.Types, "pflash")
		add(g.tpmBackends, d.TPM.Backends)
		add(g.tpmModels, d.TPM.Models)
		add(g.tpmVersions, d.TPM.Versions)
	}
	if len(g.tpmVersions) == 0 { // libvirt before 8.6 does not say; swtpm makes both
		add(g.tpmVersions, []string{"1.2", "2.0"})
	}
	return g
}

func add(to map[string]bool, words []string) {
	for _, w := range words {
		to[w] = true
	}
}

// known is b, if there are domain capabilities.
func (g guests) known(b bool) verdict {
	if !g.asked {
		return unknown
	}
	return verdictOf(b)
}

// has is whether libvirt lists a word.
func (g guests) has(set map[string]bool, word string) verdict { return g.known(set[word]) }

// byQEMU is whether QEMU runs the guests, with or without KVM. Of others nothing is known.
func (g guests) byQEMU() verdict {
	if !g.types["kvm"] && !g.types["qemu"] {
		return unknown
	}
	return yes
}

// qemuHas is b where QEMU runs the guests.
func (g guests) qemuHas(b bool) verdict {
	if g.byQEMU() == unknown {
		return unknown
	}
	return verdictOf(b)
}

// since is whether libvirt and QEMU are that new, where QEMU runs the guests; major 0 for any.
func (g guests) since(libvirtMajor, libvirtMinor, qemuMajor, qemuMinor Version) verdict {
	out := g.byQEMU()
	for _, v := range []struct{ have, want Version }{{g.libvirt, 1e6*libvirtMajor + 1e3*libvirtMinor}, {g.qemu, 1e6*qemuMajor + 1e3*qemuMinor}} {
		switch {
		case v.want == 0 || out != yes:
		case v.have == 0:
			out = unknown
		default:
			out = verdictOf(v.have >= v.want)
		}
	}
	return out
}

// tpm is whether guests can have an emulated TPM that is in the set.
func (g guests) tpm(set map[string]bool, word string) verdict {
	return g.known(g.tpmEnabled && g.tpmBackends["emulator"] && set[word])
}
