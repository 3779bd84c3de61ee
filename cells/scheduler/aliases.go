// SPDX-License-Identifier: Apache-2.0

package scheduler

import "github.com/compute-agent/compute-agent/cells/cellwire"

// candidateRequest is [NewCandidateRequest] for a flavor that may ask for PCI devices by aliases.
func (s *Scheduler) candidateRequest(f cellwire.Flavor) (CandidateRequest, error) {
	specs, err := s.o.Aliases.Expand(f.ExtraSpecs)
	if err != nil {
		return CandidateRequest{}, invalidf("%s", err)
	}
	f.ExtraSpecs = specs
	return NewCandidateRequest(f)
}
