// SPDX-License-Identifier: Apache-2.0

package extraspecs

// unbounded stands for a bound that neither flavor nor image sets.
const unbounded = 65536

// topology chooses how the processors are divided, as nova.virt.hardware.get_best_cpu_topology
// does: of the divisions within the bounds of flavor and image the one that has most of what is
// preferred, then few threads, then many sockets. Nothing is chosen where neither asks for
// anything.
func (h *Hardware) topology(r Request) error {
	read := func(infix string) (flavor, image Topology) {
		for _, part := range []struct {
			name          string
			flavor, image *int64
		}{{"sockets", &flavor.Sockets, &image.Sockets},
			{"cores", &flavor.Cores, &image.Cores}, {"threads", &flavor.Threads, &image.Threads}} {
			*part.flavor = number(r.ExtraSpecs, "hw:cpu_"+infix+part.name)
			*part.image = number(r.Properties, "hw_cpu_"+infix+part.name)
		}
		return flavor, image
	}
	none := Topology{}
	flavorMost, imageMost := read("max_")
	flavor, image := read("")
	if flavorMost == none && imageMost == none && flavor == none && image == none {
		return nil
	}
	if imageMost.exceeds(flavorMost.withDefault(unbounded)) {
		return conflictf(
			"Image vCPU topology limits (sockets=%d, cores=%d, threads=%d) exceeds the limits of the flavor "+
				"(sockets=%d, cores=%d, threads=%d)",
			imageMost.Sockets, imageMost.Cores, imageMost.Threads, flavorMost.Sockets,
			flavorMost.Cores, flavorMost.Threads)
	}
	maximum := imageMost.orElse(flavorMost).withDefault(unbounded)
	if flavor.exceeds(maximum) {
		flavor = none // the image allows less
	}
	if image.exceeds(maximum) {
		return conflictf(
			"Image vCPU topology (sockets=%d, cores=%d, threads=%d) exceeds the limits of the flavor or image "+
				"(sockets=%d, cores=%d, threads=%d)",
			image.Sockets, image.Cores, image.Threads, maximum.Sockets, maximum.Cores, maximum.Threads)
	}
	preferred := image
	if image == none {
		preferred = flavor
	}
	if r.VCPUs <= unbounded {
		h.Topology = preferred.best(r.VCPUs, maximum)
	}
	if h.Topology == none {
		return conflictf("Requested vCPU limits %d:%d:%d are impossible to satisfy for vcpus count %d",
			min(r.VCPUs, maximum.Sockets), min(r.VCPUs, maximum.Cores), min(r.VCPUs, maximum.Threads), r.VCPUs)
	}
	return nil
}

func (t Topology) exceeds(maximum Topology) bool {
	return t.Sockets > maximum.Sockets || t.Cores > maximum.Cores || t.Threads > maximum.Threads
}

// withDefault has n in place of zeros.
func (t Topology) withDefault(n int64) Topology { return t.orElse(Topology{n, n, n}) }

func (t Topology) orElse(other Topology) Topology {
	for _, part := range []struct {
		to   *int64
		from int64
	}{{&t.Sockets, other.Sockets}, {&t.Cores, other.Cores}, {&t.Threads, other.Threads}} {
		if *part.to == 0 {
			*part.to = part.from
		}
	}
	return t
}

// best is the division of so many processors that is nearest to t; zeros if there is none.
//
// Cost: O(sum of the divisors of vcpus), some hundred thousand steps at most.
func (t Topology) best(vcpus int64, maximum Topology) Topology {
	var best Topology
	score := int64(-1)
	for threads := int64(1); threads <= min(vcpus, maximum.Threads); threads++ {
		if vcpus%threads != 0 {
			continue
		}
		for cores := int64(1); cores <= min(vcpus/threads, maximum.Cores); cores++ {
			one := Topology{Sockets: vcpus / threads / cores, Cores: cores, Threads: threads}
			if vcpus/threads%cores != 0 || one.Sockets > maximum.Sockets {
				continue
			}
			// The order of the loops is that of preference: few threads, many sockets.
			if n := t.matchingParts(one); n > score {
				best, score = one, n
			}
		}
	}
	return best
}

// matchingParts is how many numbers of a division are as preferred.
func (t Topology) matchingParts(one Topology) (n int64) {
	for _, pair := range [][2]int64{{t.Sockets, one.Sockets}, {t.Cores, one.Cores}, {t.Threads, one.Threads}} {
		if pair[0] == pair[1] {
			n++
		}
	}
	return n
}
