// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"

	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// The resources that a boot uses.
const (
	QuotaInstances = "instances"
	QuotaCores     = "cores"
	QuotaRAM       = "ram" // MiB
	// QuotaGroupMembers is how many servers of a user a server group may have.
	QuotaGroupMembers = "server_group_members"
)

// Unlimited is the limit of a resource without a limit.
const Unlimited = -1

// ErrCellDown says that a project has living servers in a cell that is down, and may not boot until
// it is back.
var ErrCellDown = errors.New("the project has servers in a cell that is down")

// ErrGroupFull says that a server group would have more members of the user than the quota allows.
var ErrGroupFull = errors.New("too many servers in the server group")

// ErrUsageUnknown says that usage is counted from Placement, which cannot be used now.
var ErrUsageUnknown = errors.New("the usage of the project cannot be counted without Placement")

// QuotaOptions configure Quotas. Placement is required for CountFromPlacement only.
type QuotaOptions struct {
	Store     apidb.Store
	Gatherer  *gather.Gatherer
	Placement *PlacementClient
	// Defaults are the limits of projects that have none of their own.
	Defaults apidb.QuotaSet
	// CountFromPlacement counts without asking cells: Nova's [quota] count_usage_from_placement.
	CountFromPlacement bool
	Logger             zerolog.Logger
}

// Quotas answers for quotas. Its methods may be called from several goroutines.
type Quotas struct {
	o        QuotaOptions
	fallback sync.Map // projects that were warned of
}

// NewQuotas returns a service.
func NewQuotas(o QuotaOptions) (*Quotas, error) {
	switch {
	case o.Store == nil || o.Gatherer == nil:
		return nil, errors.New("scheduler: the API database and the gatherer are needed")
	case o.CountFromPlacement && o.Placement == nil:
		return nil, errors.New("scheduler: to count usage from Placement a Placement client is needed")
	}
	for _, r := range []string{QuotaInstances, QuotaCores, QuotaRAM} {
		if _, set := o.Defaults[r]; !set {
			return nil, fmt.Errorf("scheduler: no default quota for %s; -1 is unlimited", r)
		}
	}
	return &Quotas{o: o}, nil
}

// Defaults are the limits of projects that have none of their own.
func (s *Quotas) Defaults() apidb.QuotaSet { return maps.Clone(s.o.Defaults) }

// Limits are those of a project.
func (s *Quotas) Limits(ctx context.Context, project string) (apidb.QuotaSet, error) {
	own, err := s.o.Store.Quotas(ctx, project)
	if err != nil {
		return nil, fmt.Errorf("reading the quotas of project %s: %w", project, err)
	}
	limits := s.Defaults()
	maps.Copy(limits, own)
	return limits, nil
}

