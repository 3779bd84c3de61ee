// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// commands runs no command.
var commands = sqldb.ServeCommand(func(context.Context, []string, io.Writer, io.Writer) int { return 64 })

// computeIn is a compute API whose state and sockets are in a directory.
func computeIn(t *testing.T, dir string, more ...config.Override) (*config.Config, *standaloneServices) {
	t.Helper()
	cfg := testproc.Try(
		config.Load(config.Options{Root: dir, Environ: []string{}, Uses: []string{}, Overrides: append(more,
			config.Override{Key: "agent.state_dir", Value: dir}, config.Override{Key: "agent.runtime_dir", Value: dir},
			config.Override{Key: "placement_client.url", Value: "http://127.0.0.1:1"})})).Or(t)
	s := testproc.Try(newStandaloneServices(t.Context(), StandaloneOptions{
		Config: cfg, Compute: "127.0.0.1:0",
		ComputeAdmin: func(api *cells.API) osapi.Admin { return api.Admin(dir, "", commands) },
	}, zerolog.Nop())).Or(t)
	return cfg, s
}

// clientAt sends all requests to an address.
func clientAt(network, address string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}}
}

// page reads a path of the server at an address.
func page(t *testing.T, network, address, path string) string {
	t.Helper()
	resp := testproc.Try(clientAt(network, address).Get("http://process" + path)).Or(t)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", path, resp.Status, err, text)
	}
	return string(text)
}

// TestAdminSocketsNeedTheirKey: commands and backups are for those who can read the key beside the
// socket, on that of each service.
func TestAdminSocketsNeedTheirKey(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	cfg, s := computeIn(t, dir)
	defer s.Close()
	server := testproc.Try(placement.New(t.Context(),
		placement.Config{StateDir: dir, Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})).Or(t)
	defer func() { testproc.NoError(t, server.Close()) }()
	defer testproc.Try(server.Admin(cfg.Agent.RuntimeDir, "", commands).Start(t.Context(), zerolog.Nop())).Or(t)()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	const command, backup = "POST " + sqldb.CommandPath, "GET " + sqldb.BackupPath
	for name, calls := range map[string][]string{
		placement.AdminSocket: {command, backup}, cells.APISocket: {command, backup},
		cells.CellSocket("cell0"): {backup}, cells.CellSocket("cell1"): {backup},
	} {
		socket := filepath.Join(dir, name)
		page(t, "unix", socket, "/readyz") // it is served
		for _, call := range calls {
			method, path, _ := strings.Cut(call, " ")
			ask := func(how func(http.Header)) int {
				r := testproc.Try(http.NewRequestWithContext(t.Context(), method, "http://process"+path,
					strings.NewReader(`{"words":[]}`))).Or(t)
				how(r.Header)
				resp := testproc.Try(clientAt("unix", socket).Do(r)).Or(t)
				testproc.NoError(t, resp.Body.Close())
				return resp.StatusCode
			}
			got := []int{
				ask(func(http.Header) {}),
				ask(func(h http.Header) { h.Set("Authorization", files.KeyScheme+"another") }),
				ask(func(h http.Header) { testproc.NoError(t, files.SetKey(h, socket)) }),
			}
			testproc.Samef(t, cmp.Diff([]int{403, 403, 200}, got),
				"%s at %s without a key, with another one, with the key", call, name)
		}
	}
	end()
	testproc.NoError(t, <-ended)
}

// TestStandaloneIsWatched: the compute API and the cells of a standalone agent have admin sockets,
// of which nothing is left; the address of [cell] is that of the cell with hosts.
func TestStandaloneIsWatched(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	address := testproc.FreeAddress(t)
	_, s := computeIn(t, dir, config.Override{Key: "cell.metrics_listen", Value: address})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	api := filepath.Join(dir, "compute-api.sock")
	testproc.Equal(t, page(t, "unix", api, "/readyz"), "ready\ncell0: up\ncell1: up\n", "the compute API is %q")
	if got := page(t, "unix", filepath.Join(dir, "cell-cell0.sock"), "/readyz"); got != "ready\ncell0: up\n" {
		t.Errorf("cell0 is %q", got)
	}
	testproc.Equal(t, page(t, "tcp", address, "/readyz"), "ready\ncell1: up\n", "at the address of [cell] is %q")
	end()
	testproc.NoError(t, <-ended)
	s.Close()
	if left, err := filepath.Glob(filepath.Join(dir, "*.sock")); err != nil || len(left) > 0 {
		t.Errorf("left behind are %v, %v", left, err)
	}
}
