// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellcheck"
)

// An audit compares what the API database, the cells, Placement and, through their cells, the
// agents of all hosts say of the same servers and nodes:
//
//	Placement     resource providers of nodes, and who holds what of them
//	API database  hosts and nodes, mappings, claims, servers that are built
//	cells         servers, nodes, services, migrations; power states, as the agents see the guests
//
// They are read in this order. A server has its claim and its mapping before its allocations, and
// its allocations before its row: what was read first is accounted for by what is read later. Each
// thing that is missing is looked for once more before it is a finding, because servers come, go
// and move meanwhile.

// FindingKind is a kind of what does not fit together.
type FindingKind string

// The kinds.
const (
	// FindingServerLost is a server that its cell does not know.
	FindingServerLost FindingKind = "server-lost"
	// FindingServerUnmapped is a server of a cell that is not mapped to that cell.
	FindingServerUnmapped FindingKind = "server-unmapped"
	// FindingDeletionDiffers is a server that is deleted for the API database alone, or for its
	// cell alone.
	FindingDeletionDiffers FindingKind = "deletion-differs"
	// FindingNoAllocations is a server on a host that holds nothing in Placement.
	FindingNoAllocations FindingKind = "server-without-allocations"
	// FindingElsewhere is a server that holds something on a host where it is not.
	FindingElsewhere FindingKind = "allocations-elsewhere"
	// FindingDeletedHolds is a deleted server, or one without a host, that holds something.
	FindingDeletedHolds FindingKind = "allocations-of-deleted-server"
	// FindingEndedHolds is a migration that is over and holds something.
	FindingEndedHolds FindingKind = "allocations-of-ended-migration"
	// FindingNoConsumer is a consumer that is no server and no migration of any cell.
	FindingNoConsumer FindingKind = "allocations-without-consumer"
	// FindingGuestMissing is a server whose guest its host does not have.
	FindingGuestMissing FindingKind = "guest-missing"
	// FindingUnknownGuests are guests that an agent made, and that no server is about.
	FindingUnknownGuests FindingKind = "guests-without-server"
	// FindingNodeUnmapped is a node that its host reports and that is not mapped.
	FindingNodeUnmapped FindingKind = "node-unmapped"
	// FindingNodeMissing is a mapped node that its cell does not know.
	FindingNodeMissing FindingKind = "node-not-reported"
	// FindingNoProvider is a node without a resource provider.
	FindingNoProvider FindingKind = "node-without-provider"
	// FindingNoHost is a resource provider of a node of no host, or that no node of a host shares.
	FindingNoHost FindingKind = "provider-without-host"
)

// manual is why an audit with repair leaves a kind to an operator; "": it repairs it.
var manual = map[FindingKind]string{
	FindingServerLost:      "either database may be the older copy, and a person knows which",
	FindingServerUnmapped:  "either database may be the older copy, and a person knows which",
	FindingDeletionDiffers: "",
	FindingNoAllocations:   "only the driver of the host knows which of its devices and NUMA cells the guest uses",
	FindingElsewhere:       "only the driver of the other host knows whether the guest is there",
	FindingDeletedHolds:    "",
	FindingEndedHolds:      "",
	FindingNoConsumer:      "it may be another service's",
	FindingGuestMissing:    "what removed the guest, and whether its disks are still there, is not known",
	FindingUnknownGuests:   "a guest may have the only disks of a server",
	FindingNodeUnmapped:    "",
	FindingNodeMissing:     "whether the node is gone for good, a person knows",
	FindingNoProvider:      "only the agent of the host knows what the node has",
	FindingNoHost:          "it may be of an agent without a cell, of Nova, or of another service",
}

// Finding is one thing that does not fit together. What it is not about is empty.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	Cell     string      `json:"cell,omitempty"` // name
	Host     string      `json:"host,omitempty"`
	Provider string      `json:"provider,omitempty"` // uuid of the root: of a node
	Server   string      `json:"server,omitempty"`   // uuid
	Consumer string      `json:"consumer,omitempty"` // uuid, if it is not a server
	// Text says what it is, and Hint what an operator does about it.
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
	// Manual says why an audit with repair leaves it to an operator; "": it repairs it.
	Manual string `json:"manual,omitempty"`
	// Repaired says what was done about it; "": nothing. Problem says why that failed.
	Repaired string `json:"repaired,omitempty"`
	Problem  string `json:"problem,omitempty"`

	repair func(context.Context) (done string, err error) // nil: Manual says why
}

