// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

type object = map[string]any

// image is that of all servers.
const image = "70a599e0-31e7-49b7-b260-868f441e862b"

// otherServices are as much of Glance and of Neutron as Nova needs for servers without a network.
func otherServices(w http.ResponseWriter, r *http.Request) {
	there := object{
		"id": image, "name": "image", "status": "active", "visibility": "public", "size": 1, "min_disk": 0,
		"min_ram": 0, "disk_format": "raw", "container_format": "bare",
		"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "owner": "project0",
		"checksum": "d41d8cd98f00b204e9800998ecf8427e",
	}
	answer := object{strings.ReplaceAll(path.Base(r.URL.Path), "-", "_"): []any{}} // a list of Neutron's
	switch {
	case strings.HasPrefix(r.URL.Path, "/v2/schemas/"):
		properties := object{}
		for name := range there {
			properties[name] = object{}
		}
		answer = object{"name": "image", "properties": properties, "additionalProperties": object{}}
	case strings.HasPrefix(r.URL.Path, "/v2/images/"):
		answer = there
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// novaServices are the services of Debian's Nova (testdata/nova_services.py), with their API.
type novaServices struct {
	*testproc.Process
	commands io.Writer
	api      string
	cell     *sql.DB // the database of its servers
	// nodes are the uuids of the compute nodes, by their hosts.
	nodes map[string]string
}

// startNovaServices runs them, with two hosts, until the test ends: for a Placement at an address.
func startNovaServices(t *testing.T, placementURL string) *novaServices {
	t.Helper()
	needNova(t)
	transport := testproc.StartRabbitMQ(t)
	others := httptest.NewServer(http.HandlerFunc(otherServices))
	t.Cleanup(others.Close)
	address, cell := testproc.FreeAddress(t), dbservers.MariaDB(t)
	settings := testproc.Try(json.Marshal(object{
		"directory": t.TempDir(), "port": address[strings.LastIndexByte(address, ':')+1:], "placement": placementURL,
		"others": others.URL, "transport": transport,
		"api": dbservers.MariaDB(t), "cell0": dbservers.MariaDB(t), "cell": cell,
		"computes": []string{"compute1", "compute2"},
	})).Or(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), python, "-W", "ignore",
		"testdata/nova_services.py", string(settings))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	commands := testproc.Try(cmd.StdinPipe()).Or(t)
	n := &novaServices{Process: testproc.Start(t, "Nova", cmd), commands: commands, api: "http://" + address + "/v2.1",
		cell: dbservers.Open(t, cell), nodes: map[string]string{}}
	t.Cleanup(func() {
		_ = commands.Close() // they kill each other
		<-n.Done()
		if t.Failed() {
			n.Show(t)
		}
	})
	manage := func(words string) {
		t.Helper()
		if code, out := n.command(t, "manage "+words); code != 0 {
			t.Fatalf("nova-manage %s: %d\n%s", words, code, out)
		}
	}
	for _, words := range []string{"api_db sync", "cell_v2 map_cell0 --database_connection @cell0", "db sync",
		"cell_v2 create_cell --name cell1"} {
		manage(words)
	}
	mark := n.Mark()
	for _, service := range []string{"conductor", "scheduler", "api", "compute compute1", "compute compute2"} {
		n.command(t, "start "+service)
	}
	for _, host := range []string{"compute1", "compute2"} {
		n.Await(t, mark, "Created resource provider record", "name "+host+"-child")
	}
	n.Await(t, mark, "wsgi starting up")
	manage("cell_v2 discover_hosts")
	var got struct {
		Hypervisors []struct {
			ID   string `json:"id"`
			Name string `json:"hypervisor_hostname"`
		} `json:"hypervisors"`
	}
	n.ask(t, "GET", "/os-hypervisors", nil, &got)
	for _, h := range got.Hypervisors {
		n.nodes[h.Name] = h.ID
	}
	if len(n.nodes) != 2 {
		t.Fatalf("Nova's hosts are %v", n.nodes)
	}
	return n
}

// command has the services do something.
func (n *novaServices) command(t *testing.T, command string) (code int, output string) {
	t.Helper()
	mark := n.Mark()
	testproc.Try(fmt.Fprintln(n.commands, command)).Or(t)
	var answer struct {
		Code   int
		Output string
	}
	line := n.Await(t, mark, "ANSWER {")
	testproc.Check(t, json.Unmarshal([]byte(line[strings.Index(line, "{"):]), &answer))
	return answer.Code, answer.Output
}

// ask makes a request to Nova's API, which must succeed.
func (n *novaServices) ask(t *testing.T, method, path string, body, into any) {
	t.Helper()
	testproc.Send(t, nil, method, n.api+path, "compute 2.87", body, "X-Auth-Token", "").Good(t).Into(t, into)
}

// boot makes a server on a host.
func (n *novaServices) boot(t *testing.T, host, flavor string) (uuid string) {
	t.Helper()
	var got struct {
		Server struct {
			ID string `json:"id"`
		} `json:"server"`
	}
	n.ask(t, "POST", "/servers", object{"server": object{"name": "server", "imageRef": image, "flavorRef": flavor,
		"networks": "none", "host": host}}, &got)
	return got.Server.ID
}

// act does something with a server.
func (n *novaServices) act(t *testing.T, uuid, action string, how any) {
	t.Helper()
	n.ask(t, "POST", "/servers/"+uuid+"/action", object{action: how}, nil)
}

// become waits until servers have a state and nothing more is done to them: "active", "resized",
// which waits for a confirmation, or "deleted".
func (n *novaServices) become(t *testing.T, state string, uuids ...string) {
	t.Helper()
	for _, uuid := range uuids {
		testproc.Eventually(t, testproc.Patience, "server "+uuid+" is "+state, func() error {
			var is, task string
			err := n.cell.QueryRowContext(t.Context(),
				"SELECT IF(deleted, 'deleted', vm_state), COALESCE(task_state, '') FROM instances WHERE uuid = ?",
				uuid).Scan(&is, &task)
			if err == nil && (is != state || task != "") {
				err = fmt.Errorf("it is %s, %s", is, task)
			}
			if is == "error" {
				t.Fatalf("server %s is in the state error", uuid)
			}
			return err
		})
	}
}

// agrees has Nova compare what it knows of its servers with what Placement has: there is nothing
// that one has and the other lacks.
func (n *novaServices) agrees(t *testing.T) {
	t.Helper()
	for words, want := range map[string]int{"placement audit --verbose": 0, "placement heal_allocations --verbose": 4,
		"placement sync_aggregates --verbose": 0} {
		if code, out := n.command(t, "manage "+words); code != want {
			t.Errorf("nova-manage %s: %d, want %d\n%s", words, code, want, out)
		}
	}
}

// status enables or disables the nova-compute of a host, and waits until Placement has it.
func (n *novaServices) status(t *testing.T, f *front, host, status string) {
	t.Helper()
	var got struct {
		Services []struct {
			ID     string `json:"id"`
			Host   string `json:"host"`
			Binary string `json:"binary"`
		} `json:"services"`
	}
	n.ask(t, "GET", "/os-services?binary=nova-compute&host="+host, nil, &got)
	n.ask(t, "PUT", "/os-services/"+got.Services[0].ID, object{"status": status}, nil)
	testproc.Eventually(t, testproc.Patience, host+" is "+status, func() error {
		traits := fmt.Sprint(read(t, f.URL, "/resource_providers/"+n.nodes[host]+"/traits"))
		if strings.Contains(traits, "COMPUTE_STATUS_DISABLED") != (status == "disabled") {
			return errors.New(traits)
		}
		return nil
	})
}

// works waits until each nova-compute has looked at its resources again, more than once, and checks
// that nothing has failed since.
func (n *novaServices) works(t *testing.T, f *front) {
	t.Helper()
	passes := func() {
		t.Helper()
		for host, uuid := range n.nodes {
			request := "GET /resource_providers/" + uuid + "/allocations"
			before := f.answered(request)
			testproc.Eventually(t, testproc.Patience,
				host+" looks at its resources", testproc.True(func() bool { return f.answered(request) > before+1 }))
		}
	}
	passes() // what it had begun before may fail
	mark, failures := n.Mark(), f.answered("failures")
	passes()
	if n.Count(mark, " ERROR ") > 0 || f.answered("failures") > failures {
		t.Errorf("Placement failed %d times; Nova:\n%s",
			f.answered("failures")-failures, strings.Join(n.Lines()[mark:], "\n"))
	}
}

// TestDatabasesAdoptUnderNovaServices: a whole Nova, with two hosts and servers on them, works on
// without a restart while Placement's database is adopted, served and handed back. Servers are in
// the middle of a migration each time. Every answer is what it was before each of the two changes,
// and Nova and Placement agree about all servers.
func TestDatabasesAdoptUnderNovaServices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	testproc.NeedPlacement(t)
	dsn, f := dbservers.MariaDB(t), newFront(t)
	paths := []string{
		"/usages?project_id=project0", "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:5",
		"/allocation_candidates?resources=VCPU:1&resources_G=CUSTOM_MAGIC:1&group_policy=none",
	}
	var n *novaServices
	var shown object
	servers := map[string]string{}
	whole := t
	t.Run("before", func(t *testing.T) {
		f.point(http.DefaultTransport, testproc.StartPlacementOn(t, dsn).URL)
		n = startNovaServices(whole, f.URL)
		n.ask(t, "POST",
			"/flavors", object{"flavor": object{"id": "small", "name": "small", "vcpus": 1, "ram": 256, "disk": 1}},
			nil)
		n.ask(t, "POST",
			"/flavors", object{"flavor": object{"id": "magic", "name": "magic", "vcpus": 2, "ram": 512, "disk": 2}},
			nil)
		n.ask(t, "POST", "/flavors/magic/os-extra_specs",
			object{"extra_specs": object{"resources:CUSTOM_MAGIC": "2"}}, nil)
		var rack struct {
			Aggregate struct {
				ID int `json:"id"`
			} `json:"aggregate"`
		}
		n.ask(t, "POST", "/os-aggregates", object{"aggregate": object{"name": "rack"}}, &rack)
		n.ask(t, "POST", fmt.Sprintf("/os-aggregates/%d/action", rack.Aggregate.ID),
			object{"add_host": object{"host": "compute1"}}, nil)
		for name, flavor := range map[string]string{"stays": "magic", "goes": "small",
			"moves": "small", "returns": "magic"} {
			servers[name] = n.boot(t, "compute1", flavor)
		}
		n.become(t, "active", servers["stays"], servers["goes"], servers["moves"], servers["returns"])
		n.act(t, servers["moves"], "migrate", object{"host": "compute2"})
		n.become(t, "resized", servers["moves"])
		n.works(t, f)
		n.agrees(t)
		shown = everything(t, f.URL, paths...)
		if _, err := placement.Adopt(t.Context(), placement.Config{Database: dsn},
			store.AdoptOptions{}); !errors.Is(err, store.ErrRefused) {
			t.Errorf("adopted beside OpenStack's Placement: %v", err)
		}
		f.refuse()
	})
	if t.Failed() {
		t.FailNow()
	}
	direct := adoptBehind(t, f, dsn, shown, paths)
	n.works(t, f)
	n.agrees(t)
	n.act(t, servers["moves"], "confirmResize", nil)
	n.ask(t, "DELETE", "/servers/"+servers["goes"], nil, nil)
	servers["comes"], servers["new"] = n.boot(t, "compute2", "magic"), n.boot(t, "compute1", "small")
	n.become(t, "active", servers["moves"], servers["comes"], servers["new"])
	n.become(t, "deleted", servers["goes"])
	n.act(t, servers["returns"], "migrate", object{"host": "compute2"})
	n.become(t, "resized", servers["returns"])
	n.status(t, f, "compute2", "disabled")
	n.works(t, f)
	n.agrees(t)
	shown = everything(t, f.URL, paths...)
	f.refuse()
	testproc.Check(t, direct.Close())
	handBackWhole(t, dsn)
	t.Run("after", func(t *testing.T) {
		f.point(http.DefaultTransport, testproc.StartPlacementOn(t, dsn).URL)
		same(t, "Placement's answers, handed back", shown, everything(t, f.URL, paths...))
		n.works(t, f)
		n.status(t, f, "compute2", "enabled")
		n.act(t, servers["returns"], "revertResize", nil)
		n.ask(t, "DELETE", "/servers/"+servers["comes"], nil, nil)
		servers["last"] = n.boot(t, "compute2", "magic")
		n.become(t, "active", servers["returns"], servers["last"], servers["stays"])
		n.become(t, "deleted", servers["comes"])
		n.works(t, f)
		n.agrees(t)
	})
}
