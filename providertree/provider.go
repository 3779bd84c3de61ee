// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// NoGeneration is the generation of a provider that Placement has not numbered yet. Any other value
// is opaque: it may only be compared and sent back.
const NoGeneration int64 = -1

// Provider is one resource provider as it was when it was read from a [Tree]. It is a copy:
// changing it changes nothing else.
type Provider struct {
	// UUID is canonical (see [CanonicalUUID]) and unique in the tree.
	UUID string
	// Name has 1 to 200 characters and is unique in the tree.
	Name string
	// ParentUUID is "" on a root.
	ParentUUID string
	// Generation is Placement's, or [NoGeneration].
	Generation int64
	// Inventories is normalised.
	Inventories Inventories
	// Traits and Aggregates (uuids) are sorted, without duplicates.
	Traits     []string
	Aggregates []string
	// Resources names the single units behind an inventory where they have names (PMEM namespaces,
	// ...), by resource class. They are for the host's own use and are never sent to Placement.
	Resources map[string][]Resource
}

// Resource is one named unit of a resource class.
type Resource struct {
	// Identifier is the unit's name, unique in its class on its provider.
	Identifier string
	// Metadata is the driver's own, opaque to everybody else.
	Metadata string
}

// HasTrait reports whether the provider carries a trait.
func (p Provider) HasTrait(trait string) bool {
	_, found := slices.BinarySearch(p.Traits, trait)
	return found
}

// Equal reports whether both are the same provider with the same content, without the generations.
func (p Provider) Equal(o Provider) bool {
	return p.UUID == o.UUID && p.Name == o.Name && p.ParentUUID == o.ParentUUID &&
		p.Inventories.Equal(o.Inventories) && slices.Equal(p.Traits, o.Traits) &&
		slices.Equal(p.Aggregates, o.Aggregates) &&
		equalResources(p.Resources, o.Resources)
}

func equalResources(a, b map[string][]Resource) bool {
	return maps.EqualFunc(a, b, slices.Equal[[]Resource])
}

// clone returns a deep copy with the slices and maps never nil but for Resources, as [Tree] hands
// them out.
func (p Provider) clone() Provider {
	p.Inventories = maps.Clone(p.Inventories)
	p.Traits = slices.Clone(p.Traits)
	p.Aggregates = slices.Clone(p.Aggregates)
	p.Resources = cloneResources(p.Resources)
	return p
}

func cloneResources(r map[string][]Resource) map[string][]Resource {
	if len(r) == 0 {
		return nil
	}
	out := make(map[string][]Resource, len(r))
	for class, units := range r {
		if len(units) == 0 {
			continue
		}
		units = slices.Clone(units)
		slices.SortFunc(units, func(a, b Resource) int {
			return cmp.Or(strings.Compare(a.Identifier, b.Identifier), strings.Compare(a.Metadata, b.Metadata))
		})
		out[class] = slices.Compact(units)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// canonical returns the provider as a Tree keeps it (canonical uuids, normalised inventories,
// sorted sets), and every rule that it breaks on its own.
func (p Provider) canonical() (Provider, Violations) {
	r := &reporter{uuid: p.UUID, name: p.Name}
	p.UUID = r.canonicalUUID("uuid", p.UUID)
	if p.ParentUUID != "" {
		p.ParentUUID = r.canonicalUUID("parent", p.ParentUUID)
	}
	if ValidateProviderName(p.Name) != nil {
		r.addInvalid("name", fmt.Sprintf("its name has %d characters, must have 1 to %d",
			utf8.RuneCountInString(p.Name), maxProviderName), "")
	}
	if p.Generation < NoGeneration {
		r.addInvalid("generation", fmt.Sprintf("its generation is %d", p.Generation),
			"return it unchanged, and leave it out of a new provider")
	}
	if !p.Inventories.valid() {
		r.inventories(p.Inventories)
	}
	p.Inventories = p.Inventories.normalize()
	p.Traits = set(p.Traits)
	for _, trait := range p.Traits {
		if err := ValidateTrait(trait); err != nil {
			r.addInvalid("traits", err.Error(), "")
		}
	}
	p.Aggregates = r.aggregates(p.Aggregates)
	for class := range p.Resources {
		if err := ValidateClass(class); err != nil {
			r.addInvalid("resources", "named resources: "+err.Error(), "")
		}
	}
	p.Resources = cloneResources(p.Resources)
	return p, r.found
}

const hintUUID = "derive one with providertree.ChildUUID"

// reporter collects the violations of one provider.
type reporter struct {
	uuid, name string
	found      Violations
}

func (r *reporter) add(kind error, field, problem, hint string) {
	if len(r.found) == maxViolations {
		return
	}
	r.found = append(r.found,
		Violation{UUID: r.uuid, Name: r.name, Field: field, Problem: problem, Hint: hint, kind: kind})
}

// addInvalid adds a violation that no tree can hold.
func (r *reporter) addInvalid(field, problem, hint string) { r.add(ErrInvalid, field, problem, hint) }

// canonicalUUID is the uuid in its canonical form, or as it is.
func (r *reporter) canonicalUUID(field, s string) string {
	c, err := CanonicalUUID(s)
	if err == nil {
		return c
	}
	hint := ""
	if field == "uuid" {
		hint = hintUUID
	}
	r.addInvalid(field, fmt.Sprintf("its %s %q is not a uuid", field, clip(s)), hint)
	return s
}

func (r *reporter) inventories(inventories Inventories) {
	for _, class := range inventories.Classes() {
		if err := ValidateClass(class); err != nil {
			r.addInvalid("inventories", "inventory: "+err.Error(), "")
			continue
		}
		r.inventory(class, inventories[class].Normalize().bounds(orDefault))
	}
}

// inventory adds the violations of one inventory.
func (r *reporter) inventory(class string, found Violations) {
	for _, v := range found {
		r.add(v.kind, "inventories."+class+"."+v.Field, "inventory of "+class+": "+v.Problem, v.Hint)
	}
}

func (r *reporter) aggregates(list []string) []string {
	if !slices.ContainsFunc(list, func(s string) bool { return !IsCanonicalUUID(s) }) {
		return set(list)
	}
	out := make([]string, 0, len(list))
	for _, s := range list {
		if c, err := CanonicalUUID(s); err == nil {
			out = append(out, c)
		} else {
			r.addInvalid("aggregates", fmt.Sprintf("aggregate %q is not a uuid", clip(s)), "")
		}
	}
	return set(out)
}

// checkTraits checks traits that a driver added.
func (r *reporter) checkTraits(before, after Provider) {
	for _, trait := range after.Traits {
		if slices.Contains(AgentTraits, trait) && !before.HasTrait(trait) {
			r.add(nil, "traits", fmt.Sprintf("trait %s belongs to the agent, a driver must not report it", trait), "")
		}
	}
}

// checkUnits checks named units that a driver wrote.
func (r *reporter) checkUnits(resources map[string][]Resource) {
	for _, class := range sortedKeys(resources) {
		for i, u := range resources[class] { // sorted
			switch {
			case u.Identifier == "" || len(u.Identifier) > maxSymbol || ValidateText(u.Identifier) != nil:
				r.add(nil,
					"resources", fmt.Sprintf("named resource %q of %s: an identifier has 1 to %d printable bytes",
						clip(u.Identifier), class, maxSymbol), "")
			case i > 0 && resources[class][i-1].Identifier == u.Identifier:
				r.add(nil, "resources", fmt.Sprintf("duplicate named resource %q of %s", u.Identifier, class), "")
			}
		}
	}
}
