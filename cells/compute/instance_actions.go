// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// instanceActionRoutes are the calls that show what was done to a server.
func (a *API) instanceActionRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/servers/{id}/os-instance-actions", query: &actionQuery, handle: a.listInstanceActions, about: &aboutListInstanceActions},
		{method: "GET", path: "/v2.1/servers/{id}/os-instance-actions/{request}", handle: a.showInstanceAction, about: &aboutShowInstanceAction},
	}
}

// actionQuery are the parameters of a list of actions.
var actionQuery = parameters{closed: vActionPages, all: []parameter{
	{name: "limit", kind: number, since: vActionPages, text: textLimit},
	{name: "marker", since: vActionPages, text: "The request id of an action: the page begins after it."},
	{name: "changes-since", kind: dateTime, since: vActionPages, text: "Those that changed then or later."},
	{name: "changes-before", kind: dateTime, since: vChangesBefore, text: "Those that changed then or earlier."},
}}

// instanceActions are the actions of the server of the path, the newest first. A server that is not
// in a cell yet has none. Those of deleted servers are shown from 2.21 on. Cost: two reads of the
// API database, and one request to one cell.
func (a *API) instanceActions(x *exchange, rule Rule) (apidb.Mapping, []cellwire.Action, error) {
	m, err := a.mappingOfPath(x, rule)
	if err != nil {
		return m, nil, err
	}
	cell, building, err := a.placed(x, m)
	if err != nil || building != nil {
		return m, nil, err
	}
	answer, err := gather.One(x.ctx(), a.gatherer, cell, func(ctx context.Context, c *cellclient.Client) (cellwire.ActionsAnswer, error) {
		return c.Actions(ctx, m.InstanceUUID)
	})
	switch {
	case err != nil:
		return m, nil, serverFault(err, "show", m.InstanceUUID)
	case answer.Deleted && !x.since(vActionsOfDeleted):
		return m, nil, serverNotFound(m.InstanceUUID)
	}
	return m, answer.Actions, nil
}

// listInstanceActions answers GET /servers/{id}/os-instance-actions.
func (a *API) listInstanceActions(x *exchange) error {
	params, err := x.strictQuery()
	if err != nil {
		return err
	}
	m, actions, err := a.instanceActions(x, ruleActionsList)
	if err != nil {
		return err
	}
	since, _ := readTime(params.last("changes-since"))
	before, bounded := readTime(params.last("changes-before"))
	if bounded && before.Before(since) {
		return badRequest("The value of changes-since must be less than or equal to changes-before.")
	}
	if marker := params.last("marker"); params.has("marker") {
		at := slices.IndexFunc(actions, func(a cellwire.Action) bool { return a.RequestID == marker })
		if at < 0 {
			return badRequest("Marker %s could not be found.", shortened(marker))
		}
		actions = actions[at+1:]
	}
	limit, marker := cellwire.MaxLimit, ""
	if x.since(vActionPages) {
		limit = readLimit(params, a.options.MaxLimit)
	}
	shown := list{}
	for i := range actions {
		at := lastChange(&actions[i])
		if len(shown) == limit || at.Before(since) || bounded && at.After(before) {
			continue
		}
		shown, marker = append(shown, actionView(x, m, &actions[i])), actions[i].RequestID
	}
	answer := new(object).add("instanceActions", shown)
	if x.since(vActionPages) && len(shown) > 0 && len(shown) == limit {
		answer.add("links", x.nextLink("servers/"+m.InstanceUUID+"/os-instance-actions", params, marker))
	}
	return x.json(http.StatusOK, answer)
}

// showInstanceAction answers GET /servers/{id}/os-instance-actions/{request}.
func (a *API) showInstanceAction(x *exchange) error {
	m, actions, err := a.instanceActions(x, ruleActionsShow)
	if err != nil {
		return err
	}
	id := x.param("request")
	at := slices.IndexFunc(actions, func(a cellwire.Action) bool { return a.RequestID == id })
	if at < 0 {
		return notFound("Action %s not found", shortened(id))
	}
	action := &actions[at]
	shown, all := actionView(x, m, action), x.may(ruleActionsEvents, m.ProjectID)
	if all || x.since(vActionEvents) {
		shown.add("events", list{eventView(x, m, action, all)})
	}
	return x.json(http.StatusOK, new(object).add("instanceAction", shown))
}

// lastChange is when something was last known of an action.
func lastChange(a *cellwire.Action) time.Time {
	if a.FinishedAt != nil {
		return *a.FinishedAt
	}
	return a.StartedAt
}

// actionView is an action as the microversion has it.
func actionView(x *exchange, m apidb.Mapping, a *cellwire.Action) *object {
	o := new(object).add("action", string(a.Name)).add("instance_uuid", m.InstanceUUID).add("request_id", a.RequestID).
		add("user_id", orNull(a.UserID)).add("project_id", orNull(a.ProjectID)).add("start_time", microseconds(a.StartedAt))
	if a.Failed {
		o.add("message", "Error")
	} else {
		o.add("message", nil)
	}
	if x.since(vActionPages) {
		o.add("updated_at", microseconds(lastChange(a)))
	}
	return o
}

// eventView is the event of an action. Its host and what went wrong are for those who may see all
// of it.
func eventView(x *exchange, m apidb.Mapping, a *cellwire.Action, all bool) *object {
	o := new(object).add("event", eventName(a)).add("start_time", microseconds(a.StartedAt))
	switch {
	case a.FinishedAt == nil:
		o.add("finish_time", nil).add("result", nil)
	case a.Failed:
		o.add("finish_time", microseconds(*a.FinishedAt)).add("result", "Error")
	default:
		o.add("finish_time", microseconds(*a.FinishedAt)).add("result", "Success")
	}
	if all {
		o.add("traceback", orNull(a.Details))
	}
	if x.since(vActionHost) {
		if all {
			o.add("host", orNull(a.Host))
		}
		o.add("hostId", hostID(&cellwire.Server{ProjectID: m.ProjectID, Host: a.Host}))
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
