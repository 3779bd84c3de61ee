// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/providertree"
)

// hypervisorRoutes are the calls about the compute nodes of hosts.
func (a *API) hypervisorRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/os-hypervisors", query: &hypervisorQuery, handle: a.listHypervisors, about: &aboutListHypervisors},
		{method: "GET", path: "/v2.1/os-hypervisors/detail", query: &hypervisorQuery, handle: a.listHypervisorsDetail, about: &aboutListHypervisorsDetail},
		{method: "GET", path: "/v2.1/os-hypervisors/statistics", handle: a.hypervisorStatistics, about: &aboutHypervisorStatistics},
		{method: "GET", path: "/v2.1/os-hypervisors/{id}", query: &hypervisorServers, handle: a.showHypervisor, about: &aboutShowHypervisor},
		{method: "GET", path: "/v2.1/os-hypervisors/{id}/uptime", handle: a.hypervisorUptime, about: &aboutHypervisorUptime},
		{method: "GET", path: "/v2.1/os-hypervisors/{id}/search", handle: a.searchHypervisors, until: vServiceUUID - 1, about: &aboutSearchHypervisors},
		{method: "GET", path: "/v2.1/os-hypervisors/{id}/servers", handle: a.serversOfHypervisors, until: vServiceUUID - 1, about: &aboutServersOfHypervisors},
	}
}

// The policies of hypervisors.
var (
	ruleHypervisorsList       = Rule{"os_compute_api:os-hypervisors:list", admins}
	ruleHypervisorsDetail     = Rule{"os_compute_api:os-hypervisors:list-detail", admins}
	ruleHypervisorsStatistics = Rule{"os_compute_api:os-hypervisors:statistics", admins}
	ruleHypervisorsShow       = Rule{"os_compute_api:os-hypervisors:show", admins}
	ruleHypervisorsUptime     = Rule{"os_compute_api:os-hypervisors:uptime", admins}
	ruleHypervisorsSearch     = Rule{"os_compute_api:os-hypervisors:search", admins}
	ruleHypervisorsServers    = Rule{"os_compute_api:os-hypervisors:servers", admins}
)

// The parameters of the lists: from 2.33 on there are pages, from 2.53 on the rest, and no others.
var (
	hypervisorQuery = parameters{closed: vServiceUUID, all: []parameter{
		{name: "limit", since: vHypervisorPages, schema: schemaAnyNumber, text: textLimit},
		{name: "marker", since: vHypervisorPages, schema: schemaText, text: "The id of a hypervisor: the page begins after it."},
		{name: "hypervisor_hostname_pattern", since: vServiceUUID, schema: schemaHost, text: "Those with the text in their names; not with limit or marker."},
		{name: "with_servers", since: vServiceUUID, schema: schemaBoolean, text: textWithServers},
	}}
	hypervisorServers = parameters{closed: vServiceUUID, all: []parameter{{name: "with_servers", since: vServiceUUID, schema: schemaBoolean, text: textWithServers}}}
)

const textWithServers = "Whether hypervisors say which servers they have."

// hypervisor is a compute node with the service of its host.
type hypervisor struct {
	cellwire.ComputeNode
	service  cellwire.Service
	cell     apidb.Cell
	capacity scheduler.Capacity
	servers  list
}

// id is what the microversion knows it by: before 2.53 the number of its service.
func hypervisorID(x *exchange, h *hypervisor) string {
	if x.since(vServiceUUID) {
		return h.UUID
	}
	return strconv.FormatInt(h.service.ID, 10)
}

