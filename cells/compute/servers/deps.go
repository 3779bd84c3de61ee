// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Deps are all that the calls of this package may touch.
type Deps struct {
	Store Store
	// Gatherer asks the cells.
	Gatherer  *gather.Gatherer
	Scheduler Scheduler
	// Servers finds servers and shows them.
	Servers serverview.Servers
	Tenant  Tenant
	Hosts   Hosts
	// MaxLimit is how many records a list has at most.
	MaxLimit int
	// DefaultZone is the availability zone of hosts that say nothing else, and ScheduleZone that of
	// servers that are asked for without one; "" is any.
	DefaultZone, ScheduleZone string
	// Reclaim is how long softly deleted servers are kept; with 0 each delete is for good.
	Reclaim time.Duration
	// Lost limits what is logged about cells that do not have a server, by their uuids.
	Lost *osapi.LogLimiter
	// Consoles are the open console sessions.
	Consoles *ConsoleSessions
	// ConsoleURL is what the URLs of serial consoles begin with; "" is [ConsolePath] of this API.
	ConsoleURL string
	// TokenTTL is how long such a URL can be used.
	TokenTTL time.Duration
}

// Store is what the calls need of the API database.
type Store interface {
	KeyPair(ctx context.Context, userID, name string) (apidb.KeyPair, error)
	MappingsOf(ctx context.Context, uuids []string) (map[string]apidb.Mapping, error)
	RequestSpec(ctx context.Context, uuid string) (apidb.RequestSpec, error)
	Mapping(ctx context.Context, uuid string) (apidb.Mapping, error)
	AddConsoleToken(ctx context.Context, token, instance string, expires time.Time) error
	ConsoleToken(ctx context.Context, token string) (instance string, err error)
}

// Scheduler is what the calls need of a *scheduler.Scheduler.
type Scheduler interface {
	// Create writes what was asked for, after the checks of cells and quota. Its errors are
	// *quota.ExceededError, quota.ErrCellDown and *resourcerequest.InvalidError, or those of the
	// API database.
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
	Decide(ctx context.Context, m apidb.Mapping, confirm bool) error
	// Abort ends a migration that has no destination yet, or waits for a host that is down, by its
	// number in the cell of the server; scheduler.ErrNoMigration without one. Refusals of the
	// cell pass through.
	Abort(ctx context.Context, m apidb.Mapping, id int64) error
	// UserDataHost is the host that may get new user data of a server in a cell; "": any.
	// cellmappings.ErrNotEnrolled if the server is on one that may not. Refusals of the cell pass
	// through.
	UserDataHost(ctx context.Context, cell apidb.Cell, uuid string) (string, error)
}

// Tenant is what the calls need of a *tenant.Deps.
type Tenant interface {
	// Flavor is one that the caller may know of. Errors wrap apidb.ErrNotFound.
	Flavor(x *api.Exchange, id string) (apidb.Flavor, error)
	// ServerGroup is a group that the caller may know of; otherwise a 404.
	ServerGroup(x *api.Exchange, id string) (apidb.ServerGroup, error)
	// MetadataLimit is how many items of metadata a server of a project may have; -1 is no limit.
	MetadataLimit(ctx context.Context, project string) (int64, error)
	// LogUnread logs that a server was requested by a flavor with extra specs that only drivers
	// read.
	LogUnread(x *api.Exchange, f *cellwire.Flavor)
}

// Hosts is what the calls need of an *admin.Deps.
type Hosts interface {
	// Zones returns the availability zones that a request for a server may name.
	Zones(ctx context.Context) ([]string, error)
	// KnowsHost says whether a host is mapped to a cell.
	KnowsHost(ctx context.Context, host string) (bool, error)
	// Migrations returns the migrations of all cells that match a query.
	Migrations(ctx context.Context, q cellwire.MigrationQuery) ([]cellwire.Migration, error)
}

