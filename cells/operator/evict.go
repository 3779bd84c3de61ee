// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// Eviction is the answer of evict-host.
type Eviction struct {
	Host    string    `json:"host"`
	Reason  string    `json:"reason,omitempty"`
	Evicted time.Time `json:"evicted"`
	// DenyList is the line of the deny list.
	DenyList string `json:"deny_list_line"`
	// DenyURL is [deny_list] url of servers that follow the list; "": no enrolment service is
	// configured.
	DenyURL  string           `json:"deny_list_url,omitempty"`
	Nodes    []Node           `json:"nodes"`
	Services []EvictedService `json:"services"`
	Servers  []ExposedServer  `json:"servers"`
	// Failed are cells that did not answer.
	Failed []string `json:"failed,omitempty"`
}

// Node is a compute node, whose uuid is that of its provider tree in Placement.
type Node struct {
	UUID string `json:"uuid"`
	Name string `json:"hypervisor_hostname,omitempty"`
}

// EvictedService is a service of an evicted host in a cell.
type EvictedService struct {
	Cell       string `json:"cell"`
	UUID       string `json:"uuid"`
	ForcedDown bool   `json:"forced_down"`
	Disabled   bool   `json:"disabled"`
}

// ExposedServer is a server that is or was on an evicted host, and what the host may have read of
// it.
type ExposedServer struct {
	UUID    string `json:"uuid"`
	Name    string `json:"name"`
	Project string `json:"project_id"`
	Cell    string `json:"cell"`
	// Where is "here", "moved" to another host, or "deleted".
	Where        string   `json:"where"`
	UserData     bool     `json:"user_data"`
	MetadataKeys []string `json:"metadata_keys"`
	KeyPair      string   `json:"key_name,omitempty"`
	Image        string   `json:"image,omitempty"`
}

// EvictOptions say which host is evicted.
type EvictOptions struct {
	// Host is the name of the host, whose case does not count.
	Host string
	// Reason is for people; it may be empty.
	Reason string
	// DespiteClock evicts the host though the clocks of this machine and of a cell differ.
	DespiteClock bool
}

// EvictHost refuses a host from now on, first where it counts: in the API database. Then it shuts
// the host out of its cells, and lists what it may have read. Cells that do not answer are in the
// result; the same command later completes what they missed.
func (d *Deployment) EvictHost(ctx context.Context, o EvictOptions) (*Eviction, error) {
	if !o.DespiteClock {
		if err := d.checkClock(ctx, o.Host); err != nil {
			return nil, err
		}
	}
	known, err := d.Store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	e, eviction, err := d.evictInDatabase(ctx, o)
	if err != nil {
		return nil, err
	}
	denial, _ := e.Denial()
	list, err := pki.NewDenyList([]pki.Denial{denial})
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(list.Text())), "\n")
	eviction.Evicted, eviction.Reason, eviction.DenyList = e.EvictedAt, e.Reason, lines[len(lines)-1]
	if url, err := d.Enrolment.Address(); err == nil {
		eviction.DenyURL = url
	}
	type found struct {
		services []EvictedService
		servers  []ExposedServer
	}
	ask := func(ctx context.Context, c *cellclient.Client) (f found, err error) {
		if f.services, err = disableServices(ctx, c, eviction.Host, e.Reason); err == nil {
			f.servers, err = exposed(ctx, c, eviction.Host)
		}
		return f, err
	}
	for _, a := range gather.All(ctx, d.Gatherer, known, ask) {
		if a.Err != nil {
			eviction.Failed = append(eviction.Failed, fmt.Sprintf("%s: %v", a.Cell.Name, a.Err))
			continue
		}
		for _, s := range a.Value.services {
			s.Cell = a.Cell.Name
			eviction.Services = append(eviction.Services, s)
		}
		for _, s := range a.Value.servers {
			s.Cell = a.Cell.Name
			eviction.Servers = append(eviction.Servers, s)
		}
	}
	return eviction, nil
}

// clockTimeout is how long an eviction waits for the clocks of cells.
const clockTimeout = 3 * time.Second

