// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/plugins"
)

// Migrations. A cell stores the state of its migrations. The process that schedules asks each cell
// for the migrations that wait for it, and does one of two things:
//
//	accepted:   choose a host ▶ POST /allocations ▶ Step(destination)
//	            server: source  ─▶  server: destination, migration: source
//	give back:  POST /allocations ▶ Step(given back)
//	            server: destination, migration: source  ─▶  server: source
//
// A migration whose requests Placement fails while it answers others is not tried forever: it ends
// with Step(failed), which says that it may have allocations. These are given back as soon as
// Placement allows it.
//
// A process may end after each arrow. The allocations show how far it came: if the migration has
// any, those of the server are on the chosen host, and no other host is chosen. Each write to
// Placement has the generations of both consumers, so that a late one changes nothing.

// ConsumerTypeMigration is the consumer type of a migration, as Nova has it.
const ConsumerTypeMigration = "MIGRATION"

// Migrate begins a migration of a server that is in a cell, to a certain host unless that is "".
// The cell decides whether the state of the server allows it.
//
// Errors: [apidb.ErrNotFound] for a server that is in no cell; [gather.ErrDown] and the cell's
// refusals pass through. Cost: one request to the cell.
func (s *Scheduler) Migrate(ctx context.Context, m apidb.Mapping, kind cellwire.MigrationType, host string) error {
	if m.CellUUID == "" {
		return fmt.Errorf("server %s in a cell: %w", m.InstanceUUID, apidb.ErrNotFound)
	}
	cell, err := s.cell(ctx, m.CellUUID)
	if err != nil {
		return err
	}
	request := cellwire.MigrateRequest{UUID: uuid.NewString(), Type: kind, Host: host}
	_, err = gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Migration, error) {
			return c.Migrate(ctx, m.InstanceUUID, request)
		})
	if err != nil {
		return fmt.Errorf("migrating server %s in cell %s: %w", m.InstanceUUID, cell.Name, err)
	}
	wake(s.kickMoves)
	return nil
}

// ErrNotResized says that a server has no migration that waits for confirmation.
var ErrNotResized = errors.New("the server has no migration that is finished")

// Decide ends the migration of a server that is resized: it stays where it is, or goes back.
//
// Errors: [ErrNotResized]; [gather.ErrDown] and the cell's refusals pass through. Cost: two
// requests to the cell.
func (s *Scheduler) Decide(ctx context.Context, m apidb.Mapping, confirm bool) error {
	cell, err := s.cell(ctx, m.CellUUID)
	if err != nil {
		return err
	}
	_, err = gather.One(ctx, s.opts.Gatherer, cell, func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
		all, err := c.MigrationsOf(ctx, m.InstanceUUID)
		if err != nil {
			return struct{}{}, err
		}
		for _, one := range slices.Backward(all) { // an older one may still wait for its source
			if one.Status == cellwire.MigrationFinished ||
				!confirm && one.Type == cellwire.MigrationCold && one.Status == cellwire.MigrationConfirm {
				_, err = c.Step(ctx, one.UUID, cellwire.MigrationStep{Confirm: confirm, Revert: !confirm})
				return struct{}{}, err
			}
		}
		return struct{}{}, ErrNotResized
	})
	if err != nil {
		return fmt.Errorf("ending the migration of server %s in cell %s: %w", m.InstanceUUID, cell.Name, err)
	}
	wake(s.kickMoves)
	return nil
}

// ErrNoMigration says that a server has no migration of that number.
var ErrNoMigration = errors.New("the server has no such migration")

// Abort ends the migration of a server with the number, if it has no destination yet or waits for a
// host that is down. Otherwise the cell refuses it.
//
// Errors: [ErrNoMigration]; [gather.ErrDown] and the cell's refusals pass through. Cost: two
// requests to the cell.
func (s *Scheduler) Abort(ctx context.Context, m apidb.Mapping, id int64) error {
	cell, err := s.cell(ctx, m.CellUUID)
	if err != nil {
		return err
	}
	_, err = gather.One(ctx, s.opts.Gatherer, cell, func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
		all, err := c.Migrations(ctx, cellwire.MigrationQuery{ServerUUID: m.InstanceUUID, Limit: cellwire.MaxLimit})
		if err != nil {
			return struct{}{}, err
		}
		i := slices.IndexFunc(all, func(one cellwire.Migration) bool { return one.ID == id })
		if i < 0 {
			return struct{}{}, ErrNoMigration
		}
		_, err = c.Step(ctx, all[i].UUID, cellwire.MigrationStep{Abort: uuid.NewString()})
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("aborting migration %d of server %s in cell %s: %w", id, m.InstanceUUID, cell.Name, err)
	}
	wake(s.kickMoves)
	return nil
}

