// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Objection is one violation of a reshape, with all consumers or providers that it concerns.
type Objection struct {
	// Problem is a text.
	Problem string `json:"problem"`
	// Concerns are the consumers, or resource providers, each once and with what it is about. It is
	// empty if the problem is general.
	Concerns []string `json:"concerns,omitempty"`
	// Remedy is what can be done about this objection, and about those before it that have none.
	// Each hint is given once.
	Remedy string `json:"remedy,omitempty"`
}

// String is the objection in one line, without the hint.
func (o Objection) String() string {
	switch len(o.Concerns) {
	case 0:
		return o.Problem
	case 1:
		return colon(o.Concerns[0], o.Problem)
	}
	return colon(o.Problem, strings.Join(o.Concerns, "; "))
}

// colon joins what is not empty.
func colon(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

// Objections groups the violations by problem, those with the same hint one after the other, in the
// order of their first violations.
//
// Cost: O(violations × different problems).
func (e *ReshapeError) Objections() []Objection {
	type group struct {
		Objection
		members []plugins.Offender
	}
	var groups []group
	for _, o := range e.Offenders {
		at := slices.IndexFunc(groups, func(g group) bool { return g.Problem == o.Problem && g.Remedy == o.Remedy })
		if at < 0 {
			at = len(groups)
			if like := slices.IndexFunc(groups, func(g group) bool { return g.Remedy == o.Remedy }); like >= 0 {
				for at = like; at < len(groups) && groups[at].Remedy == o.Remedy; {
					at++
				}
			}
			groups = slices.Insert(groups, at, group{Objection: Objection{Problem: o.Problem, Remedy: o.Remedy}})
		}
		groups[at].members = append(groups[at].members, o)
	}
	out := make([]Objection, 0, len(groups))
	for i, g := range groups {
		if i+1 < len(groups) && groups[i+1].Remedy == g.Remedy {
			g.Remedy = ""
		}
		g.Concerns = e.concerns(g.members)
		out = append(out, g.Objection)
	}
	return out
}

// concerns are the consumers and providers of an objection, grouped by consumer.
func (e *ReshapeError) concerns(members []plugins.Offender) []string {
	var order []string
	of := map[string][]plugins.Offender{}
	for _, o := range members {
		if _, before := of[o.Consumer]; !before {
			order = append(order, o.Consumer)
		}
		of[o.Consumer] = append(of[o.Consumer], o)
	}
	var out []string
	for _, consumer := range order {
		if consumer == "" {
			for _, o := range of[consumer] {
				if o.Problem = ""; o != (plugins.Offender{Remedy: o.Remedy}) {
					out = append(out, o.String())
				}
			}
			continue
		}
		out = append(out, e.concern(consumer, of[consumer]))
	}
	return out
}

// concern is one consumer with what of its allocations it is about.
func (e *ReshapeError) concern(consumer string, about []plugins.Offender) string {
	var providers []string
	classes := map[string][]string{}
	for _, o := range about {
		if _, before := classes[o.Provider]; !before {
			providers = append(providers, o.Provider)
			classes[o.Provider] = nil
		}
		if o.Class == "" {
			continue
		}
		what := o.Class
		if amount := e.held[consumer].Resources[o.Provider][o.Class]; amount > 0 {
			what = fmt.Sprintf("%d %s", amount, o.Class)
		}
		classes[o.Provider] = append(classes[o.Provider], what)
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
func (e *ReshapeError) name(provider string) string {
	if e.tree != nil {
		if at, there := e.tree.Provider(provider); there {
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
func (e *ReshapeError) List() []string {
	var out []string
	for _, o := range e.Objections() {
		for _, concern := range o.Concerns {
			out = append(out, colon(concern, o.Problem))
		}
		if len(o.Concerns) == 0 {
			out = append(out, o.Problem)
		}
	}
	return out
}

// Remedies are all that can be done, each once, in one line.
func (e *ReshapeError) Remedies() string {
	var out []string
	for _, o := range e.Offenders {
		if o.Remedy != "" && !slices.Contains(out, o.Remedy) {
			out = append(out, o.Remedy)
		}
	}
	if e.Remedy != "" {
		out = append(out, e.Remedy)
	}
	return strings.Join(out, ". ")
}

// of sets the allocations and providers that the texts name.
func (e *ReshapeError) of(held providertree.Allocations, tree *providertree.Tree) *ReshapeError {
	e.held, e.tree = held, tree
	return e
}
