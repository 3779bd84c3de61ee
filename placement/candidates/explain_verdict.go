// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"fmt"
	"slices"
	"strings"
)

// verdict sums an explanation up.
func (e *explainer) verdict(out *Explanation) string {
	text := e.unknownNames()
	if out.Incomplete {
		text += fmt.Sprintf("There are too many trees and conditions: only %s were evaluated. ",
			ofTrees(e.trees, e.s.TreeCount()))
	}
	switch last := out.Trees[len(out.Trees)-1]; {
	case e.trees == 0:
		text += "There are no resource providers."
	case out.Candidates > 0:
		text += e.foundVerdict(out, last.Trees)
	default:
		text += "No candidates. " + e.nothingVerdict(out)
	}
	return text
}

// unknownNames lists the names of the request that do not exist.
func (e *explainer) unknownNames() string {
	var names []string
	add := func(what, name string, known bool) {
		if !known && !slices.Contains(names, what+name) {
			names = append(names, what+name)
		}
	}
	trait := func(name string) { _, ok := e.s.Trait(name); add("trait ", name, ok) }
	for i := range e.r.Groups {
		g := &e.r.Groups[i]
		for _, r := range g.Resources {
			_, ok := e.s.Class(r.Class)
			add("resource class ", r.Class, ok)
		}
		for _, name := range slices.Concat(slices.Concat(g.Required...), g.Forbidden) {
			trait(name)
		}
	}
	for _, name := range slices.Concat(e.r.Root.Required, e.r.Root.Forbidden) {
		trait(name)
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("There is no %s: GET /allocation_candidates answers 400 if it gets that far. ",
		strings.Join(names, ", no "))
}

// foundVerdict is the verdict for a request with candidates.
func (e *explainer) foundVerdict(out *Explanation, trees int) string {
	n := fmt.Sprint(out.Candidates)
	if out.MoreCandidates {
		n = "More than " + n
	}
	text := fmt.Sprintf("%s candidate%s in %s.", n, plural(out.Candidates), ofTrees(trees, e.trees))
	scarce := 0
	for i := range e.parts {
		if e.treesServing(i) < e.treesServing(scarce) {
			scarce = i
		}
	}
	if e.treesServing(scarce) < e.trees {
		text += fmt.Sprintf(" The scarcest is %s: %s can serve it.",
			e.parts[scarce].name(), ofTrees(e.treesServing(scarce), e.trees))
	}
	return text
}

// treesServing is how many trees have a provider for a part.
func (e *explainer) treesServing(part int) int {
	return e.parts[part].trees[len(e.parts[part].conditions)]
}

// nothingVerdict is the verdict for a request without candidates: the first step that left nothing,
// and the nearest miss.
func (e *explainer) nothingVerdict(out *Explanation) string {
	var hopeless []string
	for i := range e.parts {
		if e.treesServing(i) == 0 && len(hopeless) < 3 {
			hopeless = append(hopeless, e.unservedReason(&e.parts[i], &out.Groups[i]))
		}
	}
	if len(hopeless) > 0 {
		return strings.Join(hopeless, " ")
	}
	at := slices.IndexFunc(out.Trees, func(s TreeStep) bool { return s.Trees == 0 })
	if at < 1 {
		return "There are some, but the search reached its limit of steps before it found them." // Trees are left.
	}
	step, before := out.Trees[at], out.Trees[at-1].Trees
	switch step.Kind {
	case StepRootRequired, StepRootForbidden, StepRootMemberOf, StepRootNotMemberOf:
		return fmt.Sprintf("%d roots are left, and for none of them %s.", before, step.Condition)
	case StepGroup:
		return e.nearest()
	case StepRequired:
		return fmt.Sprintf("%s a provider for each group, but in none %s.", haveTrees(before), step.Condition)
	case StepUndecided:
		return fmt.Sprintf("Deciding for %s would take too many steps.", countTrees(before))
	}
	// The rules for all groups together: how many trees each of them excludes.
	first := slices.IndexFunc(out.Trees, func(s TreeStep) bool { return s.Kind == StepRoom })
	var why []string
	for _, s := range out.Trees[first:] {
		if s.Removed > 0 {
			why = append(why, fmt.Sprintf("%d fail%s the rule %q", s.Removed, singular(s.Removed), s.Condition))
		}
	}
	return fmt.Sprintf("%s a provider for each group, but none has all at once: %s.",
		haveTrees(out.Trees[first-1].Trees), strings.Join(why, ", "))
}

// unservedReason names the condition that excludes the last providers of a part.
func (e *explainer) unservedReason(x *explained, g *GroupExplanation) string {
	before := 0
	for i, s := range g.Steps {
		if s.Providers > 0 {
			before = s.Providers
			continue
		}
		if i == 0 {
			return fmt.Sprintf("Nothing serves %s: no provider %s.", x.name(), s.Condition)
		}
		text := fmt.Sprintf("Nothing serves %s: of %d provider%s that meet%s all before, none %s",
			x.name(), before, plural(before), singular(before), s.Condition)
		if s.Note != "" {
			text += " (" + s.Note + ")"
		}
		return text + "."
	}
	return fmt.Sprintf("Nothing serves %s.", x.name())
}

// nearest describes the trees that lack the least.
func (e *explainer) nearest() string {
	best := 0
	for i := range e.onlyMissing {
		if e.onlyMissing[i].trees > e.onlyMissing[best].trees {
			best = i
		}
	}
	m, x := e.onlyMissing[best], &e.parts[best]
	if m.trees == 0 {
		return "Each group has providers, but no tree has one for each, and each tree that meets the conditions on " +
			"roots lacks those of several groups."
	}
	text := fmt.Sprintf(
		"Each group has providers, but no tree has one for each. The nearest miss: %s serve%s all but %s.",
		ofTrees(m.trees, e.trees), singular(m.trees), x.name())
	// The conditions that come last are the nearest.
	var falls []string
	for i, n := range slices.Backward(m.failedAt) {
		if n == m.trees {
			return text + fmt.Sprintf(" There (such as in %s), no provider %s.", m.example[i], x.conditions[i].text)
		}
		if n > 0 && len(falls) < 3 {
			falls = append(falls, fmt.Sprintf("in %d (such as %s) no provider %s",
				n, m.example[i], x.conditions[i].text))
		}
	}
	return text + " Of these, " + strings.Join(falls, ", ") + "."
}

// name is the name of a part for users.
func (e *explained) name() string {
	var amounts []string
	for _, r := range e.resources {
		amounts = append(amounts, fmt.Sprintf("%s:%d", r.Class, r.Amount))
	}
	name := "group " + e.group.Suffix
	if e.group.Suffix == "" {
		name = "the unsuffixed group"
	}
	if len(amounts) > 0 {
		name += " (" + strings.Join(amounts, ", ") + ")"
	}
	return name
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// singular is the ending of a verb of which n are the subject.
func singular(n int) string {
	if n == 1 {
		return "s"
	}
	return ""
}

func countTrees(n int) string { return fmt.Sprintf("%d tree%s", n, plural(n)) }

func haveTrees(n int) string {
	if n == 1 {
		return "1 tree has"
	}
	return countTrees(n) + " have"
}

func ofTrees(n, all int) string { return fmt.Sprintf("%d of %s", n, countTrees(all)) }
