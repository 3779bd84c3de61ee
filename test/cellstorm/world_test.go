// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// deployment is Placement, compute APIs, cells and hosts.
type deployment struct {
	dir              string
	database         string // the DSN of the API database
	servers          *servers
	placement        *process
	placementAddress string
	apis             []*api
	cells            []*cell // cell0 first
	hosts            []*host
	processes        []*process
}

// cell is one, and the client by which it is looked at.
type cell struct {
	*process  // the first
	processes []*process
	uuid      string
	url       string
	client    *cellclient.Client
}

// plan says what a world is made of.
type plan struct {
	kinds []kind // of the hosts: that of cell1, of cell2, …
	pair  bool   // the last cell has a second host of its kind
	apis  int    // processes of the compute API
	// servers have the API database and those of some cells; nil: each is a file, for one process.
	servers *servers
	// reclaim is how long a deleted server can be restored; 0: it cannot.
	reclaim time.Duration
	// downTime is after which silence a host is down.
	downTime time.Duration
	// unhurried: no cell hangs, so they have so much time that none that is well is down.
	unhurried bool
}

// The times that cells and Placement have to answer. What is stopped for longer is down.
const (
	cellTimeout      = 2 * time.Second
	placementTimeout = 5 * time.Second
)

// newWorld starts a deployment that ends with the test, with the flavors of flavors.
func newWorld(t *testing.T, p plan) *deployment {
	t.Helper()
	check(t, binaries.Build())
	dir, err := os.MkdirTemp("", "w") // short: it holds sockets
	check(t, err)
	w := &deployment{dir: dir, servers: p.servers, placementAddress: testproc.FreeAddress(t)}
	w.database = "sqlite://" + w.path("compute_api.db")
	if w.servers != nil && !w.servers.apiInFile {
		w.database = w.servers.database(t, "api")
	}
	t.Cleanup(func() { w.close(t) })
	w.placement = w.run(t, "placement", "", "placement", "serve", "--listen", w.placementAddress, "--state-dir", w.path("placement"), "--runtime-dir", w.path("placement.run"))
	for i := range len(p.kinds) + 1 {
		w.addCell(t, fmt.Sprintf("cell%d", i), p)
	}
	w.placement.await(t, "Serving the Placement API.")
	for i := range p.apis {
		w.addAPI(t, fmt.Sprintf("api%d", i), p)
	}
	check(t, w.read(t.Context(), func(db apidb.Store) error {
		known, err := db.Cells(t.Context())
		for i, c := range known {
			w.cells[i].uuid = c.UUID
		}
		return err
	}))
	for i, kind := range p.kinds {
		w.addHost(t, fmt.Sprintf("h%d", i+1), w.cells[i+1], kind)
	}
	if n := len(p.kinds); p.pair {
		w.addHost(t, fmt.Sprintf("h%d", n+1), w.cells[n], p.kinds[n-1])
	}
	for _, f := range flavors {
		w.apis[0].must(t, admin, "POST", "/flavors", record{"flavor": f.body()}, 200, nil)
		if len(f.specs) > 0 {
			w.apis[0].must(t, admin, "POST", "/flavors/"+f.id+"/os-extra_specs", record{"extra_specs": f.specs}, 200, nil)
		}
	}
	w.mapped(t)
	return w
}

func (w *deployment) path(name string) string { return filepath.Join(w.dir, name) }

// run starts a process that ends with the world. serves is what it logs when it serves, if its
// database is on servers.
func (w *deployment) run(t *testing.T, name, serves string, args ...string) *process {
	t.Helper()
	p := &process{name: name, args: args, log: w.path(name + ".log")}
	if w.servers != nil {
		p.serves = serves
	}
	check(t, p.start())
	w.processes = append(w.processes, p)
	return p
}

// configure writes a configuration and returns where.
func (w *deployment) configure(t *testing.T, name string, text string) string {
	t.Helper()
	file := w.path(name + ".toml")
	own := fmt.Sprintf("[log]\nformat = \"json\"\nlevel = \"debug\"\n[agent]\nhost = %q\nstate_dir = %q\nruntime_dir = %q\n", name, w.path(name), w.path(name+".run"))
	check(t, os.WriteFile(file, []byte(own+text), 0o600))
	return file
}

// addCell starts a cell: one process with a file, or on database servers as many as these say.
func (w *deployment) addCell(t *testing.T, name string, p plan) {
	t.Helper()
	processes, database := 1, ""
	if w.servers != nil && w.servers.processes(name) > 0 {
		processes = w.servers.processes(name)
		database = fmt.Sprintf("database = %q\n", w.reached(t, w.servers.database(t, name)))
	}
	var urls []string
	c := &cell{}
	for i := range processes {
		named := name
		if i > 0 {
			named = fmt.Sprintf("%s-%d", name, i+1)
		}
		urls = append(urls, "unix://"+w.path(named+".sock"))
		config := w.configure(t, named, fmt.Sprintf("[cell]\nlisten = %q\n%sreport_interval = \"1s\"\nservice_down_time = %q\n", urls[i], database, p.downTime))
		one := w.run(t, named, cellServes, "cells", "serve", "--name", name, "--config", config)
		c.processes = append(c.processes, one)
	}
	c.process, c.url = c.processes[0], strings.Join(urls, ",")
	var err error
	c.client, err = cellclient.New(cellclient.Config{URL: c.url})
	check(t, err)
	w.cells = append(w.cells, c)
}

// What processes log when they serve.
const (
	cellServes = "The cell is serving."
	apiServes  = "The compute API is serving."
)

