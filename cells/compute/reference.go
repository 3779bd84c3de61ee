// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// about is what the reference says about a call, besides what its route says.
type about struct {
	summary string
	notes   []string
	// rules are those that the handler asks for, the one that the call needs first.
	rules   []ruleUse
	answers []apidoc.Answer
	// failures are the errors besides those that every call can have.
	failures []apidoc.Failure
}

// ruleUse is a rule and when it has to allow something; "" is always.
type ruleUse struct {
	rule Rule
	when string
}

// groups are the headings of calls, by the beginnings of their paths after the version.
var groups = [...]struct{ prefix, name string }{
	{"", "Versions"},
	{"servers/{id}/metadata", "Metadata of servers"},
	{"servers/{id}/tags", "Tags of servers"},
	{"servers/{id}/os-instance-actions", "History of servers"},
	{"servers/{id}/migrations", "Migrations"},
	{"servers/{id}/remote-consoles", "Consoles"},
	{"servers/{id}/action", "Actions on servers"},
	{"servers", "Servers"},
	{"flavors/{id}/os-extra_specs", "Extra specs of flavors"},
	{"flavors", "Flavors"},
	{"os-keypairs", "Key pairs"},
	{"os-server-groups", "Server groups"},
	{"limits", "Limits and quotas"},
	{"os-quota-sets", "Limits and quotas"},
	{"os-availability-zone", "Availability zones"},
	{"os-aggregates", "Host aggregates"},
	{"os-services", "Services"},
	{"os-hypervisors", "Hypervisors"},
	{"os-migrations", "Migrations"},
}

// groupOrder is the order of the groups in the reference.
var groupOrder = []string{
	"Versions", "Servers", "Actions on servers", "Metadata of servers", "Tags of servers", "History of servers", "Consoles", "Migrations",
	"Flavors", "Extra specs of flavors", "Key pairs", "Server groups", "Limits and quotas", "Availability zones", "Host aggregates", "Services", "Hypervisors",
}

func groupOf(path string) string {
	rest := strings.TrimPrefix(path, prefix)
	if path == "/" || path+"/" == prefix {
		rest = ""
	}
	for _, g := range groups {
		if rest == g.prefix || g.prefix != "" && strings.HasPrefix(rest, g.prefix) {
			return g.name
		}
	}
	panic("compute: the path " + path + " is in no group of the reference")
}

// failure is an error of a call; its code is the name that bodies have for the status.
func failure(status int, reason string) apidoc.Failure {
	return apidoc.Failure{Status: status, Code: cmp.Or(faultNames[status], computeFault), Reason: reason}
}

// commonFailures are the errors that every call can have.
var commonFailures = []apidoc.Failure{
	failure(http.StatusBadRequest, "The microversion, the query or the body is malformed, or does not fit what this page says."),
	failure(http.StatusUnauthorized, "The token is missing or unknown."),
	failure(http.StatusForbidden, "The policy does not allow it, or the token is that of a host."),
	failure(http.StatusNotFound, "There is no such path, or not at this microversion."),
	failure(http.StatusMethodNotAllowed, "The path has no such method; Allow has those that it has."),
	failure(http.StatusNotAcceptable, "There is no such microversion."),
	failure(http.StatusRequestTimeout, "The request did not arrive in time."),
	failure(http.StatusRequestEntityTooLarge, "The body is larger than 112 KiB."),
	failure(http.StatusRequestURITooLong, "The query is longer than 64 KiB."),
	failure(http.StatusUnsupportedMediaType, "The body is not declared as application/json."),
	failure(
		http.StatusInternalServerError,
		"The server failed, or a cell that is needed does not respond: whether a change was made may not be known, so read before you repeat it.",
	),
	failure(http.StatusServiceUnavailable, "The database, Placement or the identity service cannot be used now, or the server has too many requests: send it again later."),
}

