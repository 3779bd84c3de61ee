// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
)

// Delete deletes a server, with soft softly if its cell can. For a server that is not placed yet,
// it abandons the build; otherwise it asks the cell. queued_for_delete is set only after the cell
// has agreed. A repeated call changes nothing.
//
// Errors: [gather.ErrDown] if the cell is down: then nothing is changed in the API database, but
// the cell may have received the request, which the reconciler finds out; [apidb.ErrNotFound] if
// the server does not exist any more. Cost: one request to the cell; if its host is down, two to
// Placement and one more to the cell.
func (s *Scheduler) Delete(ctx context.Context, m apidb.Mapping, soft bool) error {
	uuid := m.InstanceUUID
	if m.CellUUID == "" {
		err := s.opts.Store.AbandonBuild(ctx, uuid)
		if !errors.Is(err, apidb.ErrPlaced) {
			return err // the scheduler or the reconciler takes its allocations away, by the claim
		}
		if m, err = s.opts.Store.Mapping(ctx, uuid); err != nil {
			return err
		}
	}
	free, err := s.locks.lock(ctx, uuid)
	if err != nil {
		return err
	}
	defer free()
	kind := cellwire.DeleteNormal
	if soft {
		kind = cellwire.DeleteSoft
	}
	return s.deleteIn(ctx, m, kind)
}

// deleteIn deletes a server in its cell. The caller has taken the server.
func (s *Scheduler) deleteIn(ctx context.Context, m apidb.Mapping, kind cellwire.DeleteKind) error {
	uuid := m.InstanceUUID
	cell, err := s.cell(ctx, m.CellUUID)
	if err != nil {
		return err
	}
	_, err = s.opts.Store.BuildRequest(ctx, uuid)
	building := err == nil // placed, and not released perhaps: its cell deletes it all the same
	if err != nil && !errors.Is(err, apidb.ErrNotFound) {
		return err
	}
	remove := func(ctx context.Context, c *cellclient.Client) (cellwire.DeleteAnswer, error) {
		return c.Delete(ctx, uuid, kind)
	}
	var answer cellwire.DeleteAnswer
	if kind == cellwire.DeleteReclaim { // no client asked for it
		answer, err = change(ctx, s, cell, remove)
	} else {
		answer, err = gather.One(ctx, s.opts.Gatherer, cell, remove)
	}
	if cellclient.IsNotFound(err) {
		return fmt.Errorf("server %s in cell %s: %w", uuid, cell.Name, apidb.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("deleting server %s in cell %s: %w", uuid, cell.Name, err)
	}
	if err := s.step("delete"); err != nil {
		return err
	}
	// It is deleted from here on, whatever else can be done now, and also if the client does not
	// wait for it.
	ctx, cancel := s.detachedContext(ctx)
	defer cancel()
	late := func(err error, what string) {
		if err != nil {
			s.log(ctx).Warn().Err(err).Str("server", uuid).Str("cell", cell.Name).
				Msg("Deleted a server in its cell, but " + what + " failed. The reconciler completes it.")
		}
	}
	late(s.opts.Store.SetQueued(ctx, map[string]bool{uuid: true}), "marking its mapping as deleted")
	if err := s.step("queue"); err != nil {
		return err
	}
	if building {
		late(s.opts.Store.FinishBuild(ctx, uuid), "deleting its build request")
	}
	if answer.Local {
		late(s.unallocate(ctx, uuid, cell), "removing its allocations")
	} else if answer.Server.Deleted && !building {
		return fmt.Errorf("server %s in cell %s was deleted before: %w", uuid, cell.Name, apidb.ErrNotFound)
	}
	return nil
}

// detachedContext is the context of what follows from a cell's yes. It does not end with the
// request: a deletion that is not noted would keep its project from booting as soon as its cell is
// down, until that is back.
func (s *Scheduler) detachedContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.opts.Grace)
}

// unallocate removes the allocations of a server that its cell deleted, and reports it to the cell.
func (s *Scheduler) unallocate(ctx context.Context, uuid string, cell apidb.Cell) error {
	if err := s.opts.Placement.Release(ctx, uuid); err != nil {
		return err
	}
	if err := s.step("unallocate"); err != nil {
		return err
	}
	_, err := gather.One(ctx, s.opts.Gatherer, cell, func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
		return struct{}{}, c.MarkFreed(ctx, uuid)
	})
	return err
}

// Restore takes back the soft delete of a server, if the quota still allows it.
//
// Errors: *quota.ExceededError; [gather.ErrDown] and the cell's refusals pass through;
// [apidb.ErrNotFound] for a server that is in no cell. Cost: a discovery of each cell, and one
// request to the server's cell.
func (s *Scheduler) Restore(ctx context.Context, m apidb.Mapping) (cellwire.Server, error) {
	uuid := m.InstanceUUID
	if m.CellUUID == "" {
		return cellwire.Server{}, fmt.Errorf("server %s in a cell: %w", uuid, apidb.ErrNotFound)
	}
	free, err := s.locks.lock(ctx, uuid)
	if err != nil {
		return cellwire.Server{}, err
	}
	defer free()
	cell, err := s.cell(ctx, m.CellUUID)
	if err != nil {
		return cellwire.Server{}, err
	}
	spec, err := s.specOf(ctx, uuid, cell)
	if err != nil {
		return cellwire.Server{}, err
	}
	spec.ProjectID = m.ProjectID
	boot := quota.Request{Project: spec.ProjectID, Flavor: spec.Flavor, Min: 1, Max: 1, AllowCellDown: true}
	if _, err := s.opts.Quota.Check(ctx, boot); err != nil {
		return cellwire.Server{}, err
	}
	server, err := gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Restore(ctx, uuid) })
	if err != nil {
		return cellwire.Server{}, fmt.Errorf("restoring server %s in cell %s: %w", uuid, cell.Name, err)
	}
	ctx, cancel := s.detachedContext(ctx)
	defer cancel()
	if err := s.opts.Store.SetQueued(ctx, map[string]bool{uuid: false}); err != nil {
		s.log(ctx).Warn().Err(err).Str("server", uuid).
			Msg("Restored a server in its cell, but updating its mapping failed. The reconciler completes it.")
	}
	return server, nil
}

// specOf is what a server was made with: its specification, or, where that is gone, its row.
func (s *Scheduler) specOf(ctx context.Context, uuid string, cell apidb.Cell) (apidb.RequestSpec, error) {
	spec, err := s.opts.Store.RequestSpec(ctx, uuid)
	if !errors.Is(err, apidb.ErrNotFound) {
		return spec, err
	}
	spec.Server, err = gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Server(ctx, uuid) })
	if err != nil {
		return spec, fmt.Errorf("reading server %s in cell %s: %w", uuid, cell.Name, err)
	}
	return spec, nil
}

// cell is the cell of that uuid.
func (s *Scheduler) cell(ctx context.Context, uuid string) (apidb.Cell, error) {
	cells, err := s.opts.Store.Cells(ctx)
	if err != nil {
		return apidb.Cell{}, fmt.Errorf("reading the cells: %w", err)
	}
	for _, c := range cells {
		if c.UUID == uuid {
			return c, nil
		}
	}
	return apidb.Cell{}, fmt.Errorf("cell %s: %w", uuid, apidb.ErrNotFound)
}
