// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

type record = world.Record

// deployment is a world of agents, whose processes are killed and started again.
type deployment struct {
	*world.World
	servers   *servers
	database  string   // the DSN of the API database; "": a file
	apis      []string // the URLs of the compute API
	cells     []*cell  // cell0 first
	hosts     []*host
	processes []*process
}

// cell is one, and the client by which it is looked at.
type cell struct {
	name, uuid string
	client     *cellclient.Client
}

// plan says what a world is made of.
type plan struct {
	cells int    // beside cell0
	kinds []kind // of the hosts: that of cell1, of cell2, …; the last cell has all that are left
	// servers have the API database and those of some cells; nil: each is a file, for one process.
	servers *servers
	// downTime is after which silence a host is down.
	downTime time.Duration
	api      []string // keys of the compute API
}

// With hurried, what is stopped for some seconds is down for the compute API; with unhurried,
// nothing is that is well. All wait for Placement as patient says.
var (
	hurried = []string{
		`compute_api.cell_timeout = "2s"`, `compute_api.cell_ping_interval = "500ms"`,
		`compute_api.cell_down_time = "1500ms"`, `compute_api.discover_hosts_interval = "1s"`,
	}
	unhurried = []string{
		`compute_api.cell_timeout = "20s"`, `compute_api.cell_ping_interval = "500ms"`,
		`compute_api.cell_down_time = "10s"`,
	}
	patient = []string{`placement_client.timeout = "5s"`, `placement_client.connect_timeout = "1s"`}
)

// newWorld starts a deployment that ends with the test, with the flavors of flavors.
func newWorld(t *testing.T, p plan) *deployment {
	t.Helper()
	w := &deployment{servers: p.servers}
	starts := world.Plan{
		Binaries: binaries, Env: []string{"COMPUTE_AGENT_LOG_LEVEL=debug"}, Tail: *shownLog,
		Cell: []string{fmt.Sprintf("cell.service_down_time = %q", p.downTime)}, API: slices.Concat(patient, p.api),
	}
	for i := range p.cells {
		starts.Cells = append(starts.Cells, fmt.Sprintf("cell%d", i+1))
	}
	if p.servers != nil {
		starts.Processes, starts.Databases = p.servers.processes, map[string]string{}
		for name := range p.servers.processes {
			dsn := p.servers.database(t, name)
			starts.Databases[name] = p.servers.through(t, dsn)
			if name == "api" {
				w.database = dsn
			}
		}
	}
	w.World = world.New(t, starts)
	t.Cleanup(w.close)
	w.apis = []string{w.APIURL}
	for i := 1; i < starts.Processes["api"]; i++ {
		w.apis = append(w.apis, w.AddAPI(fmt.Sprintf("api%d", i+1)))
	}
	for _, name := range append([]string{"cell0"}, starts.Cells...) {
		client := testproc.Try(cellclient.New(cellclient.Config{URL: w.Cells[name].URL})).Or(t)
		w.cells = append(w.cells, &cell{name: name, client: client})
	}
	check(t, w.read(t.Context(), func(db apidb.Store) error {
		known, err := db.Cells(t.Context())
		for i, c := range known {
			w.cells[i].uuid = c.UUID
		}
		return err
	}))
	var agents []*world.Agent
	for i, kind := range p.kinds {
		h := w.addHost(fmt.Sprintf("h%d", i+1), w.cells[min(i+1, p.cells)], kind)
		agents = append(agents, h.Agent)
	}
	for _, f := range flavors {
		w.Ask(world.Admin, "2.55", "POST", "/flavors", record{"flavor": record{
			"id": f.id, "name": f.id, "vcpus": f.vcpus, "ram": memoryMB, "disk": 1,
		}}).Is(t, 200)
		if len(f.specs) > 0 {
			w.Ask(world.Admin, "2.69", "POST", "/flavors/"+
				f.id+"/os-extra_specs", record{"extra_specs": f.specs}).Is(t, 200)
		}
	}
	w.Ready(agents...)
	for _, p := range w.Processes() {
		// Placement and agents need no database on the servers: they start at the first try.
		tries := w.servers != nil && (strings.HasPrefix(p.Name(), "cell") || strings.HasPrefix(p.Name(), "api"))
		one := &process{Process: p, tries: tries}
		one.watch(t, 0)
		w.processes = append(w.processes, one)
	}
	return w
}

