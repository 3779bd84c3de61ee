// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// CandidateKey writes a candidate down so that two are the same exactly when their keys are,
// whatever the order of their parts: what is allocated of which provider, and which providers serve
// which group. "p1:VCPU=2 p2:FPGA=1 | _A=p1 _B=p2", by the names of the providers.
func CandidateKey(r *candidates.Request, allocations []candidates.Allocation, groups [][]*ledger.Provider) string {
	amounts := make([]string, 0, len(allocations))
	for _, a := range allocations {
		amounts = append(amounts, fmt.Sprintf("%s:%s=%d", a.Provider.Name, a.Class, a.Amount))
	}
	slices.Sort(amounts)
	served := make([]string, 0, len(groups))
	for i, providers := range groups {
		names := make([]string, 0, len(providers))
		for _, p := range providers {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		served = append(served, r.Groups[i].Suffix+"="+strings.Join(names, "+"))
	}
	slices.Sort(served)
	return strings.Join(amounts, " ") + " | " + strings.Join(served, " ")
}

// Keys are the members of the set in order.
func (s CandidateSet) Keys() []string {
	keys := make([]string, 0, len(s))
	for key := range s {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
