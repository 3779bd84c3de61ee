// SPDX-License-Identifier: Apache-2.0

package oslopolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// maxCost bounds how many checks one decision may take.
const maxCost = 10_000

// Target is the target of a request; "" equals no value.
type Target struct{ Project, User string }

// Rules are rules by their names, each readable and with its references resolved. They are not
// changed, and safe for concurrent use.
type Rules struct{ trees map[string]*node }

// Compile reads rules, which are given by name. Its errors wrap ErrRule and name the rule. Rules
// may refer to each other, but not in a circle.
func Compile(texts map[string]string) (*Rules, error) {
	r := &Rules{trees: make(map[string]*node, len(texts))}
	names := slices.Sorted(maps.Keys(texts))
	for _, name := range names {
		tree, err := parse(texts[name])
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", shown(name), err)
		}
		r.trees[name] = tree
	}
	c := compiler{rules: r, cost: map[string]int{}}
	for _, name := range names {
		if _, err := c.resolve(name); err != nil {
			return nil, fmt.Errorf("rule %s: %w", shown(name), err)
		}
	}
	return r, nil
}

// References are the names of the rules that a rule refers to itself, sorted; what cannot be read
// refers to nothing.
func References(text string) []string {
	tree, err := parse(text)
	if err != nil {
		return nil
	}
	found := map[string]bool{}
	tree.walk(func(n *node) {
		if n.kind == passesRule {
			found[n.value] = true
		}
	})
	return slices.Sorted(maps.Keys(found))
}

func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, below := range n.nodes {
		below.walk(visit)
	}
}

// compiler resolves the references between rules.
type compiler struct {
	rules *Rules
	cost  map[string]int // of the rules that are resolved; 0: being resolved, further up
	trail []string
}

// resolve resolves the references of a rule and returns how many checks it takes at most.
func (c *compiler) resolve(name string) (int, error) {
	if cost, begun := c.cost[name]; begun {
		if cost == 0 {
			return 0, fmt.Errorf("%w: it refers to itself, through %s",
				ErrRule, strings.Join(append(c.trail, name), " → "))
		}
		return cost, nil
	}
	if len(c.trail) == maxDepth {
		return 0, fmt.Errorf("%w: more than %d rules refer to each other in a row", ErrRule, maxDepth)
	}
	c.cost[name] = 0
	c.trail = append(c.trail, name)
	cost, err := c.resolveNode(c.rules.trees[name])
	if err != nil {
		return 0, err
	}
	if cost > maxCost {
		return 0, fmt.Errorf("%w: with all that it refers to it has more than %d checks", ErrRule, maxCost)
	}
	c.trail = c.trail[:len(c.trail)-1]
	c.cost[name] = cost
	return cost, nil
}

func (c *compiler) resolveNode(n *node) (int, error) {
	cost := 1
	if n.kind == passesRule {
		tree, known := c.rules.trees[n.value]
		if !known {
			return 0, fmt.Errorf("%w: it refers to the rule %s, which does not exist%s",
				ErrRule, shown(n.value), didYouMean(n.value, slices.Sorted(maps.Keys(c.rules.trees))))
		}
		more, err := c.resolve(n.value)
		n.nodes = []*node{tree}
		return cost + more, err
	}
	for _, below := range n.nodes {
		more, err := c.resolveNode(below)
		if err != nil {
			return 0, err
		}
		cost = min(cost+more, maxCost+1)
	}
	return cost, nil
}

// Has reports whether there is a rule of that name.
func (r *Rules) Has(name string) bool { return r.trees[name] != nil }

// Pass reports whether the rule allows the caller; an unknown rule allows no caller. Cost: a few
// nanoseconds for each check, and nothing is allocated.
func (r *Rules) Pass(name string, caller *osapi.Principal, target Target) bool {
	tree := r.trees[name]
	return tree != nil && tree.pass(caller, target)
}

// Allows is Pass for the APIs: no request with a token for the system or for a domain is allowed,
// because all policies of Nova and Placement are for projects, and they enforce scopes.
func (r *Rules) Allows(name string, caller *osapi.Principal, target Target) bool {
	return !caller.SystemScope && !caller.DomainScope && r.Pass(name, caller, target)
}

func (n *node) pass(caller *osapi.Principal, target Target) bool {
	switch n.kind {
	case everybody:
		return true
	case hasRole:
		return slices.Contains(caller.Roles, n.value)
	case isUser:
		return n.equals(caller.User, target)
	case isProject:
		return n.equals(caller.Project, target)
	case hasScope:
		return caller.SystemScope && n.value == "all"
	case passesRule, allOf:
		for _, below := range n.nodes {
			if !below.pass(caller, target) {
				return false
			}
		}
		return true
	case anyOf:
		for _, below := range n.nodes {
			if below.pass(caller, target) {
				return true
			}
		}
		return false
	case noneOf:
		return !n.nodes[0].pass(caller, target)
	}
	return false // never
}

// equals compares an attribute of the caller with what the node says.
func (n *node) equals(have string, target Target) bool {
	want := n.value
	switch n.of {
	case targetProject:
		want = target.Project
	case targetUser:
		want = target.User
	}
	return want != "" && have == want
}
