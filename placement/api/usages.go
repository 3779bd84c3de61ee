// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// showProviderUsages is GET /resource_providers/{uuid}/usages. As in Placement, it was modified
// now.
func showProviderUsages(x *exchange) error {
	s, p, err := x.provider()
	if err != nil {
		return err
	}
	b := append(x.Buffer(), '{')
	b = wire.AppendGeneration(b, p.Generation)
	b = append(b, `"usages":{`...)
	for i := range p.Inventories {
		class := p.Inventories[i].Class
		b = wire.AppendResource(b, class, s.Used(p, class))
	}
	b = append(b, "}}"...)
	return x.json(http.StatusOK, b, time.Time{})
}

// usageQuery is the query of GET /usages. user and consumerType are "" for all.
type usageQuery struct {
	project, user, consumerType string
}

type usageParameter struct {
	wire.Parameter
	into func(*usageQuery) *string
}

// usageParameters are the parameters of GET /usages.
var usageParameters = [...]usageParameter{
	{wire.Parameter{Name: "project_id", Required: true, Text: "The project that owns the consumers."},
		func(u *usageQuery) *string { return &u.project }},
	{wire.Parameter{Name: "user_id", Text: "Only consumers of this user."},
		func(u *usageQuery) *string { return &u.user }},
	{wire.Parameter{Name: "consumer_type", Origin: wire.Origin{Since: wire.ConsumerTypes},
		Text: "Only consumers of this type; unknown for those without one, all for one sum of all."},
		func(u *usageQuery) *string { return &u.consumerType }},
}

func readUsageQuery(q wire.Query, v wire.Version) (u usageQuery, err error) {
	for _, p := range q {
		known := slices.IndexFunc(usageParameters[:], func(f usageParameter) bool { return f.Name == p.Key })
		if known < 0 || !v.Has(usageParameters[known].Since) {
			return u, wire.UnknownParameter(p.Key, wire.Origin{}, v)
		}
	}
	for i := range usageParameters {
		f := &usageParameters[i]
		value, ok := q.Last(f.Name)
		switch n := utf8.RuneCountInString(value); {
		case !ok && f.Required:
			return u, badRequest("Invalid query string parameters: %s is required.", f.Name)
		case !ok:
		case n < 1 || n > wire.MaxName:
			return u, badRequest("Invalid query string parameters: %s must have 1 to %d characters, and has %d.",
				f.Name, wire.MaxName, n)
		}
		*f.into(&u) = value
	}
	// Placement accepts everything that begins with "all" as a consumer type; no type has such a
	// name.
	if t := u.consumerType; t != "" && t != wire.ConsumerTypeUnknown &&
		!strings.HasPrefix(t, wire.ConsumerTypeAll) && !providertree.IsSymbol(t) {
		return u, badRequest(
			"Invalid query string parameters: consumer_type must be all, unknown, or a name of A-Z, 0-9 and "+
				"_. Got: %s.", shortened(t))
	}
	return u, nil
}

// matches reports whether the query includes a consumer of the project.
func (u *usageQuery) matches(c *ledger.Consumer) bool {
	if u.user != "" && c.User != u.user {
		return false
	}
	return u.consumerType == "" || u.consumerType == wire.ConsumerTypeAll || u.consumerType == consumerType(c)
}

// usageSum is the usage of the consumers of one type.
type usageSum struct {
	consumerType string
	consumers    int64
	classes      []wire.Amount // by class name
}

func (s *usageSum) add(c *ledger.Consumer) {
	s.consumers++
	for i := range c.Allocations {
		a := &c.Allocations[i]
		at, found := slices.BinarySearchFunc(s.classes, a.Class,
			func(e wire.Amount, class string) int { return cmp.Compare(e.Class, class) })
		if !found {
			s.classes = slices.Insert(s.classes, at, wire.Amount{Class: a.Class})
		}
		s.classes[at].Count += a.Used
	}
}

// showUsages is GET /usages. Cost: the consumers of the project and the allocations of those that
// match.
func showUsages(x *exchange) error {
	q, bad := wire.ReadQuery(x.R.URL.RawQuery)
	project, _ := q.Last("project_id")
	if err := x.authorize(ShowUsages, project); err != nil {
		return err
	}
	if bad != nil {
		return bad
	}
	wanted, err := readUsageQuery(q, x.v)
	if err != nil {
		return err
	}
	s, err := x.read()
	if err != nil {
		return err
	}
	wanted.user = s.User(wanted.user)
	// Before 1.38, and for "all", there is one sum; else one for each type.
	byType := x.v.Has(wire.ConsumerTypes) && wanted.consumerType != wire.ConsumerTypeAll
	var sums []*usageSum
	for c := range s.ConsumersOf(wanted.project) {
		if !wanted.matches(c) {
			continue
		}
		kind := wire.ConsumerTypeAll
		if byType {
			kind = consumerType(c)
		}
		at := slices.IndexFunc(sums, func(s *usageSum) bool { return s.consumerType == kind })
		if at < 0 {
			at = len(sums)
			sums = append(sums, &usageSum{consumerType: kind})
		}
		sums[at].add(c)
	}
	b := append(x.Buffer(), `{"usages":{`...)
	for _, sum := range sums {
		if x.v.Has(wire.ConsumerTypes) {
			b = jsonkit.AppendString(jsonkit.AppendComma(b), sum.consumerType)
			b = append(b, `:{"`+wire.ConsumerCount+`":`...)
			b = strconv.AppendInt(b, sum.consumers, 10)
		}
		for _, c := range sum.classes {
			b = wire.AppendResource(b, c.Class, c.Count)
		}
		if x.v.Has(wire.ConsumerTypes) {
			b = append(b, '}')
		}
	}
	b = append(b, "}}"...)
	return x.json(http.StatusOK, b, time.Time{})
}
