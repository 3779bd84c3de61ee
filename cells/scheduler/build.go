// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/internal/tracing"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
)

// noValidHost is the fault of a server that nothing could take, as Nova has it.
const noValidHost = "No valid host was found. There are not enough hosts available."

// The codes of faults: those of Nova's NoValidHost, TooManyInstances and Invalid.
const (
	faultCode        = 500
	faultCodeQuota   = 413
	faultCodeInvalid = 400
)

// noHost is the fault of a server that nothing could take. Only administrators read why.
func noHost(why string) cellwire.Fault {
	return cellwire.Fault{Code: faultCode, Message: noValidHost, Details: why}
}

// build is one attempt to place one server.
type build struct {
	s     *Scheduler
	spec  apidb.RequestSpec
	view  *view
	hosts *hosts

	destination placementcalls.Destination
	group       *group // nil: none
	hints       hostHints
	move        *serverMove // nil: the server is new

	generation      *int64             // of its allocations when they were last read; nil: unknown, or none
	allocated       bool               // this attempt gave it allocations
	refusedBy       map[string]refusal // why nodes and cells did not take it, by uuid, when they were tried
	tried           int                // targets
	restarted       bool               // what an earlier attempt left was given back
	discoveredHosts bool               // new hosts were mapped for this attempt
	candidates      int
	unmapped        int            // candidates on nodes that no cell is known of
	truncated       bool           // Placement may have more candidates than it returned
	stageByNode     map[string]int // the last stage that was requested for one node alone, by its uuid
	stage           int            // of the requests for candidates, from 1 on
	numaRequests    []string       // the requests divided among NUMA cells, in words
	firstStage      []resourcerequest.Request
	fault           *cellwire.Fault // why it is in cell0
}

// build takes a build request as far as it goes, in a context of the client that asked for it. The
// caller has taken the server. It returns nil if nothing is left to do; after an error the build
// request stays.
func (s *Scheduler) build(ctx context.Context, request apidb.BuildRequest, v *view, afterFailedQuery bool) error {
	hosts, err := v.hosts(ctx)
	if err != nil {
		return err
	}
	if request.CellUUID != "" {
		return s.finish(ctx, request.UUID, hosts.cells[request.CellUUID], false, func(ctx context.Context) error {
			return s.reinsertRow(ctx, request, hosts)
		})
	}
	return s.newBuild(request.RequestSpec, v, hosts, nil).run(ctx, afterFailedQuery)
}

// newBuild returns an attempt to place a new server or, with move, a migrating one.
func (s *Scheduler) newBuild(spec apidb.RequestSpec, v *view, h *hosts, move *serverMove) *build {
	return &build{s: s, spec: spec, view: v, hosts: h, move: move, refusedBy: map[string]refusal{}}
}

