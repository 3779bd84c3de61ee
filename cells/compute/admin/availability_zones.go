// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
)

// zoneRoutes are the calls about availability zones. The zone of a host is what the metadata
// availability_zone of an aggregate says, or the default one.
func (d *Deps) zoneRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/os-availability-zone",
			Rule: ruleZonesList, Handle: d.listZones},
		{Method: "GET", Path: "/v2.1/os-availability-zone/detail", Rule: ruleZonesDetail, Handle: d.listZonesDetail},
	}
}

// The policies of availability zones.
var (
	ruleZonesList   = api.Rule{Name: "os_compute_api:os-availability-zone:list", Default: api.AnyUser}
	ruleZonesDetail = api.Rule{Name: "os_compute_api:os-availability-zone:detail", Default: api.Admins}
)

// listZones answers GET /os-availability-zone. It costs what [Deps.services] costs, and the host
// mappings if a cell is down.
func (d *Deps) listZones(x *api.Exchange) error {
	return d.zoneInfo(x, false)
}

// listZonesDetail answers GET /os-availability-zone/detail: also the hosts and their services.
func (d *Deps) listZonesDetail(x *api.Exchange) error {
	return d.zoneInfo(x, true)
}

// zoneInfo lists the zones with an enabled service, then those with disabled ones only. A zone
// whose hosts are all in cells that are down is not available; Nova does not list it.
func (d *Deps) zoneInfo(x *api.Exchange, detail bool) error {
	all, err := d.services(x.Context())
	if err != nil {
		return err
	}
	available, others := map[string]*api.Object{}, map[string]bool{}
	for i := range all.up { // by cell and host
		s := &all.up[i]
		if s.Disabled {
			others[s.zone] = true
			continue
		}
		hosts := available[s.zone]
		if hosts == nil {
			hosts = new(api.Object)
			available[s.zone] = hosts
		}
		if detail {
			hosts.Add(s.Host, new(api.Object).Add(s.Binary,
				new(api.Object).Add("available", s.Up).Add("active", true).Add("updated_at", api.Time(s.UpdatedAt))))
		}
	}
	if len(all.down) > 0 {
		mapped, err := d.Store.Hosts(x.Context())
		if err != nil {
			return err
		}
		for _, h := range mapped {
			if slices.ContainsFunc(all.down, func(c apidb.Cell) bool { return c.UUID == h.CellUUID }) {
				others[d.zoneOf(h.Host, all.zones)] = true
			}
		}
	}
	info := api.List{}
	add := func(zone string, is bool, hosts *api.Object) {
		if !detail && zone == d.InternalZone {
			return
		}
		o := new(api.Object).Add("zoneName", zone).Add("zoneState", new(api.Object).Add("available", is))
		if detail && hosts != nil {
			o.Add("hosts", hosts)
		} else {
			o.Add("hosts", nil)
		}
		info = append(info, o)
	}
	for _, zone := range slices.Sorted(maps.Keys(available)) {
		add(zone, true, available[zone])
	}
	for _, zone := range slices.Sorted(maps.Keys(others)) {
		if available[zone] == nil {
			add(zone, false, nil)
		}
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("availabilityZoneInfo", info))
}

// Zones returns the zones of the enabled services of all cells that are up.
func (d *Deps) Zones(ctx context.Context) ([]string, error) {
	all, err := d.services(ctx)
	if err != nil {
		return nil, err
	}
	var zones []string
	for _, s := range all.up {
		if !s.Disabled {
			zones = append(zones, s.zone)
		}
	}
	return zones, nil
}
