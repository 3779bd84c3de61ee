// SPDX-License-Identifier: Apache-2.0

package providertree

import (
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
		r[class] = addSaturated(r[class], n)
	}
}

func addSaturated(a, b int64) int64 {
	sum := a + b
	if (sum < a) == (b < 0) {
		return sum
	}
	if sum < 0 { // it wrapped
		return math.MaxInt64
	}
	return math.MinInt64
}
