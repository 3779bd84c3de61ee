// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// actions are the calls of one method and one path that differ in the only member of their bodies,
// as one operation: OpenAPI has one for each method of a path.
func (rf reference) actions(calls []apidoc.Call) object {
	first := &calls[0]
	from, to := rf.bound(first.Versions)
	var names []string
	var policies []apidoc.Policy
	var failures []apidoc.Failure
	var bodies []any
	for i := range calls {
		c := &calls[i]
		lowest, highest := rf.bound(c.Versions)
		from, to = min(from, lowest), max(to, highest)
		names, policies, failures = append(names, c.Action), append(policies, c.Policies...),
			append(failures, c.Failures...)
		body := rf.ofAction(c, c.Body, lowest, highest)
		body["title"], body["description"] = c.Action, strings.Join(append([]string{c.Summary}, c.Notes...), "\n\n")
		bodies = append(bodies, body)
	}
	operation := object{
		"operationId": operationID(first), "tags": []any{first.Group},
		"summary":     "Does one of the actions " + strings.Join(names, ", "),
		"x-openstack": object{"min-ver": rf.version(from), "max-ver": rf.version(to)},
		"parameters":  []any{microversion},
		"requestBody": object{"required": true, "content": content(byAction(bodies))},
		"responses":   rf.answersOfActions(calls, failures),
	}
	addPolicies(operation, policies)
	return operation
}

func byAction(all []any) object {
	return object{"oneOf": all, "x-openstack": object{"discriminator": "action"}}
}

// ofAction is the schema of a body of an action, with the microversions that have it.
func (rf reference) ofAction(c *apidoc.Call, body apidoc.Body, from, to int) object {
	schema := maps.Clone(rf.anyOf(rf.spans(body, from, to), from, to))
	x, _ := schema["x-openstack"].(object)
	x = maps.Clone(x)
	if x == nil {
		x = object{}
	}
	x["action-name"], x["min-ver"], x["max-ver"] = c.Action, rf.version(from), rf.version(to)
	schema["x-openstack"] = x
	return schema
}

// answersOfActions are the answers of all calls: x-openstack-actions says which of them have a
// status, and when.
func (rf reference) answersOfActions(calls []apidoc.Call, failures []apidoc.Failure) object {
	type answers struct {
		texts         []string
		which, bodies []any
	}
	found := map[int]*answers{}
	for i := range calls {
		c := &calls[i]
		from, to := rf.bound(c.Versions)
		for _, answer := range c.Answers {
			first, last := rf.bound(answer.Versions)
			first, last = max(first, from), min(last, to)
			all := found[answer.Status]
			if all == nil {
				all = &answers{}
				found[answer.Status] = all
			}
			all.texts = append(all.texts, c.Action+": "+answer.Text)
			all.which = append(all.which,
				object{"action-name": c.Action, "min-ver": rf.version(first), "max-ver": rf.version(last)})
			if answer.Body != nil {
				all.bodies = append(all.bodies, rf.ofAction(c, answer.Body, first, last))
			}
		}
	}
	responses := rf.refusals(failures)
	for status, all := range found {
		response := object{"description": strings.Join(all.texts, " "), "x-openstack-actions": all.which}
		if len(all.bodies) > 0 {
			response["content"] = content(byAction(all.bodies))
		}
		responses[strconv.Itoa(status)] = response
	}
	return responses
}

// refusals are the errors of a call, and those that every call can have.
func (rf reference) refusals(failures []apidoc.Failure) object {
	all := object{}
	for _, status := range statuses(failures) {
		all[strconv.Itoa(status)] = failed(status, slices.Concat(failures, rf.Failures))
	}
	for _, status := range statuses(rf.Failures) {
		if name := strconv.Itoa(status); all[name] == nil {
			all[name] = object{"$ref": "#/components/responses/Error" + name}
		}
	}
	return all
}

// failed is the response of a status, for those of the failures that have it.
func failed(status int, failures []apidoc.Failure) object {
	var reasons []string
	codes := []any{}
	for _, f := range failures {
		if f.Status != status {
			continue
		}
		if !slices.Contains(reasons, f.Reason) {
			reasons = append(reasons, f.Reason)
		}
		if f.Code != "" && !slices.Contains(codes, any(f.Code)) {
			codes = append(codes, f.Code)
		}
	}
	response := object{
		"description": http.StatusText(status) + ": " + strings.Join(reasons, " "),
		"content":     content(object{"$ref": "#/components/schemas/Error"}),
	}
	if len(codes) > 0 {
		response["x-openstack-error-codes"] = codes
	}
	return response
}