// run finds a place by all that the request asks for. afterFailedQuery says that
// Placement has failed its last request, a query for candidates, while it answered others.
func (b *build) run(ctx context.Context, afterFailedQuery bool) error {
	if err := b.readHints(ctx); err != nil {
		return err
	}
	if afterFailedQuery && b.spec.Group != "" {
		if err := b.queryBeforeGroup(ctx); err != nil {
			return err
		}
	}
	leave, err := b.joinGroup(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if b.move != nil && b.move.claimed != nil {
		return b.resumeMigration(ctx, *b.move.claimed)
	}
	return b.place(ctx)
}

// place goes through the stages of requests, and tries one target after the other.
func (b *build) place(ctx context.Context) error {
	stages, err := b.stages(ctx)
	found := 0
	for i := 0; err == nil && i < len(stages); i++ {
		b.stage = i + 1
		var targets []target
		if targets, err = b.targets(ctx, stages[i]); err != nil {
			break
		}
		found += len(targets)
		if placed, err := b.tryEach(ctx, targets); placed || err != nil {
			return err
		}
		if b.truncated {
			if placed, err := b.search(ctx, stages[i]); placed || err != nil {
				return err
			}
		}
		if b.tried == 0 && len(targets) == 0 && b.mayBeNew() {
			if b.hosts, err = b.newHosts(ctx); err != nil {
				return err
			}
			return b.place(ctx)
		}
	}
	var unfit *resourcerequest.InvalidError
	var missing *placementcalls.MissingError
	switch {
	case errors.As(err, &unfit):
		return b.fail(ctx, cellwire.Fault{Code: faultCodeInvalid, Message: unfit.Message})
	case errors.Is(err, placementclient.ErrInvalid), errors.As(err, &missing):
		return b.fail(ctx, noHost(err.Error()))
	case err != nil:
		return err
	}
	return b.fail(ctx, b.noHost(b.whyNoHost(found)))
}

// tryEach tries targets until one takes the server.
func (b *build) tryEach(ctx context.Context, targets []target) (placed bool, err error) {
	for _, t := range targets {
		if b.refusedBy[t.cell.UUID] != takes {
			continue
		}
		b.tried++
		if placed, err := b.tryTarget(ctx, t); placed || err != nil {
			return placed, err
		}
	}
	return false, nil
}

// stages are what Placement is asked for, one after the other.
func (b *build) stages(ctx context.Context) ([][]resourcerequest.Request, error) {
	request, err := b.request()
	if err != nil {
		return nil, err
	}
	request.Limit = b.s.opts.MaxCandidates
	b.candidates, b.unmapped, b.numaRequests, b.stage = 0, 0, nil, 0
	stages := request.Stages(request.HasStages() && b.s.anyNUMACells(ctx))
	b.firstStage = nil
	if len(stages) > 0 {
		b.firstStage = stages[0]
	}
	return stages, nil
}

// request is what Placement is asked for, but for limit and tree.
func (b *build) request() (resourcerequest.Request, error) {
	r, err := resourcerequest.New(b.spec.Flavor, b.s.opts.Aliases)
	if err != nil {
		return r, err
	}
	b.destination, err = placementcalls.DestinationOf(b.hosts.aggregates, b.hosts.zone, b.s.opts.Aggregates, &b.spec,
		r.RequiredTraits())
	r.OneOf, r.NoneOf = b.destination.OneOf, b.destination.NoneOf
	return r, err
}

// targets asks Placement for candidates.
func (b *build) targets(ctx context.Context, requests []resourcerequest.Request) (_ []target, err error) {
	ctx, span := tracing.Child(ctx, "candidates")
	defer func() { span.End(err) }()
	trees, all := b.trees()
	var candidates []resourcerequest.Candidate
	b.truncated = false
	for _, tree := range trees {
		some, more, err := b.queryCandidates(ctx, requests, tree)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, some...)
		b.truncated = b.truncated || all && more
	}
	b.candidates += len(candidates)
	for _, c := range candidates {
		if _, mapped := b.hosts.nodes[c.Root]; !mapped {
			b.unmapped++
		}
	}
	return b.hosts.targets(candidates, b), nil
}

// trees returns the root providers for which Placement is asked for candidates, one request each.
// With all, it is one request for candidates in any tree ("").
func (b *build) trees() (trees []string, all bool) {
	if forced := b.hosts.forced(b.spec); forced != nil {
		return forced, false
	}
	if nodes := b.nodes(); nodes != nil {
		return nodes, false
	}
	return []string{""}, true
}

// mayBeNew reports whether a host that could take the server may be there and not be mapped yet,
// where hosts are mapped without being asked to.
func (b *build) mayBeNew() bool {
	if b.discoveredHosts || b.s.opts.DiscoverInterval <= 0 {
		return false
	}
	forced := b.hosts.forced(b.spec)
	return b.unmapped > 0 || forced != nil && len(forced) == 0
}

