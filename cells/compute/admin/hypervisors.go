// SPDX-License-Identifier: Apache-2.0

package admin

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
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/providertree"
)

// hypervisorRoutes are the calls about the compute nodes of hosts.
func (d *Deps) hypervisorRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/os-hypervisors", Query: &hypervisorQuery, Rule: ruleHypervisorsList,
			Handle: d.listHypervisors},
		{Method: "GET", Path: "/v2.1/os-hypervisors/detail", Query: &hypervisorQuery, Rule: ruleHypervisorsDetail,
			Handle: d.listHypervisorsDetail},
		{Method: "GET", Path: "/v2.1/os-hypervisors/statistics", Rule: ruleHypervisorsStatistics,
			Handle: d.hypervisorStatistics},
		{Method: "GET", Path: "/v2.1/os-hypervisors/{id}", Query: &hypervisorServers, Rule: ruleHypervisorsShow,
			Handle: d.showHypervisor},
		{Method: "GET", Path: "/v2.1/os-hypervisors/{id}/uptime", Rule: ruleHypervisorsUptime,
			Handle: d.hypervisorUptime},
		{Method: "GET", Path: "/v2.1/os-hypervisors/{id}/search", Rule: ruleHypervisorsSearch,
			Handle: d.searchHypervisors, Until: vServiceUUID - 1},
		{Method: "GET", Path: "/v2.1/os-hypervisors/{id}/servers", Rule: ruleHypervisorsServers,
			Handle: d.serversOfHypervisors, Until: vServiceUUID - 1},
	}
}

// The policies of hypervisors.
var (
	ruleHypervisorsList       = api.Rule{Name: "os_compute_api:os-hypervisors:list", Default: api.Admins}
	ruleHypervisorsDetail     = api.Rule{Name: "os_compute_api:os-hypervisors:list-detail", Default: api.Admins}
	ruleHypervisorsStatistics = api.Rule{Name: "os_compute_api:os-hypervisors:statistics", Default: api.Admins}
	ruleHypervisorsShow       = api.Rule{Name: "os_compute_api:os-hypervisors:show", Default: api.Admins}
	ruleHypervisorsUptime     = api.Rule{Name: "os_compute_api:os-hypervisors:uptime", Default: api.Admins}
	ruleHypervisorsSearch     = api.Rule{Name: "os_compute_api:os-hypervisors:search", Default: api.Admins}
	ruleHypervisorsServers    = api.Rule{Name: "os_compute_api:os-hypervisors:servers", Default: api.Admins}
)

// The parameters of the lists: from 2.33 on there are pages, from 2.53 on the rest, and no others.
var (
	hypervisorQuery = api.Parameters{Closed: vServiceUUID, All: []api.Parameter{
		{Name: "limit", Since: vHypervisorPages, Schema: api.SchemaAnyNumber, Text: api.TextLimit},
		{Name: "marker", Since: vHypervisorPages,
			Schema: api.SchemaText, Text: "The id of a hypervisor: the page begins after it."},
		{Name: "hypervisor_hostname_pattern", Since: vServiceUUID, Schema: api.SchemaHost,
			Text: "Those with the text in their names; not with limit or marker."},
		{Name: "with_servers", Since: vServiceUUID, Schema: api.SchemaBoolean, Text: textWithServers},
	}}
	hypervisorServers = api.Parameters{Closed: vServiceUUID,
		All: []api.Parameter{{Name: "with_servers",
			Since: vServiceUUID, Schema: api.SchemaBoolean, Text: textWithServers}}}
)

const textWithServers = "Whether hypervisors say which servers they have."

// hypervisor is a compute node with the service of its host.
type hypervisor struct {
	cellwire.ComputeNode
	service  cellwire.Service
	cell     apidb.Cell
	capacity placementcalls.Capacity
	servers  api.List
}

// hypervisorID is what the microversion knows it by: before 2.53 the number of its service.
func hypervisorID(x *api.Exchange, h *hypervisor) string {
	if x.AtLeast(vServiceUUID) {
		return h.UUID
	}
	return strconv.FormatInt(h.service.ID, 10)
}

