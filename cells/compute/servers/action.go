// SPDX-License-Identifier: Apache-2.0

package servers

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

// rebootSchema is the argument of a reboot.
var rebootSchema = js.ClosedObject(js.Properties{
	{Name: "type", Schema: js.Schema{js.Type("string"), js.Enum("HARD", "Hard", "hard", "SOFT", "Soft", "soft")}},
}, "type")

// rebootServer has the guest asked to shut down (SOFT) or switched off (HARD), and started again.
func (d *Deps) rebootServer(x *api.Exchange, m apidb.Mapping, argument *js.Object) error {
	kind := cellwire.PowerReboot
	if strings.EqualFold(api.MemberString(argument, "type"), "HARD") {
		kind = cellwire.PowerRebootHard
	}
	return d.powerAction(ruleServersReboot, kind)(x, m, nil)
}

// powerAction is an action that changes the power of a guest: 202 when its cell has it. Its host
// does it when it is up. Cost: two reads of the API database, and one request to one cell, which
// also checks the state.
func (d *Deps) powerAction(
	rule api.Rule, power cellwire.PowerAction,
) func(*api.Exchange, apidb.Mapping, *js.Object) error {
	return func(x *api.Exchange, m apidb.Mapping, _ *js.Object) error {
		if err := x.Allow(rule, m.ProjectID); err != nil {
			return err
		}
		cell, building, err := d.Servers.Placed(x, m)
		switch {
		case err != nil:
			return err
		case building != nil:
			err = power.Check(building)
		default:
			_, err = gather.One(x.Context(), d.Gatherer, cell,
				func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
					return c.Power(ctx, m.InstanceUUID, power)
				})
		}
		if err != nil {
			return novaError(err, string(power), m.InstanceUUID)
		}
		return x.Empty(http.StatusAccepted)
	}
}

// novaError is [serverFault] where a conflict comes with the sentence that Nova has for it.
func novaError(err error, action, uuid string) error {
	var refusal *cellwire.Error
	if errors.As(err, &refusal) && (cellclient.IsConflict(err) || cellclient.IsUnable(err)) {
		return api.Conflict("%s", osapi.Shortened(refusal.Message)).Because(err)
	}
	return serverFault(err, action, uuid)
}
