// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// The arguments of evacuate and migrate.
var (
	evacuateSchemas = api.Fields{
		{Name: "host", Schema: api.SchemaHost},
		{Name: "onSharedStorage", Until: vStorageFound - 1, Schema: api.SchemaBoolean},
		{Name: "adminPass", Schema: api.SchemaText},
		{Name: "force", Since: vForcedEvacuation, Until: vNoForcedMoves - 1, Schema: api.SchemaBoolean},
	}.Steps(func(v api.Version, members js.Properties) js.Schema {
		if v < vStorageFound {
			return js.ClosedObject(members, "onSharedStorage")
		}
		return js.ClosedObject(members)
	})
	migrateSchemas = api.SchemaSteps{
		{Since: vMigrateToHost, Schema: append(js.Schema{js.Type("object", "null")},
			js.ClosedObject(js.Properties{{Name: "host", Schema: js.Schema{
				js.Type("string", "null"), js.MinLength(1), js.MaxLength(255), js.Pattern("^[a-zA-Z0-9-._]*$"),
			}}})[1:]...)},
		{Since: api.MinVersion, Schema: nil},
	}
)

// evacuateServer has a server made on another host, because its own is down. As in Nova the answer
// is a 200. The password is one to show, as that of a boot.
func (d *Deps) evacuateServer(x *api.Exchange, m apidb.Mapping, argument *js.Object) error {
	server, err := d.Servers.Current(x, m, "evacuate")
	if err != nil {
		return err
	}
	if err := x.Allow(ruleEvacuate, m.ProjectID); err != nil {
		return err
	}
	host, password := api.MemberString(argument, "host"), api.MemberText(argument, "adminPass")
	shared := api.MemberBool(argument, "onSharedStorage", false)
	switch {
	case api.MemberBool(argument, "force", false) && host == "":
		return osapi.BadRequest("Can't force to a non-provided destination")
	case shared && password != nil:
		return osapi.BadRequest("admin password can't be changed on existing disk")
	}
	if host != "" {
		known, err := d.Hosts.KnowsHost(x.Context(), host)
		switch {
		case err != nil:
			return err
		case !known:
			return osapi.NotFound("Compute host %s not found.", host)
		case host == server.Host:
			return osapi.BadRequest("The target host can't be the same one.")
		}
	}
	if err := d.migrate(x, m, &server,
		cellwire.MigrateRequest{Type: cellwire.MigrationEvacuation, Host: host}); err != nil {
		return err
	}
	if x.AtLeast(vStorageFound) {
		return x.Empty(http.StatusOK)
	}
	if password == nil && !shared {
		password = new(newPassword())
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("adminPass", password))
}

// migrateServer moves a server to another host: its guest is shut down and started there again.
func (d *Deps) migrateServer(x *api.Exchange, m apidb.Mapping, argument *js.Object) error {
	server, err := d.Servers.Current(x, m, "migrate")
	if err != nil {
		return err
	}
	q := cellwire.MigrateRequest{Type: cellwire.MigrationCold}
	if x.AtLeast(vMigrateToHost) && argument != nil {
		q.Host = api.MemberString(argument, "host")
	}
	rule := ruleMigrate
	if q.Host != "" {
		rule = ruleMigrateToHost
	}
	if err := x.Allow(rule, m.ProjectID); err != nil {
		return err
	}
	if err := d.migrate(x, m, &server, q); err != nil {
		return err
	}
	return x.Empty(http.StatusAccepted)
}