// newHosts maps the hosts that are not mapped yet, and returns all. It costs one request to each
// cell, for all servers that wait for it together.
func (b *build) newHosts(ctx context.Context) (*hosts, error) {
	b.discoveredHosts = true
	b.view.discover(ctx)
	return b.view.hosts(ctx)
}

// tryTarget claims one target, allocates its resources to the server and inserts the server into
// its cell; a migration is left to tryMigration. placed is also true if the build ended otherwise.
// If it returns neither placed nor an error, the next target is tried.
func (b *build) tryTarget(ctx context.Context, t target) (placed bool, err error) {
	if b.move != nil {
		return b.tryMigration(ctx, t)
	}
	s, uuid := b.s, b.spec.UUID
	ctx, span := tracing.Child(ctx, "try host")
	span.Set(tracing.KeyHost, t.node.Host)
	defer func() { span.End(err) }()
	err = tracing.Do(ctx, "claim", func(ctx context.Context) error {
		return s.opts.Fenced.Claim(ctx,
			apidb.Claim{InstanceUUID: uuid, NodeUUID: t.node.UUID, CellUUID: t.cell.UUID, CreatedAt: s.opts.Now()})
	})
	switch {
	case errors.Is(err, apidb.ErrGone):
		return true, b.abandon(ctx)
	case err != nil: // also ErrPlaced: it is read again
		return false, err
	}
	if err := s.next(ctx, "claim"); err != nil {
		return false, err
	}
	if fits, err := b.allocate(ctx, t); !fits || err != nil {
		b.noteRefused(t.node)
		return false, err
	}
	if err := s.next(ctx, "allocate"); err != nil {
		return false, err
	}
	if s.opts.RecheckQuota {
		err := s.opts.Quota.Recheck(ctx, b.spec.ProjectID, b.spec.Flavor)
		var exceeded *quota.ExceededError
		if errors.As(err, &exceeded) {
			return true, b.insertIntoCell0(ctx,
				cellwire.Fault{Code: faultCodeQuota, Message: exceeded.Error(), Created: s.opts.Now().UTC()})
		}
		if err != nil {
			return false, err
		}
	}
	if inserted, err := b.insert(ctx, t.cell, b.serverRow(t)); !inserted || err != nil {
		return false, err
	}
	if err := s.next(ctx, "insert"); err != nil {
		return false, err
	}
	return true, b.decide(ctx, t.cell)
}

// noteRefused records that Placement offered a node, and refused to give it.
func (b *build) noteRefused(node apidb.Node) {
	b.refusedBy[node.UUID] = cmp.Or(b.refusedBy[node.UUID], refusedMeanwhile)
}

// serverRow is the server on its host.
func (b *build) serverRow(t target) cellwire.Server {
	row := b.spec.Server
	row.Host, row.Node, row.NodeUUID, row.Zone = t.node.Host, t.node.Name, t.node.UUID, b.hosts.zoneOf(t.node.Host)
	row.VMState, row.TaskState, row.PowerState = cellwire.VMBuilding, cellwire.TaskSpawning, plugins.PowerNoState
	if b.spec.ForcedHost == "" && b.spec.ForcedNode == "" { // as in Nova
		row.Retries = max(b.s.opts.MaxAttempts-1, 0)
	}
	return row
}

// allocateTries is how often the same candidate is tried while others write to Placement.
const allocateTries = 5

// allocate replaces the server's allocations with those of the target. It returns false if they do
// not fit.
func (b *build) allocate(ctx context.Context, t target) (bool, error) {
	placement := b.s.opts.Placement
	if b.allocated { // its generation was raised by that
		b.generation = nil
	}
	for range allocateTries {
		err := placement.Claim(ctx, b.spec.Server, b.generation, t.candidate)
		switch {
		case err == nil:
			b.allocated = true
			return true, nil
		case errors.Is(err, placementcalls.ErrConsumerConflict):
			held, err := placement.Allocations(ctx, b.spec.UUID)
			if err != nil {
				return false, err
			}
			// A scheduler that takes over after this changes the generation.
			if err := b.s.confirm(ctx); err != nil {
				return false, err
			}
			b.generation = held.ConsumerGeneration
		case errors.Is(err, placementclient.ErrConflict):
		case errors.Is(err, placementclient.ErrInsufficientCapacity), errors.Is(err, placementclient.ErrInvalid):
			return false, nil
		default:
			return false, err
		}
	}
	return false, nil
}

