// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/wire"
)

// listBrief answers GET /servers.
func (a *API) listBrief(x *exchange) error { return a.listServers(x, false) }

// listDetail answers GET /servers/detail.
func (a *API) listDetail(x *exchange) error { return a.listServers(x, true) }

// listServers answers both lists: first the servers of cells that are down, as far as they are known, then those that are being built, then
// those of the cells, sorted. Cost: two or three reads of the API database, and one request to each cell, all at the same time (more when a cell's batch
// is used up); a marker takes one more, to its cell alone.
func (a *API) listServers(x *exchange, detail bool) error {
	l, err := x.readList(detail)
	if err != nil {
		return err
	}
	view := x.newServerView(x.who.Project)
	record := view.brief
	if detail {
		record = view.whole
	}
	// The records of servers that were foreseen while a cell was silent: when its time is over everybody who waited for it goes on at the same moment.
	ready := map[*wire.Server]*object{}
	var p page
	if !l.nothing && l.limit > 0 {
		if p, err = a.page(x, l, func(rows []wire.Row) {
			for i := range rows {
				s := &rows[i].Server
				if ready[s] == nil {
					ready[s] = record(s)
				}
			}
		}); err != nil {
			return err
		}
	}
	records := make(list, 0, len(p.unknown)+len(p.servers))
	for i := range p.unknown {
		if detail {
			records = append(records, view.unknown(&p.unknown[i]))
		} else {
			records = append(records, view.unknownBrief(&p.unknown[i]))
		}
	}
	for _, s := range p.servers {
		if o := ready[s]; o != nil {
			records = append(records, o)
		} else {
			records = append(records, record(s))
		}
	}
	const others = 1 << 10 // the link to the next page
	body := (&object{text: make([]byte, 0, records.size()+others)}).add("servers", records)
	// A page that is full has a link to the next, also if nothing is there; one that ends with an unknown server has none, because the next page
	// could not begin after it.
	if len(p.servers) > 0 && len(records) == l.limit {
		collection := "servers"
		if detail {
			collection = "servers/detail"
		}
		body.add("servers_links", x.nextLink(collection, l.params, p.servers[len(p.servers)-1].UUID))
	}
	return x.json(http.StatusOK, body)
}

// page is what a list shows.
type page struct {
	unknown []apidb.Mapping // of cells that are down
	servers []*wire.Server
}

// page finds the servers of a list. foreseen is told of those that it may have.
func (a *API) page(x *exchange, l *listRequest, foreseen func([]wire.Row)) (page, error) {
	building, after, err := a.building(x, l)
	if err != nil {
		return page{}, err
	}
	building = building[:min(len(building), l.limit)]
	p, seen, twice := page{}, map[string]bool{}, 0
	for i := range building {
		p.servers, seen[building[i].Server.UUID] = append(p.servers, &building[i].Server), true
		if building[i].CellUUID != "" {
			twice++ // its cell may show it already
		}
	}
	if len(p.servers) == l.limit {
		return p, nil
	}
	cells, err := a.cellsOf(x, l)
	if err != nil {
		return page{}, err
	}
	q := l.query
	q.Brief, q.Limit = !l.detail, min(l.limit-len(p.servers)+twice, wire.MaxLimit)
	if after != "" {
		if q.After, err = a.keyOf(x, l, after); err != nil {
			return page{}, err
		}
	}
	result, err := a.cells.list(x.ctx(), cells, q, foreseen)
	if err != nil {
		return page{}, err
	}
	for i := range result.Rows {
		s := &result.Rows[i].Server
		if !seen[s.UUID] && len(p.servers) < l.limit {
			p.servers, seen[s.UUID] = append(p.servers, s), true
		}
	}
	if len(result.Down) == 0 {
		return p, nil
	}
	if !l.minimal {
		if !a.options.ListSkipsDownCells {
			return page{}, newFault(http.StatusInternalServerError,
				"NovaException: A cell is not responding but configuration indicates that we should fail (list_records_by_skipping_down_cells).").
				because(errors.New("cell " + result.Down[0].Name + " is down"))
		}
		return p, nil
	}
	p.unknown, err = a.unknown(x, l, result.Down, seen, a.options.MaxLimit-len(p.servers))
	return p, err
}

