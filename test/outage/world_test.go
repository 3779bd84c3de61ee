// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// world is a deployment: Placement, the compute API with its database, cells, and hosts.
type world struct {
	dir       string
	placement *testproc.Process
	// placementAddress is where Placement answers, also after a restart.
	placementAddress string
	apiDatabase      string
	api              *api // the one that runs
	closed           bool
	usual            *api // the one that runs again at the end of a test; nil if it is api
	cells            map[string]*site
	hosts            map[string]*host
	agents           map[string]*agent

	mu        sync.Mutex
	processes []*testproc.Process
	closers   []func()
	names     map[string]string // of servers, by uuid
	proxies   map[string]*proxy // by cell
	notes     map[string]string // what a case remembers from before an outage
}

// site is a cell.
type site struct {
	name    string
	dir     string // of its state
	config  string
	url     string // where its process listens
	process *testproc.Process
}

// plan says what a world is made of. The zero plan is cell0, cell1 and cell2, with a host in each
// of the latter two: c1h1 and c2h1.
type plan struct {
	// cells are the names of the cells with hosts.
	cells []string
	// api are keys of the sections of the compute API's configuration, as "compute_api.max_limit =
	// 5".
	api []string
	// cell are keys of [cell].
	cell []string
	// memory of the hosts, in MiB, by host; others have 64 GiB. Servers go to the host with most
	// memory first.
	memory map[string]int64
	// noHosts leaves the cells without hosts, bare some of them.
	noHosts bool
	bare    []string
	// tls has cells listen on ports, for https.
	tls bool
}

// The time that cells have in worlds in which none hangs: it ends no request.
const unhurried = `compute_api.cell_timeout = "20s"`

// newWorld starts a deployment. Close it.
func newWorld(t *testing.T, p plan) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "o") // short: it holds sockets
	check(t, err)
	w := &world{dir: dir, apiDatabase: filepath.Join(dir, "compute_api.db"), cells: map[string]*site{}, hosts: map[string]*host{}, agents: map[string]*agent{}, names: map[string]string{}, notes: map[string]string{}, proxies: map[string]*proxy{}}
	built := false
	defer func() {
		if !built {
			w.close(t, true)
		}
	}()
	if p.cells == nil {
		p.cells = []string{"cell1", "cell2"}
	}
	w.placementAddress = testproc.FreeAddress(t)
	w.startPlacement(t)
	for _, name := range append([]string{"cell0"}, p.cells...) {
		s := &site{name: name, dir: filepath.Join(dir, name), config: filepath.Join(dir, name+".toml"), url: "unix://" + filepath.Join(dir, name+".sock")}
		listen := s.url
		if p.tls {
			listen = testproc.FreeAddress(t)
			s.url = "https://" + listen
		}
		w.cells[name] = s
		w.write(t, s.config, append([]string{
			"cell.listen = " + quoted(listen), fmt.Sprintf("cell.report_interval = %q", agentReports), `cell.service_down_time = "60s"`,
			"agent.state_dir = " + quoted(s.dir), "agent.runtime_dir = " + quoted(filepath.Join(dir, name+".run")),
		}, p.cell...))
		s.process = w.start(t, name, "cells", "serve", "--name", name, "--config", s.config)
	}
	w.placement.Await(t, 0, "Serving the Placement API.")
	for _, s := range w.cells {
		s.process.Await(t, 0, "The cell is serving")
	}
	first := w.configureAPI(t, "api", p.api)
	must(t, "cells", "manage", "create", "--cell0", "--url", w.cells["cell0"].url, "--config", first)
	for _, name := range p.cells {
		must(t, "cells", "manage", "create", "--name", name, "--url", w.cells[name].url, "--config", first)
	}
	w.api = w.serveAPI(t, "api", first)
	if !p.noHosts {
		for _, name := range p.cells {
			if slices.Contains(p.bare, name) {
				continue
			}
			host := strings.Replace(name, "cell", "c", 1) + "h1"
			memory := p.memory[host]
			if memory == 0 {
				memory = 64 << 10
			}
			w.addHost(t, name, host, memory)
		}
		w.discover(t)
	}
	for _, f := range flavors {
		w.api.ask(t, admin, "2.55", "POST", "/flavors", map[string]any{"flavor": f}).status(t, 200)
	}
	built = true
	return w
}

