// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cloudaudit"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/reportclient"
)

// Deployment is a compute API with its cells, and the Placement that it uses.
type Deployment struct {
	// Store is the API database.
	Store apidb.Store
	// Gatherer asks the cells.
	Gatherer *gather.Gatherer
	// Placement is the section [placement_client] of the compute API.
	Placement config.PlacementClient
	// Enrolment is the section [enrolment] of the compute API.
	Enrolment config.Enrolment
	// DiscoverPatterns are shell patterns of the names of hosts that are mapped although no person
	// enrolled them.
	DiscoverPatterns []string
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// RefusedError is what a command did not do, to protect servers, hosts or data.
type RefusedError struct{ Err error }

// Error implements error with the text of Err.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// refused returns a [RefusedError].
func refused(format string, args ...any) error { return &RefusedError{fmt.Errorf(format, args...)} }

func (d *Deployment) now() time.Time {
	if d.Now == nil {
		return time.Now()
	}
	return d.Now()
}

// access is the way to Placement.
func (d *Deployment) access() (*access.Access, error) {
	return access.New(d.Placement, nil, zerolog.Nop())
}

// providers returns a client for the resource providers of hosts. The caller closes its idle
// connections.
func (d *Deployment) providers() (*reportclient.Client, error) {
	a, err := d.access()
	if err != nil {
		return nil, err
	}
	return reportclient.New(reportclient.Config{Config: a.Config})
}

// mappings are the cells, and which hosts and nodes are mapped to them.
type mappings struct {
	cells []apidb.Cell
	hosts []apidb.HostMapping
	nodes []apidb.Node
}

func (d *Deployment) mappings(ctx context.Context) (m mappings, err error) {
	if m.cells, err = d.Store.Cells(ctx); err != nil {
		return m, err
	}
	if m.hosts, err = d.Store.Hosts(ctx); err != nil {
		return m, err
	}
	m.nodes, err = d.Store.Nodes(ctx)
	return m, err
}

// mappedTo returns the uuid of the cell that a host is mapped to.
func mappedTo(host string, all []apidb.HostMapping) (uuid string, mapped bool) {
	for _, h := range all {
		if h.Host == host {
			return h.CellUUID, true
		}
	}
	return "", false
}

// findCell finds a cell by its uuid or its name.
func (d *Deployment) findCell(ctx context.Context, which string) (apidb.Cell, error) {
	known, err := d.Store.Cells(ctx)
	if err != nil {
		return apidb.Cell{}, err
	}
	names := make([]string, 0, len(known))
	for _, c := range known {
		if c.UUID == which || c.Name == which {
			return c, nil
		}
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return apidb.Cell{}, fmt.Errorf("there is no cell %q: none is registered", which)
	}
	return apidb.Cell{}, fmt.Errorf("there is no cell %q; there are %s", which, strings.Join(names, ", "))
}

// unmappedError is the error of a command about a host that is not mapped, with a name like it, and
// what to do then.
func (d *Deployment) unmappedError(ctx context.Context, host, hint string) error {
	hosts, err := HostNames(ctx, d.Store)
	return errors.Join(fmt.Errorf("host %s is not mapped%s; `compute-agent cells manage list-hosts` lists all%s",
		host, Suggestion(host, hosts), hint), err)
}

// Audit compares the API database, the cells, Placement and the guests. With repair it fixes the
// findings that have exactly one fix. It calls progress with each part before it reads or compares
// it.
func (d *Deployment) Audit(
	ctx context.Context, repair bool, progress func(what string),
) (report cloudaudit.Report, err error) {
	a, err := d.access()
	if err != nil {
		return report, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	placement, err := placementcalls.New(a.Config)
	if err != nil {
		return report, err
	}
	defer placement.CloseIdle()
	return cloudaudit.Run(ctx, cloudaudit.Config{
		Store: d.Store, Gatherer: d.Gatherer, Placement: placement, Repair: repair,
		DiscoverPatterns: d.DiscoverPatterns, Progress: progress,
	})
}
