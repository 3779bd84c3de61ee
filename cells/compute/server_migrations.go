// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// serverMigrationRoutes are the calls about migrations of one server. In Nova they are only about
// live ones, so that there are none here.
func (a *API) serverMigrationRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers/{id}/migrations", Handle: a.listLiveMigrations, Since: api.VMigrationTypes, About: &aboutListLiveMigrations},
		{Method: "GET", Path: "/v2.1/servers/{id}/migrations/{migration}", Handle: a.showLiveMigration, Since: api.VMigrationTypes, About: &aboutShowLiveMigration},
		{Method: "DELETE", Path: "/v2.1/servers/{id}/migrations/{migration}", Handle: a.abortMigration, Since: vAbort, About: &aboutAbortMigration},
	}
}

// listLiveMigrations answers GET /servers/{id}/migrations, the live migrations in progress: none.
func (a *API) listLiveMigrations(x *api.Exchange) error {
	if _, err := a.mappingOfPath(x, ruleServerMigrationsList); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("migrations", api.List{}))
}

// showLiveMigration answers GET /servers/{id}/migrations/{migration}: no migration is live.
func (a *API) showLiveMigration(x *api.Exchange) error {
	m, err := a.mappingOfPath(x, ruleServerMigrationsShow)
	if err != nil {
		return err
	}
	all, err := a.admin.Migrations(x.Context(), cellwire.MigrationQuery{ServerUUID: m.InstanceUUID, Limit: cellwire.MaxLimit})
	if err != nil {
		return err
	}
	id := x.Param("migration")
	if slices.ContainsFunc(all, func(one cellwire.Migration) bool { return strconv.FormatInt(one.ID, 10) == id }) {
		return osapi.NotFound("Migration %s for server %s is not live-migration.", id, m.InstanceUUID)
	}
	return osapi.NotFound("In-progress live migration %s is not found for server %s.", osapi.Shortened(id), m.InstanceUUID)
}