// migrate begins a migration, after the checks in Nova's order. The cell checks once more.
func (d *Deps) migrate(x *api.Exchange, m apidb.Mapping, server *cellwire.Server, q cellwire.MigrateRequest) error {
	err := q.Check(server)
	if err == nil && q.Type == cellwire.MigrationCold && q.Host != "" {
		known, unread := d.Hosts.KnowsHost(x.Context(), q.Host)
		switch {
		case unread != nil:
			return unread
		case q.Host == server.Host:
			return osapi.BadRequest("Cannot migrate to the host where the server exists.")
		case !known:
			return osapi.BadRequest("Compute host %s could not be found.", q.Host)
		}
	}
	if err == nil || cellclient.IsInUse(err) && m.CellUUID != "" { // the cell says more about a host that is up
		err = d.Scheduler.Migrate(x.Context(), m, q.Type, q.Host)
	}
	var refusal *cellwire.Error
	if cellclient.IsInUse(err) && errors.As(err, &refusal) {
		return osapi.BadRequest("%s", osapi.Shortened(refusal.Message)).Because(err)
	}
	return novaError(err, q.Type.Action(), m.InstanceUUID)
}

// decideMigration ends a migration that is finished: the server stays where it is (204), or goes
// back (202).
func (d *Deps) decideMigration(
	rule api.Rule, action string, confirm bool, status int,
) func(*api.Exchange, apidb.Mapping, *js.Object) error {
	return func(x *api.Exchange, m apidb.Mapping, _ *js.Object) error {
		server, err := d.Servers.Current(x, m, action)
		if err != nil {
			return err
		}
		if err := x.Allow(rule, m.ProjectID); err != nil {
			return err
		}
		if server.VMState != cellwire.VMResized {
			return api.Conflict("Cannot '%s' instance %s while it is in vm_state %s",
				action, m.InstanceUUID, server.VMState)
		}
		if server.TaskState != "" {
			return api.Conflict("Cannot '%s' instance %s while it is in task_state %s",
				action, m.InstanceUUID, server.TaskState)
		}
		err = d.Scheduler.Decide(x.Context(), m, confirm)
		switch {
		case errors.Is(err, scheduler.ErrNotResized):
			return osapi.BadRequest("Instance has not been resized.").Because(err)
		case err != nil:
			return novaError(err, action, m.InstanceUUID)
		}
		return x.Empty(status)
	}
}

// migrationRoutes are the calls about migrations of one server. In Nova they are only about live
// ones, so that there are none here.
func (d *Deps) migrationRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers/{id}/migrations", Handle: d.listLiveMigrations, Since: api.VMigrationTypes,
			Rules: []api.Rule{ruleServerMigrationsList}},
		{Method: "GET", Path: "/v2.1/servers/{id}/migrations/{migration}", Handle: d.showLiveMigration,
			Since: api.VMigrationTypes, Rules: []api.Rule{ruleServerMigrationsShow}},
		{Method: "DELETE", Path: "/v2.1/servers/{id}/migrations/{migration}", Handle: d.abortMigration, Since: vAbort,
			Rules: []api.Rule{ruleServerMigrationAbort}},
	}
}

// listLiveMigrations answers GET /servers/{id}/migrations, the live migrations in progress: none.
func (d *Deps) listLiveMigrations(x *api.Exchange) error {
	if _, err := d.Servers.MappingOfPath(x, ruleServerMigrationsList); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("migrations", api.List{}))
}

// showLiveMigration answers GET /servers/{id}/migrations/{migration}: no migration is live.
func (d *Deps) showLiveMigration(x *api.Exchange) error {
	m, err := d.Servers.MappingOfPath(x, ruleServerMigrationsShow)
	if err != nil {
		return err
	}
	all, err := d.Hosts.Migrations(x.Context(),
		cellwire.MigrationQuery{ServerUUID: m.InstanceUUID, Limit: cellwire.MaxLimit})
	if err != nil {
		return err
	}
	id := x.Param("migration")
	if slices.ContainsFunc(all, func(one cellwire.Migration) bool { return strconv.FormatInt(one.ID, 10) == id }) {
		return osapi.NotFound("Migration %s for server %s is not live-migration.", id, m.InstanceUUID)
	}
	return osapi.NotFound("In-progress live migration %s is not found for server %s.",
		osapi.Shortened(id), m.InstanceUUID)
}
