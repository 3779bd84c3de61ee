// SPDX-License-Identifier: Apache-2.0

package cells_test

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
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// noPlacement is one that is never called.
var noPlacement = placementclient.Config{
	Endpoint:  func(context.Context) (string, error) { return "", errors.New("there is none") },
	Authorize: func(context.Context, http.Header) error { return nil },
}

// apiTemplate is what API databases begin as.
var apiTemplate = dbservers.NewTemplate(func(dsn string) (*apidb.DB, error) {
	return apidb.Open(context.Background(), dsn, apidb.Options{})
})

// listen opens a socket in a directory.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	return testproc.Try(osapi.Listen(t.Context(), "unix://"+path)).Or(t)
}

// during runs serve until stop is called, which reports its error.
func during(t *testing.T, serve func(context.Context, net.Listener) error, l net.Listener) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		testproc.NoError(t, <-ended)
	}
	t.Cleanup(stop)
	return stop
}

// newCell is a cell with a new database.
func newCell(t *testing.T, name string, change ...func(*cells.CellConfig)) *cells.Cell {
	t.Helper()
	cfg := cells.CellConfig{Name: name, Database: dbservers.Fresh(t), Auth: cell.NoAuth(),
		Version: "1", Logger: zerolog.Nop()}
	for _, c := range change {
		c(&cfg)
	}
	c := testproc.Try(cells.NewCell(t.Context(), cfg)).Or(t)
	t.Cleanup(func() { _ = c.Close() }) // once more, perhaps
	return c
}

// newAPI is a compute API that knows no cell.
func newAPI(t *testing.T, change ...func(*cells.APIConfig)) *cells.API {
	t.Helper()
	cfg := cells.APIConfig{
		Database: apiTemplate.Fresh(t), Auth: osapi.NoAuth{}, Open: true, Placement: noPlacement,
		CellClient: func(c apidb.Cell) (*cellclient.Client, error) {
			return cellclient.New(cellclient.Config{URL: c.URL})
		},
		CellTimeout: 10 * time.Second, CellPingInterval: time.Second, CellDownTime: 2 * time.Second,
		Quotas: apidb.QuotaSet{quota.Instances: -1, quota.Cores: -1, quota.RAM: -1},
		Logger: zerolog.Nop(),
	}
	for _, c := range change {
		c(&cfg)
	}
	api := testproc.Try(cells.NewAPI(t.Context(), cfg)).Or(t)
	t.Cleanup(func() { _ = api.Close() }) // once more, perhaps
	return api
}

