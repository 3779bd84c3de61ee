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

// listProviders is GET /resource_providers. Cost: the number of providers that the most selective
// of in_tree, uuid, name and member_of leaves.
func listProviders(x *exchange) error {
	pq, err := wire.ReadProviderQuery(x.R.URL.RawQuery, x.v, x.extensions)
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
	empty, err := checkNames(&pq, s, x.host() != nil)
	if err != nil {
		return err
	}
	if !empty {
		findProviders(&pq, s, add)
	}
	b = append(b, "]}"...)
	return x.json(http.StatusOK, b, modified)
}

// checkNames looks for unknown names. As in Placement, which applies one condition after the other,
// an unknown name is an error (status 400) only if the conditions before it leave any provider;
// empty: they leave none. names: it is always an error, as hosts must not learn what others have.
func checkNames(pq *wire.ProviderQuery, s *ledger.Snapshot, names bool) (empty bool, err error) {
	if pq.InTree != "" {
		if _, ok := s.Provider(pq.InTree); !ok {
			return true, nil
		}
	}
	noTrait := func(name string) error {
		return badRequest("Invalid trait(s) in \"required\" parameter: No such trait(s): %s.", shortened(name))
	}
	for _, set := range pq.Required {
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
	if name, missing := unknownTrait(s, pq.Forbidden); missing {
		if len(pq.Required) > 0 && none(func(p *ledger.Provider) bool { return hasTraits(p, pq.Required) }) {
			return true, nil
		}
		return false, noTrait(name)
	}
	for _, a := range pq.Resources {
		if _, ok := s.Class(a.Class); ok {
			continue
		}
		if len(pq.Required) > 0 && none(func(p *ledger.Provider) bool { return hasTraits(p, pq.Required) }) ||
			len(pq.MemberOf) > 0 && none(func(p *ledger.Provider) bool { return inAggregates(p, pq.MemberOf) }) {
			return true, nil
		}
		return false, badRequest("Invalid resource class in resources parameter: No such resource class %s.",
			shortened(a.Class))
	}
	return false, nil
}

// findProviders returns all providers of the query, in order of creation.
func findProviders(pq *wire.ProviderQuery, s *ledger.Snapshot, yield func(*ledger.Provider)) {
	filter := func(p *ledger.Provider) {
		if (pq.UUID == "" || p.UUID == pq.UUID) &&
			(pq.Name == "" || providertree.SameName(p.Name, pq.Name)) && conditionsMet(p, &pq.Conditions) {
			yield(p)
		}
	}
	var some []*ledger.Provider
	switch {
	case pq.InTree != "":
		within, ok := s.Provider(pq.InTree)
		if !ok {
			return
		}
		some = slices.Clone(s.Tree(within.Root))
	case pq.UUID != "":
		if p, ok := s.Provider(pq.UUID); ok {
			filter(p)
		}
		return
	case pq.Name != "":
		if p, ok := s.ProviderByName(pq.Name); ok {
			filter(p)
		}
		return
	case len(pq.MemberOf) > 0:
		for _, aggregate := range pq.MemberOf[0] {
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
