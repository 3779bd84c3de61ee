// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// zoneRoutes are the calls about availability zones. The zone of a host is what the metadata
// availability_zone of an aggregate says, or the default one.
func (a *API) zoneRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/os-availability-zone", handle: a.listZones, about: &aboutListZones},
		{method: "GET", path: "/v2.1/os-availability-zone/detail", handle: a.listZonesDetail, about: &aboutListZonesDetail},
	}
}

// The policies of availability zones.
var (
	ruleZonesList   = Rule{"os_compute_api:os-availability-zone:list", anyUser}
	ruleZonesDetail = Rule{"os_compute_api:os-availability-zone:detail", admins}
)

// listZones answers GET /os-availability-zone. It costs what [API.services] costs, and the host
// mappings if a cell is down.
func (a *API) listZones(x *exchange) error {
	if err := x.allowOwn(ruleZonesList); err != nil {
		return err
	}
	return a.zoneInfo(x, false)
}

// listZonesDetail answers GET /os-availability-zone/detail: also the hosts and their services.
func (a *API) listZonesDetail(x *exchange) error {
	if err := x.allowOwn(ruleZonesDetail); err != nil {
		return err
	}
	return a.zoneInfo(x, true)
}

// zoneInfo lists the zones with an enabled service, then those with disabled ones only. A zone
// whose hosts are all in cells that are down is not available; Nova does not list it.
func (a *API) zoneInfo(x *exchange, detail bool) error {
	all, err := a.services(x.ctx())
	if err != nil {
		return err
	}
	available, others := map[string]*object{}, map[string]bool{}
	for i := range all.up { // by cell and host
		s := &all.up[i]
		if s.Disabled {
			others[s.zone] = true
			continue
		}
		hosts := available[s.zone]
		if hosts == nil {
			hosts = new(object)
			available[s.zone] = hosts
		}
		if detail {
			hosts.add(s.Host, new(object).add(s.Binary, new(object).add("available", s.Up).add("active", true).add("updated_at", stamp(s.UpdatedAt))))
		}
	}
	if len(all.down) > 0 {
		mapped, err := a.store.Hosts(x.ctx())
		if err != nil {
			return err
		}
		for _, h := range mapped {
			if slices.ContainsFunc(all.down, func(c apidb.Cell) bool { return c.UUID == h.CellUUID }) {
				others[a.zoneOf(h.Host, all.zones)] = true
			}
		}
	}
	info := list{}
	add := func(zone string, is bool, hosts *object) {
		if !detail && zone == a.options.InternalZone {
			return
		}
		o := new(object).add("zoneName", zone).add("zoneState", new(object).add("available", is))
		if detail && hosts != nil {
			o.add("hosts", hosts)
		} else {
			o.add("hosts", nil)
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
	return x.json(http.StatusOK, new(object).add("availabilityZoneInfo", info))
}
