// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/admin"
	"github.com/compute-agent/compute-agent/cells/scheduler"
)

// Scheduler is what the API needs of a *scheduler.Scheduler.
type Scheduler interface {
	admin.Scheduler
	// Create writes what was asked for, after the checks of cells and quota. Its errors are
	// *quota.ExceededError, quota.ErrCellDown and *resourcerequest.InvalidError, or
	// those of the API database.
	Create(ctx context.Context, r scheduler.CreateRequest) ([]apidb.RequestSpec, error)
	// Delete deletes a server. When its cell is down the error wraps gather.ErrDown, and nothing
	// was changed.
	Delete(ctx context.Context, m apidb.Mapping, soft bool) error
	// Restore takes back a soft delete.
	Restore(ctx context.Context, m apidb.Mapping) (cellwire.Server, error)
	// Migrate begins a migration of a server in a cell, to a host if it is not "". Refusals of the
	// cell pass through.
	Migrate(ctx context.Context, m apidb.Mapping, kind cellwire.MigrationType, host string) error
	// Decide confirms a migration that is finished, or takes it back; scheduler.ErrNotResized if
	// there is none.
	Decide(ctx context.Context, m apidb.Mapping, stays bool) error
	// Abort ends a migration that has no destination yet, or waits for a host that is down, by its
	// number in the cell of the server; scheduler.ErrNoMigration without one. Refusals of the
	// cell pass through.
	Abort(ctx context.Context, m apidb.Mapping, id int64) error
	// UserDataHost is the host that may get new user data of a server in a cell; "": any.
	// hostdiscovery.ErrNotEnrolled if the server is on one that may not. Refusals of the cell pass
	// through.
	UserDataHost(ctx context.Context, cell apidb.Cell, uuid string) (string, error)
}
