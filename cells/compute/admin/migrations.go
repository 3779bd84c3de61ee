// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// migrationRoutes is the list of migrations. Those of one server are calls about the server.
func (d *Deps) migrationRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/os-migrations", Query: &migrationParameters, Handle: d.listMigrations,
			Rules: []api.Rule{ruleMigrationsIndex, ruleMigrationsIndexAll, ruleMigrationsHosts}},
	}
}

// The policies of lists of migrations.
var (
	ruleMigrationsIndex    = api.Rule{Name: "os_compute_api:os-migrations:index", Default: api.Managers}
	ruleMigrationsIndexAll = api.Rule{Name: "os_compute_api:os-migrations:index:all_projects", Default: api.Admins}
	ruleMigrationsHosts    = api.Rule{Name: "os_compute_api:os-migrations:index:host", Default: api.Admins}
)

// migrationParameters are the query parameters of GET /os-migrations: before 2.59 only filters.
var migrationParameters = api.Parameters{Check: (*api.Exchange).StrictQuery,
	Closed: vMigrationPages, All: []api.Parameter{
		{Name: "limit", Kind: api.Number, Since: vMigrationPages, Text: api.TextLimit},
		{Name: "marker", Since: vMigrationPages, Text: "The uuid of a migration: the page begins after it."},
		{Name: "instance_uuid", Text: "Those of a server."},
		{Name: "host", Text: "Those from or to a host."},
		{Name: "source_compute", Text: "Those from a host; not looked at beside host."},
		{Name: "status", Text: "Those with the status."},
		{Name: "migration_type", Text: "migration or evacuation."},
		{Name: "hidden", Text: "Not looked at."},
		{Name: "changes-since", Kind: api.DateTime, Since: vMigrationPages, Text: "Those that changed then or later."},
		{Name: "changes-before", Kind: api.DateTime,
			Since: api.VChangesBefore, Text: "Those that changed then or earlier."},
		{Name: "project_id", Until: vMigrationPages - 1,
			Text: "Those of a project. Others than administrators have to name their own project."},
	}}

// migrationQuery reads them. Before 2.59 there are filters alone, and what is unknown is ignored.
func (d *Deps) migrationQuery(x *api.Exchange) (q cellwire.MigrationQuery, err error) {
	params := x.Params
	q = cellwire.MigrationQuery{
		ServerUUID: params.Last("instance_uuid"), Host: params.Last("host"), SourceHost: params.Last("source_compute"),
		Status: cellwire.MigrationStatus(params.Last("status")),
		Type:   cellwire.MigrationType(params.Last("migration_type")), Limit: cellwire.MaxLimit,
	}
	if q.Host != "" { // as in Nova the other does not count then
		q.SourceHost = ""
	}
	if !x.AtLeast(vMigrationPages) {
		q.ProjectID = params.Last("project_id")
		return q, nil
	}
	q.Limit = api.ReadLimit(params, d.MaxLimit)
	for name, at := range map[string]**time.Time{"changes-since": &q.ChangedSince, "changes-before": &q.ChangedBefore} {
		if t, has := api.ReadTime(params.Last(name)); has {
			*at = &t
		}
	}
	if q.ChangedSince != nil && q.ChangedBefore != nil && q.ChangedBefore.Before(*q.ChangedSince) {
		return q, osapi.BadRequest("The value of changes-since must be less than or equal to changes-before.")
	}
	return q, nil
}

// listMigrations answers GET /os-migrations. Those of cells that are down are left out. Cost: one
// question to all cells, and with a marker one more.
func (d *Deps) listMigrations(x *api.Exchange) error {
	q, err := d.migrationQuery(x)
	if err != nil {
		return err
	}
	if err := x.AllowOwn(ruleMigrationsIndex); err != nil {
		return err
	}
	if q.ProjectID == "" || q.ProjectID != x.Caller.Project {
		if err := x.AllowOwn(ruleMigrationsIndexAll); err != nil {
			return err
		}
	}
	paged := x.AtLeast(vMigrationPages)
	if marker := x.Params.Last("marker"); paged && marker != "" {
		found, err := d.Migrations(x.Context(), cellwire.MigrationQuery{UUID: marker, Limit: 1})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return osapi.BadRequest("Marker %s could not be found.", osapi.Shortened(marker))
		}
		q.After = &found[0]
	}
	var all []cellwire.Migration
	if q.Limit > 0 {
		if all, err = d.Migrations(x.Context(), q); err != nil {
			return err
		}
	}
	slices.SortFunc(all, newestMigration)
	all = all[:min(len(all), q.Limit)]
	full := paged && len(all) > 0 && len(all) == q.Limit
	shown, hosts := api.List{}, x.Allows(ruleMigrationsHosts, x.Caller.Project)
	for i := range all {
		shown = append(shown, migrationView(x, &all[i], hosts))
	}
	answer := new(api.Object).Add("migrations", shown)
	if full {
		answer.Add("migrations_links", x.NextLink("os-migrations", x.Params, all[len(all)-1].UUID))
	}
	return x.JSON(http.StatusOK, answer)
}

// newestMigration orders migrations of all cells, the newest first.
func newestMigration(a, b cellwire.Migration) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID), strings.Compare(a.UUID, b.UUID))
}

// Migrations asks all cells that are up.
func (d *Deps) Migrations(ctx context.Context, q cellwire.MigrationQuery) (all []cellwire.Migration, err error) {
	cells, err := d.Store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	cells = slices.DeleteFunc(cells, apidb.Cell.IsCell0)
	ask := func(ctx context.Context, c *cellclient.Client) ([]cellwire.Migration, error) {
		return c.Migrations(ctx, q)
	}
	for _, answer := range gather.All(ctx, d.Gatherer, cells, ask) {
		if answer.Err == nil {
			all = append(all, answer.Value...)
		}
	}
	return all, ctx.Err()
}

// migrationView is a migration as the microversion has it. What is not kept here is null: the
// address of the destination, and the numbers of flavors.
func migrationView(x *api.Exchange, m *cellwire.Migration, hosts bool) *api.Object {
	shown := func(host string) any {
		if !hosts {
			return nil
		}
		return api.OrNull(host)
	}
	o := new(api.Object).Add("created_at", api.Time(&m.CreatedAt)).
		Add("dest_compute", shown(m.DestHost)).Add("dest_host", nil).Add("dest_node", shown(m.DestNode)).
		Add("id", m.ID).Add("instance_uuid", m.ServerUUID).
		Add("new_instance_type_id", nil).Add("old_instance_type_id", nil).
		Add("source_compute", shown(m.SourceHost)).Add("source_node", shown(m.SourceNode)).
		Add("status", string(m.Status)).
		Add("updated_at", api.Time(m.UpdatedAt))
	if x.AtLeast(api.VMigrationTypes) {
		o.Add("migration_type", string(m.Type))
	}
	if x.AtLeast(vMigrationPages) {
		o.Add("uuid", m.UUID)
	}
	return o
}
