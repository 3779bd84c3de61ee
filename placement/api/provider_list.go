// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// providerQuery is the query of GET /resource_providers.
type providerQuery struct {
	conditions
	uuid, name, inTree string // "" for any
}

// providerParameters are the parameters of GET /resource_providers, in the order in which Placement
// reads them, with their origin and the function that adds their values to the query.
var providerParameters = [...]struct {
	queryParameter
	read func(pq *providerQuery, values []string, v wire.Version) error
}{
	{queryParameter{name: "name", text: "Those of this name."},
		func(pq *providerQuery, values []string, _ wire.Version) error {
			pq.name = values[len(values)-1]
			return nil
		}},
	{queryParameter{name: "uuid", text: "Those with this UUID."},
		func(pq *providerQuery, values []string, _ wire.Version) (err error) {
			pq.uuid, err = readUUID("uuid", values)
			return err
		}},
	{
		queryParameter{name: "in_tree", origin: origin{since: wire.NestedProviders},
			text: "Those in the tree that has this resource provider."},
		func(pq *providerQuery, values []string, _ wire.Version) (err error) {
			pq.inTree, err = readUUID("in_tree", values)
			return err
		},
	},
	{
		queryParameter{name: "member_of", origin: origin{since: wire.MemberOfFilter},
			repeated: wire.RepeatedMemberOf, text: textMemberOf},
		func(pq *providerQuery, values []string, v wire.Version) (err error) {
			pq.memberOf, pq.notMemberOf, err = readMemberOf(values, "member_of", v)
			pq.memberOf, pq.notMemberOf = uniqueSets(pq.memberOf), unique(pq.notMemberOf)
			return err
		},
	},
	{
		queryParameter{name: "required", origin: origin{since: wire.RequiredFilter},
			repeated: wire.AnyTraits, text: textRequired},
		func(pq *providerQuery, values []string, v wire.Version) (err error) {
			if !v.Has(wire.AnyTraits) {
				values = values[len(values)-1:]
			}
			pq.required, pq.forbidden, err = readRequired(values, v)
			pq.required, pq.forbidden = uniqueSets(pq.required), unique(pq.forbidden)
			return err
		},
	},
	{queryParameter{name: "resources", origin: origin{since: wire.ResourcesFilter}, text: textResources},
		func(pq *providerQuery, values []string, _ wire.Version) (err error) {
			pq.resources, err = readResources(values[len(values)-1])
			return err
		}},
}

// readUUID reads the last value of a parameter that is a UUID.
func readUUID(key string, values []string) (string, error) {
	value := values[len(values)-1]
	if !providertree.IsUUID(value) {
		return "", badRequest("Invalid query string parameters: %s must be a UUID. Got: %s.", key, shortened(value))
	}
	return value, nil
}

func readProviderQuery(raw string, v wire.Version, ext func() extensions) (pq providerQuery, err error) {
	q, err := readQuery(raw)
	if err != nil || len(q) == 0 {
		return pq, err
	}
	for _, p := range q {
		var known origin
		found := false
		for i := range providerParameters {
			if parameter := &providerParameters[i]; parameter.name == p.key {
				known, found = parameter.origin, parameter.existsAt(v, ext)
			}
		}
		if !found {
			return pq, unknownParameter(p.key, known, v)
		}
	}
	for i := range providerParameters {
		parameter := &providerParameters[i]
		if values := q.all(parameter.name); len(values) > 0 {
			if err := parameter.read(&pq, values, v); err != nil {
				return pq, err
			}
		}
	}
	return pq, nil
}

// listProviders is GET /resource_providers. Cost: the number of providers that the most selective
// of in_tree, uuid, name and member_of leaves.
func listProviders(x *exchange) error {
	pq, err := readProviderQuery(x.R.URL.RawQuery, x.v, x.extensions)
	if err != nil {
		return err
	}
	s, err := x.read()
	if err != nil {
		return err
	}
	var modified time.Time
	b := append(x.Buffer(), `{"resource_providers":[`...)
	add := func(p *ledger.Provider) {
		b = appendProvider(jsonkit.AppendComma(b), p, x.v)
		modified = latest(modified, changed(p.CreatedAt, p.UpdatedAt))
	}
	empty, err := pq.check(s, x.host() != nil)
	if err != nil {
		return err
	}
	if !empty {
		pq.find(s, add)
	}
	b = append(b, "]}"...)
	return x.json(http.StatusOK, b, modified)
}

// check looks for unknown names. As in Placement, which applies one condition after the other, an
// unknown name is an error (status 400) only if the conditions before it leave any provider; empty:
// they leave none. names: it is always an error, as hosts are not told what others have.
func (pq *providerQuery) check(s *ledger.Snapshot, names bool) (empty bool, err error) {
	if pq.inTree != "" {
		if _, ok := s.Provider(pq.inTree); !ok {
			return true, nil
		}
	}
	noTrait := func(name string) error {
		return badRequest("Invalid trait(s) in \"required\" parameter: No such trait(s): %s.", shortened(name))
	}
	for _, set := range pq.required {
		if name, missing := unknownTrait(s, set); missing {
			return false, noTrait(name)
		}
	}
	none := func(meets func(*ledger.Provider) bool) bool {
		if names {
			return false
		}
		for p := range s.Providers() {
			if meets(p) {
				return false
			}
		}
		return true
	}
	if name, missing := unknownTrait(s, pq.forbidden); missing {
		if len(pq.required) > 0 && none(func(p *ledger.Provider) bool { return hasTraits(p, pq.required) }) {
			return true, nil
		}
		return false, noTrait(name)
	}
	for _, a := range pq.resources {
		if _, ok := s.Class(a.class); ok {
			continue
		}
		if len(pq.required) > 0 && none(func(p *ledger.Provider) bool { return hasTraits(p, pq.required) }) ||
			len(pq.memberOf) > 0 && none(func(p *ledger.Provider) bool { return inAggregates(p, pq.memberOf) }) {
			return true, nil
		}
		return false, badRequest("Invalid resource class in resources parameter: No such resource class %s.",
			shortened(a.class))
	}
	return false, nil
}

// find returns all providers of the query, in order of creation.
func (pq *providerQuery) find(s *ledger.Snapshot, give func(*ledger.Provider)) {
	filter := func(p *ledger.Provider) {
		if (pq.uuid == "" || p.UUID == pq.uuid) &&
			(pq.name == "" || providertree.SameName(p.Name, pq.name)) && pq.metBy(p) {
			give(p)
		}
	}
	var some []*ledger.Provider
	switch {
	case pq.inTree != "":
		within, ok := s.Provider(pq.inTree)
		if !ok {
			return
		}
		some = slices.Clone(s.Tree(within.Root))
	case pq.uuid != "":
		if p, ok := s.Provider(pq.uuid); ok {
			filter(p)
		}
		return
	case pq.name != "":
		if p, ok := s.ProviderByName(pq.name); ok {
			filter(p)
		}
		return
	case len(pq.memberOf) > 0:
		for _, aggregate := range pq.memberOf[0] {
			some = append(some, s.ProvidersInAggregate(aggregate)...)
		}
	default:
		for p := range s.Providers() {
			filter(p)
		}
		return
	}
	slices.SortFunc(some, func(a, b *ledger.Provider) int { return cmp.Compare(a.ID, b.ID) })
	for _, p := range slices.CompactFunc(some, func(a, b *ledger.Provider) bool { return a.ID == b.ID }) {
		filter(p)
	}
}
