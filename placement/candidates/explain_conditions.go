// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// conditions returns the conditions on a provider for a part of a group, in the order in which they
// are explained: its inventory, its free amounts, then its traits, aggregates and tree.
func (e *explainer) conditions(g *Group, resources []Resource) []condition {
	var list []condition
	add := func(kind StepKind, text string, met func(p, root *ledger.Provider, external bool) bool) {
		list = append(list, condition{kind: kind, text: text, met: met})
	}
	whole := g.Suffix != "" || len(resources) == 0 // one provider serves the group
	list = append(list, e.inventoryCondition(g, resources))
	for _, r := range resources {
		list = append(list, unitsCondition(r), freeCondition(r))
	}
	if whole {
		for _, set := range g.Required {
			add(StepRequired, "has "+e.traitText(set),
				func(p, _ *ledger.Provider, _ bool) bool { return hasOne(p.HasTrait, set) })
		}
	}
	for _, trait := range g.Forbidden {
		add(StepForbidden, "lacks "+e.traitText([]string{trait}),
			func(p, _ *ledger.Provider, _ bool) bool { return !p.HasTrait(trait) })
	}
	for i, set := range g.MemberOf {
		text := "is in " + aggregateText(set)
		if g.Suffix != "" {
			add(StepMemberOf, text, func(p, _ *ledger.Provider, _ bool) bool { return hasOne(p.InAggregate, set) })
			continue
		}
		// The provider itself, or else the root, has to be in one of each set: what the first set
		// leaves must be asked again.
		sets := g.MemberOf[:i+1]
		add(StepMemberOf, text+", or its root is", func(p, root *ledger.Provider, external bool) bool {
			return inEach(p, sets) || !external && inEach(root, sets)
		})
	}
	if not := g.NotMemberOf; len(not) > 0 {
		text := "is not in " + aggregateText(not)
		if g.Suffix == "" {
			text += ", nor its root"
		}
		add(StepNotMemberOf, text, func(p, root *ledger.Provider, _ bool) bool {
			return !hasOne(p.InAggregate, not) && (g.Suffix != "" || !hasOne(root.InAggregate, not))
		})
	}
	if g.InTree != "" {
		list = append(list, e.inTreeCondition(g))
	}
	if len(resources) == 0 && len(g.Required) == 0 && len(g.MemberOf) == 0 && !e.r.Resourceless {
		list = append(list,
			condition{kind: StepNothingAsked, text: "is asked for by a resource class, a trait or an aggregate",
				met: func(_, _ *ledger.Provider, _ bool) bool { return false },
				note: func() string {
					return "as in Placement, a group without resources matches nothing when it only forbids traits " +
						"or aggregates, or only has in_tree: give it a required trait or a member_of, or request " +
						"the extension resourceless"
				}})
	}
	return list
}

// inventoryCondition requires an inventory of each class.
func (e *explainer) inventoryCondition(g *Group, resources []Resource) condition {
	if g.Suffix == "" && len(resources) == 0 {
		return condition{kind: StepInventory, text: "is of the tree itself",
			met: func(_, _ *ledger.Provider, external bool) bool { return !external }}
	}
	if len(resources) == 0 {
		return condition{kind: StepInventory, text: "all providers",
			met: func(_, _ *ledger.Provider, _ bool) bool { return true }}
	}
	var names []string
	for _, r := range resources {
		name := r.Class
		if _, ok := e.s.Class(name); !ok {
			name += " (there is no such resource class)"
		}
		names = append(names, name)
	}
	return condition{kind: StepInventory, text: "has an inventory of " + strings.Join(names, " and "),
		met: func(p, _ *ledger.Provider, _ bool) bool {
			for _, r := range resources {
				if _, ok := p.Inventory(r.Class); !ok {
					return false
				}
			}
			return true
		}}
}

