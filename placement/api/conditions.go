// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// conditions are the conditions of a query on one resource provider: the parameters resources,
// required and member_of, which mean the same in all calls.
type conditions struct {
	// resources must be free, and each allocatable at once.
	resources []amount
	// required are sets of traits: the provider must have at least one of each.
	required [][]string
	// forbidden are traits that the provider must not have.
	forbidden []string
	// memberOf are sets of aggregates: the provider must be in at least one of each.
	memberOf [][]string
	// notMemberOf are aggregates that the provider must not be in.
	notMemberOf []string
}

// amount is a requested amount of a class.
type amount struct {
	class string
	count int64
}

// readResources reads "VCPU:2,MEMORY_MB:1024". The last amount of a class counts.
func readResources(value string) ([]amount, error) {
	if strings.TrimSpace(value) == "" {
		return nil, badRequest(
			"Badly formed resources parameter: it is empty, and should be such as VCPU:2,MEMORY_MB:1024.")
	}
	list := make([]amount, 0, 1+strings.Count(value, ","))
	at := make(map[string]int, cap(list))
	for item := range strings.SplitSeq(value, ",") {
		class, text, ok := strings.Cut(item, ":")
		if !ok || strings.Contains(text, ":") {
			return nil, badRequest(
				"Badly formed resources parameter: %q should be CLASS:AMOUNT, as in VCPU:2,MEMORY_MB:1024.",
				shortened(item))
		}
		count, ok := wire.ParseInt(text)
		if !ok || count < 1 {
			return nil, badRequest("Requested resource %s expected an integer amount of at least 1. Got: %s.",
				shortened(class), shortened(text))
		}
		if i, again := at[class]; again {
			list[i].count = count
			continue
		}
		at[class] = len(list)
		list = append(list, amount{class, count})
	}
	return list, nil
}

// readRequired reads the values of required: "A,B,!C" and, from 1.39, "in:A,B".
func readRequired(values []string, v wire.Version) (required [][]string, forbidden []string, err error) {
	for _, value := range values {
		list, anyOf := strings.CutPrefix(value, "in:")
		if anyOf && !v.Has(wire.AnyTraits) {
			return nil, nil, badRequest(
				"Invalid query string parameters: the format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' is only supported "+
					"since microversion 1.39. Got: %s.",
				shortened(value),
			)
		}
		var set []string
		for trait := range strings.SplitSeq(list, ",") {
			trait = strings.TrimSpace(trait)
			name := strings.TrimLeft(trait, "!") // Placement takes !!A for !A.
			switch {
			case name == "":
				return nil, nil, badRequest(
					"Invalid query string parameters: 'required' should be such as HW_CPU_X86_VMX,CUSTOM_MAGIC. Got "+
						"an empty trait in: %s.",
					shortened(value),
				)
			case name == trait && anyOf:
				set = append(set, trait)
			case name == trait:
				required = append(required, []string{trait})
			case anyOf:
				return nil, nil, badRequest(
					"Invalid query string parameters: the format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support "+
						"forbidden traits. Got: %s.",
					shortened(value),
				)
			case !v.Has(wire.ForbiddenTraits):
				return nil, nil,
					badRequest(
						"Invalid query string parameters: forbidden traits are only supported since microversion "+
							"1.22. Got: %s.", shortened(value))
			default:
				forbidden = append(forbidden, name)
			}
		}
		if anyOf {
			required = append(required, set)
		}
	}
	return required, forbidden, nil
}

// readMemberOf reads the values of member_of, or of a parameter key of the same form: "UUID",
// "in:UUID,UUID" and, from 1.32, "!UUID" and "!in:UUID,UUID".
func readMemberOf(values []string, key string, v wire.Version) (memberOf [][]string, notMemberOf []string, err error) {
	if len(values) > 1 && !v.Has(wire.RepeatedMemberOf) {
		return nil, nil, badRequest("Multiple %s parameters are not supported before microversion 1.24.", key)
	}
	for _, value := range values {
		list, not := strings.CutPrefix(value, "!")
		list, several := strings.CutPrefix(list, "in:")
		if !several && strings.Contains(list, ",") {
			return nil, nil,
				badRequest("Multiple values for '%s' must be prefixed with the 'in:' or '!in:' keyword. Got: %s.",
					key, shortened(value))
		}
		aggregates := strings.Split(list, ",")
		for _, aggregate := range aggregates {
			if !providertree.IsUUID(aggregate) {
				return nil, nil, badRequest("Invalid query string parameters: '%s' must hold valid UUIDs. Got: %s.",
					key, shortened(aggregate))
			}
		}
		switch {
		case !not:
			memberOf = append(memberOf, aggregates)
		case !v.Has(wire.ForbiddenAggregates):
			return nil, nil, badRequest("Forbidden %s parameters are not supported before microversion 1.32.", key)
		default:
			notMemberOf = append(notMemberOf, aggregates...)
		}
	}
	return memberOf, notMemberOf, nil
}

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
func hasFree(p *ledger.Provider, a amount) bool {
	inv, ok := p.Inventory(a.class)
	return ok && inv.Limits().Broken(p.Used(inv.ClassID()), a.count) == providertree.RuleNone
}

// metBy reports whether the provider meets all conditions. Cost: a binary search for each trait and
// aggregate, and a scan of the provider's inventories for each class.
func (c *conditions) metBy(p *ledger.Provider) bool {
	if !hasTraits(p, c.required) || slices.ContainsFunc(c.forbidden, p.HasTrait) ||
		!inAggregates(p, c.memberOf) || slices.ContainsFunc(c.notMemberOf, p.InAggregate) {
		return false
	}
	for _, a := range c.resources {
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
