// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"net/url"
	"slices"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// parameter is a parameter of a query, of those microversions that have it; an until of 0 is no
// bound. kind says what it holds in calls that check it by that, and schema in all others.
type parameter struct {
	name         string
	since, until Version
	kind         paramKind
	choices      []string
	schema       js.Schema
	// text is for the reference. repeated: it can be there several times.
	text     string
	repeated bool
}

// parameters are those of a call. From the microversion closed on all others are refused; before
// it, and if it is 0, they are ignored.
type parameters struct {
	all    []parameter
	closed Version
}

// named is a parameter by its name; nil if there is none.
func (p *parameters) named(name string) *parameter {
	if p == nil {
		return nil
	}
	at := slices.IndexFunc(p.all, func(one parameter) bool { return one.name == name })
	if at < 0 {
		return nil
	}
	return &p.all[at]
}

// in says whether a microversion has the parameter.
func (p *parameter) in(v Version) bool {
	return p != nil && v >= p.since && (p.until == 0 || v <= p.until)
}

// query are the parameters of a request. Only those can be read that the table of the call has: so
// the reference has all that count.
type query struct {
	values url.Values
	known  *parameters
	v      Version
}

// every are all values of a parameter, none if the microversion does not have it. It panics for a
// name that is not in the table of the call.
func (q query) every(name string) []string {
	p := q.known.named(name)
	if p == nil {
		panic("compute: the table of the call has no parameter " + name)
	}
	if !p.in(q.v) {
		return nil
	}
	return q.values[name]
}

// has says whether a parameter is there.
func (q query) has(name string) bool { return len(q.every(name)) > 0 }

// last is the last value of a parameter, which is the one that counts; "" without any.
func (q query) last(name string) string {
	return lastOf(q.every(name))
}

// readQuery are the parameters of the request, not checked.
func (x *exchange) readQuery() (query, error) {
	values, err := x.query()
	return query{values, x.route.query, x.version}, err
}

// checkedQuery are the parameters of the request, those that the call has of the types that they
// have; where others are refused, each of them once.
func (x *exchange) checkedQuery() (query, error) {
	q, err := x.readQuery()
	if err != nil {
		return q, err
	}
	var known js.Properties
	for i := range q.known.all {
		if p := &q.known.all[i]; p.in(x.version) {
			known = append(known, js.Property{Name: p.name, Schema: p.schema})
		}
	}
	check := js.ValidateQuery
	if q.known.closed > 0 && x.since(q.known.closed) {
		check = js.ValidateClosedQuery
	}
	if err := check(known, q.values); err != nil {
		return q, badRequest("%s", err)
	}
	return q, nil
}

// strictQuery reads parameters of a list, each once, and none but those that there are. Before the
// call refuses others it is readQuery.
func (x *exchange) strictQuery() (query, error) {
	q, err := x.readQuery()
	if err != nil || !x.since(q.known.closed) {
		return q, err
	}
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		spec := q.known.named(name)
		if !spec.in(x.version) {
			return q, badRequest("Additional properties are not allowed (%s was unexpected)", pythonString(shortened(name)))
		}
		for _, value := range q.values[name] {
			if wrong := spec.wrong(value); wrong != "" {
				return q, badRequest("Invalid input for query parameters %s. Value: %s. %s", name, shortened(value), wrong)
			}
		}
		if len(q.values[name]) > 1 {
			all := shortened(pythonList(q.values[name]))
			return q, badRequest("Invalid input for query parameters %s. Value: %s. %s is too long", name, all, all)
		}
	}
	return q, nil
}