// hypervisors are those of all cells that are up and of hosts that are mapped, as in Nova: each
// cell is asked twice.
func (a *API) hypervisors(ctx context.Context) ([]hypervisor, error) {
	cells, err := a.store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := a.store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	mapped := make(map[apidb.HostMapping]bool, len(hosts))
	for _, h := range hosts {
		mapped[h] = true
	}
	cells = slices.DeleteFunc(cells, apidb.Cell.IsCell0)
	var all []hypervisor
	for _, answer := range gather.All(ctx, a.gatherer, cells, func(ctx context.Context, c *cellclient.Client) ([]hypervisor, error) {
		services, err := c.Services(ctx)
		if err != nil {
			return nil, err
		}
		nodes, err := c.CountedNodes(ctx)
		var found []hypervisor
		for _, n := range nodes {
			at := slices.IndexFunc(services, func(s cellwire.Service) bool { return s.Host == n.Host && s.Binary == computeBinary })
			if at >= 0 {
				found = append(found, hypervisor{ComputeNode: n, service: services[at]})
			}
		}
		return found, err
	}) {
		if answer.Err != nil {
			continue // as in Nova
		}
		slices.SortFunc(answer.Value, func(a, b hypervisor) int {
			return cmp.Or(cmp.Compare(a.service.ID, b.service.ID), strings.Compare(a.UUID, b.UUID))
		})
		for _, h := range answer.Value {
			if h.cell = answer.Cell; mapped[apidb.HostMapping{Host: h.Host, CellUUID: h.cell.UUID}] {
				all = append(all, h)
			}
		}
	}
	return all, ctx.Err()
}

// matchingHypervisors are those whose name has a text in it, whatever case that is in.
func matchingHypervisors(all []hypervisor, text string) ([]hypervisor, error) {
	found := slices.DeleteFunc(all, func(h hypervisor) bool { return !strings.Contains(strings.ToLower(h.Name), strings.ToLower(text)) })
	if len(found) == 0 {
		return nil, notFound("No hypervisor matching '%s' could be found.", shortened(text))
	}
	return found, nil
}

// listHypervisors answers GET /os-hypervisors, listHypervisorsDetail GET /os-hypervisors/detail.
// Those of cells that are down are left out, as in Nova. Cost: two questions to all cells; with
// details what [scheduler.Scheduler.Capacities] costs, and with servers pages of them for each.
func (a *API) listHypervisors(x *exchange) error {
	return a.hypervisorPage(x, ruleHypervisorsList, "os-hypervisors", false)
}

func (a *API) listHypervisorsDetail(x *exchange) error {
	return a.hypervisorPage(x, ruleHypervisorsDetail, "os-hypervisors/detail", true)
}

func (a *API) hypervisorPage(x *exchange, rule Rule, collection string, detail bool) error {
	params, err := x.checkedQuery()
	if err != nil {
		return err
	}
	if err := x.allowOwn(rule); err != nil {
		return err
	}
	pattern, searched := params.last("hypervisor_hostname_pattern"), params.has("hypervisor_hostname_pattern")
	paged := x.since(vHypervisorPages)
	if searched && (params.has("limit") || params.last("marker") != "") {
		return badRequest("Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported.")
	}
	all, err := a.hypervisors(x.ctx())
	if err == nil && searched {
		all, err = matchingHypervisors(all, pattern)
	}
	if err != nil {
		return err
	}
	if marker := params.last("marker"); paged && marker != "" {
		at := slices.IndexFunc(all, func(h hypervisor) bool { return hypervisorID(x, &h) == marker })
		if at < 0 {
			return badRequest("marker [%s] not found", shortened(marker))
		}
		all = all[at+1:]
	}
	full := false
	if paged && !searched {
		limit := readLimit(params, a.options.MaxLimit)
		full = limit > 0 && len(all) >= limit
		all = all[:min(len(all), limit)]
	}
	withServers, _ := readBool(params.last("with_servers"))
	if err := a.complete(x, all, detail, withServers); err != nil {
		return err
	}
	answer := hypervisorsBody(x, all, detail)
	if full {
		answer.add("hypervisors_links", x.nextLink(collection, params, hypervisorID(x, &all[len(all)-1])))
	}
	return x.json(http.StatusOK, answer)
}

func hypervisorsBody(x *exchange, all []hypervisor, detail bool) *object {
	shown := list{}
	for i := range all {
		shown = append(shown, hypervisorView(x, &all[i], detail))
	}
	return new(object).add("hypervisors", shown)
}

