// SPDX-License-Identifier: Apache-2.0

package cloudaudit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// Placement is what is read of Placement. ReleaseIf is what a repair does: it removes what a
// consumer holds, if confirm returns no error after that was read.
type Placement interface {
	Aggregates(ctx context.Context, provider string) ([]string, error)
	Allocations(ctx context.Context, consumer string) (placementclient.ConsumerAllocations, error)
	AllocationsOf(ctx context.Context, provider string) (map[string]wire.HeldAllocation, error)
	Inventories(ctx context.Context, provider string) (map[string]wire.Inventory, error)
	Providers(ctx context.Context, query url.Values) ([]wire.ResourceProvider, error)
	ReleaseIf(ctx context.Context, consumer string, confirm func(context.Context) error) error
}

// Config is what an audit asks, and what it may do.
type Config struct {
	Store     apidb.Store
	Gatherer  *gather.Gatherer
	Placement Placement
	// Repair fixes the findings that have exactly one fix: allocations of servers that are deleted
	// in their cell, and of migrations that are over, are removed; what the API database says of a
	// deletion becomes what the cell says; nodes that may be mapped are mapped. Each is checked
	// again right before it is written.
	Repair bool
	// DiscoverPatterns are as in [cellmappings.DiscoverOptions], for the nodes that Repair maps.
	DiscoverPatterns []string
	// Progress is called with each part before it is read or compared; nil is off.
	Progress func(what string)
}

// Run compares all of it. Placement, or a cell, that does not answer, and a cell that has another
// database than before, is unchecked, and what only it knows is left out. Cost: a request to
// Placement for each resource provider, a page of servers for each thousand of them, two for the
// nodes of each cell, and some for each finding.
//
// Errors: the API database cannot be read.
func Run(ctx context.Context, c Config) (report Report, err error) {
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	a := &audit{
		c: c, checked: map[string]bool{}, mapped: map[string]apidb.Node{}, reported: map[string]reportedNode{},
		pending: map[string]bool{}, living: map[string]apidb.Mapping{}, servers: map[string]auditServer{},
		up: map[hostKey]bool{}, discovered: map[string]discoverResult{},
		report: Report{HostsDown: []string{}, Unchecked: []Unchecked{}, Findings: []Finding{}},
	}
	for _, step := range []func(context.Context) error{
		a.readNodes, a.readPlacement, a.readDatabase, a.readCells, a.auditServers, a.auditConsumers,
		a.auditNodes, a.auditProviders,
	} {
		if err := step(ctx); err != nil && !errors.Is(err, errNoAnswer) {
			return a.report, err
		}
	}
	defer func() { report.Cells = len(a.checked) }()
	a.repairing = true
	for i := range a.report.Findings {
		f := &a.report.Findings[i]
		if !c.Repair || f.repair == nil {
			continue
		}
		done, err := f.repair(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return a.report, ctx.Err()
		case err != nil:
			f.Problem = err.Error()
		default:
			f.Repaired = done
		}
	}
	return a.report, nil
}

// audit is one call of Run.
type audit struct {
	c      Config
	report Report
	// repairing: all is compared; what does not answer now is a problem of one repair.
	repairing  bool
	discovered map[string]discoverResult // by cell: what mapping its nodes came to

	cells     []apidb.Cell
	checked   map[string]bool // cells, by uuid
	placement bool            // it was read, and answers since
	mapped    map[string]apidb.Node
	// reported are the nodes that hosts report to cells that were checked, by uuid.
	reported map[string]reportedNode
	up       map[hostKey]bool

	auditProviderSet
	pending map[string]bool          // servers that are built, or may hold something
	living  map[string]apidb.Mapping // by server, of all cells
	servers map[string]auditServer   // by uuid: those that are not deleted in a cell that was checked
}

// auditProviderSet is what Placement has. The place of a resource provider is the root of its tree,
// but for one that is shared: that is a place of its own.
type auditProviderSet struct {
	places  map[string]string          // by provider, all of them
	names   map[string]string          // by place
	roots   map[string]string          // by place: the root of its tree
	compute map[string]bool            // roots of compute nodes
	sharing map[string]bool            // providers that trees of other roots may use
	held    map[string]map[string]bool // by consumer: the places of what it holds
}

