// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// serviceRoutes are the calls about services. The services are the nova-compute services of the
// cells' hosts: what Nova has as conductors and schedulers are parts of the processes of cells and
// of this one, and have no records. So cell0, which has no hosts, is not asked.
func (d *Deps) serviceRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/os-services", Query: &serviceQuery, Rule: ruleServicesList,
			Handle: d.listServices},
		{Method: "PUT", Path: "/v2.1/os-services/{id}",
			Body: serviceUpdates, Handle: d.updateService, Rules: []api.Rule{ruleServicesUpdate}},
		{Method: "DELETE", Path: "/v2.1/os-services/{id}",
			Rule: ruleServicesDelete, Handle: d.deleteService},
	}
}

// The policies of services.
var (
	ruleServicesList   = api.Rule{Name: "os_compute_api:os-services:list", Default: api.Admins}
	ruleServicesUpdate = api.Rule{Name: "os_compute_api:os-services:update", Default: api.Admins}
	ruleServicesDelete = api.Rule{Name: "os_compute_api:os-services:delete", Default: api.Admins}
)

// computeBinary is what services of hosts are called.
const computeBinary = "nova-compute"

// serviceQuery are the parameters of GET /os-services.
var serviceQuery = api.Parameters{All: []api.Parameter{
	{Name: "host", Schema: api.SchemaText, Text: "That of a host."},
	{Name: "binary", Schema: api.SchemaText, Text: "Those of the name: all are nova-compute."},
}}

// service is a service, the cell that it is in, and the availability zone of its host.
type service struct {
	cellwire.Service
	cell apidb.Cell
	zone string
}

// cellServices are the services of the cells that are up, by cell and host, each with its zone; the
// cells that are down; and the zones that aggregates give to hosts.
type cellServices struct {
	up    []service
	down  []apidb.Cell
	zones map[string]string
}

// find is the service that a condition holds for, or nil.
func (c *cellServices) find(is func(*service) bool) *service {
	for i := range c.up {
		if is(&c.up[i]) {
			return &c.up[i]
		}
	}
	return nil
}

// services asks all cells at once, and reads the aggregates. A cell that rejects the request counts
// as down.
func (d *Deps) services(ctx context.Context) (cellServices, error) {
	cells, err := d.Store.Cells(ctx)
	if err != nil {
		return cellServices{}, err
	}
	cells = slices.DeleteFunc(cells, apidb.Cell.IsCell0)
	aggregates, err := d.Store.Aggregates(ctx)
	if err != nil {
		return cellServices{}, err
	}
	all := cellServices{zones: apidb.HostZones(aggregates)}
	for _, answer := range gather.All(ctx, d.Gatherer, cells,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.Service, error) { return c.Services(ctx) }) {
		if answer.Err != nil {
			all.down = append(all.down, answer.Cell)
			continue
		}
		slices.SortFunc(answer.Value, func(a, b cellwire.Service) int {
			return strings.Compare(a.Host, b.Host)
		})
		for _, s := range answer.Value {
			all.up = append(all.up, service{s, answer.Cell, d.zoneOf(s.Host, all.zones)})
		}
	}
	return all, ctx.Err()
}

// listServices answers GET /os-services. From 2.69 on the hosts of cells that are down are there
// with host, binary and status UNKNOWN only; before, they are left out. Cost: one question to all
// cells, and the host mappings if a cell is down.
func (d *Deps) listServices(x *api.Exchange) error {
	host, binary := x.Params.Last("host"), x.Params.Last("binary")
	wanted := func(h, b string) bool { return (host == "" || h == host) && (binary == "" || b == binary) }
	all, err := d.services(x.Context())
	if err != nil {
		return err
	}
	shown := api.List{}
	for i := range all.up {
		if s := &all.up[i]; wanted(s.Host, s.Binary) {
			shown = append(shown, serviceView(x, s))
		}
	}
	if x.AtLeast(api.VDownCells) && len(all.down) > 0 {
		hosts, err := d.Store.Hosts(x.Context())
		if err != nil {
			return err
		}
		for _, cell := range all.down {
			for _, h := range hosts {
				if h.CellUUID == cell.UUID && wanted(h.Host, computeBinary) {
					shown = append(shown, new(api.Object).
						Add("binary", computeBinary).Add("host", h.Host).Add("status", api.StatusUnknown))
				}
			}
		}
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("services", shown))
}

// serviceView is a service as the microversion has it.
func serviceView(x *api.Exchange, s *service) *api.Object {
	o := new(api.Object).Add("binary", s.Binary).Add("host", s.Host)
	if x.AtLeast(vServiceUUID) {
		o.Add("id", s.UUID)
	} else {
		o.Add("id", s.ID) // one of its cell: other cells have the same
	}
	status, state := "enabled", "down"
	if s.Disabled {
		status = "disabled"
	}
	if s.Up {
		state = "up"
	}
	o.Add("zone", s.zone).Add("status", status).Add("state", state).Add("updated_at", api.Time(s.UpdatedAt)).
		Add("disabled_reason", api.OrNull(s.DisabledReason))
	if x.AtLeast(vForcedDown) {
		o.Add("forced_down", s.ForcedDown)
	}
	return o
}
