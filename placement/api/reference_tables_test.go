// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/placement/api/hostpolicy"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// about is what the reference says about an endpoint, besides what its route says.
type about struct {
	summary string
	notes   []string
	// checks is the action that the handler checks by itself.
	checks  Action
	query   []wire.Parameter
	body    apidoc.Body
	answers []apidoc.Answer
	// kinds are the errors of the ledger that the handler answers with, by its own verdicts.
	kinds []ledger.Kind
	own   refusals
	// failures are its other errors.
	failures []apidoc.Failure
}

// aboutAPI is the beginning of the reference.
var aboutAPI = `The calls of the bundled Placement. They are those of OpenStack's Placement, at all of its microversions,
` + "`GET /allocation_candidates/explain`" + `, and those below ` + "`/hosts`" + `; [placement-extensions.md](placement-extensions.md) has what else it can do beyond OpenStack's.
[openapi/placement.json](openapi/placement.json) has the same in OpenAPI 3.1. Tests compare both with the server.

Send ` + "`X-Auth-Token`" + `, and ` + "`OpenStack-API-Version: " + wire.MaxVersion.HeaderValue() + "`" + ` or another microversion; without the header it is 1.0, and ` + "`latest`" + `
is the highest. Bodies are JSON, in both directions. ` + "`{name}`" + ` in a path is one segment. "Policy" is the rule of the policy file that must allow the call, and
"Hosts" what a host's own credential may do with it ([identity.md](identity.md#what-a-host-may-do-in-placement)).
Every answer has ` + "`X-OpenStack-Request-Id`" + `, ` + "`OpenStack-API-Version`" + ` and ` + "`Vary`" + `, and from 1.15 on ` + "`Last-Modified`" + ` and
` + "`Cache-Control`" + ` where it has a body.`

// groups are the headings of calls by the beginnings of their paths, the longest first.
var groups = [...]struct{ prefix, name string }{
	{"/resource_providers/{uuid}/inventories", "Inventories"},
	{"/resource_providers/{uuid}/usages", "Usages"},
	{"/resource_providers/{uuid}/aggregates", "Aggregates"},
	{"/resource_providers/{uuid}/traits", "Traits of resource providers"},
	{"/resource_providers/{uuid}/allocations", "Allocations of resource providers"},
	{"/resource_providers", "Resource providers"},
	{"/resource_classes", "Resource classes"},
	{"/traits", "Traits"},
	{"/allocations", "Allocations"},
	{"/allocation_candidates", "Allocation candidates"},
	{"/usages", "Usages of projects"},
	{"/hosts", "Hosts"},
	{hostpolicy.ReshaperPath, "Reshaper"},
	{"/", "Versions"},
}

// commonFailures are the errors that every call can have.
var commonFailures = []apidoc.Failure{
	{Status: http.StatusBadRequest, Code: string(wire.CodeUndefined),
		Reason: "The microversion, the query or the body is malformed, or does not fit what this page says."},
	{Status: http.StatusUnauthorized, Code: string(wire.CodeUndefined), Reason: "The token is missing or unknown."},
	{Status: http.StatusForbidden, Code: string(wire.CodeUndefined), Reason: "The policy does not allow it."},
	{Status: http.StatusForbidden, Code: string(wire.CodeHost), Reason: "A host asks for what is not its own."},
	{Status: http.StatusForbidden, Code: string(wire.CodeHostCapacity),
		Reason: "A host reports more than it is admitted to."},
	{Status: http.StatusNotFound, Code: string(wire.CodeUndefined),
		Reason: "There is no such path, or not at this microversion."},
	{Status: http.StatusMethodNotAllowed, Code: string(wire.CodeUndefined),
		Reason: "The path has no such method, or not at this microversion."},
	{Status: http.StatusNotAcceptable, Code: string(wire.CodeUndefined),
		Reason: "There is no such microversion, or the client does not accept JSON."},
	{Status: http.StatusRequestTimeout, Code: string(wire.CodeUndefined),
		Reason: "The request did not arrive in time."},
	{Status: http.StatusRequestEntityTooLarge, Code: string(wire.CodeUndefined), Reason: "The body is too large."},
	{Status: http.StatusRequestURITooLong, Code: string(wire.CodeUndefined), Reason: "The query is too long."},
	{Status: http.StatusUnsupportedMediaType, Code: string(wire.CodeUndefined),
		Reason: "The body is not declared as application/json."},
	{Status: http.StatusTooManyRequests, Code: string(wire.CodeUndefined),
		Reason: "A host writes too much; Retry-After says when to go on."},
	{Status: http.StatusInternalServerError, Code: string(wire.CodeUndefined),
		Reason: "The server failed, or the outcome of a write is not known: read before you repeat it."},
	{Status: http.StatusServiceUnavailable, Code: string(wire.CodeUndefined),
		Reason: "The server or its database cannot be used now; nothing was changed."},
}

