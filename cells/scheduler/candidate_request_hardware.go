// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
)

// addHardware refuses what no server can have, and requires the traits of what a flavor asks for
// beside resources: secure boot, TPMs and the like. They are facts about a host, so its root has
// them, whichever providers the resources are from. (Nova requires them in the group without a
// suffix, which is the same where the root has processors and memory.)
func (r *CandidateRequest) addHardware(f cellwire.Flavor) error {
	hardware, err := extraspecs.Request{Flavor: f.Name, VCPUs: f.VCPUs, ExtraSpecs: f.ExtraSpecs}.Hardware()
	if err != nil {
		return invalidf("%s", err)
	}
	r.rootTraits = hardware.Traits()
	return nil
}
