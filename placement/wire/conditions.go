// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/providertree"
)

// Conditions are the conditions of a query on one resource provider: the parameters resources,
// required and member_of, which mean the same in all calls.
type Conditions struct {
	// Resources are the amounts that must be free, each allocatable in one piece.
	Resources []Amount
	// Required are sets of traits: the provider must have at least one of each.
	Required [][]string
	// Forbidden are traits that the provider must not have.
	Forbidden []string
	// MemberOf are sets of aggregates: the provider must be in at least one of each.
	MemberOf [][]string
	// NotMemberOf are aggregates that the provider must not be in.
	NotMemberOf []string
}

// Amount is an amount of a class.
type Amount struct {
	Class string
	Count int64
}

// ReadResources reads "VCPU:2,MEMORY_MB:1024". The last amount of a class counts.
func ReadResources(value string) ([]Amount, error) {
	if strings.TrimSpace(value) == "" {
		return nil, BadQuery(
			"Badly formed resources parameter: it is empty, and should be such as VCPU:2,MEMORY_MB:1024.")
	}
	list := make([]Amount, 0, 1+strings.Count(value, ","))
	at := make(map[string]int, cap(list))
	for item := range strings.SplitSeq(value, ",") {
		class, text, ok := strings.Cut(item, ":")
		if !ok || strings.Contains(text, ":") {
			return nil, BadQuery(
				"Badly formed resources parameter: %q should be CLASS:AMOUNT, as in VCPU:2,MEMORY_MB:1024.",
				jsonkit.Shortened(item))
		}
		count, ok := ParseInt(text)
		if !ok || count < 1 {
			return nil, BadQuery("Requested resource %s expected an integer amount of at least 1. Got: %s.",
				jsonkit.Shortened(class), jsonkit.Shortened(text))
		}
		if i, again := at[class]; again {
			list[i].Count = count
			continue
		}
		at[class] = len(list)
		list = append(list, Amount{class, count})
	}
	return list, nil
}

// ReadRequired reads the values of required: "A,B,!C" and, from 1.39, "in:A,B".
func ReadRequired(values []string, v Version) (required [][]string, forbidden []string, err error) {
	for _, value := range values {
		list, anyOf := strings.CutPrefix(value, "in:")
		if anyOf && !v.Has(AnyTraits) {
			return nil, nil, BadQuery(
				"Invalid query string parameters: the format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' is only supported "+
					"since microversion 1.39. Got: %s.",
				jsonkit.Shortened(value),
			)
		}
		var set []string
		for trait := range strings.SplitSeq(list, ",") {
			trait = strings.TrimSpace(trait)
			name := strings.TrimLeft(trait, "!") // Placement takes !!A for !A.
			switch {
			case name == "":
				return nil, nil, BadQuery(
					"Invalid query string parameters: 'required' should be such as HW_CPU_X86_VMX,CUSTOM_MAGIC. Got "+
						"an empty trait in: %s.",
					jsonkit.Shortened(value),
				)
			case name == trait && anyOf:
				set = append(set, trait)
			case name == trait:
				required = append(required, []string{trait})
			case anyOf:
				return nil, nil, BadQuery(
					"Invalid query string parameters: the format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support "+
						"forbidden traits. Got: %s.",
					jsonkit.Shortened(value),
				)
			case !v.Has(ForbiddenTraits):
				return nil, nil,
					BadQuery(
						"Invalid query string parameters: forbidden traits are only supported since microversion "+
							"1.22. Got: %s.", jsonkit.Shortened(value))
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

// ReadMemberOf reads the values of member_of, or of a parameter key of the same form: "UUID",
// "in:UUID,UUID" and, from 1.32, "!UUID" and "!in:UUID,UUID".
func ReadMemberOf(values []string, key string, v Version) (memberOf [][]string, notMemberOf []string, err error) {
	if len(values) > 1 && !v.Has(RepeatedMemberOf) {
		return nil, nil, BadQuery("Multiple %s parameters are not supported before microversion 1.24.", key)
	}
	for _, value := range values {
		list, not := strings.CutPrefix(value, "!")
		list, several := strings.CutPrefix(list, "in:")
		if !several && strings.Contains(list, ",") {
			return nil, nil,
				BadQuery("Multiple values for '%s' must be prefixed with the 'in:' or '!in:' keyword. Got: %s.",
					key, jsonkit.Shortened(value))
		}
		aggregates := strings.Split(list, ",")
		for _, aggregate := range aggregates {
			if !providertree.IsUUID(aggregate) {
				return nil, nil, BadQuery("Invalid query string parameters: '%s' must hold valid UUIDs. Got: %s.",
					key, jsonkit.Shortened(aggregate))
			}
		}
		switch {
		case !not:
			memberOf = append(memberOf, aggregates)
		case !v.Has(ForbiddenAggregates):
			return nil, nil, BadQuery("Forbidden %s parameters are not supported before microversion 1.32.", key)
		default:
			notMemberOf = append(notMemberOf, aggregates...)
		}
	}
	return memberOf, notMemberOf, nil
}

// Unique removes duplicates from a list.
func Unique(list []string) []string {
	if len(list) < 2 {
		return list
	}
	seen := make(map[string]struct{}, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		_, again := seen[s]
		seen[s] = struct{}{}
		return again
	})
}

// UniqueSets removes duplicate sets, and duplicates in sets: the search checks them all for each
// provider.
func UniqueSets(sets [][]string) [][]string {
	for i := range sets {
		sets[i] = Unique(sets[i])
	}
	if len(sets) < 2 {
		return sets
	}
	seen := make(map[string]struct{}, len(sets))
	return slices.DeleteFunc(sets, func(set []string) bool {
		key := strings.Join(set, ",")
		_, again := seen[key]
		seen[key] = struct{}{}
		return again
	})
}