// busy is the error of writes while other servers change the same data.
var busy = apidoc.Failure{
	Status: http.StatusConflict, Code: string(wire.CodeConcurrentUpdate),
	Reason: "Other servers keep changing the data at the same time: read again and retry.",
}

// Reference describes the API, for its reference and its OpenAPI document.
func Reference() *apidoc.API {
	a := &apidoc.API{
		Title: "Placement API", About: aboutAPI, Service: wire.ServiceType,
		Major: 1, Min: int(wire.MinVersion), Max: int(wire.MaxVersion),
		Error: bodyAt(errorSchema), Failures: commonFailures, Keys: keyNames,
	}
	for i := range wire.History {
		a.History = append(a.History, apidoc.Step{What: wire.History[i].What})
	}
	for _, r := range routes {
		for i := range r.endpoints {
			a.Calls = append(a.Calls, r.endpoints[i].call(strings.TrimSuffix(r.path, "{$}")))
		}
	}
	return a
}

// call is the endpoint for the reference.
func (e *endpoint) call(path string) apidoc.Call {
	about := abouts[e.method+" "+path]
	if about == nil {
		panic("placement/api: the reference says nothing of " + e.method + " " + path)
	}
	c := apidoc.Call{
		Method: e.method, Path: path, Summary: about.summary, Notes: about.notes,
		Versions: apidoc.Versions{Since: int(e.since)},
		Hosts:    e.host.String(), Open: path == "/",
		Body: about.body, Answers: about.answers,
	}
	if rule := cmp.Or(e.action, about.checks); rule != "" {
		c.Policies = []apidoc.Policy{{Rule: string(rule)}}
	}
	for _, g := range groups {
		if strings.HasPrefix(path, g.prefix) {
			c.Group = g.name
			break
		}
	}
	for i := range about.query {
		c.Query = append(c.Query, parameterOf(&about.query[i]))
	}
	for _, kind := range about.kinds {
		v, _ := about.own.verdict(kind)
		c.Failures = append(c.Failures,
			apidoc.Failure{Status: v.status, Code: string(v.code), Reason: reasons[kind]})
	}
	c.Failures = append(c.Failures, about.failures...)
	if e.method != http.MethodGet {
		c.Failures = append(c.Failures, busy)
	}
	return c
}

// parameterOf is the parameter for the reference.
func parameterOf(p *wire.Parameter) apidoc.Parameter {
	d := apidoc.Parameter{
		Name: p.Name, Text: p.Text, Versions: apidoc.Versions{Since: int(p.Since)}, Schema: schemasOf[p.Name],
		Required: p.Required, Repeated: int(p.Repeated), Extension: p.Extension,
	}
	if d.Schema == nil {
		d.Schema = schemaText
	}
	if p.Extension != "" {
		d.Since = int(wire.GranularGroups)
	}
	if p.Grouped {
		d.Suffixes = []apidoc.Suffix{
			{Versions: apidoc.Versions{Since: int(wire.NamedSuffixes)}, Pattern: "[a-zA-Z0-9_-]{1,64}"},
			{Versions: apidoc.Versions{Since: int(wire.GranularGroups), Until: int(wire.NamedSuffixes) - 1},
				Pattern: "[1-9][0-9]*"},
		}
	}
	return d
}

func usagesQuery() (all []wire.Parameter) {
	for i := range usageParameters {
		all = append(all, usageParameters[i].Parameter)
	}
	return all
}
