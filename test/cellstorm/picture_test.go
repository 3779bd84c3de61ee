// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// picture is what each process that knows servers says about them.
type picture struct {
	w *deployment
	// builds and claims are those of the API database, mappings all with a cell.
	builds   []apidb.BuildRequest
	claims   []apidb.Claim
	mappings map[string]apidb.Mapping
	// moves are open migrations of servers, by the server's uuid.
	moves map[string][]cellwire.Migration
	// rows are those of the cells, by the cell's uuid, deleted ones among them; unfinished is what
	// they wait for.
	rows       map[string]map[string]cellwire.Server
	unfinished []string
	// held is what consumers hold, by their uuid and the root provider's.
	held map[string]map[string]map[string]int64
	// guests are by the server's uuid.
	guests map[string][]guest
}

// look makes a picture. An error names the process that did not answer.
func (d *deployment) look(ctx context.Context) (*picture, error) {
	p := &picture{
		w: d, mappings: map[string]apidb.Mapping{}, rows: map[string]map[string]cellwire.Server{},
		held: map[string]map[string]map[string]int64{}, guests: map[string][]guest{},
		moves: map[string][]cellwire.Migration{},
	}
	var err error
	var list []apidb.Mapping
	if err = d.read(ctx, func(db apidb.Store) (err error) {
		if p.builds, err = db.BuildRequests(ctx, "", 0); err != nil {
			return err
		}
		if p.claims, err = db.Claims(ctx, time.Now().Add(time.Hour)); err != nil {
			return err
		}
		list, err = db.Mappings(ctx, apidb.MappingFilter{})
		return err
	}); err != nil {
		return nil, err
	}
	for _, m := range list {
		p.mappings[m.InstanceUUID] = m
	}
	for _, c := range d.cells {
		if p.rows[c.uuid], err = c.all(ctx); err != nil {
			return nil, err
		}
		for uuid, s := range p.rows[c.uuid] {
			if s.Deleted {
				continue
			}
			open, err := c.client.MigrationsOf(ctx, uuid)
			if err != nil {
				return nil, err
			}
			p.moves[uuid] = append(p.moves[uuid], open...)
		}
		u, err := c.client.Unfinished(ctx, 0, time.Millisecond)
		if err != nil {
			return nil, err
		}
		for what, servers := range map[string][]cellwire.UnfinishedServer{
			"hidden": u.Hidden, "unfreed": u.Unfreed, "reclaimable": u.Reclaimable,
		} {
			for _, s := range servers {
				p.unfinished = append(p.unfinished, fmt.Sprintf("%s is %s in %s", s.UUID, what, c.name))
			}
		}
	}
	if err := p.readPlacement(); err != nil {
		return nil, err
	}
	emulators := d.emulators()
	for _, h := range d.hosts {
		traces, err := h.traces()
		if err != nil {
			return nil, err
		}
		for uuid, g := range traces {
			for _, e := range emulators[uuid] {
				g.runs = g.runs || e.host == h.Host
			}
			p.guests[uuid] = append(p.guests[uuid], g)
		}
	}
	for uuid, running := range emulators {
		if len(p.guests[uuid]) == 0 {
			p.guests[uuid] = running
		}
	}
	return p, nil
}

// all are all rows of a cell.
func (c *cell) all(ctx context.Context) (map[string]cellwire.Server, error) {
	out := map[string]cellwire.Server{}
	var after cellwire.Key
	for {
		page, err := c.client.Servers(ctx,
			cellwire.ServerQuery{Deleted: cellwire.DeletedAny, After: after, Limit: 1000})
		if err != nil {
			return nil, err
		}
		for _, row := range page.Rows {
			out[row.Server.UUID] = row.Server
			after = row.Key
		}
		if !page.More {
			return out, nil
		}
	}
}

func (p *picture) readPlacement() error {
	var all struct {
		ResourceProviders []struct {
			UUID string
			Root string `json:"root_provider_uuid"`
		} `json:"resource_providers"`
	}
	if err := p.w.ReadPlacement("/resource_providers", &all); err != nil {
		return err
	}
	for _, provider := range all.ResourceProviders {
		var body struct {
			Allocations map[string]struct{ Resources map[string]int64 }
		}
		if err := p.w.ReadPlacement("/resource_providers/"+provider.UUID+"/allocations", &body); err != nil {
			return err
		}
		for consumer, a := range body.Allocations {
			if p.held[consumer] == nil {
				p.held[consumer] = map[string]map[string]int64{}
			}
			if p.held[consumer][provider.Root] == nil {
				p.held[consumer][provider.Root] = map[string]int64{}
			}
			for class, amount := range a.Resources {
				p.held[consumer][provider.Root][class] += amount
			}
		}
	}
	return nil
}