// Reference describes the API, for its reference and its OpenAPI document.
func Reference() *apidoc.API {
	a := &apidoc.API{
		Title: "Compute API", About: aboutAPI, More: differences(), Service: serviceType,
		Major: 2, Min: int(MinVersion), Max: int(MaxVersion), History: steps(),
		Error: always(faultSchema), Failures: commonFailures,
		Keys: map[string]string{anyKey: "key", metadataKeys: "key"},
	}
	for _, r := range new(API).allRoutes() {
		a.Calls = append(a.Calls, r.calls()...)
	}
	slices.SortStableFunc(a.Calls, func(c, d apidoc.Call) int {
		return cmp.Compare(slices.Index(groupOrder, c.Group), slices.Index(groupOrder, d.Group))
	})
	return a
}

// calls are the route, or its actions, for the reference; none for one that says nothing of itself.
func (r *route) calls() (all []apidoc.Call) {
	if r.about != nil {
		all = append(all, r.call())
	}
	for _, name := range slices.Sorted(maps.Keys(r.actions)) {
		all = append(all, r.actionCall(name))
	}
	return all
}

func (r *route) call() apidoc.Call {
	c := r.about.call()
	c.Group, c.Method, c.Path = groupOf(r.path), r.method, r.path
	c.Versions = apidoc.Versions{Since: int(r.since), Until: int(r.until)}
	c.Open, c.Unversioned = r.open, r.unversioned
	c.Ignores = &apidoc.Versions{}
	if r.body != nil {
		c.Body = byVersion(r.body.at)
	}
	if r.query == nil {
		return c
	}
	for i := range r.query.all {
		c.Query = append(c.Query, r.query.all[i].inReference())
	}
	if r.query.closed > 0 {
		c.Ignores.Until = int(r.query.closed) - 1
	}
	return c
}

func (r *route) actionCall(name string) apidoc.Call {
	action := r.actions[name]
	c := action.about.call()
	c.Group, c.Method, c.Path, c.Action = groupOf(r.path), r.method, r.path, name
	c.Until = int(action.until)
	c.Body = byVersion(func(v Version) js.Schema {
		s := action.argument(v)
		if s == nil {
			s = described(nil, "Not looked at; null as a rule.")
		}
		return in(name, s)
	})
	return c
}

func (a *about) call() apidoc.Call {
	c := apidoc.Call{Summary: a.summary, Notes: a.notes, Answers: a.answers, Failures: a.failures}
	for _, use := range a.rules {
		text := "by default " + passes(use.rule)
		if use.when != "" {
			text = use.when + "; " + text
		}
		c.Policies = append(c.Policies, apidoc.Policy{Rule: use.rule.name, Text: text})
	}
	return c
}

// rulesOf are the rules that calls ask for, each once or more often.
func rulesOf(routes []route) (all []Rule) {
	add := func(what *about) {
		for i := 0; what != nil && i < len(what.rules); i++ {
			all = append(all, what.rules[i].rule)
		}
	}
	for _, r := range routes {
		add(r.about)
		for _, action := range r.actions {
			add(action.about)
		}
	}
	return all
}

// passes says who passes a rule by default.
func passes(rule Rule) string {
	switch rule.otherwise {
	case admins, "rule:admin_api":
		return "administrators"
	case members:
		return "members of the project and administrators"
	case readers:
		return "readers and members of the project and administrators"
	case managers:
		return "managers of the project and administrators"
	case anyUser:
		return "everybody with a token"
	case sameUser:
		return "the user to whom they belong and administrators"
	default:
		panic("compute: the reference has no words for the policy " + rule.otherwise)
	}
}

// ok is an answer of 200.
func ok(text string, body apidoc.Body) []apidoc.Answer {
	return []apidoc.Answer{{Status: http.StatusOK, Text: text, Body: body}}
}

// done is an answer without a body.
func done(status int, text string) []apidoc.Answer {
	return []apidoc.Answer{{Status: status, Text: text}}
}

func rules(all ...Rule) (uses []ruleUse) {
	for _, r := range all {
		uses = append(uses, ruleUse{r, ""})
	}
	return uses
}
