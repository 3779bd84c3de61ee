// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/providertree"
)

// aggregateRoutes are the calls about host aggregates.
func (d *Deps) aggregateRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/os-aggregates", Rule: ruleAggregatesIndex, Handle: d.listAggregates},
		{Method: "POST", Path: "/v2.1/os-aggregates", Body: api.Always(aggregateCreate), Rule: ruleAggregatesCreate,
			Handle: d.createAggregate},
		{Method: "GET", Path: "/v2.1/os-aggregates/{id}",
			Rule: ruleAggregatesShow, Handle: d.showAggregate},
		{Method: "PUT", Path: "/v2.1/os-aggregates/{id}", Body: api.Always(aggregateUpdate), Rule: ruleAggregatesUpdate,
			Handle: d.updateAggregate},
		{Method: "DELETE", Path: "/v2.1/os-aggregates/{id}", Rule: ruleAggregatesDelete, Handle: d.deleteAggregate},
		{Method: "POST", Path: "/v2.1/os-aggregates/{id}/action", Actions: map[string]api.Action{
			"add_host": {Schemas: onlyHost, Rule: ruleAggregatesAddHost,
				Do: d.onAggregate(d.addHost)},
			"remove_host": {Schemas: onlyHost, Rule: ruleAggregatesRemoveHost,
				Do: d.onAggregate(d.removeHost)},
			"set_metadata": {Schemas: onlyMetadata, Rule: ruleAggregatesSetMetadata,
				Do: d.onAggregate(d.setAggregateMetadata)},
		}},
	}
}

// The policies of aggregates.
var (
	ruleAggregatesIndex       = api.Rule{Name: "os_compute_api:os-aggregates:index", Default: api.Admins}
	ruleAggregatesShow        = api.Rule{Name: "os_compute_api:os-aggregates:show", Default: api.Admins}
	ruleAggregatesCreate      = api.Rule{Name: "os_compute_api:os-aggregates:create", Default: api.Admins}
	ruleAggregatesUpdate      = api.Rule{Name: "os_compute_api:os-aggregates:update", Default: api.Admins}
	ruleAggregatesDelete      = api.Rule{Name: "os_compute_api:os-aggregates:delete", Default: api.Admins}
	ruleAggregatesAddHost     = api.Rule{Name: "os_compute_api:os-aggregates:add_host", Default: api.Admins}
	ruleAggregatesRemoveHost  = api.Rule{Name: "os_compute_api:os-aggregates:remove_host", Default: api.Admins}
	ruleAggregatesSetMetadata = api.Rule{Name: "os_compute_api:os-aggregates:set_metadata", Default: api.Admins}
)

// vAggregateUUID is the microversion from which on aggregates show their uuid.
const vAggregateUUID api.Version = 41

// zoneOrNull is an availability zone: a name without a colon, which would separate it from a host.
var zoneOrNull = js.Schema{js.AnyOf(append(api.SchemaName[:len(api.SchemaName):len(api.SchemaName)],
	js.Pattern("^[^:]*$")), js.Schema{js.Type("null")})}

// The bodies of the calls about aggregates.
var (
	aggregateCreate = js.ClosedObject(js.Properties{{Name: "aggregate", Schema: js.ClosedObject(js.Properties{
		{Name: "name", Schema: api.SchemaName}, {Name: "availability_zone", Schema: zoneOrNull},
	}, "name")}}, "aggregate")
	aggregateUpdate = js.ClosedObject(js.Properties{{Name: "aggregate", Schema: append(js.ClosedObject(js.Properties{
		{Name: "name", Schema: js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255), js.SpacedName()}},
		{Name: "availability_zone", Schema: zoneOrNull},
	}), js.AnyOf(js.Schema{js.Required("name")}, js.Schema{js.Required("availability_zone")}))}}, "aggregate")
	onlyHost     = api.Always(js.ClosedObject(js.Properties{{Name: "host", Schema: api.SchemaHost}}, "host"))
	onlyMetadata = api.Always(js.ClosedObject(js.Properties{{Name: "metadata", Schema: js.Schema{
		js.Type("object"),
		js.PatternProperties(api.MetadataKeys, js.Schema{js.Type("string", "null"), js.MaxLength(255)}),
	}}}, "metadata"))
)

// aggregateView is an aggregate as the microversion has it.
func aggregateView(x *api.Exchange, a *apidb.Aggregate) *api.Object {
	return endOfAggregate(x, beginAggregate(a).Add("hosts", a.Hosts).Add("metadata", a.Metadata), a)
}

func beginAggregate(a *apidb.Aggregate) *api.Object {
	return new(api.Object).Add("availability_zone", api.OrNull(a.Zone())).Add("created_at", api.Time(&a.CreatedAt)).
		Add("deleted", false).Add("deleted_at", nil)
}