// insert puts a hidden row into a cell. It is false if the cell did not take it, or did not say so:
// a row that nothing was decided about stays hidden, and the reconciler removes it.
func (b *build) insert(ctx context.Context, cell apidb.Cell, row cellwire.Server) (bool, error) {
	put := func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
		server, err := c.Insert(ctx, row)
		if row.Retries > 0 && cellclient.IsBadRequest(err) { // an older cell, which does not build it elsewhere
			plain := row
			plain.Retries = 0
			server, err = c.Insert(ctx, plain)
		}
		return server, err
	}
	_, err := change(ctx, b.s, cell, put)
	if cellclient.IsConflict(err) {
		// The hidden row of an attempt before, with another host perhaps.
		if err := b.s.confirm(ctx); err != nil {
			return false, err
		}
		if err = b.discard(ctx, cell); err == nil {
			_, err = change(ctx, b.s, cell, put)
		}
	}
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	if lost := b.s.checkActive(ctx, err); lost != nil {
		return false, lost
	}
	if cellclient.IsContested(err) {
		b.refusedBy[row.NodeUUID] = nodeContested
		b.s.log(ctx).Warn().Err(err).Str("server", row.UUID).Str("cell", cell.Name).Str("node", row.NodeUUID).
			Msg("A cell did not accept a server on a node, because it is not certain whose that is. Trying " +
				"other nodes.")
		return false, nil
	}
	b.refusedBy[cell.UUID] = cellRefused
	if row.KeyName != "" && cellclient.IsBadRequest(err) { // they reject what they do not know
		b.refusedBy[cell.UUID] = cellTooOld
		b.s.log(ctx).Warn().Err(err).Str("server", row.UUID).Str("cell", cell.Name).
			Msg("A cell did not accept a server with a key pair. If it is of an older version, which has none, " +
				"upgrade it. Trying other cells.")
		return false, nil
	}
	b.s.log(ctx).Warn().Err(err).Str("server", row.UUID).
		Str("cell", cell.Name).Msg("A cell did not accept a server. Trying other cells.")
	return false, nil
}

func (b *build) discard(ctx context.Context, cell apidb.Cell) error {
	_, err := change(ctx, b.s, cell, func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
		return struct{}{}, c.Discard(ctx, b.spec.UUID)
	})
	return err
}

// decide maps the server to the cell that has its row, which decides where it is, and finishes the
// build.
func (b *build) decide(ctx context.Context, cell apidb.Cell) error {
	err := tracing.Do(ctx,
		"place", func(ctx context.Context) error { return b.s.opts.Fenced.Place(ctx, b.spec.UUID, cell.UUID) })
	switch {
	case errors.Is(err, apidb.ErrGone):
		return errors.Join(b.discard(ctx, cell), b.abandon(ctx))
	case errors.Is(err, apidb.ErrPlaced):
		return errors.Join(b.discard(ctx, cell), err) // it is read again
	case err != nil:
		return err
	}
	if b.fault != nil {
		b.logUnplaced(ctx, *b.fault)
	}
	if err := b.s.next(ctx, "place"); err != nil {
		return err
	}
	return b.s.finish(fromClient(ctx, b.spec), b.spec.UUID, cell, !b.allocated, nil)
}

// abandon removes what this attempt gave to a server whose owner deleted it. The claim stays, and
// by it the reconciler finds whatever else there may be: what an attempt before, perhaps of another
// process, asked Placement for may still arrive.
func (b *build) abandon(ctx context.Context) error {
	b.s.built(Abandoned)
	if !b.allocated {
		return nil
	}
	return b.s.release(ctx, b.spec.UUID)
}