// hostKey is a host of a cell, by its uuid.
type hostKey struct{ cell, host string }

// reportedNode is a node as its cell has it.
type reportedNode struct {
	cellwire.ComputeNode
	cell apidb.Cell
}

// auditServer is a server as its cell has it.
type auditServer struct {
	cellwire.Server
	cell apidb.Cell
}

func (a *audit) addFinding(f Finding) {
	if f.repair == nil && f.Manual == "" {
		f.Manual = manual[f.Kind]
	}
	a.report.Findings = append(a.report.Findings, f)
}

// complete reports whether every cell was checked: only then is it known that something is in none.
func (a *audit) complete() bool { return len(a.checked) == len(a.cells) }

// errNoAnswer says that a service does not answer, which the report has.
var errNoAnswer = errors.New("no answer")

// cellUnavailable is the error of a cell, which is unchecked from now on, with errNoAnswer.
func (a *audit) cellUnavailable(ctx context.Context, cell apidb.Cell, err error) error {
	return a.recordUnavailable(ctx, err, Unchecked{Cell: cell.Name, Leaves: leavesCell, Partly: a.checked[cell.UUID]},
		func() { delete(a.checked, cell.UUID) })
}

// placementUnavailable is cellUnavailable, of Placement. What was read of it stays, for the repair
// of what was found before.
func (a *audit) placementUnavailable(ctx context.Context, err error) error {
	return a.recordUnavailable(ctx, err, Unchecked{Leaves: leavesPlacement, Partly: a.placement},
		func() { a.placement = false })
}

// recordUnavailable notes once that a service does not answer, unless the audit ends or repairs.
func (a *audit) recordUnavailable(ctx context.Context, err error, service Unchecked, mark func()) error {
	if err == nil || ctx.Err() != nil || a.repairing || errors.Is(err, errNoAnswer) {
		return err
	}
	mark()
	if !slices.ContainsFunc(a.report.Unchecked, func(u Unchecked) bool { return u.Cell == service.Cell }) {
		service.Why = err.Error()
		a.report.Unchecked = append(a.report.Unchecked, service)
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// askCell is gather.One for a cell that is unchecked if it does not answer. That it does not
// know a thing is an answer.
func askCell[T any](
	ctx context.Context, a *audit, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error),
) (T, error) {
	answer, err := gather.One(ctx, a.c.Gatherer, cell, ask)
	if cellclient.IsNotFound(err) {
		return answer, err
	}
	return answer, a.cellUnavailable(ctx, cell, err)
}

// checkDatabase returns an error unless a cell answers now from the database that is its own.
func (a *audit) checkDatabase(ctx context.Context, cell apidb.Cell) error {
	databases, err := a.c.Store.CellDatabases(ctx) // before it is asked
	if err != nil {
		return err
	}
	seen, err := cellmappings.Mark(ctx, a.c.Gatherer, cell)
	switch known := databases[cell.UUID]; {
	case err != nil:
		return err
	case known.Suspect != nil || !known.Fits(seen):
		return errors.New(
			"it has another database than before, or an older copy: see `compute-agent cells manage list`")
	}
	return nil
}

// checkDeleted returns an error unless the cell of a server says that it is deleted, or does not
// know it although its mapping says so.
func (a *audit) checkDeleted(ctx context.Context, uuid string, cell apidb.Cell) error {
	m, err := a.c.Store.Mapping(ctx, uuid)
	if err != nil {
		return err
	}
	if m.CellUUID != cell.UUID {
		return errors.New("it is mapped to another cell now")
	}
	if err := a.checkDatabase(ctx, cell); err != nil {
		return err
	}
	states, err := cellmappings.States(ctx, a.c.Gatherer, cell, []string{uuid})
	if err != nil {
		return err
	}
	if state, known := states[uuid]; known && !state.Deleted && !cell.IsCell0() || !known && !m.Queued() {
		return fmt.Errorf("cell %s says now that it is not deleted", cell.Name)
	}
	return nil
}
