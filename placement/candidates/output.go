// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"encoding/binary"
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// output is the memory that a search reuses for its candidates.
type output struct {
	candidate Candidate
	sums      []int64            // provider by class
	touched   []int32            // providers with sums
	providers []*ledger.Provider // the memory of candidate.Groups
	key       []byte
}

// candidate returns the candidate of a complete assignment.
func (s *search) candidate() *Candidate {
	o := &s.out
	classes := len(s.q.classes)
	o.sums = resized(o.sums, len(s.providers)*classes) // zero, as the end of this function leaves them
	o.touched = o.touched[:0]
	for i := range s.slots {
		a := s.slots[i].provider
		if len(s.q.slots[i].needs) == 0 {
			continue
		}
		row := o.sums[int(a)*classes:]
		for _, n := range s.q.slots[i].needs {
			row[n.class] += n.amount
		}
		if !contains(o.touched, a) {
			o.touched = append(o.touched, a)
		}
	}
	c := &o.candidate
	c.Root = s.root
	c.Allocations = c.Allocations[:0]
	for _, a := range o.touched {
		row := o.sums[int(a)*classes : (int(a)+1)*classes]
		for class, sum := range row {
			if sum > 0 {
				c.Allocations = append(c.Allocations, Allocation{s.providers[a].p, s.q.classes[class].name, sum})
				row[class] = 0
			}
		}
	}
	s.groupProviders()
	return c
}

// groupProviders lists the providers of each group. The slots of a group are adjacent.
func (s *search) groupProviders() {
	o := &s.out
	groups := o.candidate.Groups[:0]
	// Allocate for all groups at once: the slices of earlier groups must not move.
	o.providers = resized(o.providers, len(s.slots)+1)[:0]
	for i := range s.slots {
		p := s.providers[s.slots[i].provider].p
		if i == 0 || s.q.slots[i].group != s.q.slots[i-1].group {
			o.providers = append(o.providers, p)
			groups = append(groups, o.providers[len(o.providers)-1:])
			continue
		}
		group := groups[len(groups)-1]
		known := false
		for _, q := range group {
			known = known || q == p
		}
		if !known {
			o.providers = append(o.providers, p)
			groups[len(groups)-1] = o.providers[len(o.providers)-len(group)-1:]
		}
	}
	if at := s.q.condition; at != none {
		o.providers = append(o.providers, s.conditionProvider)
		groups = slices.Insert(groups, at, o.providers[len(o.providers)-1:])
	}
	o.candidate.Groups = groups
}

// sharedKey returns a key of the candidate if sharing providers serve all of it, so that other
// anchors can have the same candidate; otherwise nil. It is valid until the next call.
func (s *search) sharedKey() []byte {
	if len(s.q.sharingByAggregate) == 0 || s.q.condition != none { // that is met by another provider at each anchor
		return nil
	}
	s.out.key = s.out.key[:0]
	for i := range s.slots {
		a := &s.providers[s.slots[i].provider]
		if !a.sharing {
			return nil
		}
		s.out.key = binary.AppendVarint(s.out.key, a.p.ID)
	}
	return s.out.key
}

func contains(list []int32, v int32) bool {
	for _, e := range list {
		if e == v {
			return true
		}
	}
	return false
}
