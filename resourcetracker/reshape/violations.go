// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
)

// ViolationGroup is one violation of a reshape, with all consumers or providers that it concerns.
type ViolationGroup struct {
	// Problem is a text.
	Problem string `json:"problem"`
	// Concerns are the consumers, or resource providers, each once and with what it is about. It is
	// empty if the problem is general.
	Concerns []string `json:"concerns,omitempty"`
	// Hint is what can be done about this violation, and about those before it that have none.
	// Each hint is given once.
	Hint string `json:"remedy,omitempty"`
}

// String is the violation in one line, without the hint.
func (v ViolationGroup) String() string {
	switch len(v.Concerns) {
	case 0:
		return v.Problem
	case 1:
		return joinColon(v.Concerns[0], v.Problem)
	}
	return joinColon(v.Problem, strings.Join(v.Concerns, "; "))
}

// joinColon joins what is not empty.
func joinColon(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

// ViolationGroups groups the violations by problem, those with the same hint one after the other,
// in the order of their first violations.
//
// Cost: O(violations × different problems).
func (e *Error) ViolationGroups() []ViolationGroup {
	type group struct {
		ViolationGroup
		members []plugins.Violation
	}
	var groups []group
	for _, v := range e.Violations {
		at := slices.IndexFunc(groups, func(g group) bool { return g.Problem == v.Problem && g.Hint == v.Hint })
		if at < 0 {
			at = len(groups)
			if like := slices.IndexFunc(groups, func(g group) bool { return g.Hint == v.Hint }); like >= 0 {
				for at = like; at < len(groups) && groups[at].Hint == v.Hint; {
					at++
				}
			}
			groups = slices.Insert(groups, at, group{ViolationGroup: ViolationGroup{Problem: v.Problem, Hint: v.Hint}})
		}
		groups[at].members = append(groups[at].members, v)
	}
	out := make([]ViolationGroup, 0, len(groups))
	for i, g := range groups {
		if i+1 < len(groups) && groups[i+1].Hint == g.Hint {
			g.Hint = ""
		}
		g.Concerns = e.concerns(g.members)
		out = append(out, g.ViolationGroup)
	}
	return out
}

// concerns are the consumers and providers of a violation, grouped by consumer.
func (e *Error) concerns(members []plugins.Violation) []string {
	var order []string
	of := map[string][]plugins.Violation{}
	for _, v := range members {
		if _, before := of[v.Consumer]; !before {
			order = append(order, v.Consumer)
		}
		of[v.Consumer] = append(of[v.Consumer], v)
	}
	var out []string
	for _, consumer := range order {
		if consumer == "" {
			for _, v := range of[consumer] {
				if v.Problem = ""; v != (plugins.Violation{Hint: v.Hint}) {
					out = append(out, v.String())
				}
			}
			continue
		}
		out = append(out, e.concern(consumer, of[consumer]))
	}
	return out
}

// concern is one consumer with what of its allocations it is about.
func (e *Error) concern(consumer string, about []plugins.Violation) string {
	var providers []string
	classes := map[string][]string{}
	for _, v := range about {
		if _, before := classes[v.Provider]; !before {
			providers = append(providers, v.Provider)
			classes[v.Provider] = nil
		}
		if v.Class == "" {
			continue
		}
		what := v.Class
		if amount := e.held[consumer].Resources[v.Provider][v.Class]; amount > 0 {
			what = fmt.Sprintf("%d %s", amount, v.Class)
		}
		classes[v.Provider] = append(classes[v.Provider], what)
	}
	parts := []string{"consumer " + consumer}
	for _, provider := range providers {
		all := enumerate(classes[provider])
		switch name := e.name(provider); {
		case provider == "" && all == "":
		case provider == "":
			parts = append(parts, all)
		case all == "":
			parts = append(parts, name)
		default:
			parts = append(parts, all+" of "+name)
		}
	}
	return strings.Join(parts, ", ")
}

// name is the name of a provider.
func (e *Error) name(provider string) string {
	for _, tree := range e.trees {
		if at, there := tree.Provider(provider); there {
			return at.Name
		}
	}
	return "resource provider " + provider
}

func enumerate(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}

// List is every violation in a line of its own, those with the same problem one after the other.
func (e *Error) List() []string {
	var out []string
	for _, v := range e.ViolationGroups() {
		for _, concern := range v.Concerns {
			out = append(out, joinColon(concern, v.Problem))
		}
		if len(v.Concerns) == 0 {
			out = append(out, v.Problem)
		}
	}
	return out
}

// Hints are all that can be done, each once, in one line.
func (e *Error) Hints() string {
	var out []string
	for _, v := range e.Violations {
		if v.Hint != "" && !slices.Contains(out, v.Hint) {
			out = append(out, v.Hint)
		}
	}
	if e.Hint != "" {
		out = append(out, e.Hint)
	}
	return strings.Join(out, ". ")
}
