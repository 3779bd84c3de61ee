// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// migrationRoutes are the calls about migrations. Those of one server are only about live ones in
// Nova, so that there are none here.
func (a *API) migrationRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/os-migrations", query: &migrationParameters, handle: a.listMigrations, about: &aboutListMigrations},
		{method: "GET", path: "/v2.1/servers/{id}/migrations", handle: a.listLiveMigrations, since: vMigrationTypes, about: &aboutListLiveMigrations},
		{method: "GET", path: "/v2.1/servers/{id}/migrations/{migration}", handle: a.showLiveMigration, since: vMigrationTypes, about: &aboutShowLiveMigration},
		{method: "DELETE", path: "/v2.1/servers/{id}/migrations/{migration}", handle: a.abortMigration, since: vAbort, about: &aboutAbortMigration},
	}
}

// The policies of lists of migrations.
var (
	ruleMigrationsIndex    = Rule{"os_compute_api:os-migrations:index", managers}
	ruleMigrationsIndexAll = Rule{"os_compute_api:os-migrations:index:all_projects", admins}
	ruleMigrationsHosts    = Rule{"os_compute_api:os-migrations:index:host", admins}
)

// migrationParameters are those of GET /os-migrations. Before 2.59 there are filters alone.
var migrationParameters = parameters{closed: vMigrationPages, all: []parameter{
	{name: "limit", kind: number, since: vMigrationPages, text: textLimit},
	{name: "marker", since: vMigrationPages, text: "The uuid of a migration: the page begins after it."},
	{name: "instance_uuid", text: "Those of a server."},
	{name: "host", text: "Those from or to a host."},
	{name: "source_compute", text: "Those from a host; not looked at beside host."},
	{name: "status", text: "Those with the status."},
	{name: "migration_type", text: "migration or evacuation."},
	{name: "hidden", text: "Not looked at."},
	{name: "changes-since", kind: dateTime, since: vMigrationPages, text: "Those that changed then or later."},
	{name: "changes-before", kind: dateTime, since: vChangesBefore, text: "Those that changed then or earlier."},
	{name: "project_id", until: vMigrationPages - 1, text: "Those of a project. Others than administrators have to name their own project."},
}}

// migrationQuery reads them. Before 2.59 there are filters alone, and what is unknown is ignored.
func (a *API) migrationQuery(x *exchange) (params query, q cellwire.MigrationQuery, err error) {
	if params, err = x.strictQuery(); err != nil {
		return params, q, err
	}
	q = cellwire.MigrationQuery{
		ServerUUID: params.last("instance_uuid"), Host: params.last("host"), SourceHost: params.last("source_compute"),
		Status: cellwire.MigrationStatus(params.last("status")), Type: cellwire.MigrationType(params.last("migration_type")), Limit: cellwire.MaxLimit,
	}
	if q.Host != "" { // as in Nova the other does not count then
		q.SourceHost = ""
	}
	if !x.since(vMigrationPages) {
		q.ProjectID = params.last("project_id")
		return params, q, nil
	}
	q.Limit = readLimit(params, a.options.MaxLimit)
	for name, at := range map[string]**time.Time{"changes-since": &q.ChangedSince, "changes-before": &q.ChangedBefore} {
		if t, has := readTime(params.last(name)); has {
			*at = &t
		}
	}
	if q.ChangedSince != nil && q.ChangedBefore != nil && q.ChangedBefore.Before(*q.ChangedSince) {
		return params, q, badRequest("The value of changes-since must be less than or equal to changes-before.")
	}
	return params, q, nil
}