// migrationLoop does what there is to be done about migrations at each kick, and periodically.
func (s *Scheduler) migrationLoop(ctx context.Context) {
	w := s.newWorkers()
	defer w.all.Wait()
	s.loop(ctx, s.opts.PollInterval, s.kickMoves, func(ctx context.Context) {
		if err := s.dispatchMigrations(ctx, w); err != nil && ctx.Err() == nil {
			s.log(ctx).Warn().Err(err).Msg("Looking for migrations failed in part. Retrying.")
		}
	})
}

// dispatchMigrations gives each migration that is due to a worker, in all cells that are up: one
// request to each. Cells too old to know migrations are left out. It waits for free workers, and
// not for the last ones to end.
func (s *Scheduler) dispatchMigrations(ctx context.Context, w *workers) error {
	cells, err := s.opts.Store.Cells(ctx)
	if err != nil {
		return fmt.Errorf("reading the cells: %w", err)
	}
	cells = slices.DeleteFunc(cells, apidb.Cell.IsCell0)
	due := func(ctx context.Context, c *cellclient.Client) ([]cellwire.Migration, error) {
		return c.MigrationsDue(ctx)
	}
	view := &view{s: s}
	var errs []error
	var unanswered []task
	there, all := map[string]bool{}, true
	gather.Each(ctx, s.opts.Gatherer, cells, due, func(a gather.Answer[[]cellwire.Migration]) {
		for _, m := range a.Value {
			there[m.UUID] = true
		}
		all = all && (a.Err == nil || cellclient.IsNotFound(a.Err))
		switch {
		case a.Down(), cellclient.IsNotFound(a.Err):
		case a.Err != nil:
			errs = append(errs, fmt.Errorf("asking cell %s for migrations: %w", a.Cell.Name, a.Err))
		case len(a.Value) > 0:
			tasks, err := s.migrationTasks(ctx, a.Cell, a.Value, view)
			unanswered = append(unanswered, s.unanswered(&s.migrationDelay, tasks)...)
			errs = append(errs, err, s.dispatch(ctx, w, &s.migrationDelay, tasks))
		}
	})
	s.dispatchUnanswered(w, &s.migrationDelay, unanswered)
	if all {
		s.migrationDelay.retain(there)
	}
	return errors.Join(errs...)
}

// migrationTasks are the tasks of what there is to be done in one cell, if its database is the
// right one.
func (s *Scheduler) migrationTasks(
	ctx context.Context, cell apidb.Cell, list []cellwire.Migration, v *view,
) ([]task, error) {
	if trusted, err := s.checkDatabase(ctx, cell); err != nil || !trusted {
		return nil, err
	}
	tasks := make([]task, 0, len(list))
	for _, m := range list {
		tasks = append(tasks, task{
			server: m.ServerUUID, key: m.UUID, asksPlacement: true,
			do: func(afterFailedQuery bool) { s.stepMigration(ctx, cell, m, v, afterFailedQuery) },
		})
	}
	return tasks, nil
}

// stepMigration tries once what there is to be done about a migration, or puts it off. The caller
// has taken the server.
func (s *Scheduler) stepMigration(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, v *view, afterFailedQuery bool,
) {
	ctx = cellwire.WithOrigin(ctx, cellwire.Origin{RequestID: m.RequestID, UserID: m.UserID,
		ProjectID: m.ProjectID, Traceparent: m.Traceparent})
	ctx, span := s.opts.Tracing.Continue(ctx, "move", m.Traceparent, m.RequestID)
	span.Set(tracing.KeyServer, m.ServerUUID)
	span.Set(tracing.KeyProjectID, m.ProjectID)
	asksPlacement, err := s.runMigration(ctx, cell, m, v, afterFailedQuery)
	span.End(err)
	if !s.recordAttempt(ctx, attempt{
		delays: &s.migrationDelay, server: m.ServerUUID, key: m.UUID, ends: true,
		again:      "Going on with the migrations.",
		unanswered: "Its migration waits. Retrying; after some tries it ends, and its fault says why.",
		down:       "so migrations wait",
		failed:     "A step of a migration failed. Retrying.",
	}, asksPlacement, err) {
		return
	}
	if err := s.failUnansweredMigration(ctx, cell, m, err); err != nil {
		s.log(ctx).Warn().Err(err).Str("server", m.ServerUUID).Str("migration", m.UUID).
			Msg("Could not end a migration. Retrying.")
	}
}

