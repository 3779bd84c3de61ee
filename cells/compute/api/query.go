// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"net/url"
	"slices"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Parameter is a parameter of a query, of those microversions that have it; an until of 0 is no
// bound. kind says what it holds in calls that check it by that, and schema in all others.
type Parameter struct {
	Name         string
	Since, Until Version
	Kind         Kind
	Choices      []string
	Schema       js.Schema
	// Text is for the reference. repeated: it can be there several times.
	Text     string
	Repeated bool
}

// Parameters are those of a call. From the microversion closed on all others are refused; before
// it, and if it is 0, they are ignored.
type Parameters struct {
	All    []Parameter
	Closed Version
}

// Named is a parameter by its name; nil if there is none.
func (p *Parameters) Named(name string) *Parameter {
	if p == nil {
		return nil
	}
	at := slices.IndexFunc(p.All, func(one Parameter) bool { return one.Name == name })
	if at < 0 {
		return nil
	}
	return &p.All[at]
}

// In says whether a microversion has the parameter.
func (p *Parameter) In(v Version) bool {
	return p != nil && v >= p.Since && (p.Until == 0 || v <= p.Until)
}

// Query are the parameters of a request. Only those can be read that the table of the call has: so
// the reference has all that count.
type Query struct {
	Values url.Values
	Known  *Parameters
	v      Version
}

// Every are all values of a parameter, none if the microversion does not have it. It panics for a
// name that is not in the table of the call.
func (q Query) Every(name string) []string {
	p := q.Known.Named(name)
	if p == nil {
		panic("api: the table of the call has no parameter " + name)
	}
	if !p.In(q.v) {
		return nil
	}
	return q.Values[name]
}

// Has says whether a parameter is there.
func (q Query) Has(name string) bool { return len(q.Every(name)) > 0 }

// Last is the last value of a parameter, which is the one that counts; "" without any.
func (q Query) Last(name string) string {
	return lastOf(q.Every(name))
}

// ReadQuery are the parameters of the request, not checked.
func (x *Exchange) ReadQuery() (Query, error) {
	values, err := x.Values()
	return Query{values, x.route.Query, x.Version}, err
}

// CheckedQuery are the parameters of the request, those that the call has of the types that they
// have; where others are refused, each of them once.
func (x *Exchange) CheckedQuery() (Query, error) {
	q, err := x.ReadQuery()
	if err != nil {
		return q, err
	}
	var known js.Properties
	for i := range q.Known.All {
		if p := &q.Known.All[i]; p.In(x.Version) {
			known = append(known, js.Property{Name: p.Name, Schema: p.Schema})
		}
	}
	check := js.ValidateQuery
	if q.Known.Closed > 0 && x.Since(q.Known.Closed) {
		check = js.ValidateClosedQuery
	}
	if err := check(known, q.Values); err != nil {
		return q, osapi.BadRequest("%s", err)
	}
	return q, nil
}

// StrictQuery reads parameters of a list, each once, and none but those that there are. Before the
// call refuses others it is ReadQuery.
func (x *Exchange) StrictQuery() (Query, error) {
	q, err := x.ReadQuery()
	if err != nil || !x.Since(q.Known.Closed) {
		return q, err
	}
	for _, name := range slices.Sorted(maps.Keys(q.Values)) {
		spec := q.Known.Named(name)
		if !spec.In(x.Version) {
			return q, osapi.BadRequest("Additional properties are not allowed (%s was unexpected)", PythonString(osapi.Shortened(name)))
		}
		for _, value := range q.Values[name] {
			if wrong := spec.Wrong(value); wrong != "" {
				return q, osapi.BadRequest("Invalid input for query parameters %s. Value: %s. %s", name, osapi.Shortened(value), wrong)
			}
		}
		if len(q.Values[name]) > 1 {
			all := osapi.Shortened(pythonList(q.Values[name]))
			return q, osapi.BadRequest("Invalid input for query parameters %s. Value: %s. %s is too long", name, all, all)
		}
	}
	return q, nil
}
