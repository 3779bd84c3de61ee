// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// core is a core of the host.
type core struct{ pkg, id int }

func coreOf(cpu machine.CPU) core { return core{cpu.Package, cpu.Core} }

// processorIndex has the users and the cores of the host's processors.
type processorIndex struct {
	shared, dedicated map[int]bool
	// threads are the online processors of a core.
	threads map[core][]int
	// taken are dedicated processors of other domains, and those beside them on a core that is
	// promised to one alone.
	taken map[int]bool
}

// index finds the users of the processors. A processor is taken if a domain has it to itself: a
// virtual one, or the emulator, may run on dedicated ones alone and this is among them. A domain
// that may run on others too floats.
func (c *chooser) index() {
	x := processorIndex{shared: map[int]bool{}, dedicated: map[int]bool{}, threads: map[core][]int{}, taken: map[int]bool{}}
	for _, cpu := range c.Dedicated {
		x.dedicated[cpu] = c.host.cpus[cpu].Online
	}
	for _, cpu := range c.Shared {
		x.shared[cpu] = c.host.cpus[cpu].Online
	}
	for _, cpu := range c.Machine.CPUs {
		if !cpu.Online {
			continue
		}
		x.threads[coreOf(cpu)] = append(x.threads[coreOf(cpu)], cpu.ID)
		if c.Shared == nil && !x.dedicated[cpu.ID] {
			x.shared[cpu.ID] = true
		}
	}
	for _, d := range c.others() {
		isolated := d.Isolated()
		take := func(cpus []int) {
			if slices.ContainsFunc(cpus, func(cpu int) bool { return !x.dedicated[cpu] }) {
				return
			}
			for _, cpu := range cpus {
				x.taken[cpu] = true
				if isolated {
					for _, sibling := range x.threads[coreOf(c.host.cpus[cpu])] {
						x.taken[sibling] = true
					}
				}
			}
		}
		for vcpu := range d.VCPUs {
			take(d.CPUs(vcpu))
		}
		take(d.EmulatorPin)
	}
	c.processor = x
}

// sharedIn are the processors of a cell that VCPUs run on, in ascending order.
func (c *chooser) sharedIn(cell int) []int {
	return slices.DeleteFunc(c.allShared(), func(cpu int) bool { return c.host.cpus[cpu].Cell != cell })
}

// allShared are the processors that VCPUs run on, in ascending order.
func (c *chooser) allShared() []int {
	var out []int
	for cpu, is := range c.processor.shared {
		if is {
			out = append(out, cpu)
		}
	}
	slices.Sort(out)
	return out
}

// freeIn are the free dedicated processors of a cell, in ascending order.
func (c *chooser) freeIn(cell int) []int {
	var out []int
	for cpu, is := range c.processor.dedicated {
		if is && c.host.cpus[cpu].Cell == cell && !c.processor.taken[cpu] {
			out = append(out, cpu)
		}
	}
	slices.Sort(out)
	return out
}

// pick chooses n dedicated processors of a cell by the policy for threads: isolate takes one thread
// each of cores that are completely free; require has cores of which two threads at least are free;
// prefer fills cores too, and takes single threads for what is left.
func (c *chooser) pick(cell int, n int64) ([]int, bool) {
	free := map[core][]int{}
	for _, cpu := range c.freeIn(cell) {
		at := coreOf(c.host.cpus[cpu])
		free[at] = append(free[at], cpu)
	}
	for at, threads := range free {
		switch {
		case c.specs.threads == isolate && !c.unshared(at):
			delete(free, at)
		case c.specs.threads == isolate:
			free[at] = threads[:1]
		case c.specs.threads == require && len(threads) < 2:
			delete(free, at)
		}
	}
	var out []int
	for rest := int(min(n, int64(len(c.Machine.CPUs)+1))); rest > 0; {
		at, ok := fullest(free, rest)
		if !ok {
			return nil, false
		}
		k := min(rest, len(free[at]))
		out = append(out, free[at][:k]...)
		delete(free, at)
		rest -= k
	}
	return out, true
}

// unshared reports whether no other guest runs, or will run, on a core.
func (c *chooser) unshared(at core) bool {
	return !slices.ContainsFunc(c.processor.threads[at], func(cpu int) bool { return c.processor.taken[cpu] || c.processor.shared[cpu] })
}