// failUnansweredMigration ends a migration that has no destination, whose requests Placement fails.
// What it may have in Placement is given back afterwards.
func (s *Scheduler) failUnansweredMigration(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, cause error,
) error {
	m, _, _, err := s.readMigration(ctx, cell, m)
	if err != nil || m.UUID == "" || m.GiveBack || m.Status != cellwire.MigrationAccepted {
		return err
	}
	fault := unansweredFault(cause)
	err = s.sendFailure(ctx, cell, m, cellwire.MigrationStep{Failed: &fault, GiveBack: true})
	if cellclient.IsBadRequest(err) { // an older cell, which does not know GiveBack
		return s.failMigration(ctx, cell, m, fault)
	}
	if err == nil {
		s.migrationDelay.recordSuccess(m.UUID, false, 0) // giving back is another matter
		wake(s.kickMoves)
	}
	return err
}

// serverMove is what a build needs in addition when it places a server that moves.
type serverMove struct {
	cellwire.Migration
	cell apidb.Cell
	// excluded are hosts that the server is on, or has to leave yet.
	excluded map[string]bool
	// canMove are the nodes of the cell whose drivers can take it.
	canMove map[string]bool
	// claimed is the node on which the server has its allocations, by an attempt before; nil: none.
	claimed *apidb.Node
}

// runMigration does what there is to be done about a migration, and says whether Placement was
// asked for it. The caller has taken the server.
func (s *Scheduler) runMigration(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, v *view, afterFailedQuery bool,
) (asksPlacement bool, err error) {
	// It is read again: what was done about it since is not to be done once more.
	m, server, others, err := s.readMigration(ctx, cell, m)
	switch {
	case err != nil || m.UUID == "":
		return false, err
	case m.GiveBack:
		return s.giveBack(ctx, cell, m, server, v)
	case m.Status != cellwire.MigrationAccepted || server.TaskState == cellwire.TaskDeleting:
		return false, nil
	}
	hosts, err := v.hosts(ctx)
	if err != nil {
		return true, err
	}
	node, claimed, err := s.claimedNode(ctx, cell, m, hosts)
	if err != nil {
		return true, err
	}
	spec, err := s.specOf(ctx, m.ServerUUID, cell)
	if err != nil {
		return true, err
	}
	spec.Server = server
	spec.ForcedHost, spec.ForcedNode = m.DestHost, ""
	move := &serverMove{Migration: m, cell: cell, excluded: map[string]bool{}, canMove: map[string]bool{}}
	if claimed {
		move.claimed = &node
	}
	for _, other := range others {
		move.excluded[other.SourceHost] = true
	}
	var tried []cellwire.Migration
	nodes, err := gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (_ []cellwire.ComputeNode, err error) {
			if m.Type == cellwire.MigrationBuild {
				tried, err = c.Migrations(
					ctx, cellwire.MigrationQuery{ServerUUID: m.ServerUUID, Type: m.Type, Limit: cellwire.MaxLimit},
				)
				return nil, err
			}
			return c.ComputeNodes(ctx, false)
		})
	if err != nil {
		return true, fmt.Errorf("asking cell %s for its nodes: %w", cell.Name, err)
	}
	for _, attempt := range tried {
		move.excluded[attempt.SourceHost] = true
	}
	for _, n := range nodes {
		move.canMove[n.UUID] = slices.Contains(n.Abilities, plugins.AbilityMigrate)
	}
	return true, s.newBuild(spec, v, hosts, move).run(ctx, afterFailedQuery)
}

// readMigration reads a migration again, with its server and all open migrations of that. One that
// has ended has no uuid.
func (s *Scheduler) readMigration(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration,
) (now cellwire.Migration, server cellwire.Server, all []cellwire.Migration, err error) {
	all, err = gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (_ []cellwire.Migration, err error) {
			if server, err = c.Server(ctx, m.ServerUUID); err != nil {
				return nil, err
			}
			return c.MigrationsOf(ctx, m.ServerUUID)
		})
	if err != nil {
		return now, server, nil, fmt.Errorf("reading server %s in cell %s: %w", m.ServerUUID, cell.Name, err)
	}
	if i := slices.IndexFunc(all, func(one cellwire.Migration) bool { return one.UUID == m.UUID }); i >= 0 {
		now = all[i]
	}
	return now, server, all, nil
}

