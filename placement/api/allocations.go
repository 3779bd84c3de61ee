// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// consumerType is a consumer's type as the API shows it.
func consumerType(c *ledger.Consumer) string {
	if c.Type == "" {
		return wire.ConsumerTypeUnknown
	}
	return c.Type
}

// showAllocations is GET /allocations/{consumer}. An unknown consumer has no allocations, which is
// not an error. Cost: a look-up of each provider.
func showAllocations(x *exchange) error {
	s, err := x.read()
	if err != nil {
		return err
	}
	c, ok := s.Consumer(x.R.PathValue("consumer"))
	if !ok {
		return x.json(http.StatusOK, append(x.Buffer(), `{"allocations":{}}`...), time.Time{})
	}
	var modified time.Time
	b := append(x.Buffer(), `{"allocations":{`...)
	for i := 0; i < len(c.Allocations); {
		uuid := c.Allocations[i].Provider
		b = jsonkit.AppendString(jsonkit.AppendComma(b), uuid)
		b = append(b, `:{"resources":{`...)
		for ; i < len(c.Allocations) && c.Allocations[i].Provider == uuid; i++ {
			a := &c.Allocations[i]
			b = wire.AppendResource(b, a.Class, a.Used)
			modified = latest(modified, changed(a.CreatedAt, a.UpdatedAt))
		}
		b = append(b, `},"generation":`...)
		if p, ok := s.Provider(uuid); ok {
			b = strconv.AppendInt(b, p.Generation, 10)
		} else {
			b = append(b, "null"...)
		}
		b = append(b, '}')
	}
	b = append(b, '}')
	if x.v.Has(wire.AllocationsByUUID) {
		b = append(b, `,"project_id":`...)
		b = jsonkit.AppendString(b, c.Project)
		b = append(b, `,"user_id":`...)
		b = jsonkit.AppendString(b, c.User)
	}
	if x.v.Has(wire.ConsumerGenerations) {
		b = append(b, `,"consumer_generation":`...)
		b = strconv.AppendInt(b, c.Generation, 10)
	}
	if x.v.Has(wire.ConsumerTypes) {
		b = append(b, `,"consumer_type":`...)
		b = jsonkit.AppendString(b, consumerType(c))
	}
	b = append(b, '}')
	return x.json(http.StatusOK, b, modified)
}

// listProviderAllocations is GET /resource_providers/{uuid}/allocations.
// Cost: all allocations of the consumers that hold something of the provider.
func listProviderAllocations(x *exchange) error {
	s, p, err := x.provider()
	if err != nil {
		return err
	}
	var modified time.Time
	b := append(x.Buffer(), '{')
	b = wire.AppendGeneration(b, p.Generation)
	b = append(b, `"allocations":{`...)
	for _, c := range s.ConsumersOn(p.UUID) {
		b = jsonkit.AppendString(jsonkit.AppendComma(b), c.UUID)
		b = append(b, `:{"resources":{`...)
		for j := range c.Allocations {
			a := &c.Allocations[j]
			if a.Provider != p.UUID {
				continue
			}
			b = wire.AppendResource(b, a.Class, a.Used)
			modified = latest(modified, changed(a.CreatedAt, a.UpdatedAt))
		}
		b = append(b, '}')
		if x.v.Has(wire.ConsumerGenerations) {
			b = append(b, `,"consumer_generation":`...)
			b = strconv.AppendInt(b, c.Generation, 10)
		}
		b = append(b, '}')
	}
	b = append(b, "}}"...)
	return x.json(http.StatusOK, b, modified)
}

// ledgerAllocations converts the allocations of a request at a version.
func (x *exchange) ledgerAllocations(consumer string, from *wire.ConsumerAllocations) ledger.ConsumerAllocations {
	to := ledger.ConsumerAllocations{
		Consumer:        consumer,
		CheckGeneration: x.v.Has(wire.ConsumerGenerations),
		Generation:      from.ConsumerGeneration,
		Project:         from.ProjectID,
		User:            from.UserID,
		Resources:       providertree.ProviderResources(from.Allocations),
	}
	if !x.v.Has(wire.ProjectAndUser) {
		to.Project, to.User = x.api.options.IncompleteProjectID, x.api.options.IncompleteUserID
	}
	if x.v.Has(wire.ConsumerTypes) {
		to.Type = &from.ConsumerType
	}
	return to
}

