// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// NoGeneration is the generation of a provider that Placement has not numbered yet. Any other value is opaque: it may
// only be compared and sent back.
const NoGeneration int64 = -1

// Provider is one resource provider as it stood when it was taken out of a [Tree]. It is a copy: changing it changes
// nothing else.
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
	// Traits and Aggregates (uuids) are sorted and hold nothing twice.
	Traits     []string
	Aggregates []string
	// Resources names the single units behind an inventory where they have names (PMEM namespaces, ...), by resource
	// class. They are for the host's own use and are never sent to Placement.
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

// Equal reports whether both are the same provider with the same content, generations left out: they tell when
// something changed, not what.
func (p Provider) Equal(o Provider) bool {
	return p.UUID == o.UUID && p.Name == o.Name && p.ParentUUID == o.ParentUUID &&
		p.Inventories.Equal(o.Inventories) && slices.Equal(p.Traits, o.Traits) && slices.Equal(p.Aggregates, o.Aggregates) &&
		equalResources(p.Resources, o.Resources)
}

func equalResources(a, b map[string][]Resource) bool {
	return maps.EqualFunc(a, b, slices.Equal[[]Resource])
}

// clone returns a deep copy with the slices and maps never nil but for Resources, as [Tree] hands them out.
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
			if a.Identifier != b.Identifier {
				if a.Identifier < b.Identifier {
					return -1
				}
				return 1
			}
			if a.Metadata < b.Metadata {
				return -1
			}
			return 1
		})
		out[class] = slices.Compact(units)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// canonical returns the provider as a Tree keeps it (canonical uuids, normalised inventories, sorted sets), or every
// rule that it breaks on its own.
func (p Provider) canonical() (Provider, error) {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = tell(errs, err)
		}
	}
	canon := func(field string, s *string) {
		c, err := CanonicalUUID(*s)
		if err != nil {
			note(fmt.Errorf("%s: %w", field, err))
			return
		}
		*s = c
	}
	canon("uuid", &p.UUID)
	if p.ParentUUID != "" {
		canon("parent uuid", &p.ParentUUID)
	}
	note(ValidateProviderName(p.Name))
	if p.Generation < NoGeneration {
		note(fmt.Errorf("generation %d is negative", p.Generation))
	}
	note(p.Inventories.Validate())
	p.Inventories = p.Inventories.normalize()
	p.Traits = set(p.Traits)
	for _, trait := range p.Traits {
		note(ValidateTrait(trait))
	}
	aggregates, err := canonicalUUIDs(p.Aggregates)
	note(err)
	p.Aggregates = aggregates
	p.Resources = cloneResources(p.Resources)
	if err := errors.Join(errs...); err != nil {
		return Provider{}, fmt.Errorf("%w: resource provider %q (%s): %w", ErrInvalid, clip(p.Name), clip(p.UUID), err)
	}
	return p, nil
}

func canonicalUUIDs(list []string) ([]string, error) {
	if !slices.ContainsFunc(list, func(s string) bool { return !isCanonicalUUID(s) }) {
		return set(list), nil
	}
	out := make([]string, 0, len(list))
	var errs []error
	for _, s := range list {
		c, err := CanonicalUUID(s)
		if err != nil {
			errs = tell(errs, fmt.Errorf("aggregate: %w", err))
			continue
		}
		out = append(out, c)
	}
	return set(out), errors.Join(errs...)
}