// claimedNode is the node on which an attempt before has given the server its allocations: only
// then has the migration any.
func (s *Scheduler) claimedNode(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, h *hosts,
) (node apidb.Node, claimed bool, err error) {
	source, err := s.opts.Placement.Allocations(ctx, m.UUID)
	if err != nil || len(source.Allocations) == 0 && m.Type != cellwire.MigrationBuild {
		return node, false, err
	}
	node, claimed, err = s.allocatedNode(ctx, cell, m.ServerUUID, h)
	if claimed || err != nil {
		return node, claimed, err
	}
	return node, false, s.swapBack(ctx, m) // on a node that is gone
}

// allocatedNode is the node of a cell on which a server has its allocations, if there is one.
func (s *Scheduler) allocatedNode(
	ctx context.Context, cell apidb.Cell, server string, h *hosts,
) (node apidb.Node, holds bool, err error) {
	held, err := s.opts.Placement.Allocations(ctx, server)
	if err != nil {
		return node, false, err
	}
	for provider := range held.Allocations {
		found, err := s.opts.Placement.Providers(ctx, url.Values{"uuid": {provider}})
		if err != nil {
			return node, false, fmt.Errorf("reading where server %s has its allocations: %w", server, err)
		}
		for _, p := range found {
			if n, mapped := h.nodes[p.Root]; mapped && n.CellUUID == cell.UUID {
				return n, true, nil
			}
		}
	}
	return node, false, nil
}

// resumeMigration has a server go where an attempt before has claimed what it needs, unless that is
// no place for it any more: its policy or its hints are about servers that went there meanwhile, or
// its user data is not for that host.
func (b *build) resumeMigration(ctx context.Context, node apidb.Node) error {
	m := b.move
	service := b.hosts.services[hostKey{m.cell.UUID, node.Host}]
	takesUserData := b.spec.UserData == "" || b.hosts.takesUserData(node.Host, service.Auth)
	if takesUserData && b.group.takes(node.Host) && b.hintRefusal(node.Host) == takes {
		return b.s.setDestination(ctx, m.cell, m.Migration, node, b.hosts)
	}
	if err := b.s.swapBack(ctx, m.Migration); err != nil {
		return err
	}
	return b.place(ctx)
}

// setDestination tells the cell where the server goes. If the cell does not have it so, because the
// server is being deleted, or the host has lost an ability, the allocations go back.
func (s *Scheduler) setDestination(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, node apidb.Node, h *hosts,
) error {
	step := cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: node.Host, Node: node.Name,
		NodeUUID: node.UUID, Zone: h.zoneOf(node.Host)}}
	err := s.sendStep(ctx, cell, m, step)
	if cellclient.IsConflict(err) || cellclient.IsUnable(err) ||
		cellclient.IsContested(err) || cellclient.IsNotFound(err) {
		return errors.Join(s.swapBack(ctx, m), err)
	}
	if err != nil {
		return err
	}
	s.log(ctx).Info().Str("server", m.ServerUUID).Str("migration", m.UUID).Str("type", string(m.Type)).
		Str("from", m.SourceHost).Str("to", node.Host).
		Msg("Chose the destination of a server that moves.")
	return s.step("destination")
}

// sendStep sends a step of a migration to its cell. Errors of the cell are wrapped.
func (s *Scheduler) sendStep(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, step cellwire.MigrationStep,
) error {
	_, err := change(ctx, s, cell, func(ctx context.Context, c *cellclient.Client) (cellwire.Migration, error) {
		return c.Step(ctx, m.UUID, step)
	})
	if err != nil {
		return fmt.Errorf("changing migration %s of server %s in cell %s: %w", m.UUID, m.ServerUUID, cell.Name, err)
	}
	return nil
}

// tryMigration claims a target and tells the cell.
func (b *build) tryMigration(ctx context.Context, t target) (placed bool, err error) {
	m := b.move.Migration
	fits, err := b.claimMigration(ctx, t)
	if err != nil || !fits {
		b.noteRefused(t.node)
		return false, err
	}
	if err := b.s.next(ctx, "move"); err != nil {
		return false, err
	}
	return true, b.s.setDestination(ctx, b.move.cell, m, t.node, b.hosts)
}

// errClaimed says that an attempt before, whose outcome was unknown, has succeeded since.
var errClaimed = errors.New("the migration has its allocations already")