// allocationRefusals are the verdicts of the calls that write allocations: a missing object that
// the body names is a 400; an existing one that cannot be allocated is a 409.
var allocationRefusals = refusals{
	ledger.ProviderNotFound:  {http.StatusBadRequest, wire.CodeUndefined},
	ledger.ClassNotFound:     {http.StatusBadRequest, wire.CodeUndefined},
	ledger.ConsumerNotFound:  {http.StatusBadRequest, wire.CodeUndefined},
	ledger.InventoryNotFound: {http.StatusConflict, wire.CodeUndefined},
	// Only an amount above the largest possible max_unit gets this far.
	ledger.InvalidAllocation: {http.StatusConflict, wire.CodeUndefined},
}

// putAllocations is PUT /allocations/{consumer}.
func putAllocations(x *exchange) error {
	consumer, err := providertree.CanonicalUUID(x.R.PathValue("consumer"))
	if err != nil {
		return badRequest("Malformed consumer_uuid: %s.", shortened(x.R.PathValue("consumer")))
	}
	body, err := x.Body()
	if err != nil {
		return err
	}
	wanted, err := wire.DecodeConsumerAllocations(body, x.v)
	if err != nil {
		return err
	}
	list := []ledger.ConsumerAllocations{x.ledgerAllocations(consumer, &wanted)}
	err = x.replaceAllocations(list)
	if err != nil {
		return explain(err, allocationRefusals, "Unable to allocate inventory for consumer %s", consumer)
	}
	return x.noContent()
}

// consumerList converts the allocations of several consumers, in the order of their UUIDs.
func (x *exchange) consumerList(from map[string]wire.ConsumerAllocations) []ledger.ConsumerAllocations {
	list := make([]ledger.ConsumerAllocations, 0, len(from))
	for _, consumer := range slices.Sorted(maps.Keys(from)) {
		allocations := from[consumer]
		list = append(list, x.ledgerAllocations(consumer, &allocations))
	}
	return list
}

// replaceAllocations replaces all allocations of some consumers.
func (x *exchange) replaceAllocations(list []ledger.ConsumerAllocations) error {
	return x.update(func(tx *ledger.Tx) error {
		if err := x.host().MayName(tx.Base(), nil, list); err != nil {
			return err
		}
		return tx.ReplaceAllocations(list)
	})
}

// postAllocations is POST /allocations.
func postAllocations(x *exchange) error {
	body, err := x.Body()
	if err != nil {
		return err
	}
	wanted, err := wire.DecodeAllocations(body, x.v)
	if err != nil {
		return err
	}
	list := x.consumerList(wanted)
	err = x.replaceAllocations(list)
	if err != nil {
		return explain(err, allocationRefusals, "Unable to allocate inventory")
	}
	return x.noContent()
}

// deleteAllocations is DELETE /allocations/{consumer}.
func deleteAllocations(x *exchange) error {
	consumer := x.R.PathValue("consumer")
	err := x.update(func(tx *ledger.Tx) error { return tx.DeleteAllocations(consumer) })
	if err != nil {
		return explain(err, nil, "No allocations for consumer '%s'", shortened(consumer))
	}
	return x.noContent()
}

// reshape is POST /reshaper. It is atomic.
func reshape(x *exchange) error {
	body, err := x.Body()
	if err != nil {
		return err
	}
	wanted, err := wire.DecodeReshape(body, x.v)
	if err != nil {
		return err
	}
	reshape := ledger.Reshape{
		Inventories: make(map[string]ledger.ProviderInventories, len(wanted.Inventories)),
		Allocations: x.consumerList(wanted.Allocations),
	}
	for provider, inv := range wanted.Inventories {
		reshape.Inventories[provider] = ledger.ProviderInventories{Generation: inv.Generation,
			Inventories: ledgerInventories(inv.Inventories)}
	}
	providers := slices.Sorted(maps.Keys(reshape.Inventories))
	err = x.update(func(tx *ledger.Tx) error {
		if err := x.host().MayName(tx.Base(), reshape.Inventories, reshape.Allocations); err != nil {
			return err
		}
		// Only a missing provider of the inventories has a code of its own, and generation
		// conflicts take precedence over what is not possible.
		for _, uuid := range providers {
			p, ok := tx.Provider(uuid)
			if !ok {
				return fail(http.StatusBadRequest,
					wire.CodeProviderNotFound, "Resource provider %s in inventories not found.", uuid)
			}
			if given := reshape.Inventories[uuid].Generation; p.Generation != given {
				return &ledger.Error{Kind: ledger.GenerationConflict, Provider: uuid,
					Expected: p.Generation, Given: given}
			}
		}
		return tx.Reshape(reshape)
	})
	if err != nil {
		return explain(err, allocationRefusals, "Unable to reshape")
	}
	return x.noContent()
}
