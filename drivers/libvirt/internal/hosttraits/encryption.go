// SPDX-License-Identifier: Apache-2.0

package hosttraits

import "github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"

// sevTraits are those of AMD's memory encryption. Older Novas had the first on the root; now they are on children of it, one for each kind of
// encryption (package encryption).
var sevTraits = []string{"HW_CPU_X86_AMD_SEV", "HW_CPU_X86_AMD_SEV_ES", "HW_CPU_X86_AMD_SEV_SNP"}

// encryptionVerdicts takes them off the root, once kernel and libvirt have said what there is: then the children are right.
func (h Host) encryptionVerdicts(out map[string]bool) {
	if !h.guests().asked || !h.KernelAsked {
		return
	}
	for _, trait := range sevTraits {
		out[trait] = false
	}
}

// Doubts are where configuration and libvirt do not go together.
func (h Host) Doubts() []machine.Doubt {
	g := h.guests()
	if !g.asked {
		return nil
	}
	var out []machine.Doubt
	if h.Config.SWTPM && !g.tpmBackends["emulator"] {
		out = append(out, machine.Doubtf("traits-swtpm", "swtpm_enabled is set, but libvirt says that it cannot emulate a TPM for %s guests; install swtpm, or no guest that needs a TPM comes here", h.Arch))
	}
	return out
}