// readUnclaimed reads what the server of a migration holds, before a write of that. It is
// errClaimed if the migration holds something.
func (s *Scheduler) readUnclaimed(
	ctx context.Context, m cellwire.Migration,
) (held placementclient.ConsumerAllocations, err error) {
	if held, err = s.opts.Placement.Allocations(ctx, m.ServerUUID); err != nil {
		return held, err
	}
	source, err := s.opts.Placement.Allocations(ctx, m.UUID)
	if err != nil {
		return held, err
	}
	if len(source.Allocations) > 0 {
		return held, errClaimed
	}
	return held, s.confirm(ctx)
}

// claimMigration gives the server's allocations to the migration and those of the target to the
// server, at once. It is false if that does not fit.
func (b *build) claimMigration(ctx context.Context, t target) (bool, error) {
	p, m := b.s.opts.Placement, b.move.Migration
	for range allocateTries {
		held, err := b.s.readUnclaimed(ctx, m)
		if err != nil {
			return false, err
		}
		to := t.candidate.ConsumerAllocations
		to.ProjectID, to.UserID, to.ConsumerGeneration, to.ConsumerType = b.spec.ProjectID, b.spec.UserID,
			held.ConsumerGeneration, placementcalls.ConsumerType
		all := map[string]wire.ConsumerAllocations{m.ServerUUID: to}
		if len(held.Allocations) > 0 && m.Type != cellwire.MigrationBuild {
			of := held.ConsumerAllocations
			of.ConsumerGeneration, of.ConsumerType, of.Mappings = nil, ConsumerTypeMigration, nil
			all[m.UUID] = of
		}
		switch err := p.PostAllocations(ctx, all); {
		case err == nil:
			return true, nil
		case errors.Is(err, placementclient.ErrConflict):
		case errors.Is(err, placementclient.ErrInsufficientCapacity), errors.Is(err, placementclient.ErrInvalid):
			return false, nil
		default:
			return false, fmt.Errorf("allocating for server %s and its migration: %w", m.ServerUUID, err)
		}
	}
	return false, nil
}

// failMigration ends a migration for which there is no host. Where Placement refuses the fence, the
// server does not wait for that.
func (s *Scheduler) failMigration(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, fault cellwire.Fault,
) error {
	step := cellwire.MigrationStep{Failed: &fault}
	_, err := s.fence(ctx, m)
	if step.GiveBack = refused(err); err != nil && !step.GiveBack {
		return err
	}
	if err := s.next(ctx, "fail"); err != nil {
		return err
	}
	return s.sendFailure(ctx, cell, m, step)
}

// sendFailure tells its cell that a migration without a destination has failed.
func (s *Scheduler) sendFailure(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, step cellwire.MigrationStep,
) error {
	step.Failed.Created = s.opts.Now().UTC()
	err := s.sendStep(ctx, cell, m, step)
	if cellclient.IsConflict(err) || cellclient.IsNotFound(err) {
		return nil // it is being deleted
	}
	if err != nil {
		return err
	}
	s.log(ctx).Warn().Str("server", m.ServerUUID).Str("migration", m.UUID).Str("type", string(m.Type)).
		Str("from", m.SourceHost).Str("why", step.Failed.Details).
		Msg("No valid host was found for a server that was to move, or that its host cannot build. It stays where " +
			"it is; its fault says why.")
	return nil
}

// confirmOld confirms the migrations of a cell that are finished since longer than ConfirmAfter. It
// costs a request to the cell, and one for each of them.
func (s *Scheduler) confirmOld(ctx context.Context, cell apidb.Cell) error {
	if s.opts.ConfirmAfter <= 0 {
		return nil
	}
	before := s.opts.Now().Add(-s.opts.ConfirmAfter)
	query := cellwire.MigrationQuery{Status: cellwire.MigrationFinished,
		ChangedBefore: &before, Limit: cellwire.MaxLimit}
	old, err := gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.Migration, error) {
			return c.Migrations(ctx, query)
		})
	if err != nil {
		return fmt.Errorf("asking cell %s for migrations to confirm: %w", cell.Name, err)
	}
	todo := make([]serverTask, 0, len(old))
	for _, m := range old {
		todo = append(todo, serverTask{m.ServerUUID, func() error {
			err := s.sendStep(ctx, cell, m, cellwire.MigrationStep{Confirm: true})
			if cellclient.IsConflict(err) || cellclient.IsNotFound(err) { // it is reverted, or deleted
				return nil
			}
			return err
		}})
	}
	return s.eachLocked(todo)
}
