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
	x := processorIndex{shared: map[int]bool{}, dedicated: map[int]bool{},
		threads: map[core][]int{}, taken: map[int]bool{}}
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
	return !slices.ContainsFunc(c.processor.threads[at],
		func(cpu int) bool { return c.processor.taken[cpu] || c.processor.shared[cpu] })
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
	d.VCPUs = make([][]int, c.Instance.Flavor.VCPUs)
	_, floating := c.kinds()
	for _, p := range c.parts {
		granted := p.needs()
		picked, ok := c.pick(p.host, granted.pcpu)
		if !ok {
			return c.fault("it was granted %d PCPU, but fewer are free under its hw:cpu_thread_policy, %s",
				granted.pcpu, c.specs.threads)
		}
		if p.emulator {
			last := len(picked) - 1
			picked, d.Emulator = picked[:last], picked[last:]
		}
		for i, vcpu := range p.dedicated {
			d.VCPUs[vcpu] = picked[i : i+1 : i+1]
		}
		d.Isolated = d.Isolated || c.specs.threads == isolate && granted.pcpu > 0
		shared := c.sharedIn(p.host)
		if len(p.floating) > 0 && len(shared) == 0 {
			return c.fault("it was granted %d VCPU of a NUMA cell without shared processors", granted.vcpu)
		}
		for _, vcpu := range p.floating {
			d.VCPUs[vcpu] = shared
		}
	}
	shared := c.allShared()
	if c.root.vcpu > 0 && len(shared) == 0 {
		return c.fault("it was granted %d VCPU, but the host has no shared processors", c.root.vcpu)
	}
	for _, vcpu := range floating {
		if d.VCPUs[vcpu] == nil { // of no cell
			d.VCPUs[vcpu] = shared
		}
	}
	switch {
	case d.Emulator != nil:
	case c.specs.emulator == share && len(shared) > 0:
		d.Emulator = shared
	default:
		d.Emulator = union(d.VCPUs)
	}
	return c.members(d)
}

// members gives the guest's cells their virtual processors: those of their part. Those of a part
// without memory, and of no part, go to the first.
func (c *chooser) members(d *domain.Decision) error {
	if len(d.Cells) == 0 {
		return nil
	}
	placed := map[int]bool{}
	cell := 0
	for _, p := range c.parts {
		if p.memoryMB == 0 {
			continue
		}
		own := slices.Concat(p.dedicated, p.floating)
		for _, vcpu := range own {
			placed[vcpu] = true
		}
		d.Cells[cell].VCPUs = own
		cell++
	}
	for vcpu := range d.VCPUs {
		if !placed[vcpu] {
			d.Cells[0].VCPUs = append(d.Cells[0].VCPUs, vcpu)
		}
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
