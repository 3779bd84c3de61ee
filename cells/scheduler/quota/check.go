// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// ExceededError says that a boot does not fit. Its text is that of
// nova.exception.TooManyInstances, HTTP status 403. The lists are of the same length, by resource.
type ExceededError struct {
	Resources, Requested, Used, Allowed []string
}

func (e *ExceededError) Error() string {
	list := func(of []string) string { return strings.Join(of, ", ") }
	return fmt.Sprintf("Quota exceeded for %s: Requested %s, but already used %s of %s %s",
		list(e.Resources), list(e.Requested), list(e.Used), list(e.Allowed), list(e.Resources))
}

// Request is a boot: how many servers of a flavor a project asks for.
type Request struct {
	Project string
	Flavor  cellwire.Flavor
	Group   string // uuid of the server group that they are for; "": none
	// Min and Max are how many, see [Grant].
	Min, Max int64
	// AllowCellDown lets a project boot although it has living servers in a cell that is down.
	AllowCellDown bool
}

// Grant is what a boot may have.
type Grant struct {
	// Count is how many servers: at least Min of the request.
	Count int64
	// Confirm is for apidb's CreateServers: whether it still fits after what was asked for
	// meanwhile.
	Confirm func(apidb.Counts) error
}

// Check decides about a boot: how many of the servers may be, as
// nova.compute.utils.check_num_instances_quota. Nothing is written. It costs what [Quotas.Usage]
// costs.
//
// Errors: *[ExceededError] if not even Min fit, [ErrCellDown]; of Confirm also [ErrGroupFull].
func (q *Quotas) Check(ctx context.Context, r Request) (Grant, error) {
	limits, err := q.Limits(ctx, r.Project)
	if err != nil {
		return Grant{}, err
	}
	c, err := q.count(ctx, owner{project: r.Project})
	if err != nil {
		return Grant{}, err
	}
	if c.inDownCells > 0 && !r.AllowCellDown {
		cells := make([]string, 0, len(c.down))
		for _, cell := range c.down {
			cells = append(cells, cell.Name+" ("+cell.UUID+")")
		}
		q.o.Logger.Warn().Str("project", r.Project).Int64("servers", c.inDownCells).Strs("cells", cells).
			Msg("Rejected a boot, because the project has servers in a cell that is down. The project can boot " +
				"again when the cell is up, or when the policy os_compute_api:servers:create:cell_down allows it.")
		return Grant{}, ErrCellDown
	}
	count, err := fitQuota(limits, c.usage, r.Flavor, r.Min, r.Max)
	if err != nil {
		return Grant{}, err
	}
	return Grant{Count: count, Confirm: func(now apidb.Counts) error {
		// What others asked for since the counting, in this process or another.
		used := c.usage
		addUsage(&used, max(now.Instances-c.before.Instances, 0), max(now.Cores-c.before.Cores, 0),
			max(now.RAM-c.before.RAM, 0))
		if _, err := fitQuota(limits, used, r.Flavor, count, count); err != nil {
			return err
		}
		if limit, has := limits[GroupMembers]; has && limit >= 0 && r.Group != "" && now.GroupMembers+count > limit {
			return fmt.Errorf("%w: %d are there, %d are asked for, %d are allowed",
				ErrGroupFull, now.GroupMembers, count, limit)
		}
		return nil
	}}, nil
}

// Recheck says whether a project is over its quotas with what it has now, servers that are not
// built yet among them: Nova's recheck_quota. The error is an *[ExceededError] for a server of
// the flavor. It costs what [Quotas.Usage] costs.
func (q *Quotas) Recheck(ctx context.Context, project string, f cellwire.Flavor) error {
	limits, err := q.Limits(ctx, project)
	if err != nil {
		return err
	}
	if limits[Instances] < 0 && limits[Cores] < 0 && limits[RAM] < 0 {
		return nil
	}
	c, err := q.count(ctx, owner{project: project})
	if err != nil {
		return err
	}
	e := &ExceededError{}
	for _, r := range quotaResources(limits, c.usage, f) {
		if r.limit >= 0 && r.used > r.limit {
			// As Nova, which says that all of the limit is used, and not how far it is exceeded.
			e.add(r.name, strconv.FormatInt(r.each, 10), r.limit, r.limit)
		}
	}
	if len(e.Resources) > 0 {
		return e
	}
	return nil
}

// quotaResource is one of those that a boot uses.
type quotaResource struct {
	name        string
	limit, used int64
	each        int64 // of one server
}

// quotaResources are in the order in which Nova lists those that are exceeded.
func quotaResources(limits apidb.QuotaSet, used cellwire.Usage, f cellwire.Flavor) []quotaResource {
	return []quotaResource{
		{Cores, limits[Cores], used.Cores, f.VCPUs},
		{Instances, limits[Instances], used.Instances, 1},
		{RAM, limits[RAM], used.RAM, f.MemoryMB},
	}
}

// fitQuota is how many servers fit, at least minCount and at most maxCount.
func fitQuota(limits apidb.QuotaSet, used cellwire.Usage, f cellwire.Flavor, minCount, maxCount int64) (int64, error) {
	all := quotaResources(limits, used, f)
	allowed := maxCount
	for _, r := range all {
		if r.limit >= 0 && r.each > 0 {
			allowed = min(allowed, max(r.limit-r.used, 0)/r.each)
		}
	}
	if allowed >= minCount {
		return allowed, nil
	}
	e := &ExceededError{}
	for _, r := range all {
		// As many as were asked for at most: what Nova compares and names.
		if r.limit < 0 || r.used+maxCount*r.each <= r.limit {
			continue
		}
		requested := strconv.FormatInt(maxCount*r.each, 10)
		if r.name == Instances && minCount != maxCount {
			requested = fmt.Sprintf("%d-%d", minCount, maxCount)
		}
		e.add(r.name, requested, r.used, r.limit)
	}
	return 0, e
}

func (e *ExceededError) add(name, requested string, used, allowed int64) {
	e.Resources, e.Requested = append(e.Resources, name), append(e.Requested, requested)
	e.Used, e.Allowed = append(e.Used, strconv.FormatInt(used, 10)), append(e.Allowed, strconv.FormatInt(allowed, 10))
}