// checkClock refuses to date an eviction by a clock that is not that of the cells. If it is ahead,
// the host cannot be enrolled again before that time; if it is behind, certificates of the site's
// own CA that were issued since would be accepted. Cells that do not answer do not count.
func (d *Deployment) checkClock(ctx context.Context, host string) error {
	known, err := d.Store.Cells(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	differs := func(ctx context.Context, c *cellclient.Client) (time.Duration, error) {
		before := d.now()
		info, err := c.Cell(ctx)
		return max(info.Now.Sub(d.now()), before.Sub(info.Now)), err
	}
	for _, a := range gather.All(ctx, d.Gatherer, known, differs) {
		if a.Err == nil && a.Value > pki.MaxAhead {
			return refused("host %s was not evicted: the clock of this machine (%s) "+
				"and that of cell %s differ by %s, and one of them is wrong; correct it, or, to refuse the host "+
				"at once, add --despite-clock, and run `compute-agent cells manage allow-host %[1]s` before it is "+
				"invited again", host, d.now().UTC().Format(time.RFC3339), a.Cell.Name, a.Value.Round(time.Second))
		}
	}
	return nil
}

// evictInDatabase evicts a host in the API database, and returns the beginning of the answer: the
// name as it is there, and the nodes.
func (d *Deployment) evictInDatabase(
	ctx context.Context, o EvictOptions,
) (e apidb.Enrolment, eviction *Eviction, err error) {
	nodes, err := d.Store.Nodes(ctx)
	if err != nil {
		return e, nil, err
	}
	hosts, err := HostNames(ctx, d.Store)
	if err != nil {
		return e, nil, err
	}
	eviction = &Eviction{Host: o.Host, Nodes: []Node{}, Services: []EvictedService{}, Servers: []ExposedServer{}}
	if known := KnownName(o.Host, hosts); known != "" {
		eviction.Host = known
	}
	cell := ""
	for _, n := range nodes {
		if n.Host == eviction.Host {
			cell = n.CellUUID
			eviction.Nodes = append(eviction.Nodes, Node{n.UUID, n.Name})
		}
	}
	e, err = enrolment.Evict(ctx, d.Store, eviction.Host, cell, o.Reason, d.now())
	if errors.Is(err, apidb.ErrNotFound) {
		err = fmt.Errorf("%w: it was neither invited nor mapped to a cell%s; "+
			"`compute-agent cells manage list-hosts` lists all", err, Suggestion(eviction.Host, hosts))
	}
	for _, n := range e.Nodes {
		if !slices.ContainsFunc(eviction.Nodes, func(has Node) bool { return has.UUID == n.UUID }) {
			eviction.Nodes = append(eviction.Nodes, Node{n.UUID, n.Name})
		}
	}
	return e, eviction, err
}

// maxServiceReason is how many characters the reason of a disabled service may have, as in Nova.
const maxServiceReason = 255

// disableServices forces the services of a host in a cell down, and disables them.
func disableServices(ctx context.Context, c *cellclient.Client, host, reason string) (out []EvictedService, err error) {
	all, err := c.Services(ctx)
	if err != nil {
		return nil, err
	}
	yes, why := true, strings.TrimSuffix("evicted: "+reason, ": ")
	patch := cellwire.ServicePatch{Disabled: &yes, DisabledReason: &why, ForcedDown: &yes}
	if runes := []rune(why); len(runes) > maxServiceReason {
		why = string(runes[:maxServiceReason])
	}
	for _, s := range all {
		if s.Host != host {
			continue
		}
		s, err = c.PatchService(ctx, s.UUID, patch)
		if err != nil {
			return nil, err
		}
		out = append(out, EvictedService{UUID: s.UUID, ForcedDown: s.ForcedDown, Disabled: s.Disabled})
	}
	return out, nil
}

// exposed returns the servers of a cell that are or were on a host, by project and name.
func exposed(ctx context.Context, c *cellclient.Client, host string) ([]ExposedServer, error) {
	servers := map[string]ExposedServer{}
	add := func(s cellwire.Server) { servers[s.UUID] = exposure(s, host) }
	query := cellwire.ServerQuery{Hosts: []string{host}, Deleted: cellwire.DeletedAny, Limit: pageSize, Sort: byAge}
	if err := c.EachServer(ctx, query, add); err != nil {
		return nil, err
	}
	var moved []string
	if err := eachMigration(ctx, c, host, func(m cellwire.Migration) {
		if _, has := servers[m.ServerUUID]; !has {
			moved = append(moved, m.ServerUUID)
		}
	}); err != nil {
		return nil, err
	}
	slices.Sort(moved)
	for some := range slices.Chunk(slices.Compact(moved), pageSize) {
		query.Hosts, query.UUIDs = nil, some
		if err := c.EachServer(ctx, query, add); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(servers), func(a, b ExposedServer) int {
		return strings.Compare(a.Project+"\x00"+a.Name+"\x00"+a.UUID, b.Project+"\x00"+b.Name+"\x00"+b.UUID)
	}), nil
}

func exposure(s cellwire.Server, host string) ExposedServer {
	where := "here"
	switch {
	case s.Deleted:
		where = "deleted"
	case s.Host != host:
		where = "moved"
	}
	return ExposedServer{
		UUID: s.UUID, Name: s.Name, Project: s.ProjectID, Where: where, UserData: s.UserData != "",
		MetadataKeys: slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(s.Metadata)))),
		KeyPair:      s.KeyName, Image: s.ImageRef,
	}
}

// pageSize is how many servers and migrations are asked for at a time.
const pageSize = 500

// byAge sorts servers, the oldest first.
var byAge = []cellwire.SortKey{{Key: "created_at"}}

// eachMigration calls use for the migrations of a cell from a host or to it.
func eachMigration(ctx context.Context, c *cellclient.Client, host string, use func(cellwire.Migration)) error {
	for q := (cellwire.MigrationQuery{Host: host, Limit: pageSize}); ; {
		page, err := c.Migrations(ctx, q)
		if err != nil {
			return err
		}
		for i, m := range page {
			use(m)
			q.After = &page[i]
		}
		if len(page) < pageSize {
			return nil
		}
	}
}
