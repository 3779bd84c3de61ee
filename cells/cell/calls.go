// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
)

// maxUUIDs bounds the uuids that a request may name at once.
const maxUUIDs = 100000

// calls are all calls of the protocol.
func (c *Cell) calls() []call {
	return []call{
		{"GET", "/v1/cell", anyClient, c.getCell},
		{"POST", "/v1/servers/query", computeAPIOnly, c.queryServers},
		{"POST", "/v1/servers/states", computeAPIOnly, c.postStates},
		{"POST", "/v1/servers/hosts/query", computeAPIOnly, c.postServerHosts},
		{"GET", "/v1/servers/unfinished", computeAPIOnly, c.getUnfinished},
		{"GET", "/v1/servers/{uuid}", computeAPIOnly, c.getServer},
		{"PUT", "/v1/servers/{uuid}", computeAPIOnly, c.putServer},
		{"PATCH", "/v1/servers/{uuid}", computeAPIOnly, c.patchServer},
		{"POST", "/v1/servers/{uuid}/release", computeAPIOnly, c.release},
		{"POST", "/v1/servers/{uuid}/discard", computeAPIOnly, c.discard},
		{"POST", "/v1/servers/{uuid}/delete", computeAPIOnly, c.deleteServer},
		{"POST", "/v1/servers/{uuid}/restore", computeAPIOnly, c.restore},
		{"POST", "/v1/servers/{uuid}/freed", computeAPIOnly, c.postFreed},
		{"POST", "/v1/servers/{uuid}/power", computeAPIOnly, c.power},
		{"POST", "/v1/servers/{uuid}/rebuild", computeAPIOnly, c.rebuild},
		{"POST", "/v1/servers/{uuid}/reset", computeAPIOnly, c.reset},
		{"GET", "/v1/servers/{uuid}/actions", computeAPIOnly, c.getActions},
		{"GET", "/v1/servers/{uuid}/stream", computeAPIOnly, c.streamServer},
		{"GET", "/v1/servers/{uuid}/migrations", computeAPIOnly, c.getMigrationsOf},
		{"POST", "/v1/servers/{uuid}/migrations", computeAPIOnly, c.postMigration},
		{"GET", "/v1/migrations/due", computeAPIOnly, c.getMigrationsDue},
		{"POST", "/v1/migrations/query", computeAPIOnly, c.queryMigrations},
		{"POST", "/v1/migrations/{uuid}", computeAPIOnly, c.postMigrationStep},
		{"GET", "/v1/survey", computeAPIOnly, c.getDiscovery},
		{"GET", "/v1/services", computeAPIOnly, c.getServices},
		{"PATCH", "/v1/services/{uuid}", computeAPIOnly, c.patchService},
		{"DELETE", "/v1/services/{uuid}", computeAPIOnly, c.deleteService},
		{"POST", "/v1/services/{uuid}/rename", computeAPIOnly, c.postRename},
		{"GET", "/v1/compute-nodes", computeAPIOnly, c.getComputeNodes},
		{"POST", "/v1/compute-nodes/mapped", computeAPIOnly, c.postMapped},
		{"POST", "/v1/compute-nodes/state", computeAPIOnly, c.postNodesState},
		{"PUT", "/v1/hosts/{host}", hostAgentOnly, c.putHost},
		{"GET", "/v1/hosts/{host}/work", hostAgentOnly, c.getWork},
		{"POST", "/v1/hosts/{host}/reports", hostAgentOnly, c.postReports},
		{"GET", "/v1/hosts/{host}/nodes/{node}", hostAgentOnly, c.getNodeReporter},
		{"GET", "/v1/hosts/{host}/streams/{id}", hostAgentOnly, c.acceptStream},
		{"GET", "/v1/hosts/{host}/arrivals/{uuid}", hostAgentOnly, c.streamSource},
	}
}

func (c *Cell) getCell(x *exchange) (any, error) {
	info, err := c.config.Store.Info(x.requestContext())
	if err != nil {
		return nil, err
	}
	return cellwire.CellInfo{Name: info.Name, Epoch: info.Epoch, Revision: info.Revision, Term: info.Term,
		Version: c.config.Version, Now: c.moment().Now}, nil
}

func (c *Cell) queryServers(x *exchange) (any, error) {
	q, err := decode[cellwire.ServerQuery](x)
	if err != nil {
		return nil, err
	}
	return c.config.Store.Servers(x.requestContext(), q, c.moment())
}

