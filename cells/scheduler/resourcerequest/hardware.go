// SPDX-License-Identifier: Apache-2.0

package resourcerequest

import (
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
)

// addHardware refuses what no server can have, and requires the traits of what a flavor asks for
// beside resources: secure boot, TPMs and the like. They are facts about a host, so its root has
// them, whichever providers the resources are from. (Nova requires them in the group without a
// suffix, which is the same where the root has processors and memory.) Encrypted memory is a
// resource as well.
func (r *Request) addHardware(f cellwire.Flavor) error {
	hardware, err := extraspecs.Request{Flavor: f.Name, VCPUs: f.VCPUs, ExtraSpecs: f.ExtraSpecs}.Hardware()
	if err != nil {
		return invalidf("%s", err)
	}
	for _, trait := range hardware.Traits() {
		r.root[trait] = true
	}
	if hardware.Encryption != "" {
		// The providers of contexts have the trait of their kind: there may be several.
		r.group("").resources[classEncryption] = 1
		r.group("").traits[encryptionTraits[hardware.Encryption]] = true
	}
	return nil
}

const classEncryption = "MEM_ENCRYPTION_CONTEXT"

// encryptionTraits are those of kinds of memory encryption.
var encryptionTraits = map[string]string{
	extraspecs.AMDSEV: "HW_CPU_X86_AMD_SEV", extraspecs.AMDSEVES: "HW_CPU_X86_AMD_SEV_ES",
	extraspecs.AMDSEVSNP: "HW_CPU_X86_AMD_SEV_SNP",
}
