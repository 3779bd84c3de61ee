// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// maxNotes is how many consumers the notes name.
const maxNotes = 50

// maxUnread is how many consumers one note names.
const maxUnread = 10

func byPlace(a, b plugins.Place) int {
	return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Class, b.Class))
}

func byConsumer(a, b plugins.Violation) int {
	return cmp.Or(cmp.Compare(a.Consumer, b.Consumer),
		cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Problem, b.Problem))
}

// unknown are the violations for a consumer without a domain.
func (r *relocation) unknown(consumer string, places []plugins.Place, cells int) []plugins.Violation {
	slices.SortFunc(places, byPlace)
	out := make([]plugins.Violation, 0, len(places))
	for _, place := range places {
		problem := fmt.Sprintf("the host has no domain for it, so it is unknown which of the %d NUMA cells it uses",
			cells)
		out = append(out, plugins.Violation{Consumer: consumer, Provider: place.Provider, Class: place.Class,
			Problem: problem, Hint: r.hint(consumer, false)})
	}
	return out
}

// explain says of each violation what can be done.
func (r *relocation) explain(plan Plan) []plugins.Violation {
	out := make([]plugins.Violation, 0, len(plan.Violations))
	for _, v := range plan.Violations {
		if before, guessed := r.loose[binding{v.Consumer, !r.computing(v.Class)}]; guessed && before != v.Problem {
			v.Problem = before + "; and it fits nowhere else: " + v.Problem
		}
		v.Hint = r.hint(v.Consumer, r.conflicting(plan, v))
		out = append(out, v)
	}
	return out
}

// problemOf is the problem of a consumer without a domain, or that of its domain if it could not be
// read.
func (r *relocation) problemOf(consumer, problem string) string {
	if unread := r.Unread[consumer]; unread != "" {
		return unread
	}
	return problem
}

// hint is what an operator can do about a violation; conflict marks one about a rename. Equal
// violations have equal hints, which are then printed once.
func (r *relocation) hint(consumer string, conflict bool) string {
	switch {
	case conflict:
		return "first give the class to the devices of this guest alone, start the agent, and then change the others"
	case r.Unread[consumer] != "":
		return "inspect the domain with `virsh dumpxml CONSUMER`, and fix it with virsh edit"
	case r.domains[consumer] == nil:
		return "confirm or revert its migration, or wait until the guest has started; `openstack resource provider " +
			"allocation delete CONSUMER` removes a stale allocation"
	}
	return "migrate the guest away, or free capacity where it is"
}

// generalHint is the hint for all violations.
func (r *relocation) generalHint() string {
	const show = "`openstack resource provider allocation show CONSUMER` shows all that a consumer holds"
	if r.Unplaced == Guess {
		return show
	}
	return show + ". With unplaced_consumers = \"guess\" in the driver's configuration, they go where capacity is free"
}

// reason counts the consumers.
func reason(violations []plugins.Violation) string {
	consumers := map[string]bool{}
	for _, v := range violations {
		consumers[v.Consumer] = true
	}
	if len(consumers) == 1 {
		return "the allocations of 1 consumer cannot move with the inventory"
	}
	return fmt.Sprintf("the allocations of %d consumers cannot move with the inventory", len(consumers))
}

// notes says what an operator should know about a reshape that succeeds.
func (r *relocation) notes(plan Plan, after providertree.Allocations) []string {
	var out []string
	for _, place := range r.staying {
		holders := 0
		for _, consumer := range r.consumers {
			if after[consumer].Resources[place.Provider][place.Class] > 0 {
				holders++
			}
		}
		if holders > 0 {
			out = append(out,
				fmt.Sprintf(
					"%d consumers keep their %s on %s, because no other resource provider has inventory for them; "+
						"it is removed when they are deleted",
					holders, place.Class, r.name(place.Provider)))
		}
	}
	for _, place := range r.parts {
		if consumers := r.unlocated(place, after); len(consumers) > 0 {
			more := ""
			if len(consumers) > maxUnread {
				consumers, more = consumers[:maxUnread], fmt.Sprintf(" and %d more", len(consumers)-maxUnread)
			}
			out = append(out,
				fmt.Sprintf(
					"consumers without a readable domain keep their %s on %s, because it is unknown whether their "+
						"processors are dedicated: %s%s",
					place.Class, r.name(place.Provider), strings.Join(consumers, ", "), more))
		}
	}
	named, more := 0, 0
	for moves := range byOwner(plan.Moves) {
		for _, note := range r.notesOf(moves, after) {
			if named++; named > maxNotes {
				more++
				continue
			}
			out = append(out, note)
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more notes like these are left out; the reshape journal has every move",
			more))
	}
	return out
}

