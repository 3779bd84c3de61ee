// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// listBrief answers GET /servers.
func (ls *Lists) listBrief(x *api.Exchange) error { return ls.listServers(x, false) }

// listDetail answers GET /servers/detail.
func (ls *Lists) listDetail(x *api.Exchange) error { return ls.listServers(x, true) }

// listServers answers both lists: first the servers of cells that are down, as far as they are
// known, then those that are being built, then those of the cells, sorted. While a cell does not
// answer, the body without it is prepared, see mergeServersEarly.
//
// Cost: two or three reads of the API database, and one request to each cell, all at the same time
// (more when a cell's batch is used up); a marker costs one more, to its cell alone.
func (ls *Lists) listServers(x *api.Exchange, detail bool) error {
	l, err := ls.readList(x, detail)
	if err != nil {
		return err
	}
	view := ls.Servers.View(x, x.Caller.Project)
	if l.nothing || l.limit <= 0 {
		return x.JSON(http.StatusOK, listBody(x, l, view, page{}))
	}
	var body *api.Object
	if err := ls.page(x, l, func(p page) { body = listBody(x, l, view, p) }); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, body)
}

// listBody is a page as JSON.
func listBody(x *api.Exchange, l *listRequest, view *View, p page) *api.Object {
	known, unknown := view.Brief, view.UnknownBrief
	if l.detail {
		known, unknown = view.Whole, view.Unknown
	}
	records := make(api.List, 0, len(p.unknown)+len(p.servers))
	for i := range p.unknown {
		records = append(records, unknown(&p.unknown[i]))
	}
	for _, s := range p.servers {
		records = append(records, known(s))
	}
	const others = 1 << 10 // the link to the next page
	body := api.NewObject(records.Size()+others).Add("servers", records)
	// A page that is full has a link to the next, also if nothing is there; one that ends with an
	// unknown server has none, because the next page could not begin after it.
	if len(p.servers) > 0 && len(records) == l.limit {
		collection := "servers"
		if l.detail {
			collection = "servers/detail"
		}
		body.Add("servers_links", x.NextLink(collection, l.params, p.servers[len(p.servers)-1].UUID))
	}
	return body
}

// page is what a list shows.
type page struct {
	unknown []apidb.Mapping // of cells that are down
	servers []*cellwire.Server
}

// page finds the servers of a list and gives them to use: several times it may be, and then the
// last counts.
func (ls *Lists) page(x *api.Exchange, l *listRequest, use func(page)) error {
	building, after, err := ls.building(x, l)
	if err != nil {
		return err
	}
	building = building[:min(len(building), l.limit)]
	if len(building) == l.limit {
		p, _ := l.firstPage(building, 0)
		use(p)
		return nil
	}
	cells, err := ls.cellsOf(x, l)
	if err != nil {
		return err
	}
	twice := 0
	for i := range building {
		if building[i].CellUUID != "" {
			twice++ // its cell may show it already
		}
	}
	q := l.query
	q.Brief, q.Limit = !l.detail, min(l.limit-len(building)+twice, cellwire.MaxLimit)
	if after != "" {
		if q.After, err = ls.keyOf(x, l, after); err != nil {
			return err
		}
	}
	return mergeServersEarly(x.Context(), ls.Gatherer, cells, q, func(m mergedServers) error {
		p, err := ls.completePage(x, l, building, m)
		if err == nil {
			use(p)
		}
		return err
	})
}

// firstPage is a page with the servers being built, their uuids, and capacity for so many others.
func (l *listRequest) firstPage(building []apidb.BuildRequest, others int) (page, map[string]bool) {
	p, seen := page{servers: make([]*cellwire.Server, 0, len(building)+others)},
		make(map[string]bool, len(building)+others)
	for i := range building {
		p.servers, seen[building[i].UUID] = append(p.servers, &building[i].Server), true
	}
	return p, seen
}

