// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/plugins"
)

func (s *Scheduler) reconcileAndLog(ctx context.Context) {
	if err := s.reconcile(ctx); err != nil && ctx.Err() == nil {
		s.opts.Logger.Warn().Err(err).Msg("Cleaning up after deleted or half-built servers failed in part. Retrying.")
	}
}

// reconcile does one round. A cell that is down is left for later, and so is one that has another
// database than its own; other errors do not keep it from the rest.
func (s *Scheduler) reconcile(ctx context.Context) error {
	cells, err := s.opts.Store.Cells(ctx)
	if err != nil {
		return fmt.Errorf("reading the cells: %w", err)
	}
	errs := []error{s.clearClaims(ctx)}
	databases, err := s.opts.Store.CellDatabases(ctx) // before they are asked
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	unfinished := func(ctx context.Context, c *cellclient.Client) (cellwire.Unfinished, error) {
		return c.Unfinished(ctx, s.opts.Grace, s.opts.Reclaim)
	}
	gather.Each(ctx, s.opts.Gatherer, cells, unfinished, func(a gather.Answer[cellwire.Unfinished]) {
		if a.Down() {
			return
		}
		if a.Err != nil {
			errs = append(errs, fmt.Errorf("asking cell %s for unfinished servers: %w", a.Cell.Name, a.Err))
			return
		}
		trusted, err := s.recordDatabase(ctx, a.Cell, databases[a.Cell.UUID],
			apidb.CellMark{Epoch: a.Value.Epoch, Revision: a.Value.Revision})
		if err != nil || !trusted {
			errs = append(errs, err)
			return
		}
		errs = append(errs, s.finishAll(ctx, a.Cell, a.Value), s.confirmOld(ctx, a.Cell), s.compare(ctx, a.Cell))
	})
	return errors.Join(errs...)
}

// serverTask is what is done about a server.
type serverTask struct {
	uuid string
	do   func() error
}

// eachLocked changes servers, as many at once as there are workers, each as tryLocked does.
func (s *Scheduler) eachLocked(todo []serverTask) error {
	errs := make([]error, len(todo))
	slots := make(chan struct{}, s.opts.Workers)
	var all sync.WaitGroup
	for i, t := range todo {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.tryLocked(t.uuid, t.do)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// tryLocked changes a server under its lock, unless that is held in this process; then it
// is left for the next round.
func (s *Scheduler) tryLocked(uuid string, do func() error) error {
	free, _ := s.locks.tryLock(uuid)
	if free == nil {
		return nil
	}
	defer free()
	if err := do(); err != nil {
		return fmt.Errorf("server %s: %w", uuid, err)
	}
	return nil
}

// clearClaims cleans up claims without a build request.
func (s *Scheduler) clearClaims(ctx context.Context) error {
	claims, err := s.opts.Store.Claims(ctx, s.opts.Now().Add(-s.opts.Grace))
	if err != nil {
		return fmt.Errorf("reading the claims: %w", err)
	}
	s.mu.Lock()
	released := s.released
	s.released = map[string]time.Time{}
	s.mu.Unlock()
	todo := make([]serverTask, 0, len(claims))
	for _, c := range claims {
		todo = append(todo, serverTask{c.InstanceUUID,
			func() error { return s.clearClaim(ctx, c.InstanceUUID, released[c.InstanceUUID]) }})
	}
	return s.eachLocked(todo)
}

// lateWriteDivisor is the part of Grace that Placement has, once it answers, to do what it was
// asked for before: Grace divided by this.
const lateWriteDivisor = 6

// clearClaim cleans up one claim. If no build or cell accounts for it, the server's allocations are
// removed, after some time once more, and then the claim: a Placement that hung can carry out the
// claim's request after the first removal. released is the time of that one, or zero.
func (s *Scheduler) clearClaim(ctx context.Context, uuid string, released time.Time) error {
	_, err := s.opts.Store.BuildRequest(ctx, uuid)
	if err == nil {
		return nil // the scheduler's
	}
	if !errors.Is(err, apidb.ErrNotFound) {
		return err
	}
	m, err := s.opts.Store.Mapping(ctx, uuid)
	if err != nil && !errors.Is(err, apidb.ErrNotFound) {
		return err
	}
	if m.CellUUID != "" && m.CellUUID != apidb.Cell0UUID { // in cell0 it holds nothing, alive or not
		cell, err := s.cell(ctx, m.CellUUID)
		if err != nil {
			return err
		}
		states, err := cellmappings.States(ctx, s.opts.Gatherer, cell, []string{uuid})
		if errors.Is(err, gather.ErrDown) {
			return nil
		}
		if err != nil {
			return err
		}
		if state, known := states[uuid]; known && !state.Deleted {
			return s.corrected(ClearedClaim, s.opts.Fenced.Unclaim(ctx, uuid)) // its cell accounts for it
		}
		trusted, err := s.checkDatabase(ctx, cell)
		if errors.Is(err, gather.ErrDown) {
			return nil
		}
		if err != nil || !trusted {
			return err
		}
	}
	if err := s.release(ctx, uuid); err != nil {
		return err
	}
	now := s.opts.Now()
	if released.IsZero() {
		released = now
	}
	if now.Sub(released) < s.opts.Grace/lateWriteDivisor {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.released[uuid] = released
		return nil
	}
	return s.corrected(ClearedClaim, s.opts.Fenced.Unclaim(ctx, uuid))
}

// finishAll does what a cell has left to do.
func (s *Scheduler) finishAll(ctx context.Context, cell apidb.Cell, u cellwire.Unfinished) error {
	var todo []serverTask
	for _, server := range u.Hidden {
		todo = append(todo, serverTask{server.UUID, func() error { return s.finishHidden(ctx, cell, server.UUID) }})
	}
	for _, server := range u.Unfreed {
		todo = append(todo, serverTask{server.UUID,
			func() error { return s.corrected(FreedDeleted, s.unallocate(ctx, server.UUID, cell)) }})
	}
	if s.opts.Reclaim > 0 {
		for _, server := range u.Reclaimable {
			todo = append(todo, serverTask{server.UUID,
				func() error { return s.corrected(Reclaimed, s.reclaim(ctx, cell, server)) }})
		}
	}
	return s.eachLocked(todo)
}

// finishHidden releases or erases a row that was inserted and then forgotten.
func (s *Scheduler) finishHidden(ctx context.Context, cell apidb.Cell, uuid string) error {
	m, err := s.opts.Store.Mapping(ctx, uuid)
	if err != nil && !errors.Is(err, apidb.ErrNotFound) {
		return err
	}
	unknown := err != nil
	_, err = change(ctx, s, cell, func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
		switch {
		case m.CellUUID == cell.UUID:
			_, err := c.Release(ctx, uuid)
			return struct{}{}, s.corrected(ReleasedHidden, err)
		case unknown, m.CellUUID != "", m.Queued():
			return struct{}{}, s.corrected(DiscardedHidden, c.Discard(ctx, uuid))
		}
		return struct{}{}, nil // nothing is decided yet
	})
	return err
}

// reclaim deletes for good what was softly deleted for long enough.
func (s *Scheduler) reclaim(ctx context.Context, cell apidb.Cell, u cellwire.UnfinishedServer) error {
	m, err := s.opts.Store.Mapping(ctx, u.UUID)
	if err != nil {
		return err
	}
	if m.CellUUID != cell.UUID {
		return fmt.Errorf("it is soft-deleted in cell %s, but mapped to cell %q", cell.UUID, m.CellUUID)
	}
	// It may be restored since the cell was asked, and be deleted once more.
	now, err := gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Server(ctx, u.UUID) })
	if err != nil {
		return err
	}
	if now.DeletedAt == nil || !now.DeletedAt.Equal(u.Since) {
		return nil
	}
	err = s.deleteIn(ctx, m, cellwire.DeleteReclaim)
	if cellclient.IsConflict(err) {
		return nil
	}
	if err == nil {
		s.opts.Logger.Info().Str("server", u.UUID).Time("deleted", u.Since).Msg("Reclaiming a soft-deleted server.")
	}
	return err
}

