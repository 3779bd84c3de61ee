// SPDX-License-Identifier: Apache-2.0

// Package world runs a deployment as an operator does, for tests: Placement, the compute API and
// cells, each a process with files and sockets of its own, and hosts, which are agents or played by
// the test. It asks them as clients do, and ends with the test.
//
//	compute API ─┬─ cell0
//	             ├─ cell1 ── c1h1   a Host, which this process plays, or an Agent
//	Placement    └─ cell2 ── c2h1
package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/test/openapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Plan says what a world is made of.
type Plan struct {
	// Binaries have compute-agent, and the drivers of agents.
	Binaries *testproc.Binaries
	// Cells are the names of the cells beside cell0; none: cell1 and cell2.
	Cells []string
	// Keys of the configurations of cells, and of the compute API, as `compute_api.max_limit = 5`.
	// A later key replaces an earlier one of the same name.
	Cell, API []string
	// Env is more of an environment, for all processes.
	Env []string
	// TLS has cells listen on ports, for https.
	TLS bool
	// Databases are the DSNs of what has its database on a server: cells by name, and "api". Others
	// have files.
	Databases map[string]string
	// Processes is how many a cell has, which share its database; without a number it is one.
	Processes map[string]int
	// Tail is how many lines of each log a failure shows, and none of level debug; 0: all.
	Tail int
}

// World is a deployment.
type World struct {
	T            *testing.T
	Dir          string
	Placement    *testproc.Process
	PlacementURL string
	API          *testproc.Process
	APIConfig    string // the file
	APIURL       string
	Cells        map[string]*Cell
	Hosts        map[string]*Host
	Names        map[string]string // of servers, by uuid

	plan      Plan
	processes []*testproc.Process
}

// Cell is a cell.
type Cell struct {
	*testproc.Process // the first, if it has several
	Name, URL         string
}

// Image is what servers boot from.
const Image = "70a599e0-31e7-49b7-b260-868f441e862b"

// New starts a deployment without hosts, which has the flavor "1".
func New(t *testing.T, p Plan) *World {
	t.Helper()
	w := &World{T: t, Dir: testproc.SocketDir(t), Cells: map[string]*Cell{}, Hosts: map[string]*Host{},
		Names: map[string]string{}, plan: p}
	testproc.Check(t, p.Binaries.Build())
	t.Cleanup(w.close)
	if p.Cells == nil {
		p.Cells = []string{"cell1", "cell2"}
	}
	w.PlacementURL = "http://" + testproc.FreeAddress(t)
	w.Placement = w.Start("placement", "placement", "serve", "--config", w.configure("placement"),
		"--listen", strings.TrimPrefix(w.PlacementURL, "http://"))
	for _, name := range append([]string{"cell0"}, p.Cells...) {
		w.addCell(name)
	}
	w.Placement.Await(t, 0, placementServes)
	for _, p := range w.processes[1:] {
		p.Await(t, 0, cellServes)
	}
	w.APIURL = "http://" + testproc.FreeAddress(t)
	w.ConfigureAPI()
	w.Manage("create", "--cell0", "--url", w.Cells["cell0"].URL)
	for _, name := range p.Cells {
		w.Manage("create", "--name", name, "--url", w.Cells[name].URL)
	}
	w.API = w.serveAPI("api", w.APIConfig)
	w.AddFlavor("1", "m1.tiny", 1)
	return w
}

// addCell starts the processes of a cell.
func (w *World) addCell(name string) {
	w.T.Helper()
	c := &Cell{Name: name}
	w.Cells[name] = c
	for i := range max(1, w.plan.Processes[name]) {
		process, separator := name, ""
		if i > 0 {
			process, separator = fmt.Sprintf("%s-%d", name, i+1), ","
		}
		listen := "unix://" + w.Path(process+".sock")
		url := listen
		if w.plan.TLS {
			listen = testproc.FreeAddress(w.T)
			url = "https://" + listen
		}
		c.URL += separator + url
		keys := []string{
			fmt.Sprintf("cell.listen = %q", listen), `cell.report_interval = "1s"`, `cell.service_down_time = "60s"`,
		}
		if dsn := w.plan.Databases[name]; dsn != "" {
			keys = append(keys, fmt.Sprintf("cell.database = %q", dsn))
		}
		config := w.configure(process, append(keys, w.plan.Cell...)...)
		p := w.Start(process, "cells", "serve", "--name", name, "--config", config)
		if c.Process == nil {
			c.Process = p
		}
	}
}

// What processes log when they serve.
const (
	placementServes = "Serving the Placement API."
	cellServes      = "The cell is serving."
	apiServes       = "The compute API is serving."
)

// Path is a file of the world.
func (w *World) Path(name string) string { return filepath.Join(w.Dir, name) }

