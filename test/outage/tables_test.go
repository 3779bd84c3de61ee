// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// TestCellWithoutATable: a table of cell1's database goes, and comes back. The cell is down as long
// as it is missing, also for what needs other tables only: requests, the list of cells, both
// readiness probes and the metric say the same.
func TestCellWithoutATable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withHosts(t, world.Plan{}, 64<<10, 64<<10)
	p1 := world.Of("p1")
	w.Begin("p1", "web1", "c1h1")
	w.Begin("p1", "web2", "c2h1")
	w.Settled("ACTIVE", "web1", "web2")
	w.alter("ALTER TABLE services RENAME TO elsewhere")
	w.lists(p1, "2.69", "web1?", "web2")
	if s := w.Show(p1, "2.69", "web1").Server(t); s["status"] != "UNKNOWN" {
		t.Errorf("web1 is %v", s)
	}
	for _, s := range w.Get(world.Admin, "2.69", "/os-services").List(t, "services") {
		if (s["host"] == "c1h1") != (s["status"] == "UNKNOWN") {
			t.Errorf("the service of %v is %v", s["host"], s["status"])
		}
	}
	if m := w.Post(p1, "blocked", nil).Fault(t, "forbidden", 403); !strings.Contains(m, "cell that does not answer") {
		t.Errorf("a boot is refused with %q", m)
	}
	if out := w.Manage("list"); !testproc.ContainsAll(out, []string{"cell1 is down:", "database is unavailable"}) {
		t.Errorf("the list of cells:\n%s", out)
	}
	w.says("api", "/readyz", 200, "cell1: failed\n", "cell2: up\n")
	w.says("api", "/metrics", 200, `compute_agent_api_cell_up{cell="cell1"} 0`,
		`compute_agent_api_cell_up{cell="cell2"} 1`)
	w.says("cell1", "/readyz", 503, "not ready: the database of cell1")
	w.says("cell1", "/metrics", 200, "compute_agent_cell_database_up 0\n")
	w.Cells["cell1"].Await(t, 0, `"level":"error"`, "is unavailable", "services")

	w.alter("ALTER TABLE elsewhere RENAME TO services")
	w.Revive()
	w.eventuallyLists(p1, "web2", "web1")
	w.says("api", "/readyz", 200, "cell1: up\n")
	w.says("api", "/metrics", 200, `compute_agent_api_cell_up{cell="cell1"} 1`)
	w.says("cell1", "/readyz", 200, "ready\n")
}

// alter changes the schema of cell1's database while its process is down.
func (d deployment) alter(statement string) {
	d.T.Helper()
	d.Kill("cell1")
	edit(d.T, d.cellDatabase("cell1"), statement)
	d.LaunchCell("cell1")
}

// says waits until a process says something on its admin socket: "api", or a cell. A probe may
// answer what was found a moment ago.
func (d deployment) says(process, path string, status int, parts ...string) {
	d.T.Helper()
	name := "compute-api.sock"
	if process != "api" {
		name = "cell-" + process + ".sock"
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(d.Path(process+".run"), name))
		}}}
	d.Eventually(fmt.Sprintf("%s of %s says %q", path, process, parts), func() error {
		a, err := world.Exchange(d.T.Context(), client, "GET", "http://process"+path, nil, nil)
		if errors.Is(err, io.EOF) || err == nil && (a.Code != status || !testproc.ContainsAll(string(a.Raw), parts)) {
			return fmt.Errorf("%v", a)
		}
		return err
	})
}
