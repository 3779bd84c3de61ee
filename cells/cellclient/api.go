// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Cell asks who the cell is.
func (c *Client) Cell(ctx context.Context) (cellwire.CellInfo, error) {
	return fetch(ctx, c, http.MethodGet, "/v1/cell", nil,
		func(info *cellwire.CellInfo) error { return checkEpoch(info.Epoch) })
}

// initialRows is the initial capacity of a page in rows.
const initialRows = 64

// Servers asks for a page.
func (c *Client) Servers(ctx context.Context, q cellwire.ServerQuery) (cellwire.ServerPage, error) {
	// Pages are most of what is read at all, so this is no list, which is read twice. That there
	// are no rows in the answer, not even none, is seen by the key of a row that is put there
	// before, and that nothing else has.
	absent := cellwire.Key{nil}
	room := cellwire.ServerPage{Rows: make([]cellwire.Row, 1, max(1, min(q.Limit, initialRows)))}
	room.Rows[0].Key = absent
	page, err := fetchInto(ctx, c, http.MethodPost, "/v1/servers/query", q, room, func(p *cellwire.ServerPage) error {
		if len(p.Rows) == 1 && len(p.Rows[0].Key) == 1 && &p.Rows[0].Key[0] == &absent[0] {
			return broken("an answer without %q, or a row without a key", "rows")
		}
		return nil
	})
	return page, err
}

// EachServer asks for all servers of a query, page by page, and calls use for each of them.
func (c *Client) EachServer(ctx context.Context, q cellwire.ServerQuery, use func(cellwire.Server)) error {
	for more := true; more; {
		page, err := c.Servers(ctx, q)
		if err != nil {
			return err
		}
		for _, row := range page.Rows {
			use(row.Server)
			q.After = row.Key
		}
		more = page.More && len(page.Rows) > 0
	}
	return nil
}

// Server asks for one server.
func (c *Client) Server(ctx context.Context, uuid string) (cellwire.Server, error) {
	return c.requestServer(ctx, http.MethodGet, uuid, "", nil)
}

// Insert puts a server into the cell, hidden until it is released. Repeating it changes nothing; a
// conflict says that another has its uuid.
func (c *Client) Insert(ctx context.Context, s cellwire.Server) (cellwire.Server, error) {
	return c.requestServer(ctx, http.MethodPut, s.UUID, "", s)
}

// Release shows a server that was inserted, and lets its host begin.
func (c *Client) Release(ctx context.Context, uuid string) (cellwire.Server, error) {
	return c.requestServer(ctx, http.MethodPost, uuid, "/release", nil)
}

// Discard erases a server that was never released. There being none is no error; that it was
// released is a conflict.
func (c *Client) Discard(ctx context.Context, uuid string) error {
	err := c.postAction(ctx, uuid, "/discard")
	if IsNotFound(err) {
		return nil
	}
	return err
}

// Delete deletes a server, softly or for good.
func (c *Client) Delete(ctx context.Context, uuid string, kind cellwire.DeleteKind) (cellwire.DeleteAnswer, error) {
	path, err := pathOf("/v1/servers/", uuid, "/delete")
	if err != nil {
		return cellwire.DeleteAnswer{}, err
	}
	return fetch(ctx, c, http.MethodPost, path, cellwire.DeleteRequest{Kind: kind},
		func(a *cellwire.DeleteAnswer) error { return checkUUID(a.Server, uuid) })
}

// Restore takes back a soft delete.
func (c *Client) Restore(ctx context.Context, uuid string) (cellwire.Server, error) {
	return c.requestServer(ctx, http.MethodPost, uuid, "/restore", nil)
}

// Patch changes what a server is called and marked with. In a state that does not allow it, it is a
// conflict, with Nova's words for it.
func (c *Client) Patch(ctx context.Context, uuid string, patch cellwire.ServerPatch) (cellwire.Server, error) {
	return c.requestServer(ctx, http.MethodPatch, uuid, "", patch)
}

// Power has a server started, stopped or rebooted. In a state that does not allow it, it is a
// conflict, with Nova's words for it.
func (c *Client) Power(ctx context.Context, uuid string, action cellwire.PowerAction) (cellwire.Server, error) {
	return c.requestServer(ctx, http.MethodPost, uuid, "/power", cellwire.PowerRequest{Action: action})
}