// Configure writes a configuration of keys such as `cell.listen = ":1"`. A later key replaces an
// earlier one of the same name.
func Configure(t testing.TB, file string, keys ...string) {
	t.Helper()
	values := map[string]map[string]string{} // by section
	for _, key := range keys {
		name, value, _ := strings.Cut(key, " = ")
		at := strings.LastIndexByte(name, '.')
		section := name[:at]
		if values[section] == nil {
			values[section] = map[string]string{}
		}
		values[section][name[at+1:]] = value
	}
	var out strings.Builder
	for section, keys := range values {
		fmt.Fprintf(&out, "[%s]\n", section)
		for name, value := range keys {
			fmt.Fprintf(&out, "%s = %s\n", name, value)
		}
	}
	testproc.Check(t, os.WriteFile(file, []byte(out.String()), 0o600))
}

// configure writes the configuration of a process of the world and returns its file.
func (w *World) configure(name string, keys ...string) string {
	w.T.Helper()
	file := w.Path(name + ".toml")
	Configure(w.T, file, slices.Concat([]string{
		`log.format = "json"`, fmt.Sprintf("agent.host = %q", name), fmt.Sprintf("agent.state_dir = %q", w.Path(name)),
		fmt.Sprintf("agent.runtime_dir = %q", w.Path(name+".run")),
	}, keys)...)
	return file
}

// Start starts a process that ends with the world.
func (w *World) Start(name string, args ...string) *testproc.Process {
	w.T.Helper()
	cmd := w.plan.Binaries.Command("compute-agent", args...)
	cmd.Env = append(cmd.Env, w.plan.Env...)
	p := testproc.Start(w.T, name, cmd)
	w.processes = append(w.processes, p)
	return p
}

// Processes are all that were started, oldest first.
func (w *World) Processes() []*testproc.Process { return slices.Clone(w.processes) }

// close ends all processes, and shows what they said if the test failed.
func (w *World) close() {
	for _, p := range slices.Backward(w.processes) {
		p.Kill()
	}
	if w.T.Failed() {
		for _, p := range w.processes {
			if w.plan.Tail == 0 {
				p.Show(w.T, `"level":"info"`, "API request")
				continue
			}
			lines := slices.DeleteFunc(p.Lines(),
				func(line string) bool { return strings.Contains(line, `"level":"debug"`) })
			lines = lines[max(0, len(lines)-w.plan.Tail):]
			w.T.Logf("the end of the log of %s:\n%s", p.Name(), strings.Join(lines, "\n"))
		}
	}
}

// Run runs compute-agent to its end and returns what it printed and its exit code.
func (w *World) Run(args ...string) (string, int) {
	w.T.Helper()
	return w.plan.Binaries.Run(w.T, "compute-agent", args...)
}

// TryManage runs `cells manage` on the machine of the compute API.
func (w *World) TryManage(args ...string) (string, int) {
	w.T.Helper()
	return w.Run(slices.Concat([]string{"cells", "manage"}, args, []string{"--config", w.APIConfig})...)
}

// Manage is TryManage of what succeeds.
func (w *World) Manage(args ...string) string {
	w.T.Helper()
	out, code := w.TryManage(args...)
	if code != 0 {
		w.T.Fatalf("cells manage %v ended with %d:\n%s", args, code, out)
	}
	return out
}

// Discover has the compute API know all hosts that its cells know.
func (w *World) Discover() {
	w.T.Helper()
	w.Manage("discover-hosts")
}

// LaunchCell starts a cell again that was killed, and returns when it serves.
func (w *World) LaunchCell(name string) {
	w.T.Helper()
	c := w.Cells[name]
	c.Await(w.T, c.Again(w.T), cellServes)
}

// Kill kills cells.
func (w *World) Kill(names ...string) {
	w.T.Helper()
	for _, name := range names {
		w.Cells[name].Kill()
	}
}

// Revive starts all cells again that were killed, and returns when their hosts are up.
func (w *World) Revive() {
	w.T.Helper()
	marks := map[*Cell]int{}
	for _, c := range w.Cells {
		select {
		case <-c.Done():
			marks[c] = c.Again(w.T)
		default:
		}
	}
	for c, mark := range marks {
		c.Await(w.T, mark, cellServes)
	}
	w.Eventually("all hosts are up", func() error {
		for _, s := range w.Get(Admin, "2.69", "/os-services").List(w.T, "services") {
			if s["state"] != "up" {
				return fmt.Errorf("%v is %v (%v)", s["host"], s["state"], s["status"])
			}
		}
		return nil
	})
}

// ConfigureAPI writes the configuration of the compute API with more keys than the plan has. Cells
// have so much time that none that is well is down.
func (w *World) ConfigureAPI(keys ...string) {
	w.T.Helper()
	w.APIConfig = w.configureAPI("api", w.APIURL, keys...)
}