// building are the build requests of a list. after is the marker if it is not among them, so that it has to be looked for in the cells: then
// none of them is after it.
func (a *API) building(x *exchange, l *listRequest) (chosen []apidb.BuildRequest, after string, err error) {
	all, err := a.store.BuildRequests(x.ctx(), l.query.ProjectID, 0)
	if err != nil {
		return nil, "", err
	}
	if chosen, err = matching(all, &l.query); err != nil || !l.hasMarker {
		return chosen, "", err
	}
	at := slices.IndexFunc(chosen, func(b apidb.BuildRequest) bool { return b.Server.UUID == l.marker })
	if at < 0 {
		return nil, l.marker, a.markerNamed(l)
	}
	return chosen[at+1:], "", nil
}

func (a *API) markerNamed(l *listRequest) error {
	if l.marker == "" || !isUUID(l.marker) {
		return noMarker(l)
	}
	return nil
}

// noMarker is the 400 for a marker that is no server.
func noMarker(l *listRequest) error {
	return badRequest("marker [%s] not found", shortened(l.marker))
}

// cellsOf are the cells that a list is made of: all, with cell0 and the disabled ones, or those of the project if that is the configuration.
func (a *API) cellsOf(x *exchange, l *listRequest) ([]apidb.Cell, error) {
	all, err := a.store.Cells(x.ctx())
	if err != nil || !a.options.PerProjectCells || l.allTenants || x.isAdmin() {
		return all, err
	}
	own, err := a.store.ProjectCells(x.ctx(), x.who.Project)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(c apidb.Cell) bool { return !slices.Contains(own, c.UUID) }), nil
}

// keyOf is the key of the marker in the order of the list: its cell says. Deleted servers are markers as well. A cell that is down cannot say,
// after the time that it has at the latest.
func (a *API) keyOf(x *exchange, l *listRequest, marker string) (wire.Key, error) {
	m, err := a.store.Mapping(x.ctx(), marker)
	switch {
	case errors.Is(err, apidb.ErrNotFound):
		return nil, noMarker(l)
	case err != nil:
		return nil, err
	case m.CellUUID == "" || m.ProjectID != x.who.Project && !l.allTenants && !x.isAdmin():
		return nil, noMarker(l)
	}
	cell, err := a.cell(x, m.CellUUID)
	if err != nil {
		return nil, err
	}
	q := wire.ServerQuery{UUIDs: []string{marker}, Deleted: wire.DeletedAny, Sort: l.query.Sort, Limit: 1, Brief: true}
	result, err := a.cells.list(x.ctx(), []apidb.Cell{cell}, q, nil)
	switch {
	case err != nil:
		return nil, err
	case len(result.Down) > 0:
		return nil, newFault(http.StatusInternalServerError, "DBError: The cell of the marker is not responding. List from the beginning, or try again when it is back.").
			because(errors.New("cell " + cell.Name + " is down"))
	case len(result.Rows) == 0:
		return nil, noMarker(l)
	}
	return result.Rows[0].Key, nil
}

// unknown are the living servers of cells that are down, at most room, without those that are in the list already.
func (a *API) unknown(x *exchange, l *listRequest, down []apidb.Cell, seen map[string]bool, room int) ([]apidb.Mapping, error) {
	if room <= 0 {
		return nil, nil
	}
	filter := apidb.MappingFilter{ProjectID: l.query.ProjectID, Living: true, Limit: room + len(seen)}
	for _, c := range down {
		filter.CellUUIDs = append(filter.CellUUIDs, c.UUID)
	}
	all, err := a.store.Mappings(x.ctx(), filter)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m apidb.Mapping) bool { return seen[m.InstanceUUID] })
	return all[:min(len(all), room)], nil
}