// reached is the DSN of a database for the configuration of a process: its password is in a file,
// and the way goes through what the test disturbs.
func (w *deployment) reached(t *testing.T, dsn string) string {
	t.Helper()
	if w.servers == nil || strings.HasPrefix(dsn, "sqlite://") {
		return dsn
	}
	return dbservers.WithPasswordFile(t, w.servers.through(t, dsn))
}

func (w *deployment) addAPI(t *testing.T, name string, p plan) {
	t.Helper()
	timeout, down, reclaim := cellTimeout, 1500*time.Millisecond, ""
	if p.unhurried {
		timeout, down = 20*time.Second, 10*time.Second
	}
	if p.reclaim > 0 {
		reclaim = fmt.Sprintf("reclaim_instance_interval = %q\n", p.reclaim)
	}
	a := &api{address: testproc.FreeAddress(t)}
	config := w.configure(t, name, fmt.Sprintf(`[compute_api]
listen = %q
database = %q
cell_timeout = %q
cell_ping_interval = "500ms"
cell_down_time = %q
discover_hosts_interval = "1s"
%s[quota]
instances = -1
cores = -1
ram = -1
[placement_client]
url = %q
timeout = %q
connect_timeout = "1s"
`, a.address, w.reached(t, w.database), timeout, down, reclaim, "http://"+w.placementAddress, placementTimeout))
	if len(w.apis) == 0 {
		for i, c := range w.cells {
			for _, one := range c.processes {
				one.await(t, cellServes)
			}
			named := []string{"--name", c.name}
			if i == 0 {
				named = []string{"--cell0"}
			}
			command(t, slices.Concat([]string{"cells", "manage", "create", "--url", c.url, "--config", config}, named)...)
		}
	}
	a.process = w.run(t, name, apiServes, "cells", "api", "--config", config)
	a.await(t, apiServes)
	w.apis = append(w.apis, a)
}

// read reads the API database: of a file, which the compute API has to itself, a copy; it is copied
// here while that does not run.
func (w *deployment) read(ctx context.Context, do func(apidb.Store) error) (err error) {
	if !strings.HasPrefix(w.database, "sqlite://") {
		db, err := apidb.Open(ctx, w.database, apidb.Options{})
		if err != nil {
			return err
		}
		return errors.Join(do(db), db.Close())
	}
	dir, err := os.MkdirTemp(w.dir, "copy")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, file := w.path("compute_api.db"), filepath.Join(dir, "compute_api.db")
	for {
		if err = sqldb.BackUpFile(ctx, path, file); !errors.Is(err, sqldb.ErrLocked) {
			break
		}
		if socket := sqldb.HolderOf(path).Socket; socket != "" {
			err = sqldb.FetchBackup(ctx, socket, file)
			break
		}
		select { // the compute API serves already, and its admin socket not yet
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err != nil {
		return err
	}
	db, err := apidb.Open(ctx, file, apidb.Options{})
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

// mapped waits until servers can go to all hosts.
func (w *deployment) mapped(t *testing.T) {
	t.Helper()
	for _, h := range w.hosts {
		h.await(t, "Registered this host with the cell.")
	}
	testproc.Eventually(t, patience, "all hosts are mapped, and have an inventory", func() error {
		var nodes []apidb.Node
		err := w.read(t.Context(), func(db apidb.Store) (err error) {
			nodes, err = db.Nodes(t.Context())
			return err
		})
		if err != nil || len(nodes) < len(w.hosts) {
			return fmt.Errorf("%d of %d nodes are mapped: %w", len(nodes), len(w.hosts), err)
		}
		for _, n := range nodes {
			var body struct{ Inventories map[string]any }
			if err := w.askPlacement(t.Context(), "/resource_providers/"+n.UUID+"/inventories", &body); err != nil || len(body.Inventories) == 0 {
				return fmt.Errorf("node %s has no inventory: %w", n.Name, err)
			}
			for _, h := range w.hosts {
				if h.name == n.Host {
					h.node = n.UUID
				}
			}
		}
		return nil
	})
}

// close ends everything. What went wrong with any process is an error; if the test failed, what the
// logs say is shown.
func (w *deployment) close(t *testing.T) {
	t.Helper()
	for _, p := range slices.Backward(w.processes) {
		p.kill()
		for _, trouble := range p.troubles() {
			t.Error(trouble)
		}
	}
	for _, h := range w.hosts {
		if h.sim != nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			testproc.NoError(t, h.sim.Close(ctx))
			cancel()
		}
	}
	if t.Failed() {
		for _, p := range w.processes {
			text, _ := os.ReadFile(p.log)
			t.Logf("the end of the log of %s:\n%s", p.name, tail(text, *shownLog))
		}
	}
	if t.Failed() && *keepFiles {
		t.Logf("all files are in %s", w.dir)
		return
	}
	check(t, os.RemoveAll(w.dir))
}

// tail is the end of a log, without its debug lines.
func tail(text []byte, most int) string {
	var kept [][]byte
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"level":"debug"`)) {
			kept = append(kept, line)
		}
	}
	return string(bytes.Join(kept[max(0, len(kept)-most):], nil))
}

// logged are the lines of all logs about a server, in the order of time.
func (w *deployment) logged(uuid string) string {
	var lines []string
	for _, p := range w.processes {
		text, _ := os.ReadFile(p.log)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, uuid) {
				_, at, _ := strings.Cut(line, `"time":"`)
				lines = append(lines, fmt.Sprintf("%.35s %s: %s", at, p.name, line))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