// unlocated are the consumers of a place that moves only in part, without a domain that shows their
// part.
func (r *relocation) unlocated(place plugins.Place, after providertree.Allocations) []string {
	return slices.DeleteFunc(slices.Clone(r.consumers), func(consumer string) bool {
		return r.domains[consumer] != nil || after[consumer].Resources[place.Provider][place.Class] == 0
	})
}

// byOwner takes moves apart by their consumers.
func byOwner(moves plugins.Moves) func(func(plugins.Moves) bool) {
	return func(yield func(plugins.Moves) bool) {
		for len(moves) > 0 {
			n := slices.IndexFunc(moves, func(m plugins.Move) bool { return m.Consumer != moves[0].Consumer })
			if n < 0 {
				n = len(moves)
			}
			if !yield(moves[:n]) {
				return
			}
			moves = moves[n:]
		}
	}
}

// notesOf are the notes about one consumer's moves.
func (r *relocation) notesOf(moves plugins.Moves, after providertree.Allocations) []string {
	consumer := moves[0].Consumer
	chosen := map[string][]string{} // by the reason
	mdevs := false
	for _, m := range moves {
		why, guessed := r.loose[binding{consumer, !r.computing(m.From.Class)}]
		if !guessed && r.domains[consumer] == nil && r.computing(m.From.Class) {
			why, guessed = r.problemOf(consumer, "the host has no domain for it"), true
		}
		if processors := m.To.Class == "VCPU" || m.To.Class == "PCPU"; processors &&
			r.domains[consumer] != nil && !r.unpinned[consumer] {
			guessed = false // these are where they are pinned
		}
		if guessed && m.From.Provider != m.To.Provider && r.choice(m.To) {
			chosen[why] = append(chosen[why],
				fmt.Sprintf("%d of %s to %s", m.Amount, m.To.Class, r.name(m.To.Provider)))
		}
		mdevs = mdevs || r.providers[m.To.Provider].Kind == MdevParent && !guessed
	}
	var out []string
	for _, why := range slices.Sorted(maps.Keys(chosen)) {
		out = append(out, fmt.Sprintf("consumer %s was placed where capacity is free, %s: %s",
			consumer, strings.Join(chosen[why], ", "), why))
	}
	if d := r.domains[consumer]; d != nil && mdevs {
		var held int64
		for provider, amounts := range after[consumer].Resources {
			if is := r.providers[provider]; is.Kind == MdevParent {
				held += amounts[is.Class]
			}
		}
		if has := len(d.Mdevs) + len(d.VGPUs); held != int64(has) {
			out = append(out,
				fmt.Sprintf("consumer %s holds %d mediated devices in Placement, and its domain has %d; Placement's "+
					"amount is kept", consumer, held, has))
		}
	}
	return out
}

// choice reports whether there was another place.
func (r *relocation) choice(to plugins.Place) bool {
	if r.computing(to.Class) {
		return r.sites(to.Class) > 1
	}
	n := 0
	for uuid, is := range r.providers {
		if _, has := r.tree.Inventory(uuid, is.Class); has && is.Kind == r.providers[to.Provider].Kind {
			n++
		}
	}
	return n > 1
}

func (r *relocation) name(uuid string) string {
	if at, there := r.Tree.Provider(uuid); there {
		return at.Name
	}
	return uuid
}
