// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"fmt"
	"maps"
	"math"
)

// Resources is amounts by resource class, each in the unit of its class. A class of which there is
// nothing is absent; nil is empty.
type Resources map[string]int64

// Clone returns a copy; nil stays nil.
func (r Resources) Clone() Resources { return maps.Clone(r) }

// Equal reports whether both are the same amounts of the same classes.
func (r Resources) Equal(o Resources) bool { return maps.Equal(r, o) }

// Classes returns the resource classes, sorted.
func (r Resources) Classes() []string { return sortedKeys(r) }

// Add adds amounts. A sum beyond what an int64 holds is cut to it: amounts may come from anywhere.
func (r Resources) Add(o Resources) {
	for class, n := range o {
		r[class] = plus(r[class], n)
	}
}

func plus(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
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

// Add adds an amount of a class on a provider; a negative one is taken away. What becomes 0 is left
// out, and a provider with nothing too: Placement refuses both.
func (p ProviderResources) Add(provider, class string, amount int64) {
	sum := plus(p[provider][class], amount)
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

// Canonical returns a copy with canonical uuids, and everything that is wrong with it: invalid or
// duplicate uuids, invalid classes, amounts that Placement does not store. Whether the amounts fit
// the inventories is not checked.
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
				wrong("%d of %s on %s, must be between 1 and %d; leave out classes without an amount", n, class, quoted(provider), int64(MaxUnit))
			}
			amounts[class] = n
		}
		out[uuid] = amounts
	}
	return out, found
}