// The microversions that several files ask for by name.
const (
	vStorageFound     api.Version = 14 // a destination of an evacuation finds out whether storage is shared
	vActionsOfDeleted api.Version = 21 // actions of deleted servers are shown
	vAbort            api.Version = 24 // DELETE /servers/{id}/migrations/{migration}
	vForcedEvacuation api.Version = 29 // to a host that is not checked
	vNetworksRequired api.Version = 37 // on create
	vActionEvents     api.Version = 51 // members see the events of actions, but for their tracebacks
	vMigrateToHost    api.Version = 56 // migrate names a host
	vActionPages      api.Version = 58 // lists of actions have pages, filters and updated_at
	vActionHost       api.Version = 62 // events of actions have a host
	vNoForcedMoves    api.Version = 68 // hosts that are named are always checked
)

// Routes are the calls of this package that are no actions.
func (d *Deps) Routes() []api.Route {
	return slices.Concat(
		[]api.Route{
			{Method: "GET", Path: "/v2.1/servers/{id}", Handle: d.showServer,
				Rules: append([]api.Rule{ruleServersShow}, serverview.Rules...)},
			{Method: "POST", Path: "/v2.1/servers", Body: createSchemas,
				Handle: d.createServers, Rules: []api.Rule{ruleServersCreate, ruleCreateForcedHost, ruleCreateZeroDisk,
					ruleCreateCellDown}},
			{Method: "DELETE", Path: "/v2.1/servers/{id}", Handle: d.deleteServer,
				Rules: []api.Rule{ruleServersDelete}},
			{Method: "PUT", Path: "/v2.1/servers/{id}",
				Body: updateSchemas, Handle: d.updateServer, Rules: []api.Rule{ruleServersUpdate}},
		},
		d.metadataRoutes(), d.tagRoutes(), d.instanceActionRoutes(), d.migrationRoutes(), d.consoleRoutes())
}

// Actions returns the actions of this package on one server, by their names in bodies.
func (d *Deps) Actions() map[string]api.Action {
	on := d.Servers.Action
	return map[string]api.Action{
		"restore":     {Do: on(d.restoreServer), Rules: []api.Rule{ruleRestore}},
		"forceDelete": {Do: on(d.forceDeleteServer), Rules: []api.Rule{ruleForceDelete}},
		"os-start": {Do: on(d.powerAction(ruleServersStart, cellwire.PowerStart)),
			Rules: []api.Rule{ruleServersStart}},
		"os-stop": {Do: on(d.powerAction(ruleServersStop, cellwire.PowerStop)), Rules: []api.Rule{ruleServersStop}},
		"reboot": {Schemas: api.Always(rebootSchema), Do: on(d.rebootServer),
			Rules: []api.Rule{ruleServersReboot}},
		"rebuild": {Schemas: rebuildSchemas, Do: on(d.rebuildServer), Rules: []api.Rule{ruleServersRebuild}},

		"evacuate": {Schemas: evacuateSchemas, Do: on(d.evacuateServer), Rules: []api.Rule{ruleEvacuate}},
		"migrate": {Schemas: migrateSchemas, Do: on(d.migrateServer),
			Rules: []api.Rule{ruleMigrate, ruleMigrateToHost}},
		"confirmResize": {
			Do:    on(d.decideMigration(ruleServersConfirm, "confirmResize", true, http.StatusNoContent)),
			Rules: []api.Rule{ruleServersConfirm},
		},
		"revertResize": {
			Do:    on(d.decideMigration(ruleServersRevert, "revertResize", false, http.StatusAccepted)),
			Rules: []api.Rule{ruleServersRevert},
		},
		"os-resetState": {Schemas: api.Always(resetSchema), Do: on(d.resetServer), Rules: []api.Rule{ruleResetState}},

		"os-getConsoleOutput": {Schemas: api.Always(consoleOutputSchema),
			Do: on(d.consoleOutput), Rules: []api.Rule{ruleConsoleOutput}},
		"os-getSerialConsole": d.consoleAction(consoleSerial),
		"os-getVNCConsole":    d.consoleAction("novnc", "xvpvnc"),
		"os-getSPICEConsole":  d.consoleAction("spice-html5"),
	}
}