// Rebuild has the guest of a server made again. In a state that does not allow it, or on a host
// that cannot, it is refused, with words for it.
func (c *Client) Rebuild(ctx context.Context, uuid string, request cellwire.RebuildRequest) (cellwire.Server, error) {
	return c.requestServer(ctx, http.MethodPost, uuid, "/rebuild", request)
}

// Reset says in which state a server is, without a task. In a state that does not allow it, and
// while the server moves, it is a conflict.
func (c *Client) Reset(ctx context.Context, uuid string, request cellwire.ResetRequest) (cellwire.Server, error) {
	return c.requestServer(ctx, http.MethodPost, uuid, "/reset", request)
}

// Actions asks what clients asked for a server, deleted or not.
func (c *Client) Actions(ctx context.Context, uuid string) (cellwire.ActionsAnswer, error) {
	type answer struct {
		Actions list[cellwire.Action] `json:"actions"`
		Deleted bool                  `json:"deleted"`
	}
	path, err := pathOf("/v1/servers/", uuid, "/actions")
	if err != nil {
		return cellwire.ActionsAnswer{}, err
	}
	all, err := fetch(ctx, c, http.MethodGet, path, nil,
		func(a *answer) error { return a.Actions.checkPresent("actions") })
	return cellwire.ActionsAnswer{Actions: all.Actions.items, Deleted: all.Deleted}, err
}

// Migrate begins a migration of a server. In a state that does not allow it, it is a conflict, with
// Nova's words for it, and (in use) if a server is to be evacuated from a host that is up.
func (c *Client) Migrate(
	ctx context.Context, server string, request cellwire.MigrateRequest,
) (cellwire.Migration, error) {
	path, err := pathOf("/v1/servers/", server, "/migrations")
	if err != nil {
		return cellwire.Migration{}, err
	}
	return fetch(ctx, c, http.MethodPost, path, request,
		func(m *cellwire.Migration) error { return checkMigration(*m, request.UUID) })
}

// Step does the part of a compute API in a migration.
func (c *Client) Step(ctx context.Context, migration string, step cellwire.MigrationStep) (cellwire.Migration, error) {
	path, err := pathOf("/v1/migrations/", migration, "")
	if err != nil {
		return cellwire.Migration{}, err
	}
	return fetch(ctx, c, http.MethodPost, path, step,
		func(m *cellwire.Migration) error { return checkMigration(*m, migration) })
}

func checkMigration(m cellwire.Migration, uuid string) error {
	if m.UUID != uuid {
		return broken("an answer about migration %q instead of %q", m.UUID, uuid)
	}
	return nil
}

// MigrationsDue asks for the migrations about which the compute API has something to do.
func (c *Client) MigrationsDue(ctx context.Context) ([]cellwire.Migration, error) {
	return c.migrations(ctx, http.MethodGet, "/v1/migrations/due", nil)
}

// Migrations asks for migrations, over or not, the newest first.
func (c *Client) Migrations(ctx context.Context, q cellwire.MigrationQuery) ([]cellwire.Migration, error) {
	return c.migrations(ctx, http.MethodPost, "/v1/migrations/query", q)
}

// MigrationsOf asks for the migrations of a server that are not over.
func (c *Client) MigrationsOf(ctx context.Context, server string) ([]cellwire.Migration, error) {
	path, err := pathOf("/v1/servers/", server, "/migrations")
	if err != nil {
		return nil, err
	}
	return c.migrations(ctx, http.MethodGet, path, nil)
}

func (c *Client) migrations(ctx context.Context, method, path string, body any) ([]cellwire.Migration, error) {
	type answer struct {
		Migrations list[cellwire.Migration] `json:"migrations"`
	}
	all, err := fetch(ctx, c, method, path, body,
		func(a *answer) error { return a.Migrations.checkPresent("migrations") })
	return all.Migrations.items, err
}

// MarkFreed reports to the cell that the allocations of a deleted server are removed.
func (c *Client) MarkFreed(ctx context.Context, uuid string) error {
	return c.postAction(ctx, uuid, "/freed")
}

// States asks for the states of servers: one request for each [cellwire.MaxStates] of them.
func (c *Client) States(ctx context.Context, uuids []string) ([]cellwire.ServerState, error) {
	type answer struct {
		States list[cellwire.ServerState] `json:"states"`
	}
	var all []cellwire.ServerState
	for part := range slices.Chunk(uuids, cellwire.MaxStates) {
		of, err := fetch(ctx, c, http.MethodPost, "/v1/servers/states", cellwire.StatesRequest{UUIDs: part},
			func(a *answer) error { return a.States.checkPresent("states") })
		if err != nil {
			return nil, err
		}
		all = append(all, of.States.items...)
	}
	return all, nil
}

