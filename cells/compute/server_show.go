// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/providertree"
)

// serverReadRoutes are the calls that read servers.
func (a *API) serverReadRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers", Query: &serverQuery, Handle: a.listBrief, About: &aboutListBrief},
		{Method: "GET", Path: "/v2.1/servers/detail",
			Query: &serverQuery, Handle: a.listDetail, About: &aboutListDetail},
		{Method: "GET", Path: "/v2.1/servers/{id}", Handle: a.showServer, About: &aboutShowServer},
	}
}

// isUUID says whether an identifier can be one of a server. Others are not looked for.
func isUUID(s string) bool {
	canonical, err := providertree.CanonicalUUID(s)
	return err == nil && canonical == s
}

// mapping is that of a server that the caller may know of: its project's, or any for an
// administrator. All others are a 404, whether the cell is up or not.
func (a *API) mapping(x *api.Exchange, uuid string) (apidb.Mapping, error) {
	uuid = strings.ToLower(uuid)
	if !isUUID(uuid) {
		return apidb.Mapping{}, serverNotFound(uuid)
	}
	m, err := a.store.Mapping(x.Context(), uuid)
	switch {
	case errors.Is(err, apidb.ErrNotFound):
		return apidb.Mapping{}, serverNotFound(uuid)
	case err != nil:
		return apidb.Mapping{}, err
	case m.ProjectID != x.Who.Project && !x.IsAdmin():
		return apidb.Mapping{}, serverNotFound(uuid)
	}
	return m, nil
}

// showServer answers GET /servers/{id}. A server that is not released in a cell yet is shown from
// its build request. From 2.69 on a server of a cell that is down is shown as far as the API
// database knows it. Cost: up to three reads of the API database, and one request to one cell.
func (a *API) showServer(x *api.Exchange) error {
	m, err := a.mapping(x, x.Param("id"))
	if err != nil {
		return err
	}
	body, err := a.shown(x, m)
	if err != nil {
		return err
	}
	return a.oneServer(x, m, body)
}

// oneServer answers with a server. From 2.71 on it says in which server groups it is, one or none,
// also if its cell is down.
func (a *API) oneServer(x *api.Exchange, m apidb.Mapping, body *api.Object) error {
	return a.serverAnswer(x, http.StatusOK, m, body)
}

// serverAnswer is oneServer with a status.
func (a *API) serverAnswer(x *api.Exchange, status int, m apidb.Mapping, body *api.Object) error {
	if x.Since(vShowGroups) {
		groups := []string{}
		switch g, err := a.store.ServerGroupOf(x.Context(), m.InstanceUUID); {
		case err == nil:
			groups = append(groups, g.UUID)
		case !errors.Is(err, apidb.ErrNotFound):
			return err
		}
		body.Add("server_groups", groups)
	}
	return x.JSON(status, new(api.Object).Add("server", body))
}

// shown is the server of a mapping, for a caller who may know of it.
func (a *API) shown(x *api.Exchange, m apidb.Mapping) (*api.Object, error) {
	cell, building, err := a.placed(x, m)
	switch {
	case err != nil:
		return nil, err
	case building != nil:
		if err := x.Allow(ruleServersShow, m.ProjectID); err != nil {
			return nil, err
		}
		return a.newServerView(x, m.ProjectID).whole(building), nil
	}
	server, err := a.cells.show(x.Context(), cell, m.InstanceUUID)
	switch {
	case errors.Is(err, errNoServer):
		if !m.Queued() {
			a.logLost(x, cell, m.InstanceUUID)
		}
		return nil, serverNotFound(m.InstanceUUID)
	case errors.Is(err, gather.ErrDown) && x.Since(api.VDownCells):
		return a.shownUnknown(x, m)
	case err != nil:
		return nil, err
	case server.Deleted || server.Hidden:
		return nil, serverNotFound(m.InstanceUUID)
	}
	if err := x.Allow(ruleServersShow, m.ProjectID); err != nil {
		return nil, err
	}
	return a.newServerView(x, m.ProjectID).whole(&server), nil
}

// logLost logs that a cell does not have a living server that is mapped to it. Its owner gets
// Nova's 404, and an operator has to know. At most once a minute per cell.
func (a *API) logLost(x *api.Exchange, cell apidb.Cell, uuid string) {
	if !a.lost.Allow(cell.UUID) {
		return
	}
	a.service.Logger.Warn().Str("request_id", x.ID).Str("server", uuid).Str("cell", cell.Name).
		Msg("A server is mapped to a cell that does not have it. The request was answered with 404, but the guest " +
			"may still run. The database of the cell may be new or an " +
			"older copy: `compute-agent cells manage list` shows whether it is and what to do. Logged at most once " +
			"a minute per cell.")
}

// shownUnknown is the minimal record of a server. Without a request specification there is nothing
// to show, as in Nova.
func (a *API) shownUnknown(x *api.Exchange, m apidb.Mapping) (*api.Object, error) {
	if m.Queued() {
		return nil, serverNotFound(m.InstanceUUID)
	}
	spec, err := a.store.RequestSpec(x.Context(), m.InstanceUUID)
	switch {
	case errors.Is(err, apidb.ErrNotFound):
		return nil, serverNotFound(m.InstanceUUID)
	case err != nil:
		return nil, err
	}
	if err := x.Allow(ruleServersShow, m.ProjectID); err != nil {
		return nil, err
	}
	return a.newServerView(x, m.ProjectID).unknownWhole(&m, &spec), nil
}

// serverNotFound is the 404 for a server that does not exist or that the client must not see.
func serverNotFound(uuid string) *osapi.Error {
	return osapi.NotFound("Instance %s could not be found.", osapi.Shortened(uuid))
}
