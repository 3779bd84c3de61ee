// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"maps"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Action is an action of hosts that the policy of the server decides on, by its name in policy
// files. OpenStack's Placement has none of them.
type Action string

// The actions of hosts.
const (
	// ActionTree: have trees whose roots are named as the host is, and read what shares with them.
	ActionTree Action = "placement:hosts:own_tree"
	// ActionAllocations: read, move and shrink what consumers have in its trees.
	ActionAllocations Action = "placement:hosts:allocations"
	// ActionHeal: give consumers without allocations some in its trees.
	ActionHeal Action = "placement:hosts:heal"
	// ActionNames: create custom traits and classes.
	ActionNames Action = "placement:hosts:names"
	// ActionAggregates: change the aggregates of its providers.
	ActionAggregates Action = "placement:hosts:aggregates"
	// ActionSharing: make a provider share what it has.
	ActionSharing Action = "placement:hosts:sharing"
)

// rules are the default rules of the actions of hosts, in the language of policy files.
var rules = map[Action]string{
	ActionTree: "role:host", ActionAllocations: "role:host",
	ActionHeal: "!", ActionNames: "role:host", ActionAggregates: "!", ActionSharing: "!",
}

// DefaultRules returns the default rules of the actions of hosts, in the language of policy files.
func DefaultRules() map[Action]string { return maps.Clone(rules) }

// IsAction reports whether an action is one of hosts.
func IsAction(action string) bool {
	_, is := rules[Action(action)]
	return is
}

// The paths of calls that have rules of their own for hosts.
const (
	// ProvidersPath is the path of the call that makes a provider.
	ProvidersPath = "/resource_providers"
	// ReshaperPath is the path of the only call that may put a class in the place of another.
	ReshaperPath = "/reshaper"
)

// Deps are what a Policy works with. All but Limited are required.
type Deps struct {
	// Now is the clock.
	Now    func() time.Time
	Logger zerolog.Logger
	// Allows reports whether the policy of the server allows an action to a host.
	Allows func(Action, *osapi.Principal) bool
	// CapacityFactor is how many times what it reported when it came a host may report. Below 1
	// nothing bounds that.
	CapacityFactor int
	// AdmissionWindow is how long after a host came all that it reports is admitted.
	AdmissionWindow time.Duration
	// ClassRenames are pairs of resource classes that are names of one thing, as "OLD=NEW". Others
	// have no effect.
	ClassRenames []string
	// Limited is called for each write that is refused with 429; nil for nothing.
	Limited func()
}

// Policy is what all hosts have left of their bounds, and what this process has seen of their
// certificates and agents. It is safe for concurrent use.
type Policy struct {
	deps    Deps
	bounds  bounds
	nodes   reservedNodes
	agents  *agentruns.Watch
	renamed classGroups // by an operator
}

// New makes a Policy.
func New(deps Deps) *Policy {
	return &Policy{
		deps:    deps,
		bounds:  newBounds(deps.Now),
		nodes:   reservedNodes{now: deps.Now, nodes: map[string]reservation{}},
		agents:  agentruns.NewWatch(agentWindow, deps.Now),
		renamed: newClassGroups(deps.ClassRenames),
	}
}

// classGroups are resource classes that an operator has declared to be names of one thing: one name
// of each group, by all of them. The present and the former name are of one group, so that a
// reshape can be undone.
type classGroups map[string]string

// newClassGroups reads pairs of the form OLD=NEW.
func newClassGroups(renames []string) classGroups {
	g := classGroups{}
	for _, pair := range renames {
		former, present, found := strings.Cut(pair, "=")
		if !found {
			continue
		}
		group, other := g.groupOf(former), g.groupOf(present)
		g[former], g[present] = group, group
		for class, of := range g {
			if of == other {
				g[class] = group
			}
		}
	}
	return g
}

// groupOf is the group of a class; most are groups of their own.
func (g classGroups) groupOf(class string) string {
	if group, ok := g[class]; ok {
		return group
	}
	return class
}
