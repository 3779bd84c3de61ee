// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// The resources that a boot uses, as quotas name them.
const (
	Instances = "instances"
	Cores     = "cores"
	RAM       = "ram" // MiB
	// GroupMembers is how many servers of a user a server group may have.
	GroupMembers = "server_group_members"
)

// ErrCellDown says that a project has living servers in a cell that is down, and may not boot until
// it is back.
var ErrCellDown = errors.New("the project has servers in a cell that is down")

// ErrGroupFull says that a server group would have more members of the user than the quota allows.
var ErrGroupFull = errors.New("too many servers in the server group")

// ErrUsageUnknown says that usage is counted from Placement, which cannot be used now.
var ErrUsageUnknown = errors.New("the usage of the project cannot be counted without Placement")

// Store is what is read of the API database: see [apidb.Store].
type Store interface {
	Cells(ctx context.Context) ([]apidb.Cell, error)
	BuildRequests(ctx context.Context, projectID string, limit int) ([]apidb.BuildRequest, error)
	CountProject(ctx context.Context, projectID, userID string, cellUUIDs []string) (apidb.Counts, error)
	Quotas(ctx context.Context, projectID string) (apidb.QuotaSet, error)
}

// Placement says what a project holds, or a user of it ("": all), by resource class.
type Placement interface {
	Usages(ctx context.Context, project, user string) (map[string]int64, error)
}

// Options configure Quotas. Placement is required for CountFromPlacement only.
type Options struct {
	Store     Store
	Gatherer  *gather.Gatherer
	Placement Placement
	// Defaults are the limits of projects that have none of their own.
	Defaults apidb.QuotaSet
	// CountFromPlacement counts without asking cells: Nova's [quota] count_usage_from_placement.
	CountFromPlacement bool
	Logger             zerolog.Logger
}

// Quotas answers for quotas. Its methods may be called from several goroutines.
type Quotas struct {
	o        Options
	fallback sync.Map // projects that were warned of
}

// New returns a service.
func New(o Options) (*Quotas, error) {
	switch {
	case o.Store == nil || o.Gatherer == nil:
		return nil, errors.New("scheduler: the API database and the gatherer are needed")
	case o.CountFromPlacement && o.Placement == nil:
		return nil, errors.New("scheduler: to count usage from Placement a Placement client is needed")
	}
	for _, r := range []string{Instances, Cores, RAM} {
		if _, set := o.Defaults[r]; !set {
			return nil, fmt.Errorf("scheduler: no default quota for %s; -1 is unlimited", r)
		}
	}
	return &Quotas{o: o}, nil
}

// Defaults are the limits of projects that have none of their own.
func (q *Quotas) Defaults() apidb.QuotaSet { return maps.Clone(q.o.Defaults) }

// Limits returns the limits of a project.
func (q *Quotas) Limits(ctx context.Context, project string) (apidb.QuotaSet, error) {
	own, err := q.o.Store.Quotas(ctx, project)
	if err != nil {
		return nil, fmt.Errorf("reading the quotas of project %s: %w", project, err)
	}
	limits := q.Defaults()
	maps.Copy(limits, own)
	return limits, nil
}

// Usage is what a project has, or a user of it (user "": all), servers that were asked for and are
// in no cell yet among them, and the cells that were down while it was counted. It is exact also
// then, but for servers of a user whose mapping does not say whose it is, as a former Nova wrote
// it. No project ("") has nothing.
//
// Cost: one request for each cell, all at once, for a user one for each [cellwire.MaxLimit] of its
// servers. With CountFromPlacement: one to Placement, and none to the cells.
func (q *Quotas) Usage(ctx context.Context, project, user string) (cellwire.Usage, []apidb.Cell, error) {
	c, err := q.count(ctx, owner{project, user})
	return c.usage, c.down, err
}

// owner is a project, or a user of it.
type owner struct{ project, user string }

func (o owner) String() string {
	if o.user == "" {
		return "project " + o.project
	}
	return "user " + o.user + " of project " + o.project
}

// projectUsage is a usage and how it came about.
type projectUsage struct {
	usage cellwire.Usage
	// before is what the API database alone knew before.
	before apidb.Counts
	down   []apidb.Cell
	// inDownCells counts the living servers in cells that are down.
	inDownCells int64
}

func (q *Quotas) count(ctx context.Context, of owner) (projectUsage, error) {
	if of.project == "" || utf8.RuneCountInString(of.user) > wire.MaxName {
		return projectUsage{}, nil // no project has no servers; for the stores "" stands for all
	}
	before, err := q.countMappings(ctx, of, nil)
	if err != nil {
		return projectUsage{}, err
	}
	whole := before
	if of.user != "" { // mappings that do not say whose they are are not the user's
		if whole, err = q.countMappings(ctx, owner{project: of.project}, nil); err != nil {
			return projectUsage{}, err
		}
	}
	if q.o.CountFromPlacement {
		if whole.Unmigrated == 0 {
			return q.fromPlacement(ctx, of, before)
		}
		if _, warned := q.fallback.LoadOrStore(of.project, true); !warned {
			q.o.Logger.Warn().Str("project", of.project).Int64("mappings", whole.Unmigrated).
				Msg("Counting usage in the cells instead of Placement, because the project has instance mappings " +
					"without queued_for_delete. Run compute-agent cells manage db online-data-migrations.")
		}
	}
	return q.fromCells(ctx, of, before, of.user == "" || whole.Unmigrated == 0)
}

