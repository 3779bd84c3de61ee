// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// instanceActionRoutes are the calls that show what was done to a server.
func (d *Deps) instanceActionRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers/{id}/os-instance-actions", Query: &actionQuery,
			Handle: d.listInstanceActions, Rules: []api.Rule{ruleActionsList}},
		{Method: "GET", Path: "/v2.1/servers/{id}/os-instance-actions/{request}", Handle: d.showInstanceAction,
			Rules: []api.Rule{ruleActionsShow, ruleActionsEvents}},
	}
}

// actionQuery are the parameters of a list of actions.
var actionQuery = api.Parameters{Check: (*api.Exchange).StrictQuery, Closed: vActionPages, All: []api.Parameter{
	{Name: "limit", Kind: api.Number, Since: vActionPages, Text: api.TextLimit},
	{Name: "marker", Since: vActionPages, Text: "The request id of an action: the page begins after it."},
	{Name: "changes-since", Kind: api.DateTime, Since: vActionPages, Text: "Those that changed then or later."},
	{Name: "changes-before", Kind: api.DateTime, Since: api.VChangesBefore,
		Text: "Those that changed then or earlier."},
}}

// instanceActions are the actions of the server of the path, the newest first. A server that is not
// in a cell yet has none. Those of deleted servers are shown from 2.21 on. Cost: two reads of the
// API database, and one request to one cell.
func (d *Deps) instanceActions(x *api.Exchange, rule api.Rule) (apidb.Mapping, []cellwire.Action, error) {
	m, err := d.Servers.MappingOfPath(x, rule)
	if err != nil {
		return m, nil, err
	}
	cell, building, err := d.Servers.Placed(x, m)
	if err != nil || building != nil {
		return m, nil, err
	}
	answer, err := gather.One(x.Context(), d.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.ActionsAnswer, error) {
			return c.Actions(ctx, m.InstanceUUID)
		})
	switch {
	case err != nil:
		return m, nil, serverFault(err, "show", m.InstanceUUID)
	case answer.Deleted && !x.AtLeast(vActionsOfDeleted):
		return m, nil, serverview.NotFound(m.InstanceUUID)
	}
	return m, answer.Actions, nil
}

// listInstanceActions answers GET /servers/{id}/os-instance-actions.
func (d *Deps) listInstanceActions(x *api.Exchange) error {
	m, actions, err := d.instanceActions(x, ruleActionsList)
	if err != nil {
		return err
	}
	since, _ := api.ReadTime(x.Params.Last("changes-since"))
	before, bounded := api.ReadTime(x.Params.Last("changes-before"))
	if bounded && before.Before(since) {
		return osapi.BadRequest("The value of changes-since must be less than or equal to changes-before.")
	}
	if marker := x.Params.Last("marker"); x.Params.Has("marker") {
		at := slices.IndexFunc(actions, func(a cellwire.Action) bool { return a.RequestID == marker })
		if at < 0 {
			return osapi.BadRequest("Marker %s could not be found.", osapi.Shortened(marker))
		}
		actions = actions[at+1:]
	}
	limit, marker := cellwire.MaxLimit, ""
	if x.AtLeast(vActionPages) {
		limit = api.ReadLimit(x.Params, d.MaxLimit)
	}
	shown := api.List{}
	for i := range actions {
		at := lastChange(&actions[i])
		if len(shown) == limit || at.Before(since) || bounded && at.After(before) {
			continue
		}
		shown, marker = append(shown, actionView(x, m, &actions[i])), actions[i].RequestID
	}
	answer := new(api.Object).Add("instanceActions", shown)
	if x.AtLeast(vActionPages) && len(shown) > 0 && len(shown) == limit {
		answer.Add("links", x.NextLink("servers/"+m.InstanceUUID+"/os-instance-actions", x.Params, marker))
	}
	return x.JSON(http.StatusOK, answer)
}

// showInstanceAction answers GET /servers/{id}/os-instance-actions/{request}.
func (d *Deps) showInstanceAction(x *api.Exchange) error {
	m, actions, err := d.instanceActions(x, ruleActionsShow)
	if err != nil {
		return err
	}
	id := x.Param("request")
	at := slices.IndexFunc(actions, func(a cellwire.Action) bool { return a.RequestID == id })
	if at < 0 {
		return osapi.NotFound("Action %s not found", osapi.Shortened(id))
	}
	action := &actions[at]
	shown, all := actionView(x, m, action), x.Allows(ruleActionsEvents, m.ProjectID)
	if all || x.AtLeast(vActionEvents) {
		shown.Add("events", api.List{eventView(x, m, action, all)})
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("instanceAction", shown))
}

// lastChange is when something was last known of an action.
func lastChange(a *cellwire.Action) time.Time {
	if a.FinishedAt != nil {
		return *a.FinishedAt
	}
	return a.StartedAt
}

// actionView is an action as the microversion has it.
func actionView(x *api.Exchange, m apidb.Mapping, a *cellwire.Action) *api.Object {
	o := new(api.Object).Add("action", string(a.Name)).
		Add("instance_uuid", m.InstanceUUID).Add("request_id", a.RequestID).
		Add("user_id", api.OrNull(a.UserID)).Add("project_id", api.OrNull(a.ProjectID)).
		Add("start_time", api.Time(&a.StartedAt))
	if a.Failed {
		o.Add("message", "Error")
	} else {
		o.Add("message", nil)
	}
	if x.AtLeast(vActionPages) {
		o.Add("updated_at", api.Time(new(lastChange(a))))
	}
	return o
}

// eventView is the event of an action. Its host and what went wrong are for those who may see all
// of it.
func eventView(x *api.Exchange, m apidb.Mapping, a *cellwire.Action, all bool) *api.Object {
	o := new(api.Object).Add("event", eventName(a)).Add("start_time", api.Time(&a.StartedAt))
	switch {
	case a.FinishedAt == nil:
		o.Add("finish_time", nil).Add("result", nil)
	case a.Failed:
		o.Add("finish_time", api.Time(a.FinishedAt)).Add("result", "Error")
	default:
		o.Add("finish_time", api.Time(a.FinishedAt)).Add("result", "Success")
	}
	if all {
		o.Add("traceback", api.OrNull(a.Details))
	}
	if x.AtLeast(vActionHost) {
		if all {
			o.Add("host", api.OrNull(a.Host))
		}
		o.Add("hostId", serverview.HostID(&cellwire.Server{ProjectID: m.ProjectID, Host: a.Host}))
	}
	return o
}

// eventName is what Nova calls the part of an action that its host does.
func eventName(a *cellwire.Action) string {
	switch {
	case a.Name == cellwire.ActionCreate && a.Host == "":
		return "conductor_schedule_and_build_instances"
	case a.Name == cellwire.ActionCreate:
		return "compute__do_build_and_run_instance"
	case a.Name == cellwire.ActionDelete:
		return "compute_terminate_instance"
	case a.Name == cellwire.ActionEvacuate:
		return "compute_rebuild_instance"
	case a.Name == cellwire.ActionMigrate:
		return "compute_finish_resize"
	case a.Name == cellwire.ActionConfirm:
		return "compute_confirm_resize"
	case a.Name == cellwire.ActionRevert:
		return "compute_finish_revert_resize"
	}
	return fmt.Sprintf("compute_%s_instance", a.Name)
}
