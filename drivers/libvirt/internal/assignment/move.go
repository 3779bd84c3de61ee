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

// Policy says what becomes of a consumer of which nobody can tell where its share is, or that has no room where it is.
type Policy int

// The policies.
const (
	// Refuse makes it an offender.
	Refuse Policy = iota
	// Guess puts its share where there is room.
	Guess
)

// MoveRequest is what there is, and what is to leave its place. Nothing of it is changed.
type MoveRequest struct {
	// Tree has the inventory as it is to be. Places that lose theirs may still have it.
	Tree *providertree.Tree
	// Root is the uuid of the node's root.
	Root string
	// Leaving are the places that lose their inventory, and those of VCPU that keep some where PCPU comes: those of inventory.Wanted.Leaving.
	Leaving []plugins.Place
	// Sites say what the driver's own providers stand for, by uuid. The class of one that has devices may be left out: it is then the one that the
	// provider has inventory of; VGPU if there are several, or else the first of them.
	Sites   map[string]Provider
	Machine machine.Machine
	// Domains are all there are on the host, running or not.
	Domains []domain.Domain
	// Unread are domains of which is known only that they are there, by uuid: what is wrong with each. They are not among Domains.
	Unread map[string]string
	// Dedicated are the processors that PCPUs are made of.
	Dedicated []int
	// Rule is for guests that are bound to no NUMA cell and fit into none as a whole. With Guess they are divided, whatever it says.
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
	// Notes are for the operator: what was guessed, what stays, where a domain and Placement disagree. There are not very many of them, however
	// many consumers there are.
	Notes []string
}

// Move moves what is allocated at the leaving places to where the inventory is. Amounts are Placement's and stay as they are, whatever a domain
// has: what it holds more, or less, than it has devices goes to the same provider. What is allocated on providers that are not of the host is
// neither touched nor looked at.
//
// A place of which no other provider has the class keeps what is allocated there: nothing is gained by an error, and the inventory can be kept
// until the last consumer is gone. A consumer for which there is one place only goes there, if it has room, even if it has no domain.
//
// By [Guess] only those go by room that cannot be told, and the others before them.
//
// Errors: a [*plugins.ReshapeFailed] that lists every consumer that cannot be moved, with what can be done about each.
//
// Cost: see [Reshape]; with Guess twice or three times that, if there are consumers to guess for.
func Move(r MoveRequest) (MoveResult, error) {
	if r.Tree == nil || !r.Tree.Exists(r.Root) {
		return MoveResult{}, fmt.Errorf("the root %s is not in the tree of which allocations are to be moved", r.Root)
	}
	s := newRelocation(r)
	s.lookAside()
	s.refuseUnread()
	s.refuseUnknown()
	plan := s.plan()
	s.offenders = append(s.offenders, s.explain(plan)...)
	if len(s.offenders) > 0 {
		slices.SortFunc(s.offenders, byConsumer)
		return MoveResult{}, &plugins.ReshapeFailed{Reason: reason(s.offenders), Offenders: s.offenders, Remedy: s.remedies()}
	}
	after, err := plan.Moves.Apply(r.Allocations)
	if err != nil {
		return MoveResult{}, fmt.Errorf("moving allocations to where the inventory goes: %w", err)
	}
	return MoveResult{Allocations: after, Moves: plan.Moves, Renames: plan.Renames, Notes: s.notes(plan, after)}, nil
}

// rounds is how often a plan is made for those that offended against the one before.
const rounds = 3

// plan makes a plan. When guessing, it asks again for those that cannot be told or have no room where they are: these go where there is room.
func (s *relocation) plan() Plan {
	reshape := Reshape{
		Machine: s.Machine, Domains: s.Domains, Allocations: s.seen, Tree: s.tree, Providers: s.providers, Pages: s.pages, Dedicated: s.Dedicated, Rule: s.Rule,
	}
	if s.Unplaced == Guess {
		reshape.Rule = Split
	}
	plan := reshape.Plan()
	for round := 1; round < rounds && s.Unplaced == Guess && len(plan.Offenders) > 0; round++ {
		if !s.loosen(plan) && reshape.Guess {
			break // the first guess is made even if nobody is loose: it can settle a conflict of renames
		}
		reshape.Guess, reshape.Domains = true, s.loosened()
		plan = reshape.Plan()
	}
	return plan
}

// bond is what binds a consumer: its devices, or else its processors and memory.
type bond struct {
	consumer string
	devices  bool
}

// loosen notes the offenders, and tells whether there is anything left that binds them. First it is the memory that may be elsewhere, and only
// then the processors. One whose only fault is a rename that cannot be declared stays bound: everybody knows where it is.
func (s *relocation) loosen(plan Plan) bool {
	more := false
	fresh := map[bond]bool{} // one consumer may offend in several places
	for _, o := range plan.Offenders {
		b := bond{o.Consumer, !s.computing(o.Class)}
		_, before := s.loose[b]
		switch {
		case fresh[b] || s.conflicting(plan, o):
		case !before:
			s.loose[b], fresh[b], more = s.truly(o.Consumer, o.Problem), true, true
		case !b.devices && !s.unpinned[o.Consumer]:
			s.unpinned[o.Consumer], more = true, true
		}
	}
	return more
}

// loosened are the domains without what binds those that are loose.
func (s *relocation) loosened() []domain.Domain {
	out := slices.Clone(s.Domains)
	for i := range out {
		if _, is := s.loose[bond{out[i].UUID, true}]; is {
			out[i].Mdevs, out[i].PCI, out[i].Security = nil, nil, ""
		}
		if _, is := s.loose[bond{out[i].UUID, false}]; is {
			out[i].Memory, out[i].Cells = domain.NUMATune{}, nil
		}
		if s.unpinned[out[i].UUID] {
			out[i].Pins, out[i].CPUSet = nil, nil
		}
	}
	return out
}

// conflicting tells whether an offender's devices have a class that its allocations cannot be called, because of the renames of others.
func (s *relocation) conflicting(plan Plan, o plugins.Offender) bool {
	taken := false // its present class is a new name of others
	for _, to := range plan.Renames {
		taken = taken || to == o.Class
	}
	cannot := func(uuid string) bool {
		class := s.providers[uuid].Class
		to, renamed := plan.Renames[o.Class]
		_, again := plan.Renames[class]
		return class != "" && class != o.Class && (taken || again || renamed && to != class)
	}
	if s.providers[o.Provider].Class != "" && cannot(o.Provider) {
		return true
	}
	d := s.domains[o.Consumer]
	if d == nil || s.computing(o.Class) || o.Class == "MEM_ENCRYPTION_CONTEXT" {
		return false // what it offends with is no mediated device
	}
	for parent := range s.host.Facts(*d).Mdevs {
		if uuid, known := s.makers[parent]; known && cannot(uuid) {
			return true
		}
	}
	return false
}