// countMappings counts in the API database.
func (q *Quotas) countMappings(ctx context.Context, of owner, cells []string) (apidb.Counts, error) {
	c, err := q.o.Store.CountProject(ctx, of.project, of.user, cells)
	if err != nil {
		return c, fmt.Errorf("counting the servers of %s: %w", of, err)
	}
	return c, nil
}

// fromPlacement counts as nova.quota._instances_cores_ram_count_api_db_placement does.
func (q *Quotas) fromPlacement(ctx context.Context, of owner, before apidb.Counts) (projectUsage, error) {
	held, err := q.o.Placement.Usages(ctx, of.project, of.user)
	switch {
	case placementclient.Down(err):
		return projectUsage{}, fmt.Errorf("%w: %w", ErrUsageUnknown, err)
	case err != nil:
		return projectUsage{}, err
	}
	return projectUsage{before: before,
			usage: cellwire.Usage{Instances: before.Instances, Cores: held["VCPU"] +
				held["PCPU"], RAM: held["MEMORY_MB"]}},
		nil
}

// fromCells adds up what the cells say, what the API database knows of those that are down, and
// what is in none yet. all says that before, which the database knew first, has all servers.
func (q *Quotas) fromCells(ctx context.Context, of owner, before apidb.Counts, all bool) (projectUsage, error) {
	total := projectUsage{before: before}
	cells, err := q.o.Store.Cells(ctx)
	if err != nil {
		return total, fmt.Errorf("reading the cells: %w", err)
	}
	pending, err := q.o.Store.BuildRequests(ctx, of.project, 0)
	if err != nil {
		return total, fmt.Errorf("reading the build requests of project %s: %w", of.project, err)
	}
	answers := gather.All(ctx, q.o.Gatherer, cells,
		func(ctx context.Context, client *cellclient.Client) (cellwire.Usage, error) {
			if of.user != "" {
				return usage(ctx, client, cellwire.ServerQuery{ProjectID: of.project, UserID: of.user})
			}
			used, err := client.Usage(ctx, of.project)
			return used, cellclient.AsFailure(err)
		})
	down := map[string]bool{}
	var downUUIDs []string
	for _, a := range answers {
		switch {
		case a.Down():
			total.down = append(total.down, a.Cell)
			down[a.Cell.UUID], downUUIDs = true, append(downUUIDs, a.Cell.UUID)
		case a.Err != nil:
			return total, fmt.Errorf("counting the usage of %s in cell %s: %w", of, a.Cell.Name, a.Err)
		default:
			addUsage(&total.usage, a.Value.Instances, a.Value.Cores, a.Value.RAM)
		}
	}
	moving := false
	for _, b := range pending {
		if of.user != "" && b.UserID != of.user {
			continue
		}
		if b.CellUUID == "" || !down[b.CellUUID] { // that of a down cell is counted with it
			moving = true
			addUsage(&total.usage, 1, b.Flavor.VCPUs, b.Flavor.MemoryMB)
		}
	}
	if len(downUUIDs) > 0 {
		there, err := q.countMappings(ctx, of, downUUIDs)
		if err != nil {
			return total, fmt.Errorf("in cells that are down: %w", err)
		}
		total.inDownCells = there.Instances
		addUsage(&total.usage, there.Instances, there.Cores, there.RAM)
	}
	if moving && all && (total.usage.Instances > before.Instances ||
		total.usage.Cores > before.Cores || total.usage.RAM > before.RAM) {
		// A server that came into its cell just now is counted there and as a build request. The
		// mappings count it once, and do not count what is being deleted, which its cell counts.
		once, err := q.deleting(ctx, of, slices.DeleteFunc(cells, func(c apidb.Cell) bool { return down[c.UUID] }))
		if err != nil {
			return total, err
		}
		addUsage(&once, before.Instances, before.Cores, before.RAM)
		total.usage.Instances = min(total.usage.Instances, once.Instances)
		total.usage.Cores = min(total.usage.Cores, once.Cores)
		total.usage.RAM = min(total.usage.RAM, once.RAM)
	}
	return total, nil
}

// deleting is what servers have that are being deleted in cells. It costs one request for each cell
// and [cellwire.MaxLimit] of these servers.
func (q *Quotas) deleting(ctx context.Context, of owner, cells []apidb.Cell) (total cellwire.Usage, err error) {
	query := cellwire.ServerQuery{ProjectID: of.project,
		UserID: of.user, TaskStates: []string{cellwire.TaskDeleting, cellwire.TaskSoftDeleting}}
	answers := gather.All(ctx, q.o.Gatherer, cells,
		func(ctx context.Context, client *cellclient.Client) (cellwire.Usage, error) {
			return usage(ctx, client, query)
		})
	for _, a := range answers {
		if a.Err != nil && !a.Down() {
			return total, fmt.Errorf("counting what is being deleted of %s in cell %s: %w", of, a.Cell.Name, a.Err)
		}
		addUsage(&total, a.Value.Instances, a.Value.Cores, a.Value.RAM)
	}
	return total, nil
}

// usage is what the servers of a query have in a cell.
func usage(
	ctx context.Context, client *cellclient.Client, query cellwire.ServerQuery,
) (used cellwire.Usage, err error) {
	query.Limit = cellwire.MaxLimit
	err = client.EachServer(ctx, query,
		func(s cellwire.Server) { addUsage(&used, 1, s.Flavor.VCPUs, s.Flavor.MemoryMB) })
	return used, cellclient.AsFailure(err)
}

func addUsage(u *cellwire.Usage, instances, cores, ram int64) {
	u.Instances += instances
	u.Cores += cores
	u.RAM += ram
}