// fail ends an attempt for which there was no host. What the server holds is given back; if that
// was left by an attempt before, it may be all that kept the server from its host, and there is
// another try.
func (b *build) fail(ctx context.Context, fault cellwire.Fault) error {
	if b.move != nil {
		return b.s.failMigration(ctx, b.move.cell, b.move.Migration, fault)
	}
	held, err := b.s.opts.Placement.Allocations(ctx, b.spec.UUID)
	if err != nil {
		return err
	}
	if len(held.Allocations) > 0 {
		if err := b.s.release(ctx, b.spec.UUID); err != nil {
			return err
		}
		again := !b.allocated && !b.restarted
		b.allocated, b.generation, b.restarted, b.stageByNode = false, nil, true, nil
		if again {
			b.tried = 0
			maps.DeleteFunc(b.refusedBy, func(_ string, why refusal) bool { return why == refusedMeanwhile })
			return b.place(ctx)
		}
	}
	b.allocated = false
	fault.Created = b.s.opts.Now().UTC()
	return b.insertIntoCell0(ctx, fault)
}

// insertIntoCell0 puts the server into cell0, with the reason.
func (b *build) insertIntoCell0(ctx context.Context, fault cellwire.Fault) error {
	cell0, known := b.hosts.cells[apidb.Cell0UUID]
	if !known {
		return errors.New("no cell0 for servers that cannot be scheduled; create it with compute-agent cells manage")
	}
	if b.allocated { // no other server gets it while cell0 is down
		if err := b.s.release(ctx, b.spec.UUID); err != nil {
			return err
		}
		b.allocated = false
	}
	row := b.spec.Server
	row.VMState, row.TaskState, row.PowerState, row.Fault = cellwire.VMError, "", plugins.PowerNoState, &fault
	b.fault = &fault
	inserted, err := b.insert(ctx, cell0, row)
	if err == nil && !inserted && b.refusedBy[cell0.UUID] == cellTooOld { // there is no guest to have the key
		row.KeyName, row.KeyData = "", ""
		inserted, err = b.insert(ctx, cell0, row)
	}
	if err != nil {
		return err
	}
	if !inserted {
		return fmt.Errorf("server %s belongs in cell0, which rejects it: %s", b.spec.UUID, fault.Message)
	}
	if err := b.s.next(ctx, "cell0"); err != nil {
		return err
	}
	return b.decide(ctx, cell0)
}

// finish shows a server that is placed, and ends its build. In cell0 its allocations are removed
// first, unless free says that it has none. A write to Placement that had no answer can still
// arrive: its claim stays for the reconciler. lost is called if the cell does not have the row; nil
// leaves that to the next attempt.
func (s *Scheduler) finish(
	ctx context.Context, uuid string, cell apidb.Cell, free bool, lost func(context.Context) error,
) error {
	if cell.UUID == "" {
		return fmt.Errorf("server %s is in a cell that is not mapped", uuid)
	}
	release := func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Release(ctx, uuid) }
	_, err := change(ctx, s, cell, release)
	if cellclient.IsNotFound(err) && lost != nil {
		if err = lost(ctx); err == nil {
			_, err = change(ctx, s, cell, release)
		}
	}
	if err != nil {
		return fmt.Errorf("releasing server %s in cell %s: %w", uuid, cell.Name, err)
	}
	if err := s.next(ctx, "release"); err != nil {
		return err
	}
	if cell.IsCell0() && !free {
		if err := s.release(ctx, uuid); err != nil {
			return err
		}
	}
	if err := s.opts.Fenced.FinishBuild(ctx, uuid); err != nil {
		return fmt.Errorf("deleting the build request of server %s: %w", uuid, err)
	}
	if cell.IsCell0() {
		s.built(Unplaced)
	} else {
		s.built(Placed)
	}
	return s.step("built")
}