func endOfAggregate(x *api.Exchange, o *api.Object, a *apidb.Aggregate) *api.Object {
	o.Add("id", a.ID).Add("name", a.Name).Add("updated_at", api.Time(a.UpdatedAt))
	if x.AtLeast(vAggregateUUID) {
		o.Add("uuid", a.UUID)
	}
	return o
}

func oneAggregate(x *api.Exchange, a *apidb.Aggregate) error {
	return x.JSON(http.StatusOK, new(api.Object).Add("aggregate", aggregateView(x, a)))
}

// aggregateID is the one in the path.
func aggregateID(x *api.Exchange) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimSpace(x.Param("id")), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, aggregateNotFound(x)
	case err != nil:
		return 0, osapi.BadRequest("Invalid input received: id must be an integer")
	}
	return id, nil
}

func aggregateNotFound(x *api.Exchange) error {
	return osapi.NotFound("Aggregate %s could not be found.", osapi.Shortened(x.Param("id")))
}

// listAggregates answers GET /os-aggregates.
func (d *Deps) listAggregates(x *api.Exchange) error {
	all, err := d.Store.Aggregates(x.Context())
	if err != nil {
		return err
	}
	shown := make(api.List, len(all))
	for i := range all {
		shown[i] = aggregateView(x, &all[i])
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("aggregates", shown))
}

// showAggregate answers GET /os-aggregates/{id}.
func (d *Deps) showAggregate(x *api.Exchange) error {
	id, err := aggregateID(x)
	if err != nil {
		return err
	}
	found, err := d.Store.Aggregate(x.Context(), id)
	if err != nil {
		return api.RefuseIf(err, apidb.ErrNotFound, aggregateNotFound(x))
	}
	return oneAggregate(x, &found)
}

// createAggregate answers POST /os-aggregates, without hosts and metadata, as Nova does.
func (d *Deps) createAggregate(x *api.Exchange) error {
	asked := api.MemberObject(x.Asked, "aggregate")
	name, metadata := strings.TrimSpace(api.MemberString(asked, "name")), map[string]string{}
	if zone := api.MemberString(asked, "availability_zone"); zone != "" {
		metadata[apidb.ZoneKey] = zone
	}
	made, err := d.Store.CreateAggregate(x.Context(), name, metadata)
	if err != nil {
		return api.RefuseIf(err, apidb.ErrExists, api.Conflict("Aggregate %s already exists.", name))
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("aggregate", endOfAggregate(x, beginAggregate(&made), &made)))
}

// updateAggregate answers PUT /os-aggregates/{id}: a new name, a new zone, or both.
func (d *Deps) updateAggregate(x *api.Exchange) error {
	id, err := aggregateID(x)
	if err != nil {
		return err
	}
	asked := api.MemberObject(x.Asked, "aggregate")
	name, zone, rezoned := strings.TrimSpace(api.MemberString(asked, "name")),
		api.MemberString(asked, "availability_zone"), has(asked, "availability_zone")
	refused := func(reason string) error {
		return osapi.BadRequest("Cannot update aggregate %d. Reason: %s.", id, reason)
	}
	if rezoned {
		if err := d.checkZoneChange(x, id, zone, refused); err != nil {
			return err
		}
	}
	changed, err := d.changeAggregate(x, id, func(a *apidb.Aggregate, others []apidb.Aggregate) error {
		if name != "" {
			a.Name = name
		}
		if rezoned {
			a.Metadata[apidb.ZoneKey] = zone
			return otherZones(others, a.Hosts, zone, refused)
		}
		return nil
	})
	if err != nil {
		return api.RefuseIf(err, apidb.ErrExists, api.Conflict("Aggregate %s already exists.", name))
	}
	return oneAggregate(x, &changed)
}

// changeAggregate is ChangeAggregate of the store, with the refusal for one that there is not.
func (d *Deps) changeAggregate(
	x *api.Exchange, id int64, change func(a *apidb.Aggregate, others []apidb.Aggregate) error,
) (apidb.Aggregate, error) {
	changed, err := d.Store.ChangeAggregate(x.Context(), id, change)
	return changed, api.RefuseIf(err, apidb.ErrNotFound, aggregateNotFound(x))
}

// has says whether an object has a member, null or not.
func has(o *js.Object, name string) bool {
	_, is := o.Get(name)
	return is
}

// deleteAggregate answers DELETE /os-aggregates/{id}.
func (d *Deps) deleteAggregate(x *api.Exchange) error {
	id, err := aggregateID(x)
	if err != nil {
		return err
	}
	switch err := d.Store.DeleteAggregate(x.Context(), id); {
	case errors.Is(err, apidb.ErrNotFound):
		return aggregateNotFound(x)
	case errors.Is(err, apidb.ErrInUse):
		return osapi.BadRequest("Cannot remove host from aggregate %d. Reason: Host aggregate is not empty.", id)
	case err != nil:
		return err
	}
	return x.Empty(http.StatusOK)
}