// Usage is what a project has, servers that were asked for and are in no cell yet among them, and
// the cells that were down while it was counted. It is exact also then. No project ("") has
// nothing.
//
// Cost: one request for each cell, all at once. With CountFromPlacement: one to Placement, and none
// to the cells.
func (s *Quotas) Usage(ctx context.Context, project string) (cellwire.Usage, []apidb.Cell, error) {
	c, err := s.count(ctx, project)
	return c.usage, c.down, err
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

func (s *Quotas) count(ctx context.Context, project string) (projectUsage, error) {
	if project == "" {
		return projectUsage{}, nil // no project has no servers; for the stores "" stands for all
	}
	before, err := s.o.Store.CountProject(ctx, project, nil)
	if err != nil {
		return projectUsage{}, fmt.Errorf("counting the servers of project %s: %w", project, err)
	}
	if s.o.CountFromPlacement {
		if before.Unmigrated == 0 {
			return s.fromPlacement(ctx, project, before)
		}
		if _, warned := s.fallback.LoadOrStore(project, true); !warned {
			s.o.Logger.Warn().Str("project", project).Int64("mappings", before.Unmigrated).
				Msg(
					"Counting usage in the cells instead of Placement, because the project has instance mappings without queued_for_delete. Run compute-agent cells manage db online-data-migrations.",
				)
		}
	}
	return s.fromCells(ctx, project, before)
}

// fromPlacement counts as nova.quota._instances_cores_ram_count_api_db_placement does.
func (s *Quotas) fromPlacement(ctx context.Context, project string, before apidb.Counts) (projectUsage, error) {
	held, err := s.o.Placement.Usages(ctx, project)
	switch {
	case placementclient.Down(err):
		return projectUsage{}, fmt.Errorf("%w: %w", ErrUsageUnknown, err)
	case err != nil:
		return projectUsage{}, err
	}
	return projectUsage{before: before, usage: cellwire.Usage{Instances: before.Instances, Cores: held["VCPU"] + held["PCPU"], RAM: held["MEMORY_MB"]}}, nil
}

// fromCells adds up what the cells say, what the API database knows of those that are down, and
// what is in none yet.
func (s *Quotas) fromCells(ctx context.Context, project string, before apidb.Counts) (projectUsage, error) {
	c := projectUsage{before: before}
	cells, err := s.o.Store.Cells(ctx)
	if err != nil {
		return c, fmt.Errorf("reading the cells: %w", err)
	}
	pending, err := s.o.Store.BuildRequests(ctx, project, 0)
	if err != nil {
		return c, fmt.Errorf("reading the build requests of project %s: %w", project, err)
	}
	answers := gather.All(ctx, s.o.Gatherer, cells, func(ctx context.Context, client *cellclient.Client) (cellwire.Usage, error) {
		used, err := client.Usage(ctx, project)
		return used, cellclient.AsFailure(err)
	})
	down := map[string]bool{}
	var downUUIDs []string
	for _, a := range answers {
		switch {
		case a.Down():
			c.down = append(c.down, a.Cell)
			down[a.Cell.UUID], downUUIDs = true, append(downUUIDs, a.Cell.UUID)
		case a.Err != nil:
			return c, fmt.Errorf("counting the usage of project %s in cell %s: %w", project, a.Cell.Name, a.Err)
		default:
			addUsage(&c.usage, a.Value.Instances, a.Value.Cores, a.Value.RAM)
		}
	}
	moving := false
	for _, b := range pending {
		if b.CellUUID == "" || !down[b.CellUUID] { // that of a down cell is counted with it
			moving = true
			addUsage(&c.usage, 1, b.Flavor.VCPUs, b.Flavor.MemoryMB)
		}
	}
	if len(downUUIDs) > 0 {
		there, err := s.o.Store.CountProject(ctx, project, downUUIDs)
		if err != nil {
			return c, fmt.Errorf("counting the usage of project %s in cells that are down: %w", project, err)
		}
		c.inDownCells = there.Instances
		addUsage(&c.usage, there.Instances, there.Cores, there.RAM)
	}
	if moving && (c.usage.Instances > before.Instances || c.usage.Cores > before.Cores || c.usage.RAM > before.RAM) {
		// A server that came into its cell just now is counted there and as a build request. The
		// mappings count it once, and do not count what is being deleted, which its cell counts.
		once, err := s.deleting(ctx, project, slices.DeleteFunc(cells, func(c apidb.Cell) bool { return down[c.UUID] }))
		if err != nil {
			return c, err
		}
		addUsage(&once, before.Instances, before.Cores, before.RAM)
		c.usage.Instances = min(c.usage.Instances, once.Instances)
		c.usage.Cores = min(c.usage.Cores, once.Cores)
		c.usage.RAM = min(c.usage.RAM, once.RAM)
	}
	return c, nil
}

// deleting is what servers have that are being deleted in cells. It costs one request for each cell
// and [cellwire.MaxLimit] of these servers.
func (s *Quotas) deleting(ctx context.Context, project string, cells []apidb.Cell) (total cellwire.Usage, err error) {
	answers := gather.All(ctx, s.o.Gatherer, cells, func(ctx context.Context, client *cellclient.Client) (used cellwire.Usage, err error) {
		query := cellwire.ServerQuery{ProjectID: project, TaskStates: []string{cellwire.TaskDeleting, cellwire.TaskSoftDeleting}, Limit: cellwire.MaxLimit}
		for more := true; more; {
			page, err := client.Servers(ctx, query)
			if err != nil {
				return used, cellclient.AsFailure(err)
			}
			more = page.More && len(page.Rows) > 0
			for _, row := range page.Rows {
				addUsage(&used, 1, row.Server.Flavor.VCPUs, row.Server.Flavor.MemoryMB)
				query.After = row.Key
			}
		}
		return used, nil
	})
	for _, a := range answers {
		if a.Err != nil && !a.Down() {
			return total, fmt.Errorf("counting what is being deleted of project %s in cell %s: %w", project, a.Cell.Name, a.Err)
		}
		addUsage(&total, a.Value.Instances, a.Value.Cores, a.Value.RAM)
	}
	return total, nil
}

func addUsage(u *cellwire.Usage, instances, cores, ram int64) {
	u.Instances += instances
	u.Cores += cores
	u.RAM += ram
}