func (c *Cell) postStates(x *exchange) (any, error) {
	request, err := decode[cellwire.StatesRequest](x)
	if err != nil {
		return nil, err
	}
	if err := serverstate.CheckUUIDs(request.UUIDs, cellwire.MaxStates); err != nil {
		return nil, err
	}
	states, err := c.config.Store.States(x.requestContext(), request.UUIDs)
	return cellwire.StatesAnswer{States: states}, err
}

func (c *Cell) postServerHosts(x *exchange) (any, error) {
	request, err := decode[cellwire.HostsRequest](x)
	if err != nil {
		return nil, err
	}
	if len(request.UUIDs) > 0 == (len(request.On) > 0) {
		return nil, badRequest("The body has uuids or on, and not both.")
	}
	if err := serverstate.CheckUUIDs(request.UUIDs, cellwire.MaxStates); err != nil {
		return nil, err
	}
	servers, err := c.config.Store.ServerHosts(x.requestContext(), request)
	return cellwire.HostsAnswer{Servers: servers}, err
}

// maxSeconds bounds times in queries, so that no arithmetic overflows: a hundred years.
const maxSeconds = 100 * 366 * 24 * 3600

func (c *Cell) getUnfinished(x *exchange) (any, error) {
	q, err := readQuery(x, "hidden_for", "reclaim_after")
	if err != nil {
		return nil, err
	}
	hidden, err := q.integer("hidden_for", maxSeconds)
	if err != nil {
		return nil, err
	}
	reclaim, err := q.integer("reclaim_after", maxSeconds)
	if err != nil {
		return nil, err
	}
	now := c.moment().Now
	var softBefore time.Time
	if reclaim > 0 {
		softBefore = now.Add(-time.Duration(reclaim) * time.Second)
	}
	return c.config.Store.Unfinished(x.requestContext(), now.Add(-time.Duration(hidden)*time.Second), softBefore)
}

func (c *Cell) getServer(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	return c.config.Store.Server(x.requestContext(), uuid, c.moment())
}

func (c *Cell) putServer(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	server, err := decode[cellwire.Server](x)
	if err != nil {
		return nil, err
	}
	if server.UUID != uuid {
		return nil, badRequest("The server in the body is %.64q, and the one in the path %s.", server.UUID, uuid)
	}
	return c.config.Store.Insert(x.requestContext(), server, c.moment())
}

// onServer does something to the server in the path and wakes its host.
func (c *Cell) onServer(x *exchange, do func(uuid string) (cellwire.Server, error)) (cellwire.Server, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return cellwire.Server{}, err
	}
	server, err := do(uuid)
	c.notifyHost(server.Host, err)
	return server, err
}

func (c *Cell) release(x *exchange) (any, error) {
	return c.onServer(x,
		func(uuid string) (cellwire.Server, error) {
			return c.config.Store.Release(x.requestContext(), uuid, c.moment())
		})
}

func (c *Cell) restore(x *exchange) (any, error) {
	return c.onServer(x,
		func(uuid string) (cellwire.Server, error) {
			return c.config.Store.Restore(x.requestContext(), uuid, c.moment())
		})
}

func (c *Cell) getActions(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	return c.config.Store.Actions(x.requestContext(), uuid)
}

func (c *Cell) patchServer(x *exchange) (any, error) {
	patch, err := decode[cellwire.ServerPatch](x)
	if err != nil {
		return nil, err
	}
	return c.onServer(x, func(uuid string) (cellwire.Server, error) {
		return c.config.Store.Patch(x.requestContext(), uuid, patch, c.moment())
	})
}

func (c *Cell) power(x *exchange) (any, error) {
	request, err := decode[cellwire.PowerRequest](x)
	if err != nil {
		return nil, err
	}
	return c.onServer(x, func(uuid string) (cellwire.Server, error) {
		return c.config.Store.Power(x.requestContext(), uuid, request.Action, c.moment())
	})
}

func (c *Cell) rebuild(x *exchange) (any, error) {
	request, err := decode[cellwire.RebuildRequest](x)
	if err != nil {
		return nil, err
	}
	return c.onServer(x, func(uuid string) (cellwire.Server, error) {
		return c.config.Store.Rebuild(x.requestContext(), uuid, request, c.moment())
	})
}

func (c *Cell) reset(x *exchange) (any, error) {
	request, err := decode[cellwire.ResetRequest](x)
	if err != nil {
		return nil, err
	}
	return c.onServer(x, func(uuid string) (cellwire.Server, error) {
		return c.config.Store.Reset(x.requestContext(), uuid, request, c.moment())
	})
}

