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
	"github.com/compute-agent/compute-agent/cells/gather"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// actionRoutes is the call for all that is done to one server.
var actionRoutes = []route{
	{method: "POST", path: "/v2.1/servers/{id}/action", handle: (*API).serverAction},
}

// action is one of those of POST /servers/{id}/action.
type action struct {
	schema js.Schema // of its argument
	// schemas are those of an action whose argument depends on the microversion.
	schemas schemaSteps
	// do does it and answers. The argument is that of the body, if it is an object.
	do func(a *API, x *exchange, m apidb.Mapping, argument *js.Object) error
	// until is the last microversion that has the action; 0 is no bound.
	until Version
	// about is what the reference says of it.
	about *about
}

// argument is the schema of its argument at a microversion.
func (a *action) argument(v Version) js.Schema {
	if a.schemas != nil {
		return a.schemas.at(v)
	}
	return a.schema
}

// novaActions are the actions on servers that Nova has, and this service has not.
var novaActions = []string{
	"addFixedIp", "addFloatingIp", "addSecurityGroup", "changePassword", "createBackup", "createImage", "injectNetworkInfo", "lock",
	"os-getRDPConsole", "os-getSPICEConsole", "os-getVNCConsole", "os-migrateLive", "pause", "removeFixedIp",
	"removeFloatingIp", "removeSecurityGroup", "rescue", "resetNetwork", "resize", "resume", "shelve", "shelveOffload", "suspend",
	"trigger_crash_dump", "unlock", "unpause", "unrescue", "unshelve",
}

// actions are those that there are, by the name of the only member of the body.
var actions = map[string]action{
	"restore":     {do: (*API).restoreServer, about: &aboutRestore},
	"forceDelete": {do: (*API).forceDeleteServer, about: &aboutForceDelete},
	"os-start":    {do: powerAction(ruleServersStart, cellwire.PowerStart), about: &aboutStart},
	"os-stop":     {do: powerAction(ruleServersStop, cellwire.PowerStop), about: &aboutStop},
	"reboot":      {schema: rebootSchema, do: (*API).rebootServer, about: &aboutReboot},
	"rebuild":     {schemas: rebuildSchemas, do: (*API).rebuildServer, about: &aboutRebuild},

	"evacuate":            {schemas: evacuateSchemas, do: (*API).evacuateServer, about: &aboutEvacuate},
	"migrate":             {schemas: migrateSchemas, do: (*API).migrateServer, about: &aboutMigrate},
	"confirmResize":       {do: decideMigration(ruleServersConfirm, "confirmResize", true, http.StatusNoContent), about: &aboutConfirm},
	"revertResize":        {do: decideMigration(ruleServersRevert, "revertResize", false, http.StatusAccepted), about: &aboutRevert},
	"os-resetState":       {schema: resetSchema, do: (*API).resetServer, about: &aboutReset},
	"os-getConsoleOutput": {schema: consoleOutputSchema, do: (*API).consoleOutput, about: &aboutConsoleOutput},
	"os-getSerialConsole": consoleAction(&aboutSerialConsole, consoleSerial),
	"os-getVNCConsole":    consoleAction(&aboutVNCConsole, "novnc", "xvpvnc"),
	"os-getSPICEConsole":  consoleAction(&aboutSPICEConsole, "spice-html5"),
}

// serverAction answers POST /servers/{id}/action. The body is an object whose only member names the
// action, and is its argument.
func (a *API) serverAction(x *exchange) error {
	asked, argument, err := checkedAction(x, actions, func(a action) js.Schema { return a.argument(x.version) })
	if err != nil {
		return err
	}
	if asked.until > 0 && x.version > asked.until {
		return badRequest("There is no such action in microversion %s; POST /servers/{server_id}/remote-consoles replaces it", x.version)
	}
	m, err := x.mapping(x.param("id"))
	if err != nil {
		return err
	}
	return asked.do(a, x, m, argument)
}

// rebootSchema is the argument of a reboot.
var rebootSchema = js.ClosedObject(js.Properties{
	{Name: "type", Schema: js.Schema{js.Type("string"), js.Enum("HARD", "Hard", "hard", "SOFT", "Soft", "soft")}},
}, "type")

// rebootServer has the guest asked to shut down (SOFT) or switched off (HARD), and started again.
func (a *API) rebootServer(x *exchange, m apidb.Mapping, argument *js.Object) error {
	kind := cellwire.PowerReboot
	if strings.EqualFold(memberString(argument, "type"), "HARD") {
		kind = cellwire.PowerRebootHard
	}
	return powerAction(ruleServersReboot, kind)(a, x, m, nil)
}

// powerAction is an action that changes the power of a guest: 202 when its cell has it. Its host
// does it when it is up. Cost: two reads of the API database, and one request to one cell, which
// also checks the state.
func powerAction(rule Rule, power cellwire.PowerAction) func(*API, *exchange, apidb.Mapping, *js.Object) error {
	return func(a *API, x *exchange, m apidb.Mapping, _ *js.Object) error {
		if err := x.allow(rule, m.ProjectID); err != nil {
			return err
		}
		cell, building, err := x.placed(m)
		switch {
		case err != nil:
			return err
		case building != nil:
			err = power.Check(building)
		default:
			_, err = gather.One(x.ctx(), a.gatherer, cell, func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
				return c.Power(ctx, m.InstanceUUID, power)
			})
		}
		if err != nil {
			return inNovasWords(err, string(power), m.InstanceUUID)
		}
		return x.empty(http.StatusAccepted)
	}
}

// inNovasWords is [serverFault] where a conflict comes with the sentence that Nova has for it.
func inNovasWords(err error, action, uuid string) error {
	var refusal *cellwire.Error
	if errors.As(err, &refusal) && (cellclient.IsConflict(err) || cellclient.IsUnable(err)) {
		return conflict("%s", shortened(refusal.Message)).Because(err)
	}
	return serverFault(err, action, uuid)
}

// placed is the cell that a server is in, or the server itself as long as there is a build request.
func (x *exchange) placed(m apidb.Mapping) (cell apidb.Cell, building *cellwire.Server, err error) {
	request, err := x.api.store.BuildRequest(x.ctx(), m.InstanceUUID)
	switch {
	case err == nil:
		return apidb.Cell{}, &request.Server, nil
	case !errors.Is(err, apidb.ErrNotFound):
		return apidb.Cell{}, nil, err
	}
	if m.CellUUID == "" { // It may have been placed and released between the two reads.
		if m, err = x.mapping(m.InstanceUUID); err != nil {
			return apidb.Cell{}, nil, err
		}
		if m.CellUUID == "" {
			return apidb.Cell{}, nil, serverNotFound(m.InstanceUUID)
		}
	}
	cell, err = x.api.cell(x, m.CellUUID)
	return cell, nil, err
}

// current is the server of a mapping as it is now: from its build request, as long as there is one,
// or from its cell. The action is what an error is about.
func (x *exchange) current(m apidb.Mapping, action string) (cellwire.Server, error) {
	cell, building, err := x.placed(m)
	switch {
	case err != nil:
		return cellwire.Server{}, err
	case building != nil:
		return *building, nil
	}
	server, err := x.api.cells.show(x.ctx(), cell, m.InstanceUUID)
	switch {
	case err != nil:
		return cellwire.Server{}, serverFault(err, action, m.InstanceUUID)
	case server.Deleted || server.Hidden:
		return cellwire.Server{}, serverNotFound(m.InstanceUUID)
	}
	return server, nil
}