// onAggregate is an action on the aggregate of the path. It answers with the aggregate as it is
// then.
func (d *Deps) onAggregate(
	change func(x *api.Exchange, id int64, argument *js.Object) (apidb.Aggregate, error),
) func(*api.Exchange, *js.Object) error {
	return func(x *api.Exchange, asked *js.Object) error {
		id, err := aggregateID(x)
		if err != nil {
			return err
		}
		changed, err := change(x, id, asked)
		if err != nil {
			return err
		}
		if host := api.MemberString(asked, "host"); host != "" {
			d.Scheduler.MirrorHost(x.Context(), host)
		}
		return oneAggregate(x, &changed)
	}
}

// addHost adds a host that is mapped to a cell. It may be in several aggregates, but of one zone.
func (d *Deps) addHost(x *api.Exchange, id int64, body *js.Object) (apidb.Aggregate, error) {
	host := api.MemberString(body, "host")
	mapped, err := d.KnowsHost(x.Context(), host)
	if err != nil {
		return apidb.Aggregate{}, err
	}
	if !mapped {
		return apidb.Aggregate{}, osapi.NotFound("Compute host %s could not be found.", host)
	}
	refused := func(reason string) error {
		return api.Conflict("Cannot add host to aggregate %d. Reason: %s.", id, reason)
	}
	err = d.checkHostZone(x, host, refused, func(all []apidb.Aggregate) []apidb.Aggregate {
		if at := aggregateAt(all, id); at >= 0 {
			all[at].Hosts = append(slices.Clone(all[at].Hosts), host)
		}
		return all
	})
	if err != nil {
		return apidb.Aggregate{}, err
	}
	return d.changeAggregate(x, id, func(a *apidb.Aggregate, others []apidb.Aggregate) error {
		if zone := a.Zone(); zone != "" {
			if err := otherZones(others, []string{host}, zone, refused); err != nil {
				return err
			}
		}
		if slices.Contains(a.Hosts, host) {
			return api.Conflict("Aggregate %d already has host %s.", id, host)
		}
		a.Hosts = append(a.Hosts, host)
		return nil
	})
}

// removeHost takes a host out, also one that is not mapped any more.
func (d *Deps) removeHost(x *api.Exchange, id int64, body *js.Object) (apidb.Aggregate, error) {
	host := api.MemberString(body, "host")
	unknown := func() error { return osapi.NotFound("Cannot remove host %s in aggregate %d", host, id) }
	refused := func(reason string) error {
		return api.Conflict("Cannot remove host from aggregate %d. Reason: %s.", id, reason)
	}
	err := d.checkHostZone(x, host, refused, func(all []apidb.Aggregate) []apidb.Aggregate {
		if at := aggregateAt(all, id); at >= 0 {
			all[at].Hosts = without(all[at].Hosts, host)
		}
		return all
	})
	if err != nil {
		return apidb.Aggregate{}, err
	}
	changed, err := d.Store.ChangeAggregate(x.Context(), id, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
		if !slices.Contains(a.Hosts, host) {
			return unknown()
		}
		a.Hosts = without(a.Hosts, host)
		return nil
	})
	return changed, api.RefuseIf(err, apidb.ErrNotFound, unknown())
}

// without is a list without a value; the list itself stays as it is.
func without(values []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return slices.Contains(some, v) })
}

func aggregateAt(all []apidb.Aggregate, id int64) int {
	return slices.IndexFunc(all, func(a apidb.Aggregate) bool { return a.ID == id })
}

// setAggregateMetadata sets some of the metadata; null takes one away, but for the zone.
func (d *Deps) setAggregateMetadata(x *api.Exchange, id int64, body *js.Object) (apidb.Aggregate, error) {
	asked := api.MemberObject(body, "metadata")
	zone, rezoned := api.MemberString(asked, apidb.ZoneKey), has(asked, apidb.ZoneKey)
	refused := func(reason string) error {
		return osapi.BadRequest("Cannot update metadata of aggregate %d. Reason: %s.", id, reason)
	}
	if rezoned {
		if err := d.checkZoneChange(x, id, zone, refused); err != nil {
			return apidb.Aggregate{}, err
		}
	}
	return d.changeAggregate(x, id, func(a *apidb.Aggregate, others []apidb.Aggregate) error {
		var added []string
		for _, name := range asked.Names() {
			value := api.MemberText(asked, name)
			if value == nil {
				delete(a.Metadata, name)
				continue
			}
			if _, had := a.Metadata[name]; !had {
				added = append(added, name)
			}
			a.Metadata[name] = *value
		}
		for _, name := range added {
			for _, other := range slices.Sorted(maps.Keys(a.Metadata)) {
				if other != name && providertree.SameName(other, name) {
					return refused(fmt.Sprintf("The keys %q and %q differ only in spaces at the end",
						min(name, other), max(name, other)))
				}
			}
		}
		if rezoned {
			return otherZones(others, a.Hosts, zone, refused)
		}
		return nil
	})
}