func (w *World) configureAPI(name, url string, keys ...string) string {
	w.T.Helper()
	own := []string{
		fmt.Sprintf("compute_api.listen = %q", strings.TrimPrefix(url, "http://")),
		fmt.Sprintf("placement_client.url = %q", w.PlacementURL), `compute_api.cell_timeout = "60s"`,
		`compute_api.cell_ping_interval = "0s"`, `compute_api.discover_hosts_interval = "0s"`,
		"quota.instances = -1", "quota.cores = -1", "quota.ram = -1",
	}
	if dsn := w.plan.Databases["api"]; dsn != "" {
		own = append(own, fmt.Sprintf("compute_api.database = %q", dsn))
	}
	return w.configure(name, slices.Concat(own, w.plan.API, keys)...)
}

func (w *World) serveAPI(name, config string) *testproc.Process {
	w.T.Helper()
	p := w.Start(name, "cells", "api", "--config", config)
	p.Await(w.T, 0, apiServes)
	return p
}

// AddAPI serves the compute API by one more process, and returns where. It shares the database of
// the first, which is on a server.
func (w *World) AddAPI(name string) (url string) {
	w.T.Helper()
	url = "http://" + testproc.FreeAddress(w.T)
	w.serveAPI(name, w.configureAPI(name, url))
	return url
}

// StartAPI starts the compute API again, and returns when it serves.
func (w *World) StartAPI() {
	w.T.Helper()
	w.API.Await(w.T, w.API.Again(w.T), apiServes)
}

// RestartAPI serves it by a configuration with more keys than the plan has.
func (w *World) RestartAPI(keys ...string) {
	w.T.Helper()
	w.API.Stop(w.T)
	w.ConfigureAPI(keys...)
	w.StartAPI()
}

// Eventually waits until a condition holds.
func (w *World) Eventually(what string, holds func() error) {
	w.T.Helper()
	testproc.Eventually(w.T, testproc.Patience, what, holds)
}

// web gives up a request that hangs.
var web = &http.Client{Timeout: testproc.Patience}

// Ask sends a request to the compute API; path is below /v2.1. What is answered fits the OpenAPI
// document.
func (w *World) Ask(who Caller, version, method, path string, body any) *Answer {
	w.T.Helper()
	return w.AskWith(who.Header(version), method, path, body)
}

// AskWith is Ask with other headers.
func (w *World) AskWith(header http.Header, method, path string, body any) *Answer {
	w.T.Helper()
	a := testproc.Try(Exchange(w.T.Context(), web, method, w.APIURL+"/v2.1"+path, header, body)).Or(w.T)
	w.fits(a, method, "/v2.1"+path, body)
	return a
}

// Get is Ask for GET.
func (w *World) Get(who Caller, version, path string) *Answer {
	w.T.Helper()
	return w.Ask(who, version, "GET", path, nil)
}

// document is the OpenAPI document of the compute API. A test of package compute compares it with
// the calls.
var document = sync.OnceValues(func() (*openapi.Document, error) {
	text, err := os.ReadFile("../../docs/openapi/compute.json")
	if err != nil {
		return nil, err
	}
	return openapi.Load(text)
})

// fits compares an exchange with the OpenAPI document.
func (w *World) fits(a *Answer, method, path string, body any) {
	w.T.Helper()
	d := testproc.Try(document()).Or(w.T)
	target, err := url.Parse(path)
	testproc.Check(w.T, err)
	var sent []byte
	if body != nil {
		sent, err = json.Marshal(body)
		testproc.Check(w.T, err)
	}
	if err := d.Check(&openapi.Exchange{
		Request: &http.Request{Method: method, URL: target}, Sent: sent,
		Version: a.Header.Get("X-OpenStack-Nova-API-Version"), Status: a.Code, Answer: a.Raw, AnswerHeaders: a.Header,
	}); err != nil {
		w.T.Errorf("%s does not fit the OpenAPI document: %v", a.Request, err)
	}
}

// TryPlacement asks Placement.
func (w *World) TryPlacement(method, path string, body any) (*Answer, error) {
	return Exchange(w.T.Context(), web, method, w.PlacementURL+path,
		http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement 1.38"}}, body)
}

// ReadPlacement reads something of Placement's. What does not succeed is an error.
func (w *World) ReadPlacement(path string, out any) error {
	a, err := w.TryPlacement("GET", path, nil)
	if err != nil {
		return err
	}
	if a.Code != http.StatusOK {
		return errors.New(a.String())
	}
	return json.Unmarshal(a.Raw, out)
}

// AskPlacement asks it for what succeeds.
func (w *World) AskPlacement(method, path string, body, out any) {
	w.T.Helper()
	a := testproc.Try(w.TryPlacement(method, path, body)).Or(w.T)
	if a.Code/100 != 2 {
		w.T.Fatal(a)
	}
	if out != nil {
		a.Into(w.T, out)
	}
}
