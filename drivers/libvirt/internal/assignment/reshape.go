// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Reshape is a change of layout: the allocations on the old tree, and the new tree.
type Reshape struct {
	Machine machine.Machine
	// Domains are all there are on the host, running or not.
	Domains []domain.Domain
	// Allocations are all that consumers of the tree hold, also of providers elsewhere.
	Allocations providertree.Allocations
	// Tree has the new inventories.
	Tree *providertree.Tree
	// Providers say what the driver's own stand for, those of the old and of the new layout, by
	// uuid. What is allocated of others is not touched, whichever host they are of.
	Providers map[string]Provider
	// Pages are the sizes in KiB of the huge pages that resource classes stand for, by class.
	Pages map[string]uint64
	// Dedicated are the processors for PCPU.
	Dedicated []int
	// Rule is for guests that may be in several NUMA cells and fit into none as a whole.
	Rule Rule
	// Guess places devices of unknown place where capacity is free, after all others. Without it
	// their consumers are violations.
	Guess bool
}

// Plan is the result of a [Reshape].
type Plan struct {
	// Moves can all be made, in their order.
	Moves plugins.Moves
	// Renames are what [plugins.Renamer] must declare if they are carried out.
	Renames plugins.ClassRenames
	// Violations are consumers with allocations that should move and cannot. A driver fails with
	// them ([plugins.ReshapeFailed]), or keeps the old inventory.
	Violations []plugins.Violation
}

// Plan says which allocations move where.
//
// What moves is what is allocated where the tree has no inventory of it any more, and VCPU of
// guests with dedicated processors, once there is PCPU: the share of the virtual processors that
// are pinned to a single processor of Dedicated. Everything else stays. The destinations:
//
//   - Processors, memory and huge pages go to the NUMA cells or to the root, whichever has
//     inventory: to the cells that the domain is bound to ([Host.Facts]), and what is bound to none
//     by the rules of [Place]. Consumers without a domain are bound to nothing.
//   - Mediated and PCI devices go to the providers of the devices that the domain has; an
//     encryption context goes to that of the domain's kind. Or they stay, and take the present
//     class of their provider.
//   - If there is no domain, or the amount is not the number of its devices and these are not all
//     of one provider, they go to the only possible provider; or, with Guess, where capacity is
//     free.
//   - All other classes go to the only provider that has inventory of it.
//
// No provider gets more than its capacity, or more for one consumer than max_unit and the like
// allow: that is a violation, as is a rename that [plugins.ClassRenames] cannot express. Processors
// and memory of a consumer move together or not at all, as do its mediated devices, and so on.
//
// The order of what there is decides nothing. Once the moves are made there is nothing more to
// move, except what the violations have.
//
// Cost: that of [Host.Facts] and of [Place], O(allocations) besides. If guests with dedicated
// processors are violations, once more.
func (r Reshape) Plan() Plan {
	stay := map[string][]plugins.Violation{}
	for {
		p := r.plan(stay)
		if !p.keepViolations() {
			return p.result()
		}
	}
}

// holding identifies the amount of a consumer in a place.
type holding struct {
	consumer string
	place    plugins.Place
}

// claim is what a consumer holds of a class in a place and is to move.
type claim struct {
	holding
	// class is its new class, as far as it is known before its place is.
	class  string
	amount int64
}

// resourceKind is what can be placed together: processors and memory (Root), devices of a Kind, or
// else a class (Elsewhere).
type resourceKind struct {
	kind  Kind
	class string
}

// planner is a plan in the making.
type planner struct {
	Reshape
	host    *Host
	domains map[string]domain.Domain
	// own are the uuids of Providers, in order.
	own       []string
	dedicated map[int]bool
	// stay are the consumers whose processors and memory cannot move: their capacity is not free.
	stay map[string][]plugins.Violation
	// held is what is in its final place, used the sum of it.
	held       map[holding]int64
	used       map[plugins.Place]int64
	moves      plugins.Moves
	violations []plugins.Violation
	stuck      []claim // of the violations
}