// complete finds out what hypervisors have, and which servers.
func (a *API) complete(x *exchange, all []hypervisor, capacity, servers bool) error {
	if capacity && len(all) > 0 {
		roots := make([]string, len(all))
		for i := range all {
			roots[i] = all[i].UUID
		}
		found, err := a.scheduler.Capacities(x.ctx(), roots)
		if errors.Is(err, scheduler.ErrCapacityUnknown) {
			return unavailable("The Placement service cannot be used now, so what hypervisors have is not known. Send the request again later.").Because(err)
		}
		if err != nil {
			return err
		}
		for i := range all {
			all[i].capacity = found[i]
		}
	}
	for i := 0; servers && i < len(all); i++ {
		var err error
		if all[i].servers, err = a.serversOfHost(x, all[i].cell, all[i].Host); err != nil {
			return err
		}
	}
	return nil
}

// serversOfHost are the uuids of the servers on a host and the names of their guests; a cell of an
// earlier version does not number them here, and they have their own names.
func (a *API) serversOfHost(x *exchange, cell apidb.Cell, host string) (list, error) {
	return gather.One(x.ctx(), a.gatherer, cell, func(ctx context.Context, c *cellclient.Client) (list, error) {
		q := cellwire.ServerQuery{Hosts: []string{host}, Brief: true, Limit: cellwire.MaxLimit}
		found := list{}
		for {
			page, err := c.Servers(ctx, q)
			if err != nil {
				return nil, cellclient.AsFailure(err)
			}
			for _, row := range page.Rows {
				name := row.Server.Name
				if row.Server.ID > 0 {
					name = guestName(&row.Server)
				}
				found = append(found, new(object).add("name", name).add("uuid", row.Server.UUID))
			}
			if !page.More || len(page.Rows) == 0 {
				return found, nil
			}
			q.After = page.Rows[len(page.Rows)-1].Key
		}
	})
}

// hypervisorView is a hypervisor as the microversion has it. What neither the cell nor Placement
// knows is null, or 0 where a number is required.
func hypervisorView(x *exchange, h *hypervisor, detail bool) *object {
	state, status := "down", "enabled"
	if h.service.Up {
		state = "up"
	}
	if h.service.Disabled {
		status = "disabled"
	}
	o := new(object)
	if x.since(vServiceUUID) {
		o.add("id", h.UUID)
	} else {
		o.add("id", h.service.ID) // one of its cell: other cells have the same
	}
	o.add("hypervisor_hostname", h.Name).add("state", state).add("status", status)
	if detail {
		service := new(object)
		if x.since(vServiceUUID) {
			service.add("id", h.service.UUID)
		} else {
			service.add("id", h.service.ID)
		}
		service.add("host", h.Host).add("disabled_reason", orNull(h.service.DisabledReason))
		o.add("hypervisor_type", orNull(h.Details.HypervisorType)).add("hypervisor_version", h.Details.HypervisorVersion).
			add("host_ip", orNull(h.Details.HostIP)).add("service", service)
		addCapacity(o, h.capacity, h.Servers)
		if x.since(vCPUInfo) {
			o.add("cpu_info", new(object))
		} else {
			o.add("cpu_info", "")
		}
	}
	if len(h.servers) > 0 {
		o.add("servers", h.servers)
	}
	return o
}

// addCapacity adds what hypervisors have and use.
func addCapacity(o *object, c scheduler.Capacity, servers int64) {
	o.add("vcpus", c.CPUs).add("memory_mb", c.MemoryMB).add("local_gb", c.DiskGB).
		add("vcpus_used", c.CPUsUsed).add("memory_mb_used", c.MemoryMBUsed).add("local_gb_used", c.DiskGBUsed).
		add("free_ram_mb", c.MemoryMB-c.MemoryMBUsed).add("free_disk_gb", c.DiskGB-c.DiskGBUsed).
		add("current_workload", 0).add("running_vms", servers).add("disk_available_least", c.DiskGB-c.DiskGBUsed)
}

