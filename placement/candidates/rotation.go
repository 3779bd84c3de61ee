// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"math"
	"math/bits"
)

// Rotation makes each search for a request continue where the previous one stopped, so that clients
// that ask for few candidates, or take the first, do not all get the same. It changes the order of
// the candidates, and which of them a limit excludes. It is deterministic.
//
// The trees that a search may visit form a ring. With each search, At grows by Stats.Passed: by the
// trees visited until the limit was reached or, if all were visited, by those up to the first with
// a candidate. So N searches with a limit of 1 return N trees if N can serve the request, however
// many other trees are between them, and 10 searches with a limit of 1000 return all of 10,000.
//
// After the first lap around the ring, a search advances by fewer candidates than it returns, by a
// prime number: otherwise the same few trees would come first in each lap. And in each lap the
// options of a slot, such as the devices of a host, begin at another one.
//
// The zero Rotation visits the trees in the order of their numbers.
type Rotation struct {
	// At is where on the ring the search begins, counting laps.
	At uint64
	// Phase selects the ring: its order and where it begins. Requests and servers with different
	// phases do not follow each other around one ring.
	Phase uint64
	// Window is how many candidates the client asks for; 0 is all.
	Window int
}

// primeBelow returns the largest prime below n, 1 if there is none.
func primeBelow(n int) int {
	for p := max(n-1, 1); ; p-- {
		prime := true
		for d := 2; d*d <= p && prime; d++ {
			prime = p%d != 0
		}
		if prime {
			return p
		}
	}
}

// ring is the order in which a search visits its n anchors.
type ring struct{ n, at, stride int }

// order puts n anchors in order.
func (r Rotation) order(n int) ring {
	if r == (Rotation{}) || n < 2 {
		return ring{n: n, stride: 1}
	}
	// n is a number of trees in memory, so no product overflows.
	begin, _ := bits.Mul64(r.Phase, uint64(n))
	begin += r.At % uint64(n)
	// Another fraction of n than that of the phase itself.
	middle, _ := bits.Mul64(r.Phase*0x9e3779b97f4a7c15, uint64(n))
	stride := coprimeNear(int(middle), n)
	return ring{n: n, at: int(begin%uint64(n)) * stride % n, stride: stride}
}

// next returns the index of the next anchor.
func (r *ring) next() int {
	at := r.at
	if r.at += r.stride; r.at >= r.n {
		r.at -= r.n
	}
	return at
}

// firstOption returns the first of n options in a lap.
func firstOption(lap uint64, n int) int {
	if n < 2 {
		return 0
	}
	by := 0
	if n < len(goldenSteps) {
		by = goldenSteps[n]
	} else {
		by = goldenStep(n)
	}
	return int(lap%uint64(n)) * by % n
}

// goldenSteps caches goldenStep for small numbers.
var goldenSteps = func() (list [65]int) {
	for n := 1; n < len(list); n++ {
		list[n] = goldenStep(n)
	}
	return list
}()

// goldenStep returns a number near n divided by the golden ratio whose multiples, modulo n, are all
// numbers below n, each far from those before it.
func goldenStep(n int) int { return coprimeNear(int(float64(n)/math.Phi+0.5), n) }

// coprimeNear returns a number coprime with n, as near as there is.
func coprimeNear(middle, n int) int {
	for d := 0; ; d++ {
		for _, candidate := range [2]int{middle + d, middle - d} {
			if candidate >= 1 && candidate <= n && coprime(candidate, n) {
				return candidate
			}
		}
	}
}

func coprime(a, b int) bool {
	for b != 0 {
		a, b = b, a%b
	}
	return a == 1
}