// plan makes a plan, given whose processors and memory are known to stay.
func (r Reshape) plan(stay map[string][]plugins.Violation) *planner {
	p := r.planner(stay)
	claims := map[resourceKind]map[string][]claim{} // by consumer
	for _, l := range p.claims() {
		what := p.kindOf(l)
		if claims[what] == nil {
			claims[what] = map[string][]claim{}
		}
		claims[what][l.consumer] = append(claims[what][l.consumer], l)
	}
	order := func(a, b resourceKind) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.class, b.class)) }
	for _, what := range slices.SortedFunc(maps.Keys(claims), order) {
		switch what.kind {
		case Root:
			p.computing(claims[what])
		case Elsewhere:
			p.placeOthers(what.class, claims[what])
		default:
			p.devices(what.kind, claims[what])
		}
	}
	return p
}

// planner is one that has planned nothing.
func (r Reshape) planner(stay map[string][]plugins.Violation) *planner {
	p := &planner{
		Reshape: r, host: NewHost(r.Machine), domains: make(map[string]domain.Domain, len(r.Domains)),
		own:       slices.Sorted(maps.Keys(r.Providers)),
		dedicated: make(map[int]bool, len(r.Dedicated)),
		stay:      stay, held: map[holding]int64{}, used: map[plugins.Place]int64{},
	}
	p.own = slices.DeleteFunc(p.own, func(uuid string) bool { return p.Providers[uuid].Kind == Elsewhere })
	for _, d := range r.Domains {
		p.domains[d.UUID] = d
	}
	for _, cpu := range r.Dedicated {
		p.dedicated[cpu] = true
	}
	return p
}

// claims returns the amounts that have to move. It adds those that stay to the used amounts.
func (p *planner) claims() []claim {
	var out []claim
	pcpu := p.anyPCPU(p.Tree)
	for _, consumer := range slices.Sorted(maps.Keys(p.Allocations)) {
		resources, become, problem := p.Allocations[consumer].Resources, int64(0), ""
		if pcpu {
			become, problem = p.becomePCPU(consumer, resources)
		}
		var mine []claim
		for _, provider := range slices.Sorted(maps.Keys(resources)) {
			is, known := p.Providers[provider]
			ours := known && is.Kind != Elsewhere
			for _, class := range slices.Sorted(maps.Keys(resources[provider])) {
				at, amount := holding{consumer, plugins.Place{Provider: provider, Class: class}},
					resources[provider][class]
				if n := min(become, amount); ours && class == "VCPU" && n > 0 {
					mine = append(mine, claim{at, "PCPU", n})
					become, amount = become-n, amount-n
				}
				switch {
				case amount < 1:
				case ours && !p.has(at.place):
					mine = append(mine, claim{at, class, amount})
				default:
					p.hold(at, amount)
				}
			}
		}
		if problem != "" {
			p.stay[consumer] = p.violationsOf(slices.DeleteFunc(slices.Clone(mine),
				func(l claim) bool { return !p.isComputing(l.class) }), problem)
		}
		for _, l := range mine {
			if p.stay[consumer] != nil && p.isComputing(l.class) {
				p.hold(l.holding, l.amount)
			} else {
				out = append(out, l)
			}
		}
	}
	return out
}

func (p *planner) has(at plugins.Place) bool {
	_, there := p.Tree.Inventory(at.Provider, at.Class)
	return there
}

func (p *planner) hold(at holding, amount int64) {
	p.held[at] += amount
	p.used[at.place] += amount
}

// becomePCPU is how much of a consumer's VCPU on our providers becomes PCPU, or why that is
// unknown, with all of it.
func (p *planner) becomePCPU(consumer string, resources providertree.ProviderResources) (amount int64, problem string) {
	var vcpu int64
	for _, provider := range p.own {
		if resources[provider]["PCPU"] > 0 { // they are already separate
			return 0, ""
		}
		vcpu += resources[provider]["VCPU"]
	}
	d := p.domains[consumer]
	switch dedicated := p.dedicatedOf(d); {
	case dedicated == 0 || vcpu == 0:
		return 0, ""
	case dedicated == d.VCPUs:
		return vcpu, ""
	case vcpu == int64(d.VCPUs):
		return int64(dedicated), ""
	}
	return vcpu, fmt.Sprintf(
		"%d of its %d virtual processors are dedicated, and it holds %d of VCPU: it is unknown how many of these are "+
			"PCPU; resize or rebuild it, so that both agree", p.dedicatedOf(d), d.VCPUs, vcpu)
}

