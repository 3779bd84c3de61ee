// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// part is a process of the cloud that is of this release or of the one before.
type part struct {
	name  string
	start func(of *testproc.Binaries) *testproc.Process
	now   *testproc.Process
	newer bool
}

// TestDatabasesPairings: the compute API, its cells, an agent and its driver are each of this
// release or of the one before, in every pairing, one step forward or back at a time, on the same
// databases and state directories. In each, a server is created and deleted, and one that was there
// from the beginning has kept its guest and its allocations.
func TestDatabasesPairings(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	check(t, binaries.Build())
	older := binaries.Previous(t)
	c := &cloud{t: t, state: t.TempDir(), placement: newPlacement(t)}
	s := newSite(t, c.placement)
	address := testproc.FreeAddress(t)
	c.endpoint = "http://" + address + "/v2.1"

	databases := map[string]string{}
	for _, of := range []string{"API", "cell0", "cell1"} {
		databases[of] = dbservers.WithPasswordFile(t, dbservers.MariaDB(t))
	}
	serve := func(of *testproc.Binaries, what, said string, words ...string) *testproc.Process {
		t.Helper()
		cmd := of.Command("compute-agent", words...)
		cmd.Env = append(cmd.Env, "COMPUTE_AGENT_LOG_FORMAT=json", "COMPUTE_AGENT_PLACEMENT_CLIENT_URL="+c.placement,
			"COMPUTE_AGENT_COMPUTE_API_CELL_DOWN_TIME=10s", "COMPUTE_AGENT_COMPUTE_API_DISCOVER_HOSTS_INTERVAL=100ms")
		p := testproc.Start(t, what, cmd)
		p.KilledBy(t)
		p.Await(t, 0, said)
		return p
	}
	cell := func(name string) func(of *testproc.Binaries) *testproc.Process {
		return func(of *testproc.Binaries) *testproc.Process {
			return serve(of, name, "The cell is serving.",
				"cells", "serve", "--name", name, "--listen", c.cellURL(name), "--database", databases[name],
				"--state-dir", filepath.Join(c.state, name), "--runtime-dir", c.runtime())
		}
	}
	drivers := filepath.Join(s.dir, "drivers")
	check(t, os.Mkdir(drivers, 0o700))
	check(t, os.WriteFile(s.config, fmt.Appendf(nil, `
[agent]
host = "cn1"
state_dir = %q
runtime_dir = %q
[placement_client]
url = %q
[cell_client]
url = %q
[tracker]
update_resources_interval = "1s"
[plugins]
dir = %q
[log]
format = "json"
[drivers.fake.config]
nodes = [{name = "cn1", inventories = {VCPU = {total = 8}, MEMORY_MB = {total = 16000}, DISK_GB = {total = 100}}}]
instances = {}
`, filepath.Join(s.dir, "state"), filepath.Join(s.dir, "run"), c.placement, c.cellURL("cell1"), drivers), 0o600))
	var api, cell0, cell1, agent, driver part
	api = part{name: "API", start: func(of *testproc.Binaries) *testproc.Process {
		return serve(of, "API", "The compute API is serving.", "cells", "api", "--listen", address,
			"--database", databases["API"], "--state-dir", c.state, "--runtime-dir", c.runtime())
	}}
	cell0, cell1 = part{name: "cell0", start: cell("cell0")}, part{name: "cell1", start: cell("cell1")}
	agent = part{name: "agent", start: func(of *testproc.Binaries) *testproc.Process {
		from := older
		if driver.newer {
			from = binaries
		}
		link := filepath.Join(drivers, "compute-driver-fake")
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		check(t, os.Link(filepath.Join(from.Dir(), "compute-driver-fake"), link))
		return serve(of, "agent", "Registered this host with the cell.", "run", "--config", s.config)
	}}
	for _, p := range []*part{&cell0, &cell1, &api} {
		p.now = p.start(older)
	}
	manage := func(words ...string) {
		t.Helper()
		words = slices.Concat([]string{"cells", "manage"}, words, []string{
			"--database", databases["API"], "--state-dir", c.state, "--runtime-dir", c.runtime(),
		})
		out, err := exec.CommandContext(t.Context(), filepath.Join(older.Dir(), "compute-agent"), words...).
			CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", words, err, out)
		}
	}
	manage("create", "--name", "cell0", "--url", c.cellURL("cell0"), "--cell0")
	manage("create", "--name", "cell1", "--url", c.cellURL("cell1"))
	agent.now = agent.start(older)
	c.ask(http.MethodPost,
		"/flavors", map[string]any{"flavor": map[string]any{"id": "1", "name": "m1.tiny", "vcpus": 1,
			"ram": 512, "disk": 1}}, nil)
	c.until("the host reports its node", func() bool {
		var body struct{ Services []any } // hypervisors are those of hosts that are mapped
		return c.ask(http.MethodGet, "/os-services", nil, &body) == http.StatusOK && len(body.Services) == 1
	})
	manage("discover-hosts")
	held := func(id string) map[string]int {
		t.Helper()
		var body struct {
			Allocations map[string]struct{ Resources map[string]int }
		}
		c.send(http.MethodGet, c.placement+"/allocations/"+id, "placement 1.38", nil, &body)
		sum := map[string]int{}
		for _, a := range body.Allocations {
			for class, amount := range a.Resources {
				sum[class] += amount
			}
		}
		return sum
	}
	// The newer program expands the schemas, while all others are older.
	for name, words := range map[string]string{"API": "cells manage db upgrade", "cell0": "cells db upgrade",
		"cell1": "cells db upgrade"} {
		out, code := command(t, append(strings.Fields(words), "--database", databases[name])...)
		t.Logf("%s: %s, %d: %s", name, words, code, out)
	}
	stays := c.boot("stays", "cn1")
	want := held(stays)
	restart := func(p *part) {
		t.Helper()
		p.now.Stop(t)
		of := older
		if p.newer {
			of = binaries
		}
		p.now = p.start(of)
	}
	parts := []*part{&api, &cell1, &agent, &driver}
	for n := range 1 << len(parts) {
		if n > 0 { // the next number of a Gray code differs in one part
			i := 0
			for (n>>i)&1 == 0 {
				i++
			}
			changed := parts[i]
			changed.newer = !changed.newer
			switch changed {
			case &driver:
				restart(&agent)
			case &cell1:
				cell0.newer = cell1.newer
				restart(&cell0)
				restart(&cell1)
			default:
				restart(changed)
			}
		}
		var names []string
		for i, name := range []string{"API", "cells", "agent", "driver"} {
			if parts[i].newer {
				names = append(names, "newer "+name)
			} else {
				names = append(names, "older "+name)
			}
		}
		pairing := strings.Join(names, ", ")
		c.until(pairing+": the host is up", func() bool {
			var body struct{ Hypervisors []struct{ State string } }
			return c.ask(http.MethodGet, "/os-hypervisors", nil, &body) == http.StatusOK &&
				len(body.Hypervisors) == 1 && body.Hypervisors[0].State == "up"
		})
		id := c.boot(fmt.Sprintf("server-%d", n), "cn1")
		if diff := cmp.Diff(want, held(id)); diff != "" {
			t.Errorf("%s: the new server holds something else than the first one (-, +):\n%s", pairing, diff)
		}
		c.ask(http.MethodDelete, "/servers/"+id, nil, nil)
		c.until(pairing+": the new server is gone", func() bool { return c.status(id) == "gone" && len(held(id)) == 0 })
		testproc.Equal(t, c.status(stays), "ACTIVE", "%s: the first server is %s", pairing)
		testproc.Samef(t, cmp.Diff(want, held(stays)), "%s: the first server (- before, + after)", pairing)
		t.Log(pairing)
	}
	for _, p := range []*part{&agent, &api, &cell1, &cell0} {
		p.now.Stop(t)
	}
}
