// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// About is what the reference says about a call, besides what its route says.
type About struct {
	Summary string
	Notes   []string
	// Rules are those that the handler asks for, beside that of the route.
	Rules   []RuleUse
	Answers []apidoc.Answer
	// Failures are the errors besides those that every call can have.
	Failures []apidoc.Failure
}

// RuleUse is a rule and when it has to allow something; "" is always.
type RuleUse struct {
	Rule Rule
	When string
}

// Failure is an error of a call; its code is the name that bodies have for the status.
func Failure(status int, reason string) apidoc.Failure {
	return apidoc.Failure{Status: status, Code: cmp.Or(faultNames[status], computeFault), Reason: reason}
}

// Errors that calls of several packages have.
var (
	NoMarker  = Failure(http.StatusBadRequest, "The marker does not exist.")
	TakenName = Failure(http.StatusConflict, "The name is taken.")
)

// Calls are the route, or its actions, for the reference; none for one that says nothing of itself.
func (r *Route) Calls() (all []apidoc.Call) {
	if r.About != nil {
		all = append(all, r.call())
	}
	for _, name := range slices.Sorted(maps.Keys(r.Actions)) {
		all = append(all, r.actionCall(name))
	}
	return all
}

func (r *Route) call() apidoc.Call {
	c := r.About.call(r.Rule)
	c.Method, c.Path = r.Method, r.Path
	c.Versions = apidoc.Versions{Since: int(r.Since), Until: int(r.Until)}
	c.Open, c.Unversioned = r.Open, r.Unversioned
	c.Ignores = &apidoc.Versions{}
	if r.Body != nil {
		c.Body = ByVersion(r.Body.At)
	}
	if r.Query == nil {
		return c
	}
	for i := range r.Query.All {
		c.Query = append(c.Query, r.Query.All[i].inReference())
	}
	if r.Query.Closed > 0 {
		c.Ignores.Until = int(r.Query.Closed) - 1
	}
	return c
}

func (r *Route) actionCall(name string) apidoc.Call {
	action := r.Actions[name]
	c := action.About.call(action.Rule)
	c.Method, c.Path, c.Action = r.Method, r.Path, name
	c.Until = int(action.Until)
	c.Body = ByVersion(func(v Version) js.Schema {
		s := action.argument(v)
		if s == nil {
			s = apidoc.Described(nil, "Not looked at; null as a rule.")
		}
		return In(name, s)
	})
	return c
}

// uses are the rules of a call: that of its route, if it has one, and those that it asks for.
func (a *About) uses(rule Rule) []RuleUse {
	if rule == (Rule{}) {
		return a.Rules
	}
	return append(Rules(rule), a.Rules...)
}

func (a *About) call(rule Rule) apidoc.Call {
	c := apidoc.Call{Summary: a.Summary, Notes: a.Notes, Answers: a.Answers, Failures: a.Failures}
	for _, use := range a.uses(rule) {
		text := "by default " + defaultRoles(use.Rule)
		if use.When != "" {
			text = use.When + "; " + text
		}
		c.Policies = append(c.Policies, apidoc.Policy{Rule: use.Rule.Name, Text: text})
	}
	return c
}

// RulesOf are the rules that calls ask for, each once or more often.
func RulesOf(routes []Route) (all []Rule) {
	add := func(rule Rule, what *About) {
		if what == nil {
			return
		}
		for _, use := range what.uses(rule) {
			all = append(all, use.Rule)
		}
	}
	for _, r := range routes {
		add(r.Rule, r.About)
		for _, action := range r.Actions {
			add(action.Rule, action.About)
		}
	}
	return all
}

// defaultRoles are those that pass a rule by default, in words.
func defaultRoles(rule Rule) string {
	switch rule.Default {
	case Admins, "rule:admin_api":
		return "administrators"
	case Members:
		return "members of the project and administrators"
	case Readers:
		return "readers and members of the project and administrators"
	case Managers:
		return "managers of the project and administrators"
	case AnyUser:
		return "everybody with a token"
	case SameUser:
		return "the user to whom they belong and administrators"
	default:
		panic("api: the reference has no words for the policy " + rule.Default)
	}
}

// OK is an answer of 200.
func OK(text string, body apidoc.Body) []apidoc.Answer {
	return []apidoc.Answer{{Status: http.StatusOK, Text: text, Body: body}}
}

// Done is an answer without a body.
func Done(status int, text string) []apidoc.Answer {
	return []apidoc.Answer{{Status: status, Text: text}}
}

// Rules are rules that have to allow something always.
func Rules(all ...Rule) (uses []RuleUse) {
	for _, r := range all {
		uses = append(uses, RuleUse{r, ""})
	}
	return uses
}