// dedicatedOf is how many virtual processors of a domain are pinned to a dedicated one each.
func (p *planner) dedicatedOf(d domain.Domain) int {
	n := 0
	for i := range d.VCPUs {
		if set := d.CPUs(i); len(set) == 1 && p.dedicated[set[0]] {
			n++
		}
	}
	return n
}

// anyPCPU reports whether there is PCPU in a tree, of ours.
func (p *planner) anyPCPU(tree *providertree.Tree) bool {
	return slices.ContainsFunc(p.own, func(uuid string) bool {
		_, there := tree.Inventory(uuid, "PCPU")
		return there
	})
}

func (p *planner) isComputing(class string) bool {
	_, pages := p.Pages[class]
	return pages || class == "VCPU" || class == "PCPU" || class == "MEMORY_MB"
}

func (p *planner) kindOf(l claim) resourceKind {
	if p.isComputing(l.class) {
		return resourceKind{kind: Root}
	}
	switch kind := p.Providers[l.place.Provider].Kind; {
	case kind == MdevParent || kind == PCI || kind == Encryption:
		return resourceKind{kind: kind}
	case l.class == "MEM_ENCRYPTION_CONTEXT":
		return resourceKind{kind: Encryption}
	case l.class == "VGPU":
		return resourceKind{kind: MdevParent}
	}
	for _, uuid := range p.own {
		if is := p.Providers[uuid]; is.Class == l.class && p.has(plugins.Place{Provider: uuid, Class: is.Class}) {
			return resourceKind{kind: is.Kind}
		}
	}
	return resourceKind{kind: Elsewhere, class: l.class}
}

// violationsOf makes violations of claims that cannot move.
func (p *planner) violationsOf(claims []claim, problem string) []plugins.Violation {
	var out []plugins.Violation
	for _, l := range claims {
		o := plugins.Violation{Consumer: l.consumer, Provider: l.place.Provider, Class: l.place.Class, Problem: problem}
		if !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out
}

func (p *planner) addViolation(claims []claim, problem string) {
	p.violations = append(p.violations, p.violationsOf(claims, problem)...)
	p.stuck = append(p.stuck, claims...)
}

// keepViolations reports whether consumers with a violation keep capacity that others were given.
func (p *planner) keepViolations() bool {
	for _, l := range p.stuck {
		if p.has(l.place) {
			own := slices.DeleteFunc(slices.Clone(p.violations), func(v plugins.Violation) bool {
				return v.Consumer != l.consumer || !p.isComputing(v.Class)
			})
			p.stay[l.consumer] = own
		}
	}
	return slices.ContainsFunc(p.stuck, func(l claim) bool { return p.has(l.place) })
}

// result takes out what cannot be declared, and sorts.
func (p *planner) result() Plan {
	out := Plan{Violations: p.violations}
	for _, consumer := range slices.Sorted(maps.Keys(p.stay)) {
		out.Violations = append(out.Violations, p.stay[consumer]...)
	}
	byPlace := func(a, b plugins.Place) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Class, b.Class))
	}
	slices.SortFunc(p.moves, func(a, b plugins.Move) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), byPlace(a.From, b.From), byPlace(a.To, b.To))
	})
	former := map[string]bool{} // classes that others become
	for _, m := range p.moves {
		from, to := m.From.Class, m.To.Class
		if from != to {
			_, again := out.Renames[to]
			other, before := out.Renames[from]
			if again || former[from] || before && other != to {
				out.Violations = append(out.Violations, plugins.Violation{
					Consumer: m.Consumer, Provider: m.From.Provider, Class: from,
					Problem: fmt.Sprintf(
						"it would hold %s instead, but one reshape can rename a class only once; change the classes "+
							"one at a time", to),
				})
				continue
			}
			if out.Renames == nil {
				out.Renames = plugins.ClassRenames{}
			}
			out.Renames[from], former[to] = to, true
		}
		out.Moves = append(out.Moves, m)
	}
	slices.SortFunc(out.Violations, func(a, b plugins.Violation) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer),
			cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Problem, b.Problem))
	})
	return out
}