// completePage is the page with what the cells gave, and what is known of those that are down.
func (ls *Lists) completePage(
	x *api.Exchange, l *listRequest, building []apidb.BuildRequest, from mergedServers,
) (page, error) {
	p, seen := l.firstPage(building, len(from.Rows))
	for i := range from.Rows {
		s := &from.Rows[i].Server
		if !seen[s.UUID] && len(p.servers) < l.limit {
			p.servers, seen[s.UUID] = append(p.servers, s), true
		}
	}
	if len(from.Down) == 0 {
		return p, nil
	}
	if !l.minimal {
		if !ls.ListSkipsDownCells {
			return page{}, osapi.Errorf(http.StatusInternalServerError,
				"NovaException: A cell is not responding but configuration indicates that we should fail "+
					"(list_records_by_skipping_down_cells).").
				Because(errors.New("cell " + from.Down[0].Name + " is down"))
		}
		return p, nil
	}
	var err error
	p.unknown, err = ls.unknown(x, l, from.Down, seen, ls.MaxLimit-len(p.servers))
	return p, err
}

// building are the build requests of a list. after is the marker if it is not among them, so that
// it has to be looked for in the cells: then none of them is after it.
func (ls *Lists) building(x *api.Exchange, l *listRequest) (chosen []apidb.BuildRequest, after string, err error) {
	all, err := ls.Store.BuildRequests(x.Context(), l.query.ProjectID, 0)
	if err != nil {
		return nil, "", err
	}
	if chosen, err = matching(all, &l.query); err != nil || !l.hasMarker {
		return chosen, "", err
	}
	at := slices.IndexFunc(chosen, func(b apidb.BuildRequest) bool { return b.UUID == l.marker })
	if at < 0 {
		return nil, l.marker, ls.checkMarker(l)
	}
	return chosen[at+1:], "", nil
}

func (ls *Lists) checkMarker(l *listRequest) error {
	if l.marker == "" || !IsUUID(l.marker) {
		return markerNotFound(l)
	}
	return nil
}

// markerNotFound is the 400 for a marker that is no server.
func markerNotFound(l *listRequest) error {
	return osapi.BadRequest("marker [%s] not found", osapi.Shortened(l.marker))
}

// cellsOf are the cells of a list: all, with cell0 and the disabled ones, or those of
// the project if that is the configuration.
func (ls *Lists) cellsOf(x *api.Exchange, l *listRequest) ([]apidb.Cell, error) {
	all, err := ls.Store.Cells(x.Context())
	if err != nil || !ls.PerProjectCells || l.allTenants || x.IsAdmin() {
		return all, err
	}
	own, err := ls.Store.ProjectCells(x.Context(), x.Caller.Project)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(c apidb.Cell) bool { return !slices.Contains(own, c.UUID) }), nil
}

// keyOf asks the marker's cell for the key of the marker in the order of the list: deleted servers
// are markers, too, and mappings lack the columns of sorting. If the cell refuses, the error is
// 500, as in Nova. If it takes too long, it is 503, where Nova does not answer: a cell under load
// answers the next time.
func (ls *Lists) keyOf(x *api.Exchange, l *listRequest, marker string) (cellwire.Key, error) {
	m, err := ls.Store.Mapping(x.Context(), marker)
	switch {
	case errors.Is(err, apidb.ErrNotFound):
		return nil, markerNotFound(l)
	case err != nil:
		return nil, err
	case m.CellUUID == "" || m.ProjectID != x.Caller.Project && !l.allTenants && !x.IsAdmin():
		return nil, markerNotFound(l)
	}
	cell, err := apidb.CellOf(x.Context(), ls.Store, m.CellUUID)
	if err != nil {
		return nil, err
	}
	q := cellwire.ServerQuery{UUIDs: []string{marker},
		Deleted: cellwire.DeletedAny, Sort: l.query.Sort, Limit: 1, Brief: true}
	result, err := mergeServers(x.Context(), ls.Gatherer, []apidb.Cell{cell}, q)
	switch {
	case err != nil:
		return nil, err
	case len(result.Down) > 0:
		down := osapi.Errorf(http.StatusInternalServerError,
			"DBError: The cell of the marker is not responding. List from the beginning, or try again when it is back.")
		if result.Late {
			down = osapi.Unavailable("The cell of the marker has not answered in time. Try again.")
		}
		return nil, down.Because(errors.New("cell " + cell.Name + " is down"))
	case len(result.Rows) == 0:
		return nil, markerNotFound(l)
	}
	return result.Rows[0].Key, nil
}

