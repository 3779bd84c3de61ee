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
	for _, r := range allRoutes() {
		if r.about != nil {
			a.Calls = append(a.Calls, r.call())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(actions)) {
		one := actions[name]
		a.Calls = append(a.Calls, actionCall(actionRoutes[0].path, name, one.about, one.until, func(v Version) js.Schema { return one.argument(v) }))
	}
	for _, name := range slices.Sorted(maps.Keys(aggregateActions)) {
		one := aggregateActions[name]
		a.Calls = append(a.Calls, actionCall(aggregateActionPath, name, one.about, 0, func(Version) js.Schema { return one.schema }))
	}
	slices.SortStableFunc(a.Calls, func(c, d apidoc.Call) int {
		return cmp.Compare(slices.Index(groupOrder, c.Group), slices.Index(groupOrder, d.Group))
	})
	return a
}

// call is the route for the reference.
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
		c.Query = append(c.Query, r.query.all[i].parameter(r.query))
	}
	if r.query.closed > 0 {
		c.Ignores.Until = int(r.query.closed) - 1
	}
	return c
}

// actionCall is an action for the reference.
func actionCall(path, name string, what *about, until Version, argument func(Version) js.Schema) apidoc.Call {
	c := what.call()
	c.Group, c.Method, c.Path, c.Action = groupOf(path), http.MethodPost, path, name
	c.Until = int(until)
	c.Body = byVersion(func(v Version) js.Schema {
		s := argument(v)
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
		c.Policies = append(c.Policies, apidoc.Policy{Rule: string(use.rule), Text: text})
	}
	return c
}

// passes says who passes a rule by default.
func passes(rule Rule) string {
	switch text := defaults[rule]; text {
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
		panic("compute: the reference has no words for the policy " + text)
	}
}

// parameter is the parameter for the reference.
func (p *parameter) parameter(of *parameters) apidoc.Parameter {
	d := apidoc.Parameter{Name: p.name, Text: p.text, Versions: apidoc.Versions{Since: int(p.since), Until: int(p.until)}, Schema: p.schema}
	if p.repeated {
		d.Repeated = max(int(p.since), int(MinVersion))
	}
	if d.Schema == nil {
		d.Schema = p.kind.schema()
	}
	if of == &serverQuery && !slices.Contains(paging, p.name) {
		switch since, is := memberFilters[p.name]; {
		case !is && p.text != textRefused:
			d.Text += " For administrators; ignored for others."
		case since > p.since:
			d.Text += " For administrators; from " + since.String() + " on for all."
		}
	}
	return d
}

// schema is what a parameter of the kind holds, for the reference.
func (k paramKind) schema() js.Schema {
	switch k {
	case pattern:
		return described(js.Schema{js.Type("string"), js.MinLength(1)}, "A regular expression.")
	case dateTime:
		return described(schemaText, "A time in ISO 8601.")
	case number:
		return js.Schema{js.Type("string"), js.MinLength(1), js.Pattern("^[0-9]*$")}
	case sortColumn:
		var all []any
		for _, key := range slices.Concat(sortKeys, ignoredSortKeys) {
			all = append(all, key)
		}
		return js.Schema{js.Type("string"), js.Enum(all...)}
	case anyText:
	}
	return schemaText
}