// hypervisorOfPath is the hypervisor of the path.
func (a *API) hypervisorOfPath(x *exchange) (hypervisor, error) {
	id := x.param("id")
	missing := notFound("Hypervisor with ID '%s' could not be found.", shortened(id))
	if x.since(vServiceUUID) {
		if !providertree.IsUUID(id) {
			return hypervisor{}, badRequest("Invalid uuid %s", shortened(id))
		}
	} else if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return hypervisor{}, missing
	}
	all, err := a.hypervisors(x.ctx())
	if err != nil {
		return hypervisor{}, err
	}
	at := slices.IndexFunc(all, func(h hypervisor) bool { return hypervisorID(x, &h) == id })
	if at < 0 {
		return hypervisor{}, missing
	}
	return all[at], nil
}

// showHypervisor answers GET /os-hypervisors/{id}.
func (a *API) showHypervisor(x *exchange) error {
	params, err := x.checkedQuery()
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleHypervisorsShow); err != nil {
		return err
	}
	found, err := a.hypervisorOfPath(x)
	if err != nil {
		return err
	}
	withServers, _ := readBool(params.last("with_servers"))
	one := []hypervisor{found}
	if err := a.complete(x, one, true, withServers); err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("hypervisor", hypervisorView(x, &one[0], true)))
}

// hypervisorUptime answers GET /os-hypervisors/{id}/uptime: no host reports its uptime.
func (a *API) hypervisorUptime(x *exchange) error {
	if err := x.allowOwn(ruleHypervisorsUptime); err != nil {
		return err
	}
	if _, err := a.hypervisorOfPath(x); err != nil {
		return err
	}
	return osapi.Errorf(http.StatusNotImplemented, "The requested functionality is not supported.")
}

// hypervisorStatistics answers GET /os-hypervisors/statistics: the sums, without hosts that are
// disabled, as in Nova.
func (a *API) hypervisorStatistics(x *exchange) error {
	if err := x.allowOwn(ruleHypervisorsStatistics); err != nil {
		return err
	}
	all, err := a.hypervisors(x.ctx())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(h hypervisor) bool { return h.service.Disabled })
	if err := a.complete(x, all, true, false); err != nil {
		return err
	}
	var sum scheduler.Capacity
	var servers int64
	for i := range all {
		c := &all[i].capacity
		sum.CPUs, sum.CPUsUsed = sum.CPUs+c.CPUs, sum.CPUsUsed+c.CPUsUsed
		sum.MemoryMB, sum.MemoryMBUsed = sum.MemoryMB+c.MemoryMB, sum.MemoryMBUsed+c.MemoryMBUsed
		sum.DiskGB, sum.DiskGBUsed = sum.DiskGB+c.DiskGB, sum.DiskGBUsed+c.DiskGBUsed
		servers += all[i].Servers
	}
	o := new(object).add("count", len(all))
	addCapacity(o, sum, servers)
	return x.json(http.StatusOK, new(object).add("hypervisor_statistics", o))
}

// searchHypervisors answers GET /os-hypervisors/{pattern}/search, serversOfHypervisors GET
// /os-hypervisors/{pattern}/servers.
func (a *API) searchHypervisors(x *exchange) error {
	return a.foundHypervisors(x, ruleHypervisorsSearch, false)
}

func (a *API) serversOfHypervisors(x *exchange) error {
	return a.foundHypervisors(x, ruleHypervisorsServers, true)
}

func (a *API) foundHypervisors(x *exchange, rule Rule, servers bool) error {
	if err := x.allowOwn(rule); err != nil {
		return err
	}
	all, err := a.hypervisors(x.ctx())
	if err == nil {
		all, err = matchingHypervisors(all, x.param("id"))
	}
	if err == nil {
		err = a.complete(x, all, false, servers)
	}
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, hypervisorsBody(x, all, false))
}