func (c *Cell) deleteServer(x *exchange) (any, error) {
	request, err := decode[cellwire.DeleteRequest](x)
	if err != nil {
		return nil, err
	}
	var answer cellwire.DeleteAnswer
	server, err := c.onServer(x, func(uuid string) (_ cellwire.Server, err error) {
		answer, err = c.config.Store.Delete(x.requestContext(), uuid, request.Kind, c.moment())
		return answer.Server, err
	})
	if err == nil {
		c.notifyMigrationHosts(x.requestContext(), server.UUID)
	}
	return answer, err
}

func (c *Cell) discard(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	return nil, c.config.Store.Discard(x.requestContext(), uuid)
}

func (c *Cell) postFreed(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	return nil, c.config.Store.MarkFreed(x.requestContext(), uuid)
}

func (c *Cell) getDiscovery(x *exchange) (any, error) {
	q, err := readQuery(x, "project_id", "only")
	if err != nil {
		return nil, err
	}
	switch only := q.text("only"); only {
	case "":
	case cellwire.OnlyUsage:
		usage, err := c.config.Store.Usage(x.requestContext(), q.text("project_id"))
		return cellwire.Discovery{Usage: usage, Services: []cellwire.Service{}, Nodes: []cellwire.ComputeNode{}}, err
	default:
		return nil, badRequest("only is %.64q, not %s.", only, cellwire.OnlyUsage)
	}
	return c.config.Store.Discovery(x.requestContext(), q.text("project_id"), c.moment())
}

func (c *Cell) getServices(x *exchange) (any, error) {
	if _, err := readQuery(x); err != nil {
		return nil, err
	}
	services, err := c.config.Store.Services(x.requestContext(), c.moment())
	for i := range services {
		services[i].Auth = c.config.Auth.hosts
	}
	return map[string]any{"services": services}, err
}

func (c *Cell) patchService(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	patch, err := decode[cellwire.ServicePatch](x)
	if err != nil {
		return nil, err
	}
	service, err := c.config.Store.PatchService(x.requestContext(), uuid, patch, c.moment())
	c.notifyHost(service.Host, err)
	return service, err
}

func (c *Cell) deleteService(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	service, err := c.config.Store.DeleteService(x.requestContext(), uuid, c.moment())
	if err != nil {
		return nil, err
	}
	c.notifyHost(service.Host, nil)
	c.config.Logger.Info().Str("host", service.Host).Str("service", uuid).
		Msg("Removed a host and its nodes because an administrator deleted its service. If its agent reports again, " +
			"it is registered as a new host.")
	return nil, nil
}

func (c *Cell) postRename(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	request, err := decode[cellwire.RenameRequest](x)
	if err != nil {
		return nil, err
	}
	service, err := c.config.Store.RenameHost(x.requestContext(), uuid, request, c.moment())
	if err != nil {
		return nil, err
	}
	if request.Check {
		return service, nil
	}
	for _, host := range []string{request.From, request.To} {
		c.notifyHost(host, nil)
	}
	c.config.Logger.Info().Str("host", request.To).Str("former", request.From).Str("service", uuid).
		Msg("A host has another name now. Its servers are those that it had.")
	return service, nil
}

func (c *Cell) getComputeNodes(x *exchange) (any, error) {
	q, err := readQuery(x, "unmapped", "servers")
	if err != nil {
		return nil, err
	}
	unmapped, err := q.boolean("unmapped")
	if err != nil {
		return nil, err
	}
	counted, err := q.boolean("servers")
	switch {
	case err != nil:
		return nil, err
	case unmapped && counted:
		return nil, badRequest("unmapped nodes are not listed with servers.")
	}
	var nodes []cellwire.ComputeNode
	if counted {
		nodes, err = c.config.Store.CountedNodes(x.requestContext(), c.moment())
	} else {
		nodes, err = c.config.Store.ComputeNodes(x.requestContext(), unmapped, c.moment())
	}
	if err != nil {
		return nil, err
	}
	forgotten, err := c.config.Store.ForgottenNodes(x.requestContext())
	return cellwire.NodesAnswer{Nodes: nodes, Forgotten: forgotten}, err
}

func (c *Cell) postMapped(x *exchange) (any, error) {
	request, err := decode[cellwire.MappedRequest](x)
	if err != nil {
		return nil, err
	}
	if err := serverstate.CheckUUIDs(request.UUIDs, maxUUIDs); err != nil {
		return nil, err
	}
	return nil, c.config.Store.MarkMapped(x.requestContext(), request.UUIDs)
}

func (c *Cell) postNodesState(x *exchange) (any, error) {
	request, err := decode[cellwire.NodesRequest](x)
	if err != nil {
		return nil, err
	}
	return nil, c.config.Store.NodesState(x.requestContext(), request, c.moment())
}

