// SPDX-License-Identifier: Apache-2.0

package providertree

import "maps"

// Allocations is what consumers hold, by consumer uuid. A reshape takes it in and gives it back edited.
type Allocations map[string]ConsumerAllocations

// ConsumerAllocations is all that one consumer (an instance, a migration, ...) holds, on whichever providers.
type ConsumerAllocations struct {
	// Resources is by provider uuid, then by resource class.
	Resources map[string]map[string]int64
	// Generation is the consumer's, as Placement told it; it goes back unchanged with every write.
	Generation *int64
	// ProjectID and UserID are the owner's, in Keystone's form.
	ProjectID string
	UserID    string
	// ConsumerType is "" where Placement knows none (it shows "unknown" then).
	ConsumerType string
}

// Clone returns a deep copy; nil stays nil, since a driver tells from that whether it may reshape.
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
	if c.Resources != nil {
		res := make(map[string]map[string]int64, len(c.Resources))
		for provider, amounts := range c.Resources {
			res[provider] = maps.Clone(amounts)
		}
		c.Resources = res
	}
	if c.Generation != nil {
		g := *c.Generation
		c.Generation = &g
	}
	return c
}

// Totals sums the amounts over all providers, by resource class.
func (c ConsumerAllocations) Totals() map[string]int64 {
	sum := map[string]int64{}
	for _, amounts := range c.Resources {
		for class, n := range amounts {
			sum[class] += n
		}
	}
	return sum
}

// Used sums what is allocated on one provider over all consumers, by resource class.
func (a Allocations) Used(provider string) map[string]int64 {
	sum := map[string]int64{}
	for _, c := range a {
		for class, n := range c.Resources[provider] {
			sum[class] += n
		}
	}
	return sum
}