// otherZones refuses a zone for hosts of which aggregates say another one.
func otherZones(others []apidb.Aggregate, hosts []string, zone string, refused func(reason string) error) error {
	var zones []any
	for i := range others {
		of := &others[i]
		if other := of.Zone(); other != "" && other != zone &&
			slices.ContainsFunc(of.Hosts, func(h string) bool { return slices.Contains(hosts, h) }) {
			zones = append(zones, other)
		}
	}
	if len(zones) == 0 {
		return nil
	}
	return refused("One or more hosts already in availability zone(s) " + js.PythonRepr(zones))
}

// checkZoneChange refuses a new zone of an aggregate: an empty one, one that differs from that of
// other aggregates of a host, and any while there are servers on a host, which would be in another
// zone at once. It costs a request to each cell with hosts of the aggregate, if the zone is new.
func (d *Deps) checkZoneChange(x *api.Exchange, id int64, zone string, refused func(reason string) error) error {
	all, err := d.Store.Aggregates(x.Context())
	if err != nil {
		return err
	}
	at := aggregateAt(all, id)
	if at < 0 {
		return aggregateNotFound(x)
	}
	changed := all[at]
	if zone == "" {
		return refused(fmt.Sprintf("Aggregate %s does not support empty named availability zone", changed.Name))
	}
	if err := otherZones(slices.Delete(all, at, at+1), changed.Hosts, zone, refused); err != nil {
		return err
	}
	if zone == changed.Zone() {
		return nil
	}
	occupied, err := d.haveServers(x, changed.Hosts)
	if err == nil && occupied {
		err = refused("One or more hosts contain instances in this zone")
	}
	return err
}

// checkHostZone refuses a change of aggregates that gives a host with servers another zone, as Nova
// does since 2024.2: its servers would move with it. It costs a request to the cell of the host, if
// the zone is another one then.
func (d *Deps) checkHostZone(
	x *api.Exchange, host string, refused func(reason string) error, change func([]apidb.Aggregate) []apidb.Aggregate,
) error {
	all, err := d.Store.Aggregates(x.Context())
	if err != nil {
		return err
	}
	was := d.zoneOf(host, apidb.HostZones(all))
	is := d.zoneOf(host, apidb.HostZones(change(all)))
	if was == is {
		return nil
	}
	occupied, err := d.haveServers(x, []string{host})
	if err == nil && occupied {
		err = refused(fmt.Sprintf(
			"The availability zone of the host would change from '%s' to '%s', but it has instances. Delete them or "+
				"move them away first", was, is))
	}
	return err
}

// zoneOf is the availability zone of a host.
func (d *Deps) zoneOf(host string, zones map[string]string) string {
	if zone := zones[host]; zone != "" {
		return zone
	}
	return d.DefaultZone
}

// haveServers asks the cells of hosts whether any of these has servers, or servers that move to it
// or can go back to it.
func (d *Deps) haveServers(x *api.Exchange, hosts []string) (bool, error) {
	mapped, err := d.Store.Hosts(x.Context())
	if err != nil {
		return false, err
	}
	cells, err := d.Store.Cells(x.Context())
	if err != nil {
		return false, err
	}
	cells = slices.DeleteFunc(cells, func(c apidb.Cell) bool {
		return !slices.ContainsFunc(mapped,
			func(h apidb.HostMapping) bool { return h.CellUUID == c.UUID && slices.Contains(hosts, h.Host) })
	})
	answers := gather.All(x.Context(), d.Gatherer, cells,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.ServerHosts, error) {
			return c.ServerHosts(ctx, cellwire.HostsRequest{On: hosts})
		})
	occupied := false
	for _, answer := range answers {
		if answer.Err != nil {
			return false, serviceFault(answer.Err)
		}
		occupied = occupied || len(answer.Value) > 0
	}
	return occupied, x.Context().Err()
}

// KnowsHost says whether a host is mapped to a cell.
func (d *Deps) KnowsHost(ctx context.Context, host string) (bool, error) {
	hosts, err := d.Store.Hosts(ctx)
	return slices.ContainsFunc(hosts, func(h apidb.HostMapping) bool { return h.Host == host }), err
}
