// SPDX-License-Identifier: Apache-2.0

package providertree

import "fmt"

// Allocations is what consumers hold, by consumer uuid. A reshape takes it in and gives it back
// edited.
type Allocations map[string]ConsumerAllocations

// ConsumerAllocations is all that one consumer (an instance, a migration, ...) holds, on whichever
// providers.
type ConsumerAllocations struct {
	Resources ProviderResources
	// Generation is the consumer's, as Placement returned it; it is sent back unchanged with every
	// write.
	Generation *int64
	// ProjectID and UserID are the owner's, in Keystone's form.
	ProjectID string
	UserID    string
	// ConsumerType is "" where Placement knows none (it shows "unknown" then).
	ConsumerType string
}

// Clone returns a deep copy; nil stays nil, which tells a driver that it must not reshape.
func (a Allocations) Clone() Allocations {
	if a == nil {
		return nil
	}
	out := make(Allocations, len(a))
	for consumer, c := range a {
		out[consumer] = c.Clone()
	}
	return out
}

// Clone returns a deep copy.
func (c ConsumerAllocations) Clone() ConsumerAllocations {
	c.Resources = c.Resources.Clone()
	if c.Generation != nil {
		g := *c.Generation
		c.Generation = &g
	}
	return c
}

// Totals sums the amounts over all providers.
func (c ConsumerAllocations) Totals() Resources { return c.Resources.Totals() }

// Used sums what is allocated on one provider over all consumers.
func (a Allocations) Used(provider string) Resources {
	sum := Resources{}
	for _, c := range a {
		sum.Add(c.Resources[provider])
	}
	return sum
}

// Usages sums what is allocated on each provider over all consumers.
func (a Allocations) Usages() ProviderResources {
	sum := ProviderResources{}
	for _, c := range a {
		for provider, amounts := range c.Resources {
			sum.AddAll(provider, amounts)
		}
	}
	return sum
}

// Canonical returns a copy with canonical uuids, and everything that is wrong with it, see
// [ProviderResources.Canonical]. nil stays nil.
func (a Allocations) Canonical() (Allocations, Violations) {
	if a == nil {
		return nil, nil
	}
	var found Violations
	out := make(Allocations, len(a))
	for _, consumer := range sortedKeys(a) {
		wrong := func(format string, args ...any) {
			found = append(found, Violation{Consumer: consumer, Problem: fmt.Sprintf(format, args...), kind: ErrInvalid})
		}
		c := a[consumer].Clone()
		uuid, err := CanonicalUUID(consumer)
		if err != nil {
			wrong("consumer %q is not a uuid", clip(consumer))
		}
		if _, twice := out[uuid]; twice && err == nil {
			wrong("it is a duplicate in another notation: use uuids as given")
		}
		if c.Generation != nil && *c.Generation < 0 {
			wrong("its generation is %d: return it unchanged", *c.Generation)
		}
		var wrongResources Violations
		c.Resources, wrongResources = c.Resources.Canonical()
		for _, v := range wrongResources {
			v.Consumer = consumer
			found = append(found, v)
		}
		out[uuid] = c
	}
	return out, found
}