// flavors are those of every world.
var flavors = []map[string]any{
	{"id": "1", "name": "m1.tiny", "vcpus": 1, "ram": 512, "disk": 1},
	{"id": "huge", "name": "m1.huge", "vcpus": 4096, "ram": 512, "disk": 1},
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// write writes a configuration of keys with their sections.
func (w *world) write(t *testing.T, path string, keys []string) {
	t.Helper()
	var out strings.Builder
	out.WriteString("[log]\nformat = \"json\"\n")
	bySection := map[string][]string{}
	var sections []string
	for _, key := range keys {
		section, rest, _ := strings.Cut(key, ".")
		name, _, _ := strings.Cut(rest, " ")
		// A key that comes again goes before the first.
		bySection[section] = slices.DeleteFunc(bySection[section], func(other string) bool { return strings.HasPrefix(other, name+" ") })
		if !slices.Contains(sections, section) {
			sections = append(sections, section)
		}
		bySection[section] = append(bySection[section], rest)
	}
	for _, section := range sections {
		fmt.Fprintf(&out, "[%s]\n%s\n", section, strings.Join(bySection[section], "\n"))
	}
	check(t, os.WriteFile(path, []byte(out.String()), 0o600))
}

// start starts a process that ends with the world.
func (w *world) start(t *testing.T, name string, args ...string) *testproc.Process {
	t.Helper()
	p := start(t, name, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes = append(w.processes, p)
	return p
}

// after has something done when the world ends.
func (w *world) after(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closers = append(w.closers, do)
}

// close ends all processes, and shows what they said if a test failed.
func (w *world) close(t *testing.T, failed bool) {
	t.Helper()
	w.closed = true
	for _, h := range w.hosts {
		h.vanish()
	}
	for _, do := range slices.Backward(w.closers) {
		do()
	}
	for _, p := range slices.Backward(w.processes) {
		p.Kill()
	}
	if failed {
		for _, p := range w.processes {
			p.Show(t, `"level":"info"`, "API request")
		}
	}
	if err := os.RemoveAll(w.dir); err != nil {
		t.Error(err)
	}
}

// startPlacement starts Placement, or starts it again at the same address with the same database.
func (w *world) startPlacement(t *testing.T) {
	t.Helper()
	w.placement = w.start(t, "placement", "placement", "serve", "--listen", w.placementAddress, "--state-dir", filepath.Join(w.dir, "placement"),
		"--runtime-dir", filepath.Join(w.dir, "placement.run"))
}

// down kills a cell, unless it is killed already.
func (w *world) down(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		w.cells[name].process.Kill()
	}
}

// up has all cells run again, and their hosts be seen.
func (w *world) up(t *testing.T) {
	t.Helper()
	for name, s := range w.cells {
		select {
		case <-s.process.Done():
			w.revive(t, name)
		default:
		}
	}
	eventually(t, "all hosts are up", func() error {
		for _, s := range w.api.get(t, admin, "2.69", "/os-services").services(t) {
			if s["state"] != "up" {
				return fmt.Errorf("%v is %v (%v)", s["host"], s["state"], s["status"])
			}
		}
		return nil
	})
}

// revive starts a cell again.
func (w *world) revive(t *testing.T, name string) {
	t.Helper()
	s := w.cells[name]
	s.process = w.start(t, name, "cells", "serve", "--name", name, "--config", s.config)
	s.process.Await(t, 0, "The cell is serving")
}

// configureAPI writes a configuration of the compute API.
func (w *world) configureAPI(t *testing.T, name string, keys []string) string {
	t.Helper()
	file := filepath.Join(w.dir, name+".toml")
	w.write(t, file, append([]string{
		"compute_api.listen = " + quoted(testproc.FreeAddress(t)), "compute_api.database = " + quoted("sqlite://"+w.database()), unhurried,
		`compute_api.cell_ping_interval = "0s"`, `compute_api.discover_hosts_interval = "0s"`,
		"quota.instances = -1", "quota.cores = -1", "quota.ram = -1",
		"placement_client.url = " + quoted("http://"+w.placementAddress),
		"agent.state_dir = " + quoted(filepath.Join(w.dir, name)), "agent.runtime_dir = " + quoted(filepath.Join(w.dir, name+".run")),
	}, keys...))
	return file
}

// serveAPI serves the compute API by a configuration.
func (w *world) serveAPI(t *testing.T, name, config string) *api {
	t.Helper()
	p := w.start(t, name, "cells", "api", "--config", config)
	line := p.Await(t, 0, "The compute API is serving.")
	return &api{world: w, process: p, config: config, url: "http://" + field(t, line, "address")}
}

// another serves the compute API by another configuration until the end of the test. It is the same
// API database, which has one process, so that it takes the place of the one that served until now;
// world.api is that one from now on.
func (w *world) another(t *testing.T, name string, keys ...string) *api {
	t.Helper()
	select {
	case <-w.api.process.Done():
	default:
		w.api.process.Stop(t)
	}
	if w.usual == nil {
		w.usual = w.api
		t.Cleanup(func() { w.back(t) })
	}
	w.api = w.serveAPI(t, name, w.configureAPI(t, name, keys))
	return w.api
}

// back serves by the usual configuration again, if another is served by and the world is not
// closed.
func (w *world) back(t *testing.T) {
	t.Helper()
	if w.usual != nil && !w.closed {
		w.api.process.Kill()
		w.api, w.usual = w.usual, nil
		w.api.restart(t)
	}
}

// restart starts the process again by the same configuration.
func (a *api) restart(t *testing.T) {
	t.Helper()
	a.process = a.world.start(t, "api", "cells", "api", "--config", a.config)
	a.process.Await(t, 0, "The compute API is serving.")
}

// database is the file of the API database, cellDatabase that of a cell.
func (w *world) database() string { return w.apiDatabase }

func (w *world) cellDatabase(name string) string { return filepath.Join(w.cells[name].dir, "cell.db") }

// manage runs `cells manage` on the API database.
func (w *world) manage(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return command(t, slices.Concat([]string{"cells", "manage"}, args, []string{"--config", w.api.config})...)
}

// discover maps the hosts that registered.
func (w *world) discover(t *testing.T) {
	t.Helper()
	if out, code := w.manage(t, "discover-hosts"); code != 0 {
		t.Fatalf("discover-hosts ended with %d:\n%s", code, out)
	}
}