// unknown returns mappings of living servers in cells that are down, without the servers in seen,
// up to room of them.
func (ls *Lists) unknown(
	x *api.Exchange, l *listRequest, down []apidb.Cell, seen map[string]bool, room int,
) ([]apidb.Mapping, error) {
	if room <= 0 {
		return nil, nil
	}
	filter := apidb.MappingFilter{ProjectID: l.query.ProjectID, Living: true, Limit: room + len(seen)}
	for _, c := range down {
		filter.CellUUIDs = append(filter.CellUUIDs, c.UUID)
	}
	all, err := ls.Store.Mappings(x.Context(), filter)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m apidb.Mapping) bool { return seen[m.InstanceUUID] })
	return all[:min(len(all), room)], nil
}

// Lists are the calls that list servers, GET /servers and GET /servers/detail, and all that they
// may touch.
type Lists struct {
	Store ListStore
	// Gatherer asks the cells.
	Gatherer *gather.Gatherer
	// Servers shows servers.
	Servers Servers
	// MaxLimit is how many records a list has at most.
	MaxLimit int
	// ListSkipsDownCells says that lists that cannot have minimal records leave out the servers of
	// cells that are down; otherwise they are refused with 500.
	ListSkipsDownCells bool
	// PerProjectCells asks only the cells that a project has servers in, for lists of members.
	PerProjectCells bool
}

// ListStore is what lists need of the API database.
type ListStore interface {
	Cells(ctx context.Context) ([]apidb.Cell, error)
	ProjectCells(ctx context.Context, projectID string) ([]string, error)
	BuildRequests(ctx context.Context, projectID string, limit int) ([]apidb.BuildRequest, error)
	Mapping(ctx context.Context, uuid string) (apidb.Mapping, error)
	Mappings(ctx context.Context, f apidb.MappingFilter) ([]apidb.Mapping, error)
}

// Routes are the calls.
func (ls *Lists) Routes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers", Query: &serverQuery, Handle: ls.listBrief,
			Rules: append([]api.Rule{ruleServersIndex, ruleServersIndexAll, ruleServersAllFilters}, Rules...)},
		{Method: "GET", Path: "/v2.1/servers/detail", Query: &serverQuery, Handle: ls.listDetail,
			Rules: append([]api.Rule{ruleServersDetail, ruleServersDetailAll, ruleServersAllFilters}, Rules...)},
	}
}

// The microversions that change how servers are shown and listed, beside those of package api.
const (
	vExtendedAttributes api.Version = 3  // all attributes for administrators
	vFilterIPv6         api.Version = 5  // members may filter by ip6
	vLocked             api.Version = 9  // servers say whether they are locked
	vHostStatus         api.Version = 16 // servers say how their host is
	vStatusChecked      api.Version = 38 // an invalid status is rejected
	vFlavorEmbedded     api.Version = 47 // the flavor of a server is shown as it was
	vShowGroups         api.Version = 71 // servers say in which groups they are
)

// The policies of members of servers.
var (
	ruleExtendedAttrs   = api.Rule{Name: "os_compute_api:os-extended-server-attributes", Default: api.Admins}
	ruleShowExtraSpecs  = api.Rule{Name: "os_compute_api:servers:show:flavor-extra-specs", Default: api.Readers}
	ruleShowHostStatus  = api.Rule{Name: "os_compute_api:servers:show:host_status", Default: api.Admins}
	ruleShowHostUnknown = api.Rule{Name: "os_compute_api:servers:show:host_status:unknown-only",
		Default: api.Admins}
)

// Rules are the policy rules that decide which members of servers are shown.
var Rules = []api.Rule{ruleExtendedAttrs, ruleShowExtraSpecs, ruleShowHostStatus, ruleShowHostUnknown}

// The policies of lists of servers.
var (
	ruleServersIndex      = api.Rule{Name: "os_compute_api:servers:index", Default: api.Readers}
	ruleServersIndexAll   = api.Rule{Name: "os_compute_api:servers:index:get_all_tenants", Default: api.Admins}
	ruleServersDetail     = api.Rule{Name: "os_compute_api:servers:detail", Default: api.Readers}
	ruleServersDetailAll  = api.Rule{Name: "os_compute_api:servers:detail:get_all_tenants", Default: api.Admins}
	ruleServersAllFilters = api.Rule{Name: "os_compute_api:servers:allow_all_filters", Default: api.Admins}
)