// unitsCondition requires that the amount fits min_unit, max_unit and step_size.
func unitsCondition(r Resource) condition {
	broken := map[providertree.Rule]bool{}
	return condition{
		kind: StepUnits, text: fmt.Sprintf("gives %d %s in one piece", r.Amount, r.Class),
		met: func(p, _ *ledger.Provider, _ bool) bool {
			inv, _ := p.Inventory(r.Class)
			rule := inv.Limits().BrokenUnit(r.Amount)
			if rule != providertree.RuleNone {
				broken[rule] = true
			}
			return rule == providertree.RuleNone
		},
		note: func() string {
			var why []string
			for rule, text := range [...]string{
				providertree.RuleMinUnit: "min_unit is larger", providertree.RuleMaxUnit: "max_unit is smaller",
				providertree.RuleStepSize: "step_size does not divide it",
			} {
				if text != "" && broken[providertree.Rule(rule)] {
					why = append(why, text)
				}
			}
			return strings.Join(why, "; ")
		},
	}
}

// freeCondition requires that at least the amount is free.
func freeCondition(r Resource) condition {
	most := int64(0)
	return condition{
		kind: StepFree, text: fmt.Sprintf("has %d %s free", r.Amount, r.Class), class: r.Class,
		met: func(p, _ *ledger.Provider, _ bool) bool {
			inv, _ := p.Inventory(r.Class)
			free := inv.Limits().Free(p.Used(inv.ClassID()))
			if free >= r.Amount {
				return true
			}
			most = max(most, free)
			return false
		},
		note: func() string { return fmt.Sprintf("the largest free amount of the others is %d", most) },
	}
}

// inTreeCondition requires that the provider is in the tree of InTree. As in Placement, a group
// without resources requires only that the provider InTree exists.
func (e *explainer) inTreeCondition(g *Group) condition {
	c := condition{kind: StepInTree, text: "is in the tree of " + g.InTree}
	p, ok := e.s.Provider(g.InTree)
	if !ok {
		c.text += " (there is no such provider)"
		c.met = func(_, _ *ledger.Provider, _ bool) bool { return false }
		return c
	}
	if len(g.Resources) == 0 && !e.r.Resourceless {
		c.text += " (any tree will do for a group without resources)"
		c.met = func(_, _ *ledger.Provider, _ bool) bool { return true }
		return c
	}
	root := p.Root
	c.met = func(p, _ *ledger.Provider, external bool) bool {
		return p.Root == root && (g.Suffix != "" || !external)
	}
	return c
}

// rootConditions returns the conditions of root_required and root_member_of.
func (e *explainer) rootConditions() []rootCondition {
	var list []rootCondition
	add := func(kind StepKind, text string, met func(*ledger.Provider) bool) {
		list = append(list, rootCondition{kind, text, met})
	}
	c := &e.r.Root
	for _, trait := range c.Required {
		add(StepRootRequired, "the root has "+e.traitText([]string{trait}),
			func(root *ledger.Provider) bool { return root.HasTrait(trait) })
	}
	for _, trait := range c.Forbidden {
		add(StepRootForbidden, "the root lacks "+e.traitText([]string{trait}),
			func(root *ledger.Provider) bool { return !root.HasTrait(trait) })
	}
	for _, set := range c.MemberOf {
		add(StepRootMemberOf, "the root is in "+aggregateText(set),
			func(root *ledger.Provider) bool { return hasOne(root.InAggregate, set) })
	}
	if not := c.NotMemberOf; len(not) > 0 {
		add(StepRootNotMemberOf, "the root is not in "+aggregateText(not),
			func(root *ledger.Provider) bool { return !hasOne(root.InAggregate, not) })
	}
	return list
}

// traitText names a set of traits of which one is asked for.
func (e *explainer) traitText(set []string) string {
	names := slices.Clone(set)
	for i, name := range names {
		if _, ok := e.s.Trait(name); !ok {
			names[i] += " (there is no such trait)"
		}
	}
	if len(names) == 1 {
		return "trait " + names[0]
	}
	return "one of the traits " + strings.Join(names, ", ")
}

// aggregateText names a set of aggregates.
func aggregateText(set []string) string {
	if len(set) == 1 {
		return "aggregate " + set[0]
	}
	return "one of the aggregates " + strings.Join(set, ", ")
}

func hasOne(has func(string) bool, names []string) bool { return slices.ContainsFunc(names, has) }

func inEach(p *ledger.Provider, sets [][]string) bool {
	for _, set := range sets {
		if !hasOne(p.InAggregate, set) {
			return false
		}
	}
	return true
}