// flavor is one, with what a server of it holds in Placement beside memory and disk.
type flavor struct {
	id    string
	vcpus int
	specs map[string]string
	holds map[string]int64
}

const memoryMB = 64

// flavors are small: nothing runs in the guests. That with a GPU is for hosts that have one.
var flavors = []flavor{
	{"shared", 1, nil, map[string]int64{"VCPU": 1}},
	{"pinned", 1, map[string]string{"hw:cpu_policy": "dedicated"}, map[string]int64{"PCPU": 1}},
	{"gpu", 1, map[string]string{"resources:VGPU": "1"}, map[string]int64{"VCPU": 1, "VGPU": 1}},
	{"huge", 4096, nil, nil}, // no host has so many
}

// read reads the API database: of a file, a copy.
func (d *deployment) read(ctx context.Context, do func(apidb.Store) error) error {
	dsn := d.database
	if dsn == "" {
		dsn = filepath.Join(d.T.TempDir(), "copy.db")
		if out, code := d.TryManage("db", "backup", dsn); code != 0 {
			return errors.New(out)
		}
	}
	db, err := apidb.Open(ctx, dsn, apidb.Options{})
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

// close ends everything. What went wrong with any process is an error.
func (d *deployment) close() {
	for _, p := range slices.Backward(d.processes) {
		p.kill()
		for _, trouble := range p.troubles() {
			d.T.Error(trouble)
		}
	}
	for _, h := range d.hosts {
		if h.sim != nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			testproc.NoError(d.T, h.sim.Close(ctx))
			cancel()
		}
	}
	if d.T.Failed() && *keepFiles {
		kept := d.Dir + ".kept"
		testproc.NoError(d.T, os.Rename(d.Dir, kept))
		for _, p := range d.processes {
			log := strings.Join(p.Lines(), "\n")
			testproc.NoError(d.T, os.WriteFile(filepath.Join(kept, p.Name()+".log"), []byte(log), 0o600))
		}
		d.T.Logf("all files are in %s", kept)
	}
}

// logged are the lines of all logs about a server, in the order of time.
func (d *deployment) logged(uuid string) string {
	var lines []string
	for _, p := range d.processes {
		for _, line := range p.Lines() {
			if strings.Contains(line, uuid) {
				_, at, _ := strings.Cut(line, `"time":"`)
				lines = append(lines, fmt.Sprintf("%.35s %s: %s", at, p.Name(), line))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// web does not reuse connections to processes that come and go.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// try sends a request to a process of the compute API; an error says that no answer came.
func try(ctx context.Context, url string, who world.Caller, method, path string, body any) (*world.Answer, error) {
	return world.Exchange(ctx, web, method, url+"/v2.1"+path, who.Header("2.69"), body)
}

// boot makes a server and returns its uuid.
func (d *deployment) boot(who world.Caller, name, flavor string, extra record) string {
	d.T.Helper()
	more := record{"flavorRef": flavor}
	maps.Copy(more, extra)
	return d.Accepted(d.Post(who, name, more), name)
}

// shown is a server of a list.
type shown struct {
	ID, Status string
	Host       string `json:"OS-EXT-SRV-ATTR:host"`
	Fault      struct{ Message, Details string }
}

// list lists the servers of a project, or of all as an administrator.
func (d *deployment) list(who world.Caller) map[string]shown {
	d.T.Helper()
	path := "/servers/detail"
	if who == world.Admin {
		path += "?all_tenants=1"
	}
	var body struct{ Servers []shown }
	d.Get(who, "2.69", path).Is(d.T, 200).Into(d.T, &body)
	out := map[string]shown{}
	for _, s := range body.Servers {
		out[s.ID] = s
	}
	return out
}

// show shows one.
func (d *deployment) show(who world.Caller, uuid string) shown {
	d.T.Helper()
	var body struct{ Server shown }
	d.Get(who, "2.69", "/servers/"+uuid).Is(d.T, 200).Into(d.T, &body)
	return body.Server
}

// used is what counts for a project.
func (d *deployment) used(project string) (instances, cores, ram int) {
	d.T.Helper()
	var body struct {
		Limits struct {
			Absolute struct{ TotalInstancesUsed, TotalCoresUsed, TotalRAMUsed int }
		}
	}
	d.Get(world.AdminOf(project), "2.69", "/limits").Is(d.T, 200).Into(d.T, &body)
	u := body.Limits.Absolute
	return u.TotalInstancesUsed, u.TotalCoresUsed, u.TotalRAMUsed
}
