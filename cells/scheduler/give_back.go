// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// fence writes the server's allocations again unchanged, which raises their generation: a claim
// that the migration sent before then fails when it arrives. It is errClaimed if one has arrived.
// fenced is false if the server holds nothing, and so has no generation.
func (s *Scheduler) fence(ctx context.Context, m cellwire.Migration) (fenced bool, err error) {
	held, err := s.readUnclaimed(ctx, m)
	if err != nil {
		return false, err
	}
	switch {
	case m.Type == cellwire.MigrationBuild:
		return false, s.release(ctx, m.ServerUUID)
	case len(held.Allocations) > 0:
		same := held.ConsumerAllocations
		if same.Mappings = nil; !providertree.IsSymbol(same.ConsumerType) {
			same.ConsumerType = placementcalls.ConsumerType
		}
		if err := s.opts.Placement.PutAllocations(ctx, m.ServerUUID, same); err != nil {
			return false, fmt.Errorf("writing the allocations of server %s once more: %w", m.ServerUUID, err)
		}
		return true, nil
	}
	return false, nil
}

// releaseLateClaim releases what a server that stays where it is holds elsewhere: a claim that
// arrived late for one that had nothing, so that its migration has nothing either.
func (s *Scheduler) releaseLateClaim(ctx context.Context, cell apidb.Cell, m cellwire.Migration, v *view) error {
	hosts, err := v.hosts(ctx)
	if err != nil {
		return err
	}
	node, holds, err := s.allocatedNode(ctx, cell, m.ServerUUID, hosts)
	if err != nil || !holds || node.UUID == m.SourceNodeUUID { // its host may have another name since
		return err
	}
	if err := s.confirm(ctx); err != nil {
		return err
	}
	return s.release(ctx, m.ServerUUID)
}

// swapBack gives the server what the migration has, and takes from it what it has elsewhere. One
// that its host cannot build has nothing.
func (s *Scheduler) swapBack(ctx context.Context, m cellwire.Migration) error {
	p := s.opts.Placement
	if m.Type == cellwire.MigrationBuild {
		if err := s.confirm(ctx); err != nil {
			return err
		}
		return s.release(ctx, m.ServerUUID)
	}
	var err error
	for range allocateTries {
		var source, held placementclient.ConsumerAllocations
		if source, err = p.Allocations(ctx, m.UUID); err != nil {
			return err
		}
		if len(source.Allocations) == 0 {
			return nil // it was done
		}
		if held, err = p.Allocations(ctx, m.ServerUUID); err != nil {
			return err
		}
		if err := s.confirm(ctx); err != nil {
			return err
		}
		back, none := source.ConsumerAllocations, source.ConsumerAllocations
		back.ConsumerGeneration, back.ConsumerType = held.ConsumerGeneration, placementcalls.ConsumerType
		back.Mappings = nil
		none.Allocations, none.ConsumerType, none.Mappings = wire.ProviderResources{}, ConsumerTypeMigration, nil
		err = p.PostAllocations(ctx, map[string]wire.ConsumerAllocations{m.ServerUUID: back, m.UUID: none})
		if !errors.Is(err, placementclient.ErrConflict) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("giving the allocations of migration %s back to server %s: %w", m.UUID, m.ServerUUID, err)
	}
	return nil
}

// giveBack gives the allocations on the source back to the server, or removes them if it is
// deleted, and says whether Placement was asked. While the server is being deleted, it does
// nothing.
//
// A migration without a destination may have claimed one. If fence has no effect, it ends only when
// its cell says that a claim can no longer arrive.
func (s *Scheduler) giveBack(
	ctx context.Context, cell apidb.Cell, m cellwire.Migration, server cellwire.Server, v *view,
) (asksPlacement bool, err error) {
	var unfenced error
	step := cellwire.MigrationStep{GivenBack: true}
	switch {
	case server.Deleted:
		for _, consumer := range []string{m.UUID, m.ServerUUID} {
			if err := s.release(ctx, consumer); err != nil {
				return true, err
			}
		}
	case server.TaskState == cellwire.TaskDeleting:
		return false, nil
	default:
		if err := s.swapBack(ctx, m); err != nil {
			return true, err
		}
		if m.DestNode == "" {
			if err := s.releaseLateClaim(ctx, cell, m, v); err != nil {
				return true, err
			}
			fenced, err := s.fence(ctx, m)
			if err != nil && !refused(err) {
				return true, err
			}
			if step.Fenced = fenced; !fenced {
				why := "the server holds nothing that could be written once more"
				if err != nil {
					why = err.Error()
				}
				unfenced = fmt.Errorf(
					"migration %s ends ten minutes after it failed or was aborted, as a claim of it may "+
						"still arrive: %s", m.UUID, why)
			}
		}
	}
	if err := s.next(ctx, "give back"); err != nil {
		return true, err
	}
	err = s.sendStep(ctx, cell, m, step)
	if cellclient.IsConflict(err) { // it is being deleted since, or it is too early
		return true, unfenced
	}
	return true, err
}

// refused says that Placement does not write what a consumer holds once more: its inventory has
// become less since, or has other units.
func refused(err error) bool {
	var failed *placementclient.Error
	return errors.As(err, &failed) && failed.Method != http.MethodGet &&
		(errors.Is(err, placementclient.ErrInsufficientCapacity) || errors.Is(err, placementclient.ErrInvalid))
}
