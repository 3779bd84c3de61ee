// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// reinsertRow inserts a lost hidden row again into the cell of a server that is placed: a cell that
// hung can erase the row of an earlier attempt after it inserted the final one. The row is for the
// node that was claimed last, whose allocations the server holds. Without one, as in cell0, the row
// is in error: as its place is decided, the server exists nowhere else.
func (s *Scheduler) reinsertRow(ctx context.Context, request apidb.BuildRequest, h *hosts) error {
	uuid, cell := request.UUID, h.cells[request.CellUUID]
	if h.suspect[cell.UUID] {
		return fmt.Errorf(
			"the row of server %s is not in its cell, which has another database than before: waiting until an "+
				"operator resolves this", uuid)
	}
	row := request.Server
	row.VMState, row.TaskState, row.PowerState = cellwire.VMError, "", plugins.PowerNoState
	row.Fault = &cellwire.Fault{Code: faultCode, Message: noValidHost,
		Details: "The row of the server was lost while it was built.", Created: s.opts.Now().UTC()}
	node, claimed, err := s.lastNode(ctx, uuid, h)
	if err != nil {
		return err
	}
	if claimed && node.CellUUID == cell.UUID {
		row.Host, row.Node, row.NodeUUID, row.Zone = node.Host, node.Name, node.UUID, h.zoneOf(node.Host)
		row.VMState, row.TaskState, row.Fault = cellwire.VMBuilding, cellwire.TaskSpawning, nil
	}
	_, err = change(ctx, s, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Insert(ctx, row) })
	if err != nil {
		return fmt.Errorf("inserting server %s once more: %w", uuid, err)
	}
	s.log(ctx).Warn().Str("server", uuid).Str("cell", cell.Name).Str("host", row.Host).
		Msg("The cell lost the row of a server that is being built. The row was inserted again.")
	return nil
}

// lastNode is the node that a server got last.
func (s *Scheduler) lastNode(ctx context.Context, uuid string, h *hosts) (apidb.Node, bool, error) {
	claims, err := s.opts.Store.Claims(ctx, s.opts.Now().Add(s.opts.Grace))
	if err != nil {
		return apidb.Node{}, false, fmt.Errorf("reading the claims: %w", err)
	}
	for _, c := range claims {
		if c.InstanceUUID == uuid {
			node, mapped := h.nodes[c.NodeUUID]
			return node, mapped, nil
		}
	}
	return apidb.Node{}, false, nil
}