// compare corrects queued_for_delete where it says something else than the cell. Servers that the
// cell does not know are left as they are.
func (s *Scheduler) compare(ctx context.Context, cell apidb.Cell) error {
	s.mu.Lock()
	from := s.cursor[cell.UUID]
	s.mu.Unlock()
	mappings, err := s.opts.Store.MappingsAfter(ctx, cell.UUID, from, cellmappings.Page)
	if err != nil {
		return fmt.Errorf("reading the mappings of cell %s: %w", cell.Name, err)
	}
	next := int64(0) // from the beginning
	if len(mappings) == cellmappings.Page {
		next = mappings[len(mappings)-1].ID
	}
	var differ []apidb.Mapping
	if len(mappings) > 0 {
		states, statesErr := cellmappings.States(ctx, s.opts.Gatherer, cell, cellmappings.Servers(mappings))
		differ, err = cellmappings.Differing(cell, mappings, states), statesErr
	}
	// Once more, because a deletion writes in two places: what differs still is not under way.
	if err == nil && len(differ) > 0 {
		differ, err = cellmappings.StillDiffering(ctx, s.opts.Store, s.opts.Gatherer, cell, differ)
	}
	if err == nil && len(differ) > 0 {
		err = s.fixFlags(ctx, cell, differ)
	}
	if errors.Is(err, gather.ErrDown) {
		return nil
	}
	if err == nil {
		s.mu.Lock()
		s.cursor[cell.UUID] = next
		s.mu.Unlock()
	}
	return err
}

// fixFlags inverts the flags of mappings, each while the server is taken.
func (s *Scheduler) fixFlags(ctx context.Context, cell apidb.Cell, differ []apidb.Mapping) error {
	todo := make([]serverTask, 0, len(differ))
	for _, m := range differ {
		todo = append(todo, serverTask{m.InstanceUUID, func() error {
			still, err := cellmappings.StillDiffering(ctx, s.opts.Store, s.opts.Gatherer, cell, []apidb.Mapping{m})
			if err != nil || len(still) == 0 {
				return err
			}
			queued := !still[0].Queued() // the other of what was compared, whatever others have written since
			// rare: after a restore whose process died. It may be another database that answers
			// since this round began.
			if !queued {
				if trusted, err := s.checkDatabase(ctx, cell); err != nil || !trusted {
					return err
				}
			}
			s.opts.Logger.Info().Str("server", m.InstanceUUID).Str("cell", cell.Name).Bool("queued_for_delete", queued).
				Msg("Corrected queued_for_delete of a server's mapping: it differed from the cell.")
			return s.corrected(CorrectedQueued, s.opts.Fenced.SetQueued(ctx, map[string]bool{m.InstanceUUID: queued}))
		}})
	}
	return s.eachLocked(todo)
}

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
