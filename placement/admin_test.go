// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// get sends a GET through a client and returns status and body.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	req := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)).Or(t)
	req.Header.Set("X-Auth-Token", "admin")
	resp := testproc.Try(client.Do(req)).Or(t)
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// through is a client of whatever listens at the address.
func through(l net.Addr) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, l.Network(), l.String())
		}}}
}

// withKey returns the status of a GET with the key of a socket.
func withKey(t *testing.T, l net.Addr, socket, url string) (status int) {
	t.Helper()
	r := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)).Or(t)
	testproc.NoError(t, files.SetKey(r.Header, socket))
	resp := testproc.Try(through(l).Do(r)).Or(t)
	testproc.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// TestWhatIsAnsweredWhere: profiles and status are on the admin socket only, metrics there and
// where they are asked for, and nothing of it beside the API.
func TestWhatIsAnsweredWhere(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cfg := config(t)
	server := testproc.Try(placement.New(t.Context(), cfg)).Or(t)
	socket := filepath.Join(t.TempDir(), "admin.sock")
	admin := testproc.Try(osapi.ListenWithKey(t.Context(), socket)).Or(t)
	main, _ := listen(t)
	scraped, _ := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 3)
	go func() { served <- server.Serve(ctx, main) }()
	go func() { served <- server.ServeAdmin(ctx, admin, http.NotFoundHandler()) }()
	go func() { served <- server.ServeMetrics(ctx, scraped) }()

	const url = "http://placement"
	send(t, through(main.Addr()), "POST", url+"/resource_providers", `{"name":"node"}`, 200)
	paths := []string{"/healthz", "/readyz", "/metrics", "/status", "/debug/pprof/", "/debug/pprof/cmdline",
		"/debug/pprof/heap", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol", "/debug/vars", "/database"}
	for where, want := range map[net.Addr]string{
		main.Addr():    "200 200 404 404 404 404 404 404 404 404 404",
		admin.Addr():   "200 200 200 200 403 403 403 403 403 404 403",
		scraped.Addr(): "200 200 200 404 404 404 404 404 404 404 404",
	} {
		var got []string
		for _, path := range paths {
			status, _ := get(t, through(where), url+path)
			got = append(got, fmt.Sprint(status))
		}
		testproc.Equal(t, strings.Join(got, " "), want, "%s: %v answers %s", where, paths)
	}

	send(t, through(admin.Addr()), "POST", url+"/command", `{"words":["placement","db","version"]}`, 403)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap",
		"/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol", "/database"} {
		if status := withKey(t, admin.Addr(), socket, url+path); status != 200 {
			t.Errorf("%s with the key of the socket: %d", path, status)
		}
	}

	_, body := get(t, through(admin.Addr()), url+"/status")
	var status placement.Status
	testproc.Check(t, json.Unmarshal([]byte(body), &status))
	if status.ResourceProviders != 1 || status.SnapshotVersion != 2 ||
		status.Database != filepath.Join(cfg.StateDir, "placement.db") || status.Uptime < 0 || status.PID == 0 {
		t.Errorf("the status is %+v", status)
	}
	_, text := get(t, through(scraped.Addr()), url+"/metrics")
	for _, line := range []string{
		`placement_http_requests_total{method="POST",route="/resource_providers",status="200"} 1`,
		`placement_http_requests_total{method="GET",route="unmatched",status="404"} 9`,
		`placement_commits_total{outcome="durable"} 2`,
		"placement_snapshot_version 2", "placement_resource_providers 1", "placement_http_requests_in_flight 0",
		"placement_consumers_missing 0",
		"placement_build_info{", "go_goroutines ", "process_open_fds ",
	} {
		testproc.Contains(t, text, line, "the metrics lack %q:\n%s", line)
	}
	stop()
	for range 3 {
		testproc.NoError(t, <-served)
	}
	testproc.NoError(t, server.Close())
}

// memory is a listener whose connections are in this process and take no descriptors.
type memory struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func (m memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed.Done():
		return nil, net.ErrClosed
	}
}
func (m memory) Close() error { m.close(); return nil }
func (memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (m memory) dial() net.Conn {
	client, server := net.Pipe()
	m.conns <- server
	return client
}

// TestIdleConnections: 10,000 connections that send nothing, are idle after a request, or never
// finish one do not delay other clients.
func TestIdleConnections(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := testproc.Try(placement.New(t.Context(), config(t))).Or(t)
	ctx, stop := context.WithCancel(t.Context())
	closed, closeIt := context.WithCancel(t.Context())
	l := memory{make(chan net.Conn), closed, closeIt}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	const line = "GET /healthz HTTP/1.1\r\nHost: p\r\n"
	var conns []net.Conn
	for i := range 10_000 {
		conn := l.dial()
		conns = append(conns, conn)
		switch i % 3 {
		case 1: // half a head
			testproc.Try(io.WriteString(conn, line)).Or(t)
		case 2: // answered, and kept
			testproc.Try(io.WriteString(conn, line+"\r\n")).Or(t)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil }}}
	send(t, client, "POST", "http://placement/resource_providers", `{"name":"node"}`, 200)
	if got := providers(t, client, "http://placement"); len(got) != 1 {
		t.Errorf("the providers are %v", got)
	}
	testproc.Equal(t, server.Status().RequestsInFlight, 0, "%d idle connections count as requests")
	for _, c := range conns {
		_ = c.Close()
	}
	stop()
	testproc.NoError(t, errors.Join(<-served, server.Close()))
}

// TestAdminSocket: it is its owner's alone, goes with the process, and one that finds it taken says
// what it lacks. The first one has its metrics at an address, too.
func TestAdminSocket(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := filepath.Join(t.TempDir(), "run")
	socket := filepath.Join(dir, placement.AdminSocket)
	admin := func(metrics string) osapi.Admin {
		server := testproc.Try(placement.New(t.Context(), config(t))).Or(t)
		t.Cleanup(func() { testproc.NoError(t, server.Close()) })
		return server.Admin(dir, metrics, http.NotFoundHandler())
	}
	address := testproc.FreeAddress(t)
	testproc.Equal(t, admin(address).Key, "placement_metrics.listen", "the key is %s")
	var first, second bytes.Buffer
	stop := testproc.Try(admin(address).Start(t.Context(), zerolog.New(&first))).Or(t)
	if info, err := os.Stat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if _, text := get(t, http.DefaultClient, "http://"+address+"/metrics"); !strings.Contains(text, "# TYPE ") {
		t.Errorf("the address of the metrics has %q", text)
	}
	stopSecond := testproc.Try(admin("").Start(t.Context(), zerolog.New(&second))).Or(t)
	if !strings.Contains(second.String(), "--runtime-dir") || strings.Contains(first.String(), "warn") {
		t.Errorf("the first says %s, the second %s", &first, &second)
	}
	stopSecond()
	status, _ := get(t, through(&net.UnixAddr{Net: "unix", Name: socket}), "http://placement/status")
	testproc.Equal(t, status, http.StatusOK, "/status: %d")
	stop()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
