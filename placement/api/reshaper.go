// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

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
	shape := ledger.Reshape{
		Inventories: make(map[string]ledger.ProviderInventories, len(wanted.Inventories)),
		Allocations: x.consumerList(wanted.Allocations),
	}
	for provider, inv := range wanted.Inventories {
		shape.Inventories[provider] = ledger.ProviderInventories{Generation: inv.Generation, Inventories: ledgerInventories(inv.Inventories)}
	}
	providers := slices.Sorted(maps.Keys(shape.Inventories))
	err = x.update(func(tx *ledger.Tx) error {
		// Only a missing provider of the inventories has a code of its own, and generation
		// conflicts take precedence over what is not possible.
		for _, uuid := range providers {
			p, ok := tx.Provider(uuid)
			if !ok {
				return fail(http.StatusBadRequest, wire.CodeProviderNotFound, "Resource provider %s in inventories not found.", uuid)
			}
			if given := shape.Inventories[uuid].Generation; p.Generation != given {
				return &ledger.Error{Kind: ledger.GenerationConflict, Provider: uuid, Expected: p.Generation, Given: given}
			}
		}
		return tx.Reshape(shape)
	})
	if err != nil {
		return explain(err, allocationRefusals, "Unable to reshape")
	}
	return x.noContent()
}