// Repairable reports whether an audit with repair does something about it.
func (f *Finding) Repairable() bool { return f.repair != nil }

// Unchecked is a service whose part of an audit is missing.
type Unchecked struct {
	Cell string `json:"cell,omitempty"` // name; "": it is Placement
	Why  string `json:"why"`
	// Leaves says what is not known without it.
	Leaves string `json:"leaves"`
	// Partly says that it stopped answering meanwhile: what was found before is in the report.
	Partly bool `json:"partly,omitempty"`
}

// String is the name of the service.
func (u Unchecked) String() string {
	if u.Cell == "" {
		return "Placement"
	}
	return "Cell " + u.Cell
}

// What is not known without a service.
const (
	leavesCell = "its servers, nodes and guests; and in all of Placement allocations-without-consumer and " +
		"provider-without-host, because a consumer or provider may be one of this cell"
	leavesPlacement = "all findings about allocations and resource providers: server-without-allocations, " +
		"allocations-elsewhere, allocations-of-deleted-server, " +
		"allocations-of-ended-migration, allocations-without-consumer, node-without-provider and provider-without-host"
)

// AuditReport is what an audit found.
type AuditReport struct {
	// Cells, Nodes, Servers, Providers and Consumers are how many were compared.
	Cells     int `json:"cells"`
	Nodes     int `json:"nodes"`
	Servers   int `json:"servers"`
	Providers int `json:"providers"`
	Consumers int `json:"consumers"`
	// HostsDown are hosts that are not up: their guests are not compared.
	HostsDown []string    `json:"hosts_down"`
	Unchecked []Unchecked `json:"unchecked"`
	Findings  []Finding   `json:"findings"`
}

// Complete reports whether all services and hosts could be asked.
func (r AuditReport) Complete() bool { return len(r.Unchecked)+len(r.HostsDown) == 0 }

// Clean reports whether nothing that was found is left.
func (r AuditReport) Clean() bool {
	for i := range r.Findings {
		if r.Findings[i].Repaired == "" {
			return false
		}
	}
	return true
}

// AuditConfig is what an audit asks, and what it may do.
type AuditConfig struct {
	Store     apidb.Store
	Gatherer  *gather.Gatherer
	Placement *PlacementClient
	// Repair corrects what there is one right correction for: allocations of servers that are
	// deleted in their cell, and of migrations that are over, are removed; what the API database
	// says of a deletion becomes what the cell says; nodes that may be mapped are mapped. Each is
	// looked at once more right before it is written.
	Repair bool
	// DiscoverPatterns are those of [hostdiscovery.Options], for the nodes that Repair maps.
	DiscoverPatterns []string
	// Progress is called with what is read; nil is off.
	Progress func(what string)
}