// listMigrations answers GET /os-migrations. Those of cells that are down are left out. Cost: one
// question to all cells, and with a marker one more.
func (a *API) listMigrations(x *exchange) error {
	params, q, err := a.migrationQuery(x)
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleMigrationsIndex); err != nil {
		return err
	}
	if q.ProjectID == "" || q.ProjectID != x.Who.Project {
		if err := x.allowOwn(ruleMigrationsIndexAll); err != nil {
			return err
		}
	}
	paged := x.since(vMigrationPages)
	if marker := params.last("marker"); paged && marker != "" {
		found, err := a.migrations(x.ctx(), cellwire.MigrationQuery{UUID: marker, Limit: 1})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return badRequest("Marker %s could not be found.", shortened(marker))
		}
		q.After = &found[0]
	}
	var all []cellwire.Migration
	if q.Limit > 0 {
		if all, err = a.migrations(x.ctx(), q); err != nil {
			return err
		}
	}
	slices.SortFunc(all, newestMigration)
	all = all[:min(len(all), q.Limit)]
	full := paged && len(all) > 0 && len(all) == q.Limit
	shown, hosts := list{}, x.may(ruleMigrationsHosts, x.Who.Project)
	for i := range all {
		shown = append(shown, migrationView(x, &all[i], hosts))
	}
	answer := new(object).add("migrations", shown)
	if full {
		answer.add("migrations_links", x.nextLink("os-migrations", params, all[len(all)-1].UUID))
	}
	return x.json(http.StatusOK, answer)
}

// newestMigration orders migrations of all cells, the newest first.
func newestMigration(a, b cellwire.Migration) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID), strings.Compare(a.UUID, b.UUID))
}

// migrations asks all cells that are up.
func (a *API) migrations(ctx context.Context, q cellwire.MigrationQuery) (all []cellwire.Migration, err error) {
	cells, err := a.store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	cells = slices.DeleteFunc(cells, apidb.Cell.IsCell0)
	ask := func(ctx context.Context, c *cellclient.Client) ([]cellwire.Migration, error) {
		return c.Migrations(ctx, q)
	}
	for _, answer := range gather.All(ctx, a.gatherer, cells, ask) {
		if answer.Err == nil {
			all = append(all, answer.Value...)
		}
	}
	return all, ctx.Err()
}

// migrationView is a migration as the microversion has it. What is not kept here is null: the
// address of the destination, and the numbers of flavors.
func migrationView(x *exchange, m *cellwire.Migration, hosts bool) *object {
	shown := func(host string) any {
		if !hosts {
			return nil
		}
		return orNull(host)
	}
	o := new(object).add("created_at", microseconds(m.CreatedAt)).
		add("dest_compute", shown(m.DestHost)).add("dest_host", nil).add("dest_node", shown(m.DestNode)).
		add("id", m.ID).add("instance_uuid", m.ServerUUID).add("new_instance_type_id", nil).add("old_instance_type_id", nil).
		add("source_compute", shown(m.SourceHost)).add("source_node", shown(m.SourceNode)).add("status", string(m.Status))
	if m.UpdatedAt != nil {
		o.add("updated_at", microseconds(*m.UpdatedAt))
	} else {
		o.add("updated_at", nil)
	}
	if x.since(vMigrationTypes) {
		o.add("migration_type", string(m.Type))
	}
	if x.since(vMigrationPages) {
		o.add("uuid", m.UUID)
	}
	return o
}

// listLiveMigrations answers GET /servers/{id}/migrations, the live migrations in progress: none.
func (a *API) listLiveMigrations(x *exchange) error {
	if _, err := a.mappingOfPath(x, ruleServerMigrationsList); err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("migrations", list{}))
}

// showLiveMigration answers GET /servers/{id}/migrations/{migration}: no migration is live.
func (a *API) showLiveMigration(x *exchange) error {
	m, err := a.mappingOfPath(x, ruleServerMigrationsShow)
	if err != nil {
		return err
	}
	all, err := a.migrations(x.ctx(), cellwire.MigrationQuery{ServerUUID: m.InstanceUUID, Limit: cellwire.MaxLimit})
	if err != nil {
		return err
	}
	id := x.param("migration")
	if slices.ContainsFunc(all, func(one cellwire.Migration) bool { return strconv.FormatInt(one.ID, 10) == id }) {
		return notFound("Migration %s for server %s is not live-migration.", id, m.InstanceUUID)
	}
	return notFound("In-progress live migration %s is not found for server %s.", shortened(id), m.InstanceUUID)
}
