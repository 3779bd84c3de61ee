// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
)

// Deps are all that the calls of this package may touch.
type Deps struct {
	Store Store
	// Gatherer asks the cells.
	Gatherer  *gather.Gatherer
	Scheduler Scheduler
	// MaxLimit is how many records a list has at most.
	MaxLimit int
	// DefaultZone is the availability zone of hosts that say nothing else, and InternalZone one
	// that members do not see in lists.
	DefaultZone, InternalZone string
}

// Store is what the calls need of the API database.
type Store interface {
	Cells(ctx context.Context) ([]apidb.Cell, error)
	Hosts(ctx context.Context) ([]apidb.HostMapping, error)
	DeleteHost(ctx context.Context, host string) error

	Aggregates(ctx context.Context) ([]apidb.Aggregate, error)
	Aggregate(ctx context.Context, id int64) (apidb.Aggregate, error)
	CreateAggregate(ctx context.Context, name string, metadata map[string]string) (apidb.Aggregate, error)
	ChangeAggregate(ctx context.Context, id int64,
		change func(a *apidb.Aggregate, others []apidb.Aggregate) error) (apidb.Aggregate, error)
	DeleteAggregate(ctx context.Context, id int64) error
}

// Scheduler is what the calls need of a *scheduler.Scheduler.
type Scheduler interface {
	// MirrorHost writes the aggregates of a host to Placement, now or later.
	MirrorHost(ctx context.Context, host string)
	// Capacities returns the capacities of compute nodes, by the uuids of their root providers.
	// Without Placement the error is placementcalls.ErrCapacityUnknown.
	Capacities(ctx context.Context, roots []string) ([]placementcalls.Capacity, error)
}

// The microversions that several files ask for by name.
const (
	vForcedDown      api.Version = 11 // services can be forced down
	vCPUInfo         api.Version = 28 // of hypervisors, as an object
	vHypervisorPages api.Version = 33 // lists of hypervisors have pages
	vServiceUUID     api.Version = 53 // services go by their uuid
	vMigrationPages  api.Version = 59 // lists of migrations have pages, uuids and changes-since
)

// Routes are the calls of this package.
func (d *Deps) Routes() []api.Route {
	return slices.Concat(d.hypervisorRoutes(), d.serviceRoutes(), d.aggregateRoutes(),
		d.zoneRoutes(), d.migrationRoutes())
}
