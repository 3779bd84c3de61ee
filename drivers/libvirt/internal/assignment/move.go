// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Policy decides about a consumer whose place is unknown, or does not fit it.
type Policy int

// The policies.
const (
	// Refuse makes it a violation.
	Refuse Policy = iota
	// Guess places its share where capacity is free.
	Guess
)

// MoveRequest is the input of [Move], which does not change it.
type MoveRequest struct {
	// Tree has the new inventory. Places that lose theirs may still have it.
	Tree *providertree.Tree
	// Root is the uuid of the node's root.
	Root string
	// Moving are the places that lose their inventory, and those of VCPU that keep some where PCPU
	// is new: those of inventory.Wanted.Moving.
	Moving []plugins.Place
	// Sites say what the driver's own providers stand for, by uuid. The class of one that has
	// devices may be left out: it is then the one that the provider has inventory of; VGPU if there
	// are several, or else the first of them.
	Sites   map[string]Provider
	Machine machine.Machine
	// Domains are all there are on the host, running or not.
	Domains []domain.Domain
	// Unread has the problem of each unreadable domain, by uuid. They are not among Domains.
	Unread map[string]string
	// Dedicated are the processors for PCPU.
	Dedicated []int
	// Rule is for guests that are bound to no NUMA cell and fit into none as a whole. With Guess
	// they are divided, whatever it says.
	Rule     Rule
	Unplaced Policy
	// Allocations are all that the consumers on the tree hold, also elsewhere.
	Allocations providertree.Allocations
}

// MoveResult is what becomes of the allocations.
type MoveResult struct {
	Allocations providertree.Allocations
	// Moves lead from the allocations of the request to these.
	Moves plugins.Moves
	// Renames are for [plugins.Renamer].
	Renames plugins.ClassRenames
	// Notes are for the operator: what was guessed, what stays, where a domain and Placement
	// disagree. Their number is bounded.
	Notes []string
}

// Move moves the allocations of the moving places to the new inventory. Amounts never change,
// whatever a domain has: if it holds more or less than its devices, all of it goes to the same
// provider. Allocations on other hosts' providers are ignored.
//
// A place keeps its allocations if no other provider has the class: the inventory stays until the
// last consumer is deleted. A consumer with only one possible place goes there, if it fits, even
// without a domain.
//
// With [Guess], only consumers of unknown place go where capacity is free, after all others.
//
// Errors: a [*plugins.ReshapeFailed] that lists every consumer that cannot be moved, with what can
// be done about each.
//
// Cost: see [Reshape]; with Guess twice or three times that, if there are consumers to guess for.
func Move(r MoveRequest) (MoveResult, error) {
	if r.Tree == nil || !r.Tree.Exists(r.Root) {
		return MoveResult{}, fmt.Errorf("the root %s is not in the tree", r.Root)
	}
	s := newRelocation(r)
	s.hideDrained()
	s.refuseUnread()
	s.refuseUnknown()
	plan := s.plan()
	s.violations = append(s.violations, s.explain(plan)...)
	if len(s.violations) > 0 {
		slices.SortFunc(s.violations, byConsumer)
		return MoveResult{},
			&plugins.ReshapeFailed{Reason: reason(s.violations), Violations: s.violations, Hint: s.generalHint()}
	}
	after, err := plan.Moves.Apply(r.Allocations)
	if err != nil {
		return MoveResult{}, fmt.Errorf("moving allocations with the inventory: %w", err)
	}
	return MoveResult{Allocations: after, Moves: plan.Moves, Renames: plan.Renames, Notes: s.notes(plan, after)}, nil
}

// rounds is how often a plan is repeated because of violations.
const rounds = 3

// plan makes a plan. With Guess it repeats it for the violations, which then go where capacity is
// free.
func (r *relocation) plan() Plan {
	reshape := Reshape{
		Machine: r.Machine, Domains: r.Domains, Allocations: r.seen, Tree: r.tree, Providers: r.providers,
		Pages: r.pages, Dedicated: r.Dedicated, Rule: r.Rule,
	}
	if r.Unplaced == Guess {
		reshape.Rule = Split
	}
	plan := reshape.Plan()
	for round := 1; round < rounds && r.Unplaced == Guess && len(plan.Violations) > 0; round++ {
		if !r.loosen(plan) && reshape.Guess {
			break // the first guess is made in any case: it can resolve a conflict of renames
		}
		reshape.Guess, reshape.Domains = true, r.loosened()
		plan = reshape.Plan()
	}
	return plan
}

// binding is what binds a consumer: its devices, or else its processors and memory.
type binding struct {
	consumer string
	devices  bool
}

// loosen removes a binding of each consumer with a violation, and reports whether it removed any:
// first that of the memory, then that of the processors. A consumer whose violation is only about a
// rename stays bound, because its place is known.
func (r *relocation) loosen(plan Plan) bool {
	more := false
	now := map[binding]bool{} // one consumer may have several violations
	for _, v := range plan.Violations {
		b := binding{v.Consumer, !r.computing(v.Class)}
		_, before := r.loose[b]
		switch {
		case now[b] || r.conflicting(plan, v):
		case !before:
			r.loose[b], now[b], more = r.problemOf(v.Consumer, v.Problem), true, true
		case !b.devices && !r.unpinned[v.Consumer]:
			r.unpinned[v.Consumer], more = true, true
		}
	}
	return more
}

// loosened are the domains without what binds those that are loose.
func (r *relocation) loosened() []domain.Domain {
	out := slices.Clone(r.Domains)
	for i := range out {
		if _, is := r.loose[binding{out[i].UUID, true}]; is {
			out[i].Mdevs, out[i].VGPUs, out[i].PCI, out[i].Security = nil, nil, nil, ""
		}
		if _, is := r.loose[binding{out[i].UUID, false}]; is {
			out[i].Memory, out[i].Cells = domain.NUMATune{}, nil
		}
		if r.unpinned[out[i].UUID] {
			out[i].Pins, out[i].CPUSet = nil, nil
		}
	}
	return out
}

// conflicting reports whether a violation's devices have a class that its allocations cannot get
// because of other renames.
func (r *relocation) conflicting(plan Plan, o plugins.Violation) bool {
	taken := false // its present class is a new name of others
	for _, to := range plan.Renames {
		taken = taken || to == o.Class
	}
	conflicts := func(uuid string) bool {
		class := r.providers[uuid].Class
		to, renamed := plan.Renames[o.Class]
		_, again := plan.Renames[class]
		return class != "" && class != o.Class && (taken || again || renamed && to != class)
	}
	if r.providers[o.Provider].Class != "" && conflicts(o.Provider) {
		return true
	}
	d := r.domains[o.Consumer]
	if d == nil || r.computing(o.Class) || o.Class == "MEM_ENCRYPTION_CONTEXT" {
		return false // its violation is not about a mediated device
	}
	for parent := range r.host.Facts(*d).Mdevs {
		if uuid, known := r.mdevParents[parent]; known && conflicts(uuid) {
			return true
		}
	}
	return false
}
