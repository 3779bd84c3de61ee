// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

type object = map[string]any

// microversions is what the head of a document says about them.
const microversions = "A document of OpenAPI has one form of a call, and the API has one for each microversion. " +
	"What differs has the extension x-openstack with min-ver and max-ver, as in the documents of OpenStack's " +
	"codegenerator: parameters, answers, " +
	"and the members of anyOf in a body (anyOf and not oneOf: a body can fit several microversions). Without it, a " +
	"thing is there at all microversions of its call. " +
	"x-openstack-suffixes are the forms of what can follow the name of a parameter."

// oneAction is what it says about actions.
const oneAction = " Where x-openstack has the discriminator action, the only member of the body is the name of an " +
	"action, and the members of oneOf are about one action each."

// Write returns the OpenAPI document of an API, as indented JSON.
func Write(of *apidoc.API) ([]byte, error) {
	a := reference{of}
	paths := object{}
	tags := []any{}
	for i := range a.Calls {
		c := &a.Calls[i]
		path, known := paths[c.Path].(object)
		if !known {
			path = object{}
			if parameters := pathParameters(c.Path); len(parameters) > 0 {
				path["parameters"] = parameters
			}
			paths[c.Path] = path
		}
		switch method := strings.ToLower(c.Method); {
		case c.Action == "":
			path[method] = a.operation(c)
		case path[method] == nil:
			path[method] = a.actions(slices.DeleteFunc(slices.Clone(a.Calls),
				func(d apidoc.Call) bool { return d.Method != c.Method || d.Path != c.Path }))
		}
		if tag := (object{"name": c.Group}); !slices.ContainsFunc(tags,
			func(t any) bool { return t.(object)["name"] == c.Group }) {
			tags = append(tags, tag)
		}
	}
	about := microversions
	if slices.ContainsFunc(a.Calls, func(c apidoc.Call) bool { return c.Action != "" }) {
		about += oneAction
	}
	document := object{
		"openapi": "3.1.0",
		"info": object{
			"title": a.Title, "version": a.version(a.Max), "description": about,
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"x-openstack": object{"min-ver": a.version(a.Min), "max-ver": a.version(a.Max)},
		},
		"servers":  []any{object{"url": "/"}},
		"security": []any{object{"token": []any{}}},
		"tags":     tags,
		"paths":    paths,
		"components": object{
			"securitySchemes": object{"token": object{"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
			"schemas":         object{"Error": a.anyOf(a.spans(a.Error, a.Min, a.Max), a.Min, a.Max)},
			"parameters": object{"Microversion": object{
				"name": "OpenStack-API-Version", "in": "header",
				"description": fmt.Sprintf(
					"%[1]s and a microversion from %[2]s to %[3]s, or %[1]s latest. Without it, %[2]s.", a.Service,
					a.version(a.Min), a.version(a.Max)),
				"schema": object{"type": "string"},
			}},
		},
	}
	common := object{}
	for _, status := range statuses(a.Failures) {
		common["Error"+strconv.Itoa(status)] = failed(status, a.Failures)
	}
	document["components"].(object)["responses"] = common
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(document); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	return b.Bytes(), nil
}

var (
	segments = regexp.MustCompile(`\{(\w+)\}`)
	noWord   = regexp.MustCompile(`\W+`)
)

func pathParameters(path string) []any {
	var all []any
	for _, found := range segments.FindAllStringSubmatch(path, -1) {
		all = append(all, object{"name": found[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	return all
}

// ranged is x-openstack for a range; nil if that is all of the API's or the call's range.
func (rf reference) ranged(from, to, callFrom, callTo int) object {
	x := object{}
	if from > callFrom {
		x["min-ver"] = rf.version(from)
	}
	if to < callTo {
		x["max-ver"] = rf.version(to)
	}
	if len(x) == 0 {
		return nil
	}
	return x
}

func (rf reference) operation(c *apidoc.Call) object {
	from, to := rf.bound(c.Versions)
	operation := object{
		"operationId": operationID(c),
		"summary":     c.Summary, "tags": []any{c.Group},
		"responses": rf.responses(c, from, to),
	}
	if !c.Unversioned {
		operation["x-openstack"] = object{"min-ver": rf.version(from), "max-ver": rf.version(to)}
	}
	addPolicies(operation, c.Policies)
	if len(c.Notes) > 0 {
		operation["description"] = strings.Join(c.Notes, "\n\n")
	}
	if c.Open {
		operation["security"] = []any{}
	}
	parameters := []any{}
	if !c.Unversioned {
		parameters = append(parameters, microversion)
	}
	if c.Ignores != nil {
		first, last := rf.bound(*c.Ignores)
		operation["x-openstack-ignores-parameters"] = object{"min-ver": rf.version(first), "max-ver": rf.version(last)}
	}
	for i := range c.Query {
		parameters = append(parameters, rf.parameter(&c.Query[i], from, to))
	}
	operation["parameters"] = parameters
	if c.Body != nil {
		if spans := rf.spans(c.Body, from, to); len(spans) > 0 {
			all := spans[0].from == from && spans[len(spans)-1].to == to
			operation["requestBody"] = object{"required": all, "content": content(rf.anyOf(spans, from, to))}
		}
	}
	return operation
}

// microversion is the header that has it.
var microversion = object{"$ref": "#/components/parameters/Microversion"}

func operationID(c *apidoc.Call) string {
	return strings.Trim(strings.ToLower(c.Method)+noWord.ReplaceAllString(c.Path, "_"), "_")
}

func addPolicies(operation object, policies []apidoc.Policy) {
	var rules []any
	for _, p := range policies {
		if !slices.Contains(rules, any(p.Rule)) {
			rules = append(rules, p.Rule)
		}
	}
	switch len(rules) {
	case 0:
	case 1:
		operation["x-openstack-policy"] = rules[0]
	default:
		operation["x-openstack-policy"] = rules
	}
}

func (rf reference) parameter(p *apidoc.Parameter, from, to int) object {
	first, last := rf.bound(p.Versions)
	schema := jsonkit.Document(p.Schema)
	if p.Repeated > 0 {
		schema = object{"type": "array", "items": schema}
	}
	parameter := object{"name": p.Name, "in": "query", "description": p.Text, "required": p.Required, "schema": schema}
	x := rf.ranged(first, last, from, to)
	if p.Extension != "" {
		if x == nil {
			x = object{}
		}
		x["extension"] = p.Extension
	}
	if x != nil {
		parameter["x-openstack"] = x
	}
	var suffixes []any
	for _, s := range p.Suffixes {
		first, last := rf.bound(s.Versions)
		suffixes = append(suffixes,
			object{"pattern": s.Pattern, "min-ver": rf.version(first), "max-ver": rf.version(last)})
	}
	if len(suffixes) > 0 {
		parameter["x-openstack-suffixes"] = suffixes
	}
	return parameter
}

func content(schema object) object { return object{"application/json": object{"schema": schema}} }

// anyOf is the schema of a body over its spans. Each says its microversions, unless it is the only
// one, and there in the whole range.
func (rf reference) anyOf(spans []span, from, to int) object {
	if len(spans) == 1 && spans[0].from == from && spans[0].to == to {
		return spans[0].schema
	}
	var all []any
	for _, s := range spans {
		schema := object{"x-openstack": object{"min-ver": rf.version(s.from), "max-ver": rf.version(s.to)}}
		for key, value := range s.schema {
			schema[key] = value
		}
		all = append(all, schema)
	}
	return object{"anyOf": all, "x-openstack": object{"discriminator": "microversion"}}
}

func (rf reference) responses(c *apidoc.Call, from, to int) object {
	all := rf.refusals(c.Failures)
	for _, answer := range c.Answers {
		first, last := rf.bound(answer.Versions)
		first, last = max(first, from), min(last, to)
		response := object{"description": answer.Text}
		if x := rf.ranged(first, last, from, to); x != nil {
			response["x-openstack"] = x
		}
		if answer.Body != nil {
			response["content"] = content(rf.anyOf(rf.spans(answer.Body, first, last), first, last))
		}
		all[strconv.Itoa(answer.Status)] = response
	}
	return all
}

// statuses are the statuses of failures, in order.
func statuses(failures []apidoc.Failure) []int {
	var all []int
	for _, f := range failures {
		all = append(all, f.Status)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
