// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// hasTraits reports whether the provider has at least one trait of each set.
func hasTraits(p *ledger.Provider, required [][]string) bool {
	for _, set := range required {
		if !slices.ContainsFunc(set, p.HasTrait) {
			return false
		}
	}
	return true
}

// inAggregates reports whether the provider is in at least one aggregate of each set.
func inAggregates(p *ledger.Provider, memberOf [][]string) bool {
	for _, set := range memberOf {
		if !slices.ContainsFunc(set, p.InAggregate) {
			return false
		}
	}
	return true
}

// hasFree reports whether the amount can be allocated of the provider's inventory at once.
func hasFree(p *ledger.Provider, a wire.Amount) bool {
	inv, ok := p.Inventory(a.Class)
	return ok && inv.Limits().Broken(p.Used(inv.ClassID()), a.Count) == providertree.RuleNone
}

// conditionsMet reports whether the provider meets all conditions. Cost: a binary search for each
// trait and aggregate, and a scan of the provider's inventories for each class.
func conditionsMet(p *ledger.Provider, c *wire.Conditions) bool {
	if !hasTraits(p, c.Required) || slices.ContainsFunc(c.Forbidden, p.HasTrait) ||
		!inAggregates(p, c.MemberOf) || slices.ContainsFunc(c.NotMemberOf, p.InAggregate) {
		return false
	}
	for _, a := range c.Resources {
		if !hasFree(p, a) {
			return false
		}
	}
	return true
}

// unknownTrait finds a trait that does not exist.
func unknownTrait(s *ledger.Snapshot, traits []string) (name string, found bool) {
	for _, name := range traits {
		if _, ok := s.Trait(name); !ok {
			return name, true
		}
	}
	return "", false
}
