// SPDX-License-Identifier: Apache-2.0

package hosttraits

import "github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"

// Kernel is what the kernel's module for virtual machines is allowed to encrypt (/sys/module/kvm_amd/parameters).
type Kernel struct{ SEV, SEVES, SEVSNP bool }

// Encryption is a way to encrypt the memory of guests.
type Encryption struct {
	// Suffix is the end of the name of Nova's provider for it: NODE_amd_sev.
	Suffix string
	Trait  string
	// Guests is how many guests there can be, as libvirt says; 0 if it does not say. Guests of SEV-ES and SEV-SNP share one number.
	Guests int
}

var (
	sev    = Encryption{Suffix: "amd_sev", Trait: "HW_CPU_X86_AMD_SEV"}
	sevES  = Encryption{Suffix: "amd_sev_es", Trait: "HW_CPU_X86_AMD_SEV_ES"}
	sevSNP = Encryption{Suffix: "amd_sev_snp", Trait: "HW_CPU_X86_AMD_SEV_SNP"}
)

// Encryptions are the ways that the host has, with kernel, libvirt and emulator in favour: AMD's SEV, with encrypted registers (SEV-ES), with
// integrity (SEV-SNP). known is false if one of them did not say; then nothing is known to have gone either.
func (h Host) Encryptions() (ways []Encryption, known bool) {
	g := h.guests()
	if !g.asked || h.Kernel == nil {
		return nil, false
	}
	if !g.sev || !h.Kernel.SEV {
		return nil, true
	}
	one := func(way Encryption, guests int) {
		way.Guests = guests
		ways = append(ways, way)
	}
	one(sev, g.sevGuests)
	if h.Kernel.SEVES && g.sevESGuests > 0 {
		one(sevES, g.sevESGuests)
	}
	if h.Kernel.SEVSNP && g.sevSNP {
		one(sevSNP, g.sevESGuests)
	}
	return ways, true
}

// encryptionVerdicts are about the root's traits: Nova used to have SEV there, and now has it on a child of the root for each way.
func (h Host) encryptionVerdicts(out map[string]bool) {
	ways, known := h.Encryptions()
	if !known {
		return
	}
	for _, way := range []Encryption{sev, sevES, sevSNP} {
		out[way.Trait] = false
	}
	if h.EncryptionOnRoot && len(ways) > 0 {
		out[sev.Trait] = true
	}
}

// Doubts are where configuration, kernel and libvirt do not go together.
func (h Host) Doubts() []machine.Doubt {
	g := h.guests()
	if !g.asked {
		return nil
	}
	var out []machine.Doubt
	if h.Config.SWTPM && !g.tpmBackends["emulator"] {
		out = append(out, machine.Doubtf("traits-swtpm", "swtpm_enabled is set, but libvirt says that it cannot emulate a TPM for %s guests; install swtpm, or no guest that needs a TPM comes here", h.Arch))
	}
	if k := h.Kernel; k != nil && k.SEV != g.sev {
		out = append(out, machine.Doubtf("traits-sev", "AMD's memory encryption: the kernel says %v, libvirt says %v; it takes both, so guests cannot be encrypted", k.SEV, g.sev))
	}
	return out
}