// Audit compares all of it. Placement, or a cell, that does not answer, and a cell that has another
// database than before, is unchecked, and what only it knows is left out. Cost: a request to
// Placement for each resource provider, a page of servers for each thousand of them, two for the
// nodes of each cell, and some for each finding.
//
// Errors: the API database cannot be read.
func Audit(ctx context.Context, c AuditConfig) (report AuditReport, err error) {
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	a := &audit{
		s: &Scheduler{o: Options{Store: c.Store,
			Fenced: c.Store, Gatherer: c.Gatherer, Placement: c.Placement, Now: time.Now}},
		progress: c.Progress, patterns: c.DiscoverPatterns, checked: map[string]bool{}, mapped: map[string]apidb.Node{},
		reported: map[string]reportedNode{},
		pending:  map[string]bool{}, living: map[string]apidb.Mapping{},
		servers: map[string]auditServer{}, up: map[hostKey]bool{},
		discovered: map[string]discovered{},
		report:     AuditReport{HostsDown: []string{}, Unchecked: []Unchecked{}, Findings: []Finding{}},
	}
	for _, step := range []func(context.Context) error{
		a.readNodes, a.readPlacement, a.readDatabase, a.readCells, a.auditServers, a.auditConsumers,
		a.auditNodes, a.auditProviders,
	} {
		if err := step(ctx); err != nil && !errors.Is(err, errUnasked) {
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

// audit is one call of Audit.
type audit struct {
	s        *Scheduler
	progress func(string)
	patterns []string
	report   AuditReport
	// repairing: all is compared; what does not answer now is a problem of one repair.
	repairing  bool
	discovered map[string]discovered // by cell: what mapping its nodes came to

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

func (a *audit) found(f Finding) {
	if f.repair == nil && f.Manual == "" {
		f.Manual = manual[f.Kind]
	}
	a.report.Findings = append(a.report.Findings, f)
}

// complete reports whether every cell was checked: only then is it known that something is in none.
func (a *audit) complete() bool { return len(a.checked) == len(a.cells) }

// errUnasked says that a service does not answer, which the report has.
var errUnasked = errors.New("no answer")

// unasked is the error of a cell, which is unchecked from now on, with errUnasked.
func (a *audit) unasked(ctx context.Context, cell apidb.Cell, err error) error {
	return a.without(ctx, err, Unchecked{Cell: cell.Name, Leaves: leavesCell, Partly: a.checked[cell.UUID]},
		func() { delete(a.checked, cell.UUID) })
}

// withoutPlacement is unasked, of Placement. What was read of it stays, for the repair of what was
// found before.
func (a *audit) withoutPlacement(ctx context.Context, err error) error {
	return a.without(ctx, err, Unchecked{Leaves: leavesPlacement, Partly: a.placement}, func() { a.placement = false })
}

// without notes once that a service does not answer, unless the audit ends or repairs.
func (a *audit) without(ctx context.Context, err error, service Unchecked, lose func()) error {
	if err == nil || ctx.Err() != nil || a.repairing || errors.Is(err, errUnasked) {
		return err
	}
	lose()
	if !slices.ContainsFunc(a.report.Unchecked, func(u Unchecked) bool { return u.Cell == service.Cell }) {
		service.Why = err.Error()
		a.report.Unchecked = append(a.report.Unchecked, service)
	}
	return fmt.Errorf("%w: %w", errUnasked, err)
}

// auditAsked is gather.One for a cell that is unchecked if it does not answer. That it does not
// know a thing is an answer.
func auditAsked[T any](
	ctx context.Context, a *audit, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error),
) (T, error) {
	answer, err := gather.One(ctx, a.s.o.Gatherer, cell, ask)
	if cellclient.IsNotFound(err) {
		return answer, err
	}
	return answer, a.unasked(ctx, cell, err)
}

// fits reports whether a cell answers now from the database that is its own.
func (a *audit) fits(ctx context.Context, cell apidb.Cell) error {
	databases, err := a.s.o.Store.CellDatabases(ctx) // before it is asked
	if err != nil {
		return err
	}
	seen, err := cellcheck.Mark(ctx, a.s.o.Gatherer, cell)
	switch known := databases[cell.UUID]; {
	case err != nil:
		return err
	case known.Suspect != nil || !known.Fits(seen):
		return errors.New(
			"it has another database than before, or an older copy: see `compute-agent cells manage list`")
	}
	return nil
}

// stillDeleted is an error unless the cell of a server says that it is deleted, or does not know it
// although its mapping says so.
func (a *audit) stillDeleted(ctx context.Context, uuid string, cell apidb.Cell) error {
	m, err := a.s.o.Store.Mapping(ctx, uuid)
	if err != nil {
		return err
	}
	if m.CellUUID != cell.UUID {
		return errors.New("it is mapped to another cell now")
	}
	if err := a.fits(ctx, cell); err != nil {
		return err
	}
	states, err := cellcheck.States(ctx, a.s.o.Gatherer, cell, []string{uuid})
	if err != nil {
		return err
	}
	if state, known := states[uuid]; known && !state.Deleted && !cell.IsCell0() || !known && !m.Queued() {
		return fmt.Errorf("cell %s says now that it is not deleted", cell.Name)
	}
	return nil
}
