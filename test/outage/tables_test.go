// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCellWithoutTables: a table of cell1's database goes, and comes back. Whatever is asked, and
// in whatever order, the cell is down as long as the table is missing, also for what needs other
// tables only: requests, the list of cells, both readiness probes and the metric say the same.
func TestCellWithoutTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan{})
	defer func() { w.close(t, t.Failed()) }()
	w.begin(t, "p1", "web1", "c1h1")
	w.begin(t, "p1", "web2", "c2h1")
	w.settled(t, "ACTIVE", "web1", "web2")
	w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web2", "web1")
	for _, table := range []string{"instances", "services", "compute_nodes"} {
		w.alter(t, "ALTER TABLE "+table+" RENAME TO elsewhere")
		questions := map[string]func(){
			"GET /servers": func() { w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web1?", "web2") },
			"GET /servers/{id}": func() {
				if s := w.show(t, of("p1"), "2.69", "web1").server(t); !isUnknown(s) {
					t.Errorf("web1 is %v", s)
				}
			},
			"GET /os-services": func() {
				for _, s := range w.api.get(t, admin, "2.69", "/os-services").services(t) {
					if (s["host"] == "c1h1") != isUnknown(s) {
						t.Errorf("the service of %v is %v", s["host"], s["status"])
					}
				}
			},
			"POST /servers": func() {
				if m := w.api.post(t, of("p1"), "blocked", nil).fault(t, "forbidden", 403); !strings.Contains(m, "cell that does not answer") {
					t.Errorf("a boot is refused with %q", m)
				}
			},
			"cells manage list": func() {
				out, code := w.manage(t, "list")
				if code != 0 || !testproc.ContainsAll(out, []string{"cell1 is down:", "database is unavailable"}) {
					t.Errorf("the list of cells ended with %d:\n%s", code, out)
				}
			},
			"/readyz of the compute API": func() { w.says(t, "api", "/readyz", 200, "cell1: failed\n", "cell2: up\n") },
			"/readyz of the cell": func() {
				w.says(t, "cell1", "/readyz", 503, "not ready: the database of cell1")
				w.says(t, "cell1", "/metrics", 200, "compute_agent_cell_database_up 0\n")
			},
		}
		for _, first := range []string{"GET /servers", "GET /os-services", "/readyz of the compute API"} {
			questions[first]() // finds out
			for name, ask := range questions {
				ask()
				w.says(t, "api", "/metrics", 200, `compute_agent_api_cell_up{cell="cell1"} 0`, `compute_agent_api_cell_up{cell="cell2"} 1`)
				if t.Failed() {
					t.Fatalf("without the table %s, after %s", table, name)
				}
			}
		}
		w.cells["cell1"].process.Await(t, 0, `"level":"error"`, "is unavailable", table)
		w.alter(t, "ALTER TABLE elsewhere RENAME TO "+table)
		w.up(t)
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web2", "web1")
		w.says(t, "api", "/metrics", 200, `compute_agent_api_cell_up{cell="cell1"} 1`)
		eventually(t, "both are ready", func() error {
			for process, line := range map[string]string{"api": "cell1: up\n", "cell1": "ready\n"} {
				if code, text := w.watched(t, process, "/readyz"); code != 200 || !strings.Contains(text, line) {
					return fmt.Errorf("%s: %d %s", process, code, text)
				}
			}
			return nil
		})
	}

	w.alter(t, "DROP TABLE instances")
	w.says(t, "api", "/readyz", 200, "cell1: failed\n")
	w.says(t, "cell1", "/readyz", 503, "not ready")
	w.says(t, "api", "/metrics", 200, `compute_agent_api_cell_up{cell="cell1"} 0`)
	w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web1?", "web2")
}

// alter changes the schema of cell1's database while its process is down.
func (w *world) alter(t *testing.T, statement string) {
	t.Helper()
	w.down(t, "cell1")
	db, err := sql.Open("sqlite", "file:"+w.cellDatabase("cell1"))
	check(t, err)
	_, err = db.ExecContext(t.Context(), statement)
	check(t, errors.Join(err, db.Close()))
	w.revive(t, "cell1")
}

// watched asks a process on its admin socket: "api", or a cell.
func (w *world) watched(t *testing.T, process, path string) (int, string) {
	t.Helper()
	name := "compute-api.sock"
	if process != "api" {
		name = "cell-" + process + ".sock"
	}
	socket := filepath.Join(w.dir, process+".run", name)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://process"+path, nil)
	check(t, err)
	resp, err := client.Do(req)
	check(t, err)
	text, err := io.ReadAll(resp.Body)
	check(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(text)
}

// says checks what a process answers on its admin socket. Metrics say it at once; a probe of
// readiness may answer what was found a moment ago.
func (w *world) says(t *testing.T, process, path string, status int, parts ...string) {
	t.Helper()
	if path == "/metrics" {
		if code, text := w.watched(t, process, path); code != status || !testproc.ContainsAll(text, parts) {
			t.Errorf("/metrics of %s: %d, without %q", process, code, parts)
		}
		return
	}
	eventually(t, fmt.Sprintf("%s of %s says %q", path, process, parts), func() error {
		if code, text := w.watched(t, process, path); code != status || !testproc.ContainsAll(text, parts) {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}