// get sends a request to the server at a socket.
func get(t *testing.T, socket, path string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	req := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://process"+path, nil)).Or(t)
	resp := testproc.Try(client.Do(req)).Or(t)
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// ready asks for readiness as often as it takes for what was found a moment ago to be looked at
// again.
func ready(t *testing.T, socket string, status int, body string) {
	t.Helper()
	testproc.Eventually(t, testproc.Patience, "readiness", func() error {
		if gotStatus, got := get(t, socket, "/readyz"); gotStatus != status || got != body {
			return fmt.Errorf("readyz is %d %q, not %d %q", gotStatus, got, status, body)
		}
		return nil
	})
}

// TestReadinessOfTheAPI: it needs its database, and one cell with hosts.
func TestReadinessOfTheAPI(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	api := newAPI(t)
	socket := filepath.Join(dir, "compute-api.sock")
	during(t, api.ServeMetrics, listen(t, socket))
	ready(t, socket, 503, "not ready: no cell is known; run compute-agent cells manage create\n")

	stops := map[string]func(){}
	for i, name := range []string{"cell0", "cell1", "cell2"} {
		at := filepath.Join(dir, name+".sock")
		stops[name] = during(t, newCell(t, name).Serve, listen(t, at))
		c := apidb.Cell{Name: name, URL: "unix://" + at, Disabled: i == 2}
		if i == 0 {
			c.UUID = apidb.Cell0UUID
		}
		testproc.Try(api.Store().CreateCell(t.Context(), c)).Or(t)
	}
	ready(t, socket, 200, "ready\ncell0: up\ncell1: up\ncell2: up, disabled\n")
	stops["cell1"]()
	ready(t, socket, 200, "ready\ncell0: up\ncell1: failed\ncell2: up, disabled\n")
	_, page := get(t, socket, "/metrics")
	for _, line := range []string{
		`compute_agent_api_cell_up{cell="cell0"} 1`, `compute_agent_api_cell_up{cell="cell1"} 0`,
		`compute_agent_api_cell_disabled{cell="cell2"} 1`,
		"compute_agent_api_database_up 1", "compute_agent_api_scheduling 0", "compute_agent_api_build_requests 0",
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	stops["cell2"]()
	ready(t, socket, 503,
		"not ready: no cell that has hosts is up\ncell0: up\ncell1: failed\ncell2: failed, disabled\n")
	during(t, newCell(t, "cell1").Serve, listen(t, filepath.Join(dir, "cell1.sock")))
	ready(t, socket, 200, "ready\ncell0: up\ncell1: up\ncell2: failed, disabled\n")
	known := testproc.Try(api.Store().Cells(t.Context())).Or(t)
	testproc.Check(t, api.Store().AcceptCell(t.Context(),
		known[1].UUID, apidb.CellMark{Epoch: "of before", Revision: 7}))
	ready(t, socket, 200, "ready\ncell0: up\ncell1: up, other database\ncell2: failed, disabled\n")

	testproc.Check(t, api.Close())
	ready(t, socket, 503, "not ready: the API database cannot be read\n")
	if status, body := get(t, socket, "/healthz"); status != 200 || body != "alive\n" {
		t.Errorf("healthz is %d %q without a database", status, body)
	}
	if status, page := get(t, socket, "/metrics"); status != 200 ||
		!strings.Contains(page, "compute_agent_api_database_up 0\n") ||
		!strings.Contains(page, `compute_agent_api_cell_up{cell="cell0"} 1`) {
		t.Errorf("without a database the metrics are %d\n%s", status, page)
	}
}

// TestStatesOfCells: the admin socket says which cells are down, since when and why.
func TestStatesOfCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	api := newAPI(t)
	socket, at := filepath.Join(dir, "compute-api.sock"), filepath.Join(dir, "cell1.sock")
	l := testproc.Try(osapi.ListenWithKey(t.Context(), socket)).Or(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- api.ServeAdmin(ctx, l, http.NotFoundHandler()) }()
	defer func() { cancel(); testproc.NoError(t, <-ended) }()
	if states, err := cells.AskStates(t.Context(), socket); err != nil || len(states) != 0 {
		t.Errorf("without cells: %+v, %v", states, err)
	}
	during(t, newCell(t, "cell1").Serve, listen(t, at))
	for name, url := range map[string]string{"cell1": "unix://" + at, "cell2": "unix://" + at + ".not"} {
		testproc.Try(api.Store().CreateCell(t.Context(), apidb.Cell{Name: name, URL: url})).Or(t)
	}
	testproc.Eventually(t, testproc.Patience, "the states", func() error {
		states, err := cells.AskStates(t.Context(), socket)
		if err != nil || len(states) != 2 || states[0].Name != "cell1" || !states[0].Up || states[0].Cause != "" ||
			states[1].Name != "cell2" || states[1].Up || states[1].Since.IsZero() || states[1].Cause == "" {
			return fmt.Errorf("%+v, %w", states, err)
		}
		return nil
	})
	if _, err := cells.AskStates(t.Context(), socket+".not"); err == nil {
		t.Error("a compute API that does not run says how its cells are")
	}
}

// TestReadinessIsCached: however many ask, each cell is asked once.
func TestReadinessIsCached(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	api := newAPI(t)
	socket, at := filepath.Join(dir, "compute-api.sock"), filepath.Join(dir, "cell1.sock")
	during(t, api.ServeMetrics, listen(t, socket))
	during(t, newCell(t, "cell1").Serve, listen(t, at))
	testproc.Try(api.Store().CreateCell(t.Context(), apidb.Cell{Name: "cell1", URL: "unix://" + at})).Or(t)
	begun := time.Now()
	for range 50 {
		if status, body := get(t, socket, "/readyz"); status != 200 {
			t.Fatal(status, body)
		}
	}
	asked := uint64(time.Since(begun)/time.Second) + 1
	if s := api.States(); len(s) != 1 || s[0].Requests.Answered > asked {
		t.Errorf("50 probes asked the cell as often as this, not %d times at most: %+v", asked, s)
	}
}

// TestCellIsWatched: a cell is ready as long as its database answers, and its metrics are those of
// what it does.
func TestCellIsWatched(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	c := newCell(t, "cell1")
	at, socket := filepath.Join(dir, "cell1.sock"), filepath.Join(dir, "cell-cell1.sock")
	during(t, c.ServeMetrics, listen(t, socket))
	stop := during(t, c.Serve, listen(t, at))
	ready(t, socket, 200, "ready\ncell1: up\n")
	if status, body := get(t, at, "/v1/cell"); status != 200 {
		t.Fatal(status, body)
	}
	req, err := http.NewRequestWithContext(t.Context(),
		http.MethodPut, "http://cell/v1/hosts/h1", strings.NewReader(`{"version":"1","nodes":[]}`))
	testproc.Check(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", at)
		}}}
	resp := testproc.Try(client.Do(req)).Or(t)
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	_, page := get(t, socket, "/metrics")
	for _, line := range []string{
		`compute_agent_cell_hosts{disabled="false",state="up"} 1`, `compute_agent_cell_instances{vm_state="active"} 0`,
		"compute_agent_cell_long_polls 0",
		`compute_agent_cell_http_requests_total{method="GET",route="/v1/cell",status="200"} 1`,
		`compute_agent_cell_http_requests_total{method="PUT",route="/v1/hosts/{host}",status="200"} 1`,
		`compute_agent_cell_database_write_duration_seconds_count{operation="heartbeat"} 1`,
		"compute_agent_cell_database_up 1",
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	stop()
	testproc.Check(t, c.Close())
	ready(t, socket, 503, "not ready: the database of cell1 cannot be read\n")
	if status, body := get(t, socket, "/healthz"); status != 200 || body != "alive\n" {
		t.Errorf("healthz is %d %q without a database", status, body)
	}
	if status, page := get(t, socket, "/metrics"); status != 200 ||
		!strings.Contains(page, "compute_agent_cell_database_up 0\n") {
		t.Errorf("without a database the metrics are %d\n%s", status, page)
	}
}

// TestUnknownPathsAre404: what watches a process changes nothing.
func TestUnknownPathsAre404(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	socket := filepath.Join(dir, "watch.sock")
	during(t, newAPI(t).ServeMetrics, listen(t, socket))
	var got []string
	for _, path := range []string{"/", "/v2.1/servers", "/debug/pprof/", "/metrics/x", "/healthz"} {
		status, _ := get(t, socket, path)
		got = append(got, fmt.Sprint(status))
	}
	testproc.Equal(t, strings.Join(got, " "), "404 404 404 404 200", "the statuses: %v")
}