// fullest is the core with the most free threads of those that are used up by what is wanted, or
// else the one that leaves the least over.
func fullest(free map[core][]int, want int) (core, bool) {
	before := func(a, b []int) bool {
		fitsA, fitsB := len(a) <= want, len(b) <= want
		switch {
		case fitsA != fitsB:
			return fitsA
		case len(a) != len(b):
			return len(a) > len(b) == fitsA
		}
		return a[0] < b[0]
	}
	var best core
	found := false
	for at, threads := range free {
		if !found || before(threads, free[best]) {
			best, found = at, true
		}
	}
	return best, found
}

// processors chooses where the virtual processors run, and gives each of the guest's cells its own.
func (c *chooser) processors(d *domain.Decision) error {
	n := int(c.Instance.Flavor.VCPUs)
	dedicated, floating := c.kinds(n)
	d.VCPUs = make([][]int, n)
	in := map[int][]int{} // virtual processors by the host's cell
	next := func(from *[]int, cell int, cpus []int) {
		vcpu := (*from)[0]
		*from, d.VCPUs[vcpu], in[cell] = (*from)[1:], cpus, append(in[cell], vcpu)
	}
	cells := slices.Sorted(maps.Keys(c.cells))
	home := c.mostDedicated(cells)
	for _, cell := range cells {
		g := c.cells[cell]
		picked, ok := c.pick(cell, g.pcpu)
		if !ok {
			return c.fault("it was granted %d PCPU, but fewer are free under its hw:cpu_thread_policy, %s", g.pcpu, c.specs.threads)
		}
		if c.specs.emulator == isolate && cell == home {
			last := len(picked) - 1
			picked, d.Emulator = picked[:last], picked[last:]
		}
		for _, cpu := range picked {
			next(&dedicated, cell, []int{cpu})
		}
		shared := c.sharedIn(cell)
		if g.vcpu > 0 && len(shared) == 0 {
			return c.fault("it was granted %d VCPU of a NUMA cell without shared processors", g.vcpu)
		}
		for range g.vcpu {
			next(&floating, cell, shared)
		}
	}
	shared := c.allShared()
	if c.root.vcpu > 0 && len(shared) == 0 {
		return c.fault("it was granted %d VCPU, but the host has no shared processors", c.root.vcpu)
	}
	for range c.root.vcpu {
		next(&floating, machine.NoCell, shared)
	}
	d.Isolated = c.specs.threads == isolate && home != machine.NoCell
	switch {
	case d.Emulator != nil:
	case c.specs.emulator == share && len(shared) > 0:
		d.Emulator = shared
	default:
		d.Emulator = union(d.VCPUs)
	}
	return c.members(d, in)
}

// mostDedicated is the cell in which the most dedicated processors are granted, or NoCell. The
// emulator's own is there.
func (c *chooser) mostDedicated(cells []int) int {
	out, most := machine.NoCell, int64(0)
	for _, cell := range cells {
		if c.cells[cell].pcpu > most {
			out, most = cell, c.cells[cell].pcpu
		}
	}
	return out
}

// kinds are the virtual processors that are dedicated and those that float. If the flavor does not
// say which, the first ones are dedicated.
func (c *chooser) kinds(n int) (dedicated, floating []int) {
	count := 0
	for _, g := range c.cells {
		count += int(g.pcpu)
	}
	if c.specs.emulator == isolate {
		count--
	}
	for vcpu := range n {
		is := vcpu < count
		if c.specs.dedicated != nil {
			is = slices.Contains(c.specs.dedicated, vcpu)
		}
		if is {
			dedicated = append(dedicated, vcpu)
		} else {
			floating = append(floating, vcpu)
		}
	}
	return dedicated, floating
}

// members gives the guest's cells their virtual processors: those that run in the same cell of the
// host. One that runs where the guest has no memory goes to the first.
func (c *chooser) members(d *domain.Decision, in map[int][]int) error {
	if len(d.Cells) == 0 {
		return nil
	}
	for i := range d.Cells {
		d.Cells[i].VCPUs = in[d.Cells[i].Host]
		delete(in, d.Cells[i].Host)
	}
	for _, rest := range in {
		d.Cells[0].VCPUs = append(d.Cells[0].VCPUs, rest...)
	}
	for i := range d.Cells {
		if len(d.Cells[i].VCPUs) == 0 {
			return c.fault("part of its memory was granted from a NUMA cell that grants it no processors")
		}
		slices.Sort(d.Cells[i].VCPUs)
	}
	return nil
}

func union(sets [][]int) []int {
	all := map[int]bool{}
	for _, set := range sets {
		for _, cpu := range set {
			all[cpu] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// minus are the numbers of a set that are not in the other.
func minus(set, not []int) []int {
	return slices.DeleteFunc(slices.Clone(set), func(n int) bool { return slices.Contains(not, n) })
}