// differences says what does not go together: the mappings that are not queued for delete, the
// living rows, the guests and the allocations must be the same servers, in the same cells and on
// the same hosts, a guest runs unless its server is stopped, and nothing is in progress.
func (p *picture) differences() []string {
	var out []string
	differ := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, b := range p.builds {
		differ("%s has a build request", b.UUID)
	}
	for _, c := range p.claims {
		differ("%s has a claim of %v", c.InstanceUUID, c.CreatedAt)
	}
	out = append(out, p.unfinished...)
	for uuid, open := range p.moves {
		for _, m := range open {
			differ("%s has an open migration: %+v", uuid, m)
		}
	}
	hosted := map[string]bool{}
	for _, c := range p.w.cells {
		for uuid, s := range p.rows[c.uuid] {
			m, mapped := p.mappings[uuid]
			switch {
			case s.Deleted:
				if mapped && m.CellUUID == c.uuid && !m.Queued() {
					differ("%s is deleted in %s, and its mapping is not queued for delete", uuid, c.name)
				}
				continue
			case !mapped || m.CellUUID != c.uuid:
				differ("%s lives in %s, and its mapping is %+v", uuid, c.name, m)
			case m.Queued():
				differ("%s lives in %s (%s, %q), and its mapping is queued for delete",
					uuid, c.name, s.VMState, s.TaskState)
			}
			switch {
			case s.TaskState != "":
				differ("%s is %s, %q in %s", uuid, s.VMState, s.TaskState, c.name)
			case c.uuid != apidb.Cell0UUID && (s.VMState == cellwire.VMActive && s.PowerState == plugins.PowerRunning ||
				s.VMState == cellwire.VMStopped && s.PowerState == plugins.PowerShutdown):
				hosted[uuid] = true
				p.compareHosted(differ, s, c)
			case s.VMState == cellwire.VMError && s.LaunchedAt != nil: // it could not be evacuated
				hosted[uuid] = true
				p.compareHosted(differ, s, c)
			case s.VMState == cellwire.VMError:
			default:
				differ("%s is %s with power state %d in %s", uuid, s.VMState, s.PowerState, c.name)
			}
		}
	}
	for uuid, m := range p.mappings {
		if _, there := p.rows[m.CellUUID][uuid]; !there {
			differ("%s is mapped to cell %s, which does not know it", uuid, m.CellUUID)
		}
	}
	for uuid, guests := range p.guests {
		if !hosted[uuid] {
			differ("%s is on no host, and there are guests of it: %+v", uuid, guests)
		}
	}
	for uuid, held := range p.held {
		if !hosted[uuid] {
			differ("%s is on no host, and it holds %v", uuid, held)
		}
	}
	slices.Sort(out)
	return out
}

// compareHosted compares a server that is active, stopped, or in error after an evacuation, with
// its guest and with what it holds.
func (p *picture) compareHosted(differ func(string, ...any), s cellwire.Server, c *cell) {
	i := slices.IndexFunc(p.w.hosts, func(h *host) bool { return h.Host == s.Host })
	if i < 0 || p.w.hosts[i].cell != c {
		differ("%s is %s in %s on the host %q, which is not one of its hosts", s.UUID, s.VMState, c.name, s.Host)
		return
	}
	h := p.w.hosts[i]
	active, failed := s.VMState == cellwire.VMActive, s.VMState == cellwire.VMError
	if g := p.guests[s.UUID]; len(g) != 1 || g[0].host != h.Host || !failed && g[0].runs != active {
		differ("%s is %s on %s, and its guests are %+v", s.UUID, s.VMState, h.Host, g)
	}
	want := map[string]int64{"MEMORY_MB": memoryMB, "DISK_GB": 1}
	for _, f := range flavors {
		if f.id == s.Flavor.ID {
			maps.Copy(want, f.holds)
		}
	}
	if held := p.held[s.UUID]; len(held) != 1 || !maps.Equal(held[h.Node], want) {
		differ("%s is %s on %s (%s), and holds %v instead of %v", s.UUID, s.VMState, h.Host, h.Node, held, want)
	}
}

// settled waits until all agree and nothing is under way. If they never do, what differs is an
// error, with what the logs say of it.
func (d *deployment) settled() *picture {
	d.T.Helper()
	var p *picture
	deadline := time.Now().Add(settleTime)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for quiet := 0; quiet < 2; <-tick.C { // twice: what is on its way between two of them is in neither
		var err error
		var differences []string
		ctx, cancel := context.WithTimeout(d.T.Context(), 20*time.Second)
		if p, err = d.look(ctx); err == nil {
			differences = p.differences()
		}
		cancel()
		if quiet++; err != nil || len(differences) > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			testproc.Checkf(d.T, err, "not all could be asked within %v", settleTime)
			d.tell(differences)
			d.T.FailNow()
		}
	}
	for _, h := range d.hosts {
		if h.sim == nil {
			continue
		}
		for uuid, runs := range h.domains(d.T) {
			if g := p.guests[uuid]; len(g) != 1 || g[0].host != h.Host || g[0].runs != runs {
				d.T.Errorf("%s has a domain of %s (running: %v), and beside it %+v", h.Host, uuid, runs, g)
			}
		}
	}
	return p
}

// tell has it be errors what is wrong, with what the logs say of the first servers.
func (d *deployment) tell(wrong []string) {
	d.T.Helper()
	told := map[string]bool{}
	for _, text := range wrong {
		d.T.Error(text)
		about := text[:min(36, len(text))]
		if uuid.Validate(about) == nil && !told[about] && len(told) < 5 {
			told[about] = true
			d.T.Logf("of %s the logs say:\n%s", about, d.logged(about))
		}
	}
}

// nothingLeft waits until there is nothing of any server on any host, and in Placement.
func (d *deployment) nothingLeft() {
	d.T.Helper()
	p := d.settled()
	for uuid, m := range p.mappings {
		if !m.Queued() {
			d.T.Errorf("%s is not queued for delete", uuid)
		}
	}
	if len(p.held) > 0 || len(p.guests) > 0 {
		d.T.Errorf("left are allocations %v and guests %v", p.held, p.guests)
	}
	for _, project := range []string{"one", "two", world.Admin.Project} {
		if i, c, r := d.used(project); i != 0 || c != 0 || r != 0 {
			d.T.Errorf("%s still uses %d instances, %d cores, %d MiB", project, i, c, r)
		}
	}
	for _, h := range d.hosts {
		if h.sim == nil {
			continue
		}
		if left := h.domains(d.T); len(left) > 0 {
			d.T.Errorf("domains are left on %s: %v", h.Host, left)
		}
	}
}
