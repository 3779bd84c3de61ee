// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"fmt"
	"maps"
)

// Allocations are the allocations of consumers, by consumer uuid. A driver gets them for a reshape,
// and returns them edited.
type Allocations map[string]ConsumerAllocations

// ConsumerAllocations are all allocations of one consumer (an instance, a migration, ...), on any
// providers.
type ConsumerAllocations struct {
	Resources ProviderResources
	// Generation is the consumer's generation as Placement returned it. It is sent back unchanged
	// with every write.
	Generation *int64
	// ProjectID and UserID are the owner's IDs in Keystone.
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

// Canonical returns a copy with canonical uuids, and the rules that the allocations break, see
// [ProviderResources.Canonical]. nil stays nil.
func (a Allocations) Canonical() (Allocations, Violations) {
	if a == nil {
		return nil, nil
	}
	var found Violations
	out := make(Allocations, len(a))
	for _, consumer := range sortedKeys(a) {
		wrong := func(format string, args ...any) {
			found = append(found,
				Violation{Consumer: consumer, Problem: fmt.Sprintf(format, args...), kind: ErrInvalid})
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

// Misplacement is an amount that a reshape would allocate in another place than the one where the
// consumer has it.
type Misplacement struct {
	Provider, Class string
	// Holds is the amount that would be allocated there, Has the amount that the consumer has
	// there.
	Holds, Has int64
}

// Misplaced compares the allocations that a reshape would give to one consumer with the driver's
// list of what the consumer has, on the providers in own. It compares only the classes in classes,
// and of these only the ones of which an amount moves. If the driver lists more of a class in all
// than is allocated, only providers that would get more than the list has are misplacements; if it
// lists less, only those that would get less.
//
// The result is sorted by provider and class. Cost: O(amounts).
func Misplaced(
	before, after, has ProviderResources, own func(provider string) bool, classes map[string]bool,
) []Misplacement {
	moves, sums, listed := map[string]bool{}, Resources{}, Resources{}
	all := map[string]Resources{}
	for _, r := range []ProviderResources{before, after, has} {
		for provider, amounts := range r {
			if !own(provider) {
				continue
			}
			if all[provider] == nil {
				all[provider] = Resources{}
			}
			for class := range amounts {
				all[provider][class] = 0
			}
		}
	}
	for provider, there := range all {
		for class := range there {
			moves[class] = moves[class] || before[provider][class] != after[provider][class]
			sums[class] = addSaturated(sums[class], after[provider][class])
			listed[class] = addSaturated(listed[class], has[provider][class])
		}
	}
	var out []Misplacement
	for _, provider := range sortedKeys(all) {
		for _, class := range all[provider].Classes() {
			m := Misplacement{Provider: provider,
				Class: class, Holds: after[provider][class], Has: has[provider][class]}
			less, more := m.Holds < m.Has && sums[class] >= listed[class],
				m.Holds > m.Has && sums[class] <= listed[class]
			if moves[class] && classes[class] && (less || more) {
				out = append(out, m)
			}
		}
	}
	return out
}

// ProviderResources is amounts by the uuid of the resource provider that they are of: what a
// consumer holds, or what is used.
type ProviderResources map[string]Resources

// Clone returns a deep copy; nil stays nil.
func (p ProviderResources) Clone() ProviderResources {
	if p == nil {
		return nil
	}
	out := make(ProviderResources, len(p))
	for provider, amounts := range p {
		out[provider] = amounts.Clone()
	}
	return out
}

// Equal reports whether both are the same amounts of the same classes on the same providers.
func (p ProviderResources) Equal(o ProviderResources) bool {
	return maps.EqualFunc(p, o, Resources.Equal)
}

// Providers returns the uuids of the providers, sorted.
func (p ProviderResources) Providers() []string { return sortedKeys(p) }

// Add adds an amount, which may be negative, of a class on a provider. It removes an amount that
// becomes 0, and a provider without amounts: Placement refuses both.
func (p ProviderResources) Add(provider, class string, amount int64) {
	sum := addSaturated(p[provider][class], amount)
	switch {
	case sum != 0 && p[provider] == nil:
		p[provider] = Resources{class: sum}
	case sum != 0:
		p[provider][class] = sum
	default:
		if delete(p[provider], class); len(p[provider]) == 0 {
			delete(p, provider)
		}
	}
}

// AddAll adds amounts on a provider.
func (p ProviderResources) AddAll(provider string, amounts Resources) {
	if p[provider] == nil {
		p[provider] = make(Resources, len(amounts))
	}
	p[provider].Add(amounts)
}

// Totals sums the amounts over all providers.
func (p ProviderResources) Totals() Resources {
	sum := Resources{}
	for _, amounts := range p {
		sum.Add(amounts)
	}
	return sum
}

// Canonical returns a copy with canonical uuids, and the rules that it breaks: invalid or duplicate
// uuids, invalid classes, amounts that Placement cannot store. It does not check whether the
// amounts fit the inventories.
func (p ProviderResources) Canonical() (ProviderResources, Violations) {
	var found Violations
	wrong := func(format string, args ...any) {
		found = append(found, Violation{Problem: fmt.Sprintf(format, args...), kind: ErrInvalid})
	}
	out := make(ProviderResources, len(p))
	for _, provider := range p.Providers() {
		uuid, err := CanonicalUUID(provider)
		if err != nil {
			wrong("resource provider %q is not a uuid", clip(provider))
		}
		if out[uuid] != nil && err == nil {
			wrong("resource provider %s is a duplicate in another notation: use uuids as given", quoted(provider))
		}
		amounts := make(Resources, len(p[provider]))
		for _, class := range p[provider].Classes() {
			n := p[provider][class]
			if err := ValidateClass(class); err != nil {
				wrong("on %s: %v", quoted(provider), err)
			} else if n < 1 || n > MaxUnit {
				wrong("%d of %s on %s, must be between 1 and %d; leave out classes without an amount",
					n, class, quoted(provider), int64(MaxUnit))
			}
			amounts[class] = n
		}
		out[uuid] = amounts
	}
	return out, found
}
