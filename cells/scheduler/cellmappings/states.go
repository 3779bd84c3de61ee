// SPDX-License-Identifier: Apache-2.0

package cellmappings

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// Page is how many mappings of a cell are compared with one request.
const Page = cellwire.MaxStates

// Servers are the uuids of the servers of mappings.
func Servers(mappings []apidb.Mapping) []string {
	uuids := make([]string, 0, len(mappings))
	for _, m := range mappings {
		uuids = append(uuids, m.InstanceUUID)
	}
	return uuids
}

// States asks a cell for the states of servers, by uuid; those that it does not know are missing.
// One request for each [cellwire.MaxStates] of them.
func States(
	ctx context.Context, g *gather.Gatherer, cell apidb.Cell, uuids []string,
) (map[string]cellwire.ServerState, error) {
	list, err := gather.One(ctx, g, cell,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.ServerState, error) {
			return c.States(ctx, uuids)
		})
	if err != nil {
		return nil, fmt.Errorf("asking cell %s for the states of %d servers: %w", cell.Name, len(uuids), err)
	}
	states := make(map[string]cellwire.ServerState, len(list))
	for _, state := range list {
		states[state.UUID] = state
	}
	return states, nil
}

// Differing are the mappings whose queued_for_delete is not what the cell says.
func Differing(cell apidb.Cell, mappings []apidb.Mapping, states map[string]cellwire.ServerState) []apidb.Mapping {
	var differ []apidb.Mapping
	for _, m := range mappings {
		state, known := states[m.InstanceUUID]
		if known && !state.Hidden && m.CellUUID == cell.UUID && m.QueuedForDelete != nil &&
			*m.QueuedForDelete != state.Gone() {
			differ = append(differ, m)
		}
	}
	return differ
}

// StillDiffering are the mappings whose queued_for_delete, read again after the cell was asked
// again, still differs from what the cell says. It asks the cell as States does, and reads the
// mappings once.
func StillDiffering(
	ctx context.Context, store apidb.Store, g *gather.Gatherer, cell apidb.Cell, before []apidb.Mapping,
) ([]apidb.Mapping, error) {
	uuids := Servers(before)
	states, err := States(ctx, g, cell, uuids)
	if err != nil {
		return nil, err
	}
	mappings, err := store.MappingsOf(ctx, uuids)
	if err != nil {
		return nil, err
	}
	return Differing(cell, slices.Collect(maps.Values(mappings)), states), nil
}