// hypervisors returns the hypervisors of mapped hosts in all cells that are up, as in Nova. It
// sends two requests to each cell.
func (d *Deps) hypervisors(ctx context.Context) ([]hypervisor, error) {
	cells, err := d.Store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := d.Store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	mapped := make(map[apidb.HostMapping]bool, len(hosts))
	for _, h := range hosts {
		mapped[h] = true
	}
	cells = slices.DeleteFunc(cells, apidb.Cell.IsCell0)
	var all []hypervisor
	for _, answer := range gather.All(ctx, d.Gatherer, cells,
		func(ctx context.Context, c *cellclient.Client) ([]hypervisor, error) {
			services, err := c.Services(ctx)
			if err != nil {
				return nil, err
			}
			nodes, err := c.CountedNodes(ctx)
			var found []hypervisor
			for _, n := range nodes {
				at := slices.IndexFunc(services,
					func(s cellwire.Service) bool { return s.Host == n.Host && s.Binary == computeBinary })
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

// matchingHypervisors returns the hypervisors whose name contains a text, ignoring case.
func matchingHypervisors(all []hypervisor, text string) ([]hypervisor, error) {
	found := slices.DeleteFunc(all,
		func(h hypervisor) bool { return !strings.Contains(strings.ToLower(h.Name), strings.ToLower(text)) })
	if len(found) == 0 {
		return nil, osapi.NotFound("No hypervisor matching '%s' could be found.", osapi.Shortened(text))
	}
	return found, nil
}

// listHypervisors answers GET /os-hypervisors, listHypervisorsDetail GET /os-hypervisors/detail.
// Those of cells that are down are left out, as in Nova. Cost: two questions to all cells; with
// details what [placementcalls.Client.Capacities] costs, and with servers pages of them for each.
func (d *Deps) listHypervisors(x *api.Exchange) error {
	return d.hypervisorPage(x, "os-hypervisors", false)
}

func (d *Deps) listHypervisorsDetail(x *api.Exchange) error {
	return d.hypervisorPage(x, "os-hypervisors/detail", true)
}

func (d *Deps) hypervisorPage(x *api.Exchange, collection string, detail bool) error {
	pattern, searched := x.Params.Last("hypervisor_hostname_pattern"), x.Params.Has("hypervisor_hostname_pattern")
	paged := x.AtLeast(vHypervisorPages)
	if searched && (x.Params.Has("limit") || x.Params.Last("marker") != "") {
		return osapi.BadRequest(
			"Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported.")
	}
	all, err := d.hypervisors(x.Context())
	if err == nil && searched {
		all, err = matchingHypervisors(all, pattern)
	}
	if err != nil {
		return err
	}
	if marker := x.Params.Last("marker"); paged && marker != "" {
		at := slices.IndexFunc(all, func(h hypervisor) bool { return hypervisorID(x, &h) == marker })
		if at < 0 {
			return osapi.BadRequest("marker [%s] not found", osapi.Shortened(marker))
		}
		all = all[at+1:]
	}
	full := false
	if paged && !searched {
		limit := api.ReadLimit(x.Params, d.MaxLimit)
		full = limit > 0 && len(all) >= limit
		all = all[:min(len(all), limit)]
	}
	withServers, _ := api.ReadBool(x.Params.Last("with_servers"))
	if err := d.readDetails(x, all, detail, withServers); err != nil {
		return err
	}
	answer := hypervisorsBody(x, all, detail)
	if full {
		answer.Add("hypervisors_links", x.NextLink(collection, x.Params, hypervisorID(x, &all[len(all)-1])))
	}
	return x.JSON(http.StatusOK, answer)
}

func hypervisorsBody(x *api.Exchange, all []hypervisor, detail bool) *api.Object {
	shown := api.List{}
	for i := range all {
		shown = append(shown, hypervisorView(x, &all[i], detail))
	}
	return new(api.Object).Add("hypervisors", shown)
}

// readDetails finds out what hypervisors have, and which servers.
func (d *Deps) readDetails(x *api.Exchange, all []hypervisor, capacity, servers bool) error {
	if capacity && len(all) > 0 {
		roots := make([]string, len(all))
		for i := range all {
			roots[i] = all[i].UUID
		}
		found, err := d.Scheduler.Capacities(x.Context(), roots)
		if errors.Is(err, placementcalls.ErrCapacityUnknown) {
			return osapi.Unavailable(
				"The Placement service cannot be used now, so what hypervisors have is not known. Send the request " +
					"again later.").Because(err)
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
		if all[i].servers, err = d.serversOfHost(x, all[i].cell, all[i].Host); err != nil {
			return err
		}
	}
	return nil
}

// serversOfHost are the uuids of the servers on a host and the names of their guests; a cell of an
// earlier version does not number them here, and they have their own names.
func (d *Deps) serversOfHost(x *api.Exchange, cell apidb.Cell, host string) (api.List, error) {
	return gather.One(x.Context(), d.Gatherer, cell, func(ctx context.Context, c *cellclient.Client) (api.List, error) {
		q := cellwire.ServerQuery{Hosts: []string{host}, Brief: true, Limit: cellwire.MaxLimit}
		found := api.List{}
		err := c.EachServer(ctx, q, func(s cellwire.Server) {
			name := s.Name
			if s.ID > 0 {
				name = s.GuestName()
			}
			found = append(found, new(api.Object).Add("name", name).Add("uuid", s.UUID))
		})
		return found, cellclient.AsFailure(err)
	})
}

// hypervisorView is a hypervisor as the microversion has it. What neither the cell nor Placement
// knows is null, or 0 where a number is required.
func hypervisorView(x *api.Exchange, h *hypervisor, detail bool) *api.Object {
	state, status := "down", "enabled"
	if h.service.Up {
		state = "up"
	}
	if h.service.Disabled {
		status = "disabled"
	}
	o := new(api.Object)
	if x.AtLeast(vServiceUUID) {
		o.Add("id", h.UUID)
	} else {
		o.Add("id", h.service.ID) // one of its cell: other cells have the same
	}
	o.Add("hypervisor_hostname", h.Name).Add("state", state).Add("status", status)
	if detail {
		service := new(api.Object)
		if x.AtLeast(vServiceUUID) {
			service.Add("id", h.service.UUID)
		} else {
			service.Add("id", h.service.ID)
		}
		service.Add("host", h.Host).Add("disabled_reason", api.OrNull(h.service.DisabledReason))
		o.Add("hypervisor_type", api.OrNull(h.Details.HypervisorType)).
			Add("hypervisor_version", h.Details.HypervisorVersion).
			Add("host_ip", api.OrNull(h.Details.HostIP)).Add("service", service)
		addCapacity(o, h.capacity, h.Servers)
		if x.AtLeast(vCPUInfo) {
			o.Add("cpu_info", new(api.Object))
		} else {
			o.Add("cpu_info", "")
		}
	}
	if len(h.servers) > 0 {
		o.Add("servers", h.servers)
	}
	return o
}

// addCapacity adds what hypervisors have and use.
func addCapacity(o *api.Object, c placementcalls.Capacity, servers int64) {
	o.Add("vcpus", c.CPUs).Add("memory_mb", c.MemoryMB).Add("local_gb", c.DiskGB).
		Add("vcpus_used", c.CPUsUsed).Add("memory_mb_used", c.MemoryMBUsed).Add("local_gb_used", c.DiskGBUsed).
		Add("free_ram_mb", c.MemoryMB-c.MemoryMBUsed).Add("free_disk_gb", c.DiskGB-c.DiskGBUsed).
		Add("current_workload", 0).Add("running_vms", servers).Add("disk_available_least", c.DiskGB-c.DiskGBUsed)
}

// hypervisorOfPath is the hypervisor of the path.
func (d *Deps) hypervisorOfPath(x *api.Exchange) (hypervisor, error) {
	id := x.Param("id")
	missing := osapi.NotFound("Hypervisor with ID '%s' could not be found.", osapi.Shortened(id))
	if x.AtLeast(vServiceUUID) {
		if !providertree.IsUUID(id) {
			return hypervisor{}, osapi.BadRequest("Invalid uuid %s", osapi.Shortened(id))
		}
	} else if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return hypervisor{}, missing
	}
	all, err := d.hypervisors(x.Context())
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
func (d *Deps) showHypervisor(x *api.Exchange) error {
	found, err := d.hypervisorOfPath(x)
	if err != nil {
		return err
	}
	withServers, _ := api.ReadBool(x.Params.Last("with_servers"))
	one := []hypervisor{found}
	if err := d.readDetails(x, one, true, withServers); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("hypervisor", hypervisorView(x, &one[0], true)))
}

// hypervisorUptime answers GET /os-hypervisors/{id}/uptime: no host reports its uptime.
func (d *Deps) hypervisorUptime(x *api.Exchange) error {
	if _, err := d.hypervisorOfPath(x); err != nil {
		return err
	}
	return osapi.Errorf(http.StatusNotImplemented, "The requested functionality is not supported.")
}

// hypervisorStatistics answers GET /os-hypervisors/statistics: the sums, without hosts that are
// disabled, as in Nova.
func (d *Deps) hypervisorStatistics(x *api.Exchange) error {
	all, err := d.hypervisors(x.Context())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(h hypervisor) bool { return h.service.Disabled })
	if err := d.readDetails(x, all, true, false); err != nil {
		return err
	}
	var sum placementcalls.Capacity
	var servers int64
	for i := range all {
		c := &all[i].capacity
		sum.CPUs, sum.CPUsUsed = sum.CPUs+c.CPUs, sum.CPUsUsed+c.CPUsUsed
		sum.MemoryMB, sum.MemoryMBUsed = sum.MemoryMB+c.MemoryMB, sum.MemoryMBUsed+c.MemoryMBUsed
		sum.DiskGB, sum.DiskGBUsed = sum.DiskGB+c.DiskGB, sum.DiskGBUsed+c.DiskGBUsed
		servers += all[i].Servers
	}
	o := new(api.Object).Add("count", len(all))
	addCapacity(o, sum, servers)
	return x.JSON(http.StatusOK, new(api.Object).Add("hypervisor_statistics", o))
}

// searchHypervisors answers GET /os-hypervisors/{pattern}/search, serversOfHypervisors GET
// /os-hypervisors/{pattern}/servers.
func (d *Deps) searchHypervisors(x *api.Exchange) error {
	return d.foundHypervisors(x, false)
}

func (d *Deps) serversOfHypervisors(x *api.Exchange) error {
	return d.foundHypervisors(x, true)
}

func (d *Deps) foundHypervisors(x *api.Exchange, servers bool) error {
	all, err := d.hypervisors(x.Context())
	if err == nil {
		all, err = matchingHypervisors(all, x.Param("id"))
	}
	if err == nil {
		err = d.readDetails(x, all, false, servers)
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, hypervisorsBody(x, all, false))
}
