// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// aggregates answers with the aggregates of a provider. As in Placement, they were modified now.
func (x *exchange) aggregates(list []string, generation int64) error {
	b := wire.AppendAggregates(x.Buffer(), list, generation, x.v)
	return x.json(http.StatusOK, b, time.Time{})
}

// listAggregates is GET /resource_providers/{uuid}/aggregates.
func listAggregates(x *exchange) error {
	_, p, err := x.provider()
	if err != nil {
		return err
	}
	return x.aggregates(p.Aggregates, p.Generation)
}

// setAggregates is PUT /resource_providers/{uuid}/aggregates.
func setAggregates(x *exchange) error {
	uuid, wanted, err := bodyForProvider(x,
		func(b []byte) (wire.AggregateList, error) { return wire.DecodeAggregates(b, x.v) })
	if err != nil {
		return err
	}
	var p *ledger.Provider
	err = x.update(func(tx *ledger.Tx) (err error) {
		p, err = tx.SetAggregates(uuid, wanted.Generation, wanted.Aggregates)
		return err
	})
	if err != nil {
		return explain(err, nil, "Unable to set the aggregates of resource provider %s", shortened(uuid))
	}
	return x.aggregates(wanted.Aggregates, p.Generation) // in the order of the request, as clients expect
}

// providerTraits answers with the traits of a provider, modified when the newest trait was created.
func (x *exchange) providerTraits(s traitSource, p *ledger.Provider) error {
	b := wire.AppendProviderTraits(x.Buffer(), p.TraitsByID(), p.Generation)
	var modified time.Time
	if x.v.Has(wire.CacheHeaders) {
		for _, name := range p.Traits {
			if t, ok := s.Trait(name); ok {
				modified = latest(modified, changed(t.CreatedAt, t.UpdatedAt))
			}
		}
	}
	return x.json(http.StatusOK, b, modified)
}

// traitSource finds traits by name, such as a snapshot.
type traitSource interface {
	Trait(name string) (*ledger.Trait, bool)
}

// listProviderTraits is GET /resource_providers/{uuid}/traits.
func listProviderTraits(x *exchange) error {
	s, p, err := x.provider()
	if err != nil {
		return err
	}
	return x.providerTraits(s, p)
}

// unknownTraitRefusals: a trait that the body names is a 400.
var unknownTraitRefusals = refusals{ledger.TraitNotFound: {http.StatusBadRequest, wire.CodeUndefined}}

// setProviderTraits is PUT /resource_providers/{uuid}/traits.
func setProviderTraits(x *exchange) error {
	body, err := x.Body()
	if err != nil {
		return err
	}
	// Unlike elsewhere, Placement checks this body before it looks for the provider.
	wanted, err := wire.DecodeProviderTraits(body)
	if err != nil {
		return err
	}
	uuid := x.R.PathValue("uuid")
	var p *ledger.Provider
	s, err := x.transact(func(tx *ledger.Tx) (err error) {
		p, err = tx.SetTraits(uuid, wanted.Generation, wanted.Traits)
		return err
	})
	if err != nil {
		return explain(err, unknownTraitRefusals,
			"Unable to set the traits of resource provider %s", shortened(uuid))
	}
	return x.providerTraits(s, p)
}

// deleteProviderTraits is DELETE /resource_providers/{uuid}/traits.
func deleteProviderTraits(x *exchange) error {
	uuid := x.R.PathValue("uuid")
	err := x.update(func(tx *ledger.Tx) error { return tx.ClearTraits(uuid) })
	if err != nil {
		return explain(err, nil, "Unable to delete the traits of resource provider %s", shortened(uuid))
	}
	return x.noContent()
}
