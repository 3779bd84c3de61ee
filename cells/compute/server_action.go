// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// actionRoutes is the call for all that is done to one server.
func (a *API) actionRoutes() []api.Route {
	return []api.Route{{Method: "POST", Path: "/v2.1/servers/{id}/action", Actions: map[string]api.Action{
		"restore":     {Do: a.onServer(a.restoreServer), About: &aboutRestore},
		"forceDelete": {Do: a.onServer(a.forceDeleteServer), About: &aboutForceDelete},
		"os-start":    {Do: a.onServer(a.powerAction(ruleServersStart, cellwire.PowerStart)), About: &aboutStart},
		"os-stop":     {Do: a.onServer(a.powerAction(ruleServersStop, cellwire.PowerStop)), About: &aboutStop},
		"reboot":      {Schemas: api.Once(rebootSchema), Do: a.onServer(a.rebootServer), About: &aboutReboot},
		"rebuild":     {Schemas: rebuildSchemas, Do: a.onServer(a.rebuildServer), About: &aboutRebuild},

		"evacuate": {Schemas: evacuateSchemas, Do: a.onServer(a.evacuateServer), About: &aboutEvacuate},
		"migrate":  {Schemas: migrateSchemas, Do: a.onServer(a.migrateServer), About: &aboutMigrate},
		"confirmResize": {Do: a.onServer(
			a.decideMigration(ruleServersConfirm, "confirmResize", true, http.StatusNoContent)), About: &aboutConfirm},
		"revertResize": {Do: a.onServer(
			a.decideMigration(ruleServersRevert, "revertResize", false, http.StatusAccepted)), About: &aboutRevert},
		"os-resetState": {Schemas: api.Once(resetSchema), Do: a.onServer(a.resetServer), About: &aboutReset},
		"os-getConsoleOutput": {Schemas: api.Once(consoleOutputSchema),
			Do: a.onServer(a.consoleOutput), About: &aboutConsoleOutput},
		"os-getSerialConsole": a.consoleAction(&aboutSerialConsole, consoleSerial),
		"os-getVNCConsole":    a.consoleAction(&aboutVNCConsole, "novnc", "xvpvnc"),
		"os-getSPICEConsole":  a.consoleAction(&aboutSPICEConsole, "spice-html5"),
	}}}
}

// onServer is an action on the server of the path, which the caller may know of.
func (a *API) onServer(
	do func(x *api.Exchange, m apidb.Mapping, argument *js.Object) error,
) func(*api.Exchange, *js.Object) error {
	return func(x *api.Exchange, argument *js.Object) error {
		m, err := a.mapping(x, x.Param("id"))
		if err != nil {
			return err
		}
		return do(x, m, argument)
	}
}

// rebootSchema is the argument of a reboot.
var rebootSchema = js.ClosedObject(js.Properties{
	{Name: "type", Schema: js.Schema{js.Type("string"), js.Enum("HARD", "Hard", "hard", "SOFT", "Soft", "soft")}},
}, "type")

// rebootServer has the guest asked to shut down (SOFT) or switched off (HARD), and started again.
func (a *API) rebootServer(x *api.Exchange, m apidb.Mapping, argument *js.Object) error {
	kind := cellwire.PowerReboot
	if strings.EqualFold(api.MemberString(argument, "type"), "HARD") {
		kind = cellwire.PowerRebootHard
	}
	return a.powerAction(ruleServersReboot, kind)(x, m, nil)
}

// powerAction is an action that changes the power of a guest: 202 when its cell has it. Its host
// does it when it is up. Cost: two reads of the API database, and one request to one cell, which
// also checks the state.
func (a *API) powerAction(
	rule api.Rule, power cellwire.PowerAction,
) func(*api.Exchange, apidb.Mapping, *js.Object) error {
	return func(x *api.Exchange, m apidb.Mapping, _ *js.Object) error {
		if err := x.Allow(rule, m.ProjectID); err != nil {
			return err
		}
		cell, building, err := a.placed(x, m)
		switch {
		case err != nil:
			return err
		case building != nil:
			err = power.Check(building)
		default:
			_, err = gather.One(x.Context(), a.gatherer, cell,
				func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
					return c.Power(ctx, m.InstanceUUID, power)
				})
		}
		if err != nil {
			return inNovasWords(err, string(power), m.InstanceUUID)
		}
		return x.Empty(http.StatusAccepted)
	}
}

// inNovasWords is [serverFault] where a conflict comes with the sentence that Nova has for it.
func inNovasWords(err error, action, uuid string) error {
	var refusal *cellwire.Error
	if errors.As(err, &refusal) && (cellclient.IsConflict(err) || cellclient.IsUnable(err)) {
		return api.Conflict("%s", osapi.Shortened(refusal.Message)).Because(err)
	}
	return serverFault(err, action, uuid)
}

// placed is the cell that a server is in, or the server itself as long as there is a build request.
func (a *API) placed(x *api.Exchange, m apidb.Mapping) (cell apidb.Cell, building *cellwire.Server, err error) {
	request, err := a.store.BuildRequest(x.Context(), m.InstanceUUID)
	switch {
	case err == nil:
		return apidb.Cell{}, &request.Server, nil
	case !errors.Is(err, apidb.ErrNotFound):
		return apidb.Cell{}, nil, err
	}
	if m.CellUUID == "" { // It may have been placed and released between the two reads.
		if m, err = a.mapping(x, m.InstanceUUID); err != nil {
			return apidb.Cell{}, nil, err
		}
		if m.CellUUID == "" {
			return apidb.Cell{}, nil, serverNotFound(m.InstanceUUID)
		}
	}
	cell, err = apidb.CellOf(x.Context(), a.store, m.CellUUID)
	return cell, nil, err
}

// current is the server of a mapping as it is now: from its build request, as long as there is one,
// or from its cell. The action is what an error is about.
func (a *API) current(x *api.Exchange, m apidb.Mapping, action string) (cellwire.Server, error) {
	cell, building, err := a.placed(x, m)
	switch {
	case err != nil:
		return cellwire.Server{}, err
	case building != nil:
		return *building, nil
	}
	server, err := a.cells.show(x.Context(), cell, m.InstanceUUID)
	switch {
	case err != nil:
		return cellwire.Server{}, serverFault(err, action, m.InstanceUUID)
	case server.Deleted || server.Hidden:
		return cellwire.Server{}, serverNotFound(m.InstanceUUID)
	}
	return server, nil
}
