// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// The arguments of evacuate and migrate.
var (
	evacuateSchemas = func() schemaSteps {
		now := js.Properties{{Name: "host", Schema: schemaHost}, {Name: "adminPass", Schema: schemaText}}
		first := js.Properties{{Name: "host", Schema: schemaHost}, {Name: "onSharedStorage", Schema: schemaBoolean}, {Name: "adminPass", Schema: schemaText}}
		return schemaSteps{
			{vNoForcedMoves, js.ClosedObject(now)},
			{vForcedEvacuation, js.ClosedObject(now.With("force", schemaBoolean))},
			{vStorageFound, js.ClosedObject(now)},
			{MinVersion, js.ClosedObject(first, "onSharedStorage")},
		}
	}()
	migrateSchemas = schemaSteps{
		{vMigrateToHost, append(js.Schema{js.Type("object", "null")}, js.ClosedObject(js.Properties{{Name: "host", Schema: js.Schema{
			js.Type("string", "null"), js.MinLength(1), js.MaxLength(255), js.Pattern("^[a-zA-Z0-9-._]*$"),
		}}})[1:]...)},
		{MinVersion, nil},
	}
)

// evacuateServer has a server made on another host, because its own is down. As in Nova the answer
// is a 200. The password is one to show, as that of a boot.
func (a *API) evacuateServer(x *exchange, m apidb.Mapping, argument *js.Object) error {
	server, err := a.current(x, m, "evacuate")
	if err != nil {
		return err
	}
	if err := x.allow(ruleEvacuate, m.ProjectID); err != nil {
		return err
	}
	host, password := memberString(argument, "host"), memberText(argument, "adminPass")
	shared := memberBool(argument, "onSharedStorage", false)
	switch {
	case memberBool(argument, "force", false) && host == "":
		return badRequest("Can't force to a non-provided destination")
	case shared && password != nil:
		return badRequest("admin password can't be changed on existing disk")
	}
	if host != "" {
		known, err := a.knowsHost(x.ctx(), host)
		switch {
		case err != nil:
			return err
		case !known:
			return notFound("Compute host %s not found.", host)
		case host == server.Host:
			return badRequest("The target host can't be the same one.")
		}
	}
	if err := a.migrate(x, m, &server, cellwire.MigrateRequest{Type: cellwire.MigrationEvacuation, Host: host}); err != nil {
		return err
	}
	if x.since(vStorageFound) {
		return x.empty(http.StatusOK)
	}
	if password == nil && !shared {
		password = new(newPassword())
	}
	return x.json(http.StatusOK, new(object).add("adminPass", password))
}

// migrateServer moves a server to another host: its guest is shut down and started there again.
func (a *API) migrateServer(x *exchange, m apidb.Mapping, argument *js.Object) error {
	server, err := a.current(x, m, "migrate")
	if err != nil {
		return err
	}
	q := cellwire.MigrateRequest{Type: cellwire.MigrationCold}
	if x.since(vMigrateToHost) && argument != nil {
		q.Host = memberString(argument, "host")
	}
	rule := ruleMigrate
	if q.Host != "" {
		rule = ruleMigrateToHost
	}
	if err := x.allow(rule, m.ProjectID); err != nil {
		return err
	}
	if err := a.migrate(x, m, &server, q); err != nil {
		return err
	}
	return x.empty(http.StatusAccepted)
}

// migrate begins a migration, after the checks in Nova's order. The cell checks once more.
func (a *API) migrate(x *exchange, m apidb.Mapping, server *cellwire.Server, q cellwire.MigrateRequest) error {
	err := q.Check(server)
	if err == nil && q.Type == cellwire.MigrationCold && q.Host != "" {
		known, unread := a.knowsHost(x.ctx(), q.Host)
		switch {
		case unread != nil:
			return unread
		case q.Host == server.Host:
			return badRequest("Cannot migrate to the host where the server exists.")
		case !known:
			return badRequest("Compute host %s could not be found.", q.Host)
		}
	}
	if err == nil {
		err = a.scheduler.Migrate(x.ctx(), m, q.Type, q.Host)
	}
	var refusal *cellwire.Error
	if cellclient.IsInUse(err) && errors.As(err, &refusal) {
		return badRequest("%s", shortened(refusal.Message)).Because(err)
	}
	return inNovasWords(err, q.Type.Action(), m.InstanceUUID)
}

// knowsHost says whether a host is mapped to a cell.
func (a *API) knowsHost(ctx context.Context, host string) (bool, error) {
	hosts, err := a.store.Hosts(ctx)
	return slices.ContainsFunc(hosts, func(h apidb.HostMapping) bool { return h.Host == host }), err
}

// decideMigration ends a migration that is finished: the server stays where it is (204), or goes
// back (202).
func (a *API) decideMigration(rule Rule, action string, stays bool, status int) func(*exchange, apidb.Mapping, *js.Object) error {
	return func(x *exchange, m apidb.Mapping, _ *js.Object) error {
		server, err := a.current(x, m, action)
		if err != nil {
			return err
		}
		if err := x.allow(rule, m.ProjectID); err != nil {
			return err
		}
		if server.VMState != cellwire.VMResized {
			return conflict("Cannot '%s' instance %s while it is in vm_state %s", action, m.InstanceUUID, server.VMState)
		}
		if server.TaskState != "" {
			return conflict("Cannot '%s' instance %s while it is in task_state %s", action, m.InstanceUUID, server.TaskState)
		}
		err = a.scheduler.Decide(x.ctx(), m, stays)
		switch {
		case errors.Is(err, scheduler.ErrNotResized):
			return badRequest("Instance has not been resized.").Because(err)
		case err != nil:
			return inNovasWords(err, action, m.InstanceUUID)
		}
		return x.empty(status)
	}
}