// ServerHosts asks for the hosts of servers: one request for each [cellwire.MaxStates] of them. A
// cell of an older version says only where they are, and not where they may go.
func (c *Client) ServerHosts(ctx context.Context, q cellwire.HostsRequest) (all []cellwire.ServerHosts, err error) {
	if len(q.On) > 0 {
		return c.serverHosts(ctx, q)
	}
	for part := range slices.Chunk(q.UUIDs, cellwire.MaxStates) {
		some, err := c.serverHosts(ctx, cellwire.HostsRequest{UUIDs: part})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (c *Client) serverHosts(ctx context.Context, q cellwire.HostsRequest) (all []cellwire.ServerHosts, err error) {
	type answer struct {
		Servers list[cellwire.ServerHosts] `json:"servers"`
	}
	of, err := fetch(ctx, c, http.MethodPost, "/v1/servers/hosts/query", q,
		func(a *answer) error { return a.Servers.checkPresent("servers") })
	if !IsNoCall(err) {
		return of.Servers.items, err
	}
	query := cellwire.ServerQuery{UUIDs: q.UUIDs, Hosts: q.On, SoftDeleted: true, Limit: cellwire.MaxStates}
	for {
		page, err := c.Servers(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, row := range page.Rows {
			all = append(
				all, cellwire.ServerHosts{UUID: row.Server.UUID, Hosts: cellwire.HostsOf(row.Server.Host, nil)},
			)
			query.After = row.Key
		}
		if !page.More || len(page.Rows) == 0 || len(q.On) > 0 {
			return all, nil
		}
	}
}

// Unfinished asks for servers that the compute API must finish: hidden for at least hiddenFor, and
// softly deleted for at least reclaimAfter (0: leave those out). Both are counted in whole seconds,
// rounded up.
func (c *Client) Unfinished(ctx context.Context, hiddenFor, reclaimAfter time.Duration) (cellwire.Unfinished, error) {
	values := url.Values{"hidden_for": {seconds(hiddenFor)}}
	if reclaimAfter > 0 {
		values.Set("reclaim_after", seconds(reclaimAfter))
	}
	return fetch[cellwire.Unfinished](ctx, c, http.MethodGet, "/v1/servers/unfinished?"+values.Encode(), nil, nil)
}

// Discovery asks for all that a boot has to know.
func (c *Client) Discovery(ctx context.Context, projectID string) (cellwire.Discovery, error) {
	return c.discovery(ctx, url.Values{"project_id": {projectID}})
}

// Usage asks for what a project has, and not for the hosts: what quotas need.
func (c *Client) Usage(ctx context.Context, projectID string) (cellwire.Usage, error) {
	discovery, err := c.discovery(ctx, url.Values{"project_id": {projectID}, "only": {cellwire.OnlyUsage}})
	return discovery.Usage, err
}

func (c *Client) discovery(ctx context.Context, query url.Values) (cellwire.Discovery, error) {
	type answer struct {
		Usage    *cellwire.Usage            `json:"usage"`
		Services list[cellwire.Service]     `json:"services"`
		Nodes    list[cellwire.ComputeNode] `json:"nodes"`
	}
	path := "/v1/survey?" + query.Encode()
	discovery, err := fetch(ctx, c, http.MethodGet, path, nil, func(a *answer) error {
		if a.Usage == nil {
			return broken("an answer without usage")
		}
		return errors.Join(a.Services.checkPresent("services"), a.Nodes.checkPresent("nodes"))
	})
	if err != nil {
		return cellwire.Discovery{}, err
	}
	return cellwire.Discovery{Usage: *discovery.Usage,
		Services: discovery.Services.items, Nodes: discovery.Nodes.items}, nil
}

// Services asks for the services of all hosts.
func (c *Client) Services(ctx context.Context) ([]cellwire.Service, error) {
	type answer struct {
		Services list[cellwire.Service] `json:"services"`
	}
	all, err := fetch(ctx, c, http.MethodGet, "/v1/services", nil,
		func(a *answer) error { return a.Services.checkPresent("services") })
	return all.Services.items, err
}

// PatchService changes a service.
func (c *Client) PatchService(ctx context.Context, uuid string, patch cellwire.ServicePatch) (cellwire.Service, error) {
	path, err := pathOf("/v1/services/", uuid, "")
	if err != nil {
		return cellwire.Service{}, err
	}
	return fetch(ctx, c, http.MethodPatch, path, patch, func(s *cellwire.Service) error {
		if s.UUID != uuid {
			return broken("an answer about service %q instead of %q", s.UUID, uuid)
		}
		return nil
	})
}

// DeleteService has the cell forget a host that is gone, and its nodes. It is refused (in use)
// while the host has servers, and (conflict) while its agent lives.
func (c *Client) DeleteService(ctx context.Context, uuid string) error {
	path, err := pathOf("/v1/services/", uuid, "")
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil)
}

// RenameHost gives the host of a service another name. It is refused (in use) while something has
// begun there that is not finished, and (conflict) while its agent lives, or if the name is taken.
// Cells of older versions do not have the call.
func (c *Client) RenameHost(
	ctx context.Context, service string, request cellwire.RenameRequest,
) (cellwire.Service, error) {
	path, err := pathOf("/v1/services/", service, "/rename")
	if err != nil {
		return cellwire.Service{}, err
	}
	return fetch(ctx, c, http.MethodPost, path, request, func(s *cellwire.Service) error {
		if s.UUID != service || s.Host != request.To && !request.Check {
			return broken("an answer about service %q of host %q instead of %q of %q",
				s.UUID, s.Host, service, request.To)
		}
		return nil
	})
}

// ComputeNodes asks for the nodes of all hosts, or only those that are not mapped yet.
func (c *Client) ComputeNodes(ctx context.Context, unmapped bool) ([]cellwire.ComputeNode, error) {
	path := "/v1/compute-nodes"
	if unmapped {
		path += "?unmapped=true"
	}
	return c.nodes(ctx, path)
}

// Nodes asks for the nodes of all hosts, and for those that the cell is about to forget.
func (c *Client) Nodes(ctx context.Context) (cellwire.NodesAnswer, error) {
	type answer struct {
		Nodes     list[cellwire.ComputeNode] `json:"compute_nodes"`
		Forgotten []string                   `json:"forgotten"`
	}
	all, err := fetch(ctx, c, http.MethodGet, "/v1/compute-nodes", nil,
		func(a *answer) error { return a.Nodes.checkPresent("compute_nodes") })
	return cellwire.NodesAnswer{Nodes: all.Nodes.items, Forgotten: all.Forgotten}, err
}

// NodesState tells the cell what the compute API knows about nodes. Cells of older versions do not
// have the call.
func (c *Client) NodesState(ctx context.Context, request cellwire.NodesRequest) error {
	return c.call(ctx, http.MethodPost, "/v1/compute-nodes/state", request, nil, nil)
}

// CountedNodes asks for the nodes of all hosts, with how many servers each has.
func (c *Client) CountedNodes(ctx context.Context) ([]cellwire.ComputeNode, error) {
	return c.nodes(ctx, "/v1/compute-nodes?servers=true")
}

func (c *Client) nodes(ctx context.Context, path string) ([]cellwire.ComputeNode, error) {
	type answer struct {
		Nodes list[cellwire.ComputeNode] `json:"compute_nodes"`
	}
	all, err := fetch(ctx, c, http.MethodGet, path, nil,
		func(a *answer) error { return a.Nodes.checkPresent("compute_nodes") })
	return all.Nodes.items, err
}

// MarkMapped reports to the cell that compute nodes are in the API database.
func (c *Client) MarkMapped(ctx context.Context, uuids []string) error {
	return c.call(ctx, http.MethodPost, "/v1/compute-nodes/mapped", cellwire.MappedRequest{UUIDs: uuids}, nil, nil)
}

// postAction sends an action on a server whose answer has no content that matters.
func (c *Client) postAction(ctx context.Context, uuid, action string) error {
	path, err := pathOf("/v1/servers/", uuid, action)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, path, nil, nil, nil)
}

// requestServer sends a request about a server that is answered with it.
func (c *Client) requestServer(ctx context.Context, method, uuid, action string, body any) (cellwire.Server, error) {
	path, err := pathOf("/v1/servers/", uuid, action)
	if err != nil {
		return cellwire.Server{}, err
	}
	return fetch(ctx, c, method, path, body, func(s *cellwire.Server) error { return checkUUID(*s, uuid) })
}

func checkUUID(s cellwire.Server, uuid string) error {
	if s.UUID != uuid {
		return broken("an answer about server %q instead of %q", s.UUID, uuid)
	}
	return nil
}

// seconds counts a duration in whole ones, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((max(d, 0)+time.Second-1)/time.Second), 10)
}