func (c *Cell) putHost(x *exchange) (any, error) {
	report, err := decode[cellwire.HostReport](x)
	if err != nil {
		return nil, err
	}
	info, err := c.config.Store.Info(x.requestContext())
	if err != nil {
		return nil, err
	}
	service, problems, err := c.config.Store.Report(x.requestContext(), x.reporter(), report, c.moment())
	if err != nil {
		return nil, err
	}
	c.recordProblems(x.R.PathValue("host"), problems)
	var refused []string
	for _, p := range problems {
		if p.Code.Refuses() {
			refused = append(refused, p.UUID)
		}
	}
	return cellwire.HostState{
		Service:        service,
		Epoch:          info.Epoch,
		ReportInterval: int(max(c.config.ReportInterval.Round(time.Second)/time.Second, 1)),
		Refused:        refused,
		Problems:       problems,
		Abilities:      true,
		Turn:           service.Turn,
		Details:        true,
	}, nil
}

func (c *Cell) getNodeReporter(x *exchange) (any, error) {
	node := x.R.PathValue("node")
	host, err := c.config.Store.NodeReporter(x.requestContext(), x.reporter(), node)
	return cellwire.NodeReporter{UUID: node, Host: host}, err
}

func (c *Cell) getWork(x *exchange) (any, error) {
	host := x.R.PathValue("host")
	if err := serverstate.CheckHost(host); err != nil {
		return nil, err
	}
	q, err := readQuery(x, "after", "epoch", "wait")
	if err != nil {
		return nil, err
	}
	after, err := q.integer("after", 1<<62)
	if err != nil {
		return nil, err
	}
	wait, err := q.integer("wait", maxSeconds)
	if err != nil {
		return nil, err
	}
	return c.waitForWork(x, host, after, q.text("epoch"), min(time.Duration(wait)*time.Second, c.config.MaxWait))
}

func (c *Cell) postReports(x *exchange) (any, error) {
	host := x.R.PathValue("host")
	if err := serverstate.CheckHost(host); err != nil {
		return nil, err
	}
	request, err := decode[cellwire.Reports](x)
	if err != nil {
		return nil, err
	}
	if len(request.Reports) > cellwire.MaxReports {
		return nil, &cellwire.Error{Status: http.StatusRequestEntityTooLarge, Code: cellwire.CodeTooLarge,
			Message: "The request has too many reports."}
	}
	applied, err := c.config.Store.Apply(x.requestContext(), host, request.Reports, c.moment())
	c.notifyHost(host, err)
	for _, mover := range applied.Movers {
		c.broadcasts.notify(mover)
	}
	c.observeReports(request.Reports, applied.Refused)
	return cellwire.ReportsAnswer{Refused: applied.Refused}, err
}

func pathUUID(x *exchange) (string, error) {
	uuid := x.R.PathValue("uuid")
	return uuid, serverstate.CheckUUID(uuid)
}

// query is the query of a request, with no parameter that is not known and none twice.
type query url.Values

func readQuery(x *exchange, known ...string) (query, error) {
	values, err := url.ParseQuery(x.R.URL.RawQuery)
	if err != nil {
		return nil, badRequest("The query cannot be read: %.200s.", err.Error())
	}
	for name, all := range values {
		if !slices.Contains(known, name) || len(all) > 1 {
			return nil, badRequest("The parameter %.64q is unknown or repeated.", name)
		}
	}
	return query(values), nil
}

func (q query) text(name string) string { return url.Values(q).Get(name) }

// boolean is a parameter that is true or false; false without one.
func (q query) boolean(name string) (bool, error) {
	text := q.text(name)
	if text == "" {
		return false, nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return false, badRequest("%s is %.64q, not true or false.", name, text)
	}
	return is, nil
}

// integer is a parameter that is a whole number from 0 to maxValue; 0 without one.
func (q query) integer(name string, maxValue int64) (int64, error) {
	text := q.text(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxValue {
		return 0, badRequest("%s is %.64q, not a whole number from 0 to %d.", name, text, maxValue)
	}
	return n, nil
}

// Call is one call of the protocol, for documentation and tests.
type Call struct {
	Method string
	// Path has {name} for a segment.
	Path string
	// For is who may make it.
	For string
}

// Calls are all calls of the protocol.
func Calls() []Call {
	names := map[permission]string{anyClient: "any client that is known", computeAPIOnly: "the compute API",
		hostAgentOnly: "the agent of the host"}
	var all []Call
	for _, one := range (&Cell{}).calls() {
		all = append(all, Call{Method: one.method, Path: one.path, For: names[one.need]})
	}
	return all
}
