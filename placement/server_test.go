// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// config is a service on a fresh state directory where the user "admin" may do everything.
func config(t *testing.T) placement.Config {
	t.Helper()
	return placement.Config{
		StateDir: filepath.Join(t.TempDir(), "state"),
		Auth:     placement.Auth{Strategy: placement.NoAuth},
		Policy:   api.Legacy,
		Logger:   zerolog.Nop(),
	}
}

// send sends a request as the admin, at 1.39, and checks the status.
func send(t *testing.T, client *http.Client, method, url, body string, status int) []byte {
	t.Helper()
	r := testproc.Send(t, client, method, url, "placement latest", body)
	if r.Code != status {
		t.Fatalf("%s, want %d", r, status)
	}
	return r.Body
}

func providers(t *testing.T, client *http.Client, url string) []string {
	t.Helper()
	var list wire.ResourceProviders
	testproc.Check(t, json.Unmarshal(send(t, client, "GET", url+"/resource_providers", "", 200), &list))
	var names []string
	for _, p := range list.ResourceProviders {
		names = append(names, p.Name)
	}
	return names
}

func listen(t *testing.T) (l net.Listener, url string) {
	t.Helper()
	l = testproc.Listen(t)
	return l, "http://" + l.Addr().String()
}

func TestServeUntilTheContextEnds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := testproc.Try(placement.New(t.Context(), config(t))).Or(t)
	l, url := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{}}
	send(t, client, "POST", url+"/resource_providers", `{"name":"node"}`, 200)
	if got := providers(t, client, url); len(got) != 1 || got[0] != "node" {
		t.Errorf("the providers are %v", got)
	}
	client.CloseIdleConnections()
	stop()
	testproc.NoErrorf(t, <-served, "Serve")
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
	testproc.NoErrorf(t, server.Close(), "Close")
}

// TestLogOfStopping: what the log says of a stop is what happens.
func TestLogOfStopping(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for says, delay := range map[string]time.Duration{"/readyz answers 503 now": time.Millisecond,
		"no new connections are taken": 0} {
		var log bytes.Buffer
		cfg := config(t)
		cfg.ShutdownDelay, cfg.Logger = delay, zerolog.New(zerolog.SyncWriter(&log))
		server := testproc.Try(placement.New(t.Context(), cfg)).Or(t)
		l, _ := listen(t)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		testproc.NoError(t, errors.Join(server.Serve(ctx, l), server.Close()))
		if text := log.String(); strings.Count(text, "Stopping: ") != 1 || !strings.Contains(text, says) {
			t.Errorf("with a delay of %v, the log has %s", delay, text)
		}
	}
}

func TestARequestUnderWayIsFinished(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	held := &holding{entered: make(chan struct{}), leave: make(chan struct{})}
	cfg := config(t)
	cfg.Auth, cfg.ShutdownGrace = placement.Auth{Authenticator: held}, testproc.Patience
	server := testproc.Try(placement.New(t.Context(), cfg)).Or(t)
	t.Cleanup(func() { _ = server.Close() })
	l, url := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	status := make(chan int, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, url+"/resource_providers", nil)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			status <- -1
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-held.entered
	stop()
	for { // Until no new connection is taken, the server has not seen the end of the context.
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(held.leave)
	testproc.Equal(t, <-status, 200, "the request under way: status %d")
	testproc.NoErrorf(t, <-served, "Serve")
}

// holding keeps a request until it may leave.
type holding struct {
	entered, leave chan struct{}
	once           sync.Once
}

func (h *holding) Authenticate(*http.Request) (osapi.Principal, error) {
	h.once.Do(func() { close(h.entered) })
	<-h.leave
	return osapi.Principal{User: "admin", Roles: []string{"admin"}}, nil
}

// steps is a listener that reports each call of Accept, and when it is closed.
type steps struct {
	net.Listener
	accepting chan struct{}
	closed    chan struct{}
	once      sync.Once
}

func (s *steps) Accept() (net.Conn, error) {
	s.accepting <- struct{}{}
	return s.Listener.Accept()
}

func (s *steps) Close() error {
	defer s.once.Do(func() { close(s.closed) })
	return s.Listener.Close()
}

// TestARequestOfANewConnectionIsAnswered: a connection that was accepted before the end has its
// request answered, also when that arrives after.
func TestARequestOfANewConnectionIsAnswered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cfg := config(t)
	cfg.ShutdownGrace = testproc.Patience
	server := testproc.Try(placement.New(t.Context(), cfg)).Or(t)
	t.Cleanup(func() { _ = server.Close() })
	tcp, _ := listen(t)
	l := &steps{Listener: tcp, accepting: make(chan struct{}, 10), closed: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	<-l.accepting
	c := testproc.Try(net.Dial("tcp", l.Addr().String())).Or(t)
	defer func() { _ = c.Close() }()
	<-l.accepting // the connection is the server's, which waits for the next one
	stop()
	<-l.closed
	testproc.Try(io.WriteString(c, "GET / HTTP/1.1\r\nHost: placement\r\n\r\n")).Or(t)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	testproc.Checkf(t, err, "the request was not answered")
	_ = resp.Body.Close()
	testproc.Equal(t, resp.StatusCode, http.StatusOK, "status %d")
	testproc.NoErrorf(t, <-served, "Serve")
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tokens := filepath.Join(t.TempDir(), "tokens")
	testproc.Check(t, os.WriteFile(tokens, []byte("not a token file\n"), 0o600))
	for name, c := range map[string]struct {
		change func(*placement.Config)
		says   string
	}{
		"no database": {func(c *placement.Config) { c.StateDir = "" }, "state directory"},
		"another database": {func(c *placement.Config) { c.Database = "redis://root:s3cret@host/placement" },
			"redis"},
		"no path":     {func(c *placement.Config) { c.Database = "sqlite://placement.db" }, "sqlite:///PATH"},
		"no strategy": {func(c *placement.Config) { c.Auth = placement.Auth{} }, "strategy"},
		"no token file": {func(c *placement.Config) { c.Auth = placement.Auth{Strategy: placement.Token} },
			"token file"},
		"an unused file": {func(c *placement.Config) { c.Auth.TokenFile = tokens }, "no effect"},
		"a missing file": {func(c *placement.Config) {
			c.Auth = placement.Auth{Strategy: placement.Token,
				TokenFile: tokens + "x"}
		}, tokens + "x"},
		"a bad token file": {func(c *placement.Config) {
			c.Auth = placement.Auth{Strategy: placement.Token,
				TokenFile: tokens}
		}, "line 1"},
		"an odd policy":      {func(c *placement.Config) { c.Policy = "strict" }, "strict"},
		"noauth for all":     {func(c *placement.Config) { c.Listen = "0.0.0.0:8778" }, "loopback"},
		"noauth by name":     {func(c *placement.Config) { c.Listen = "example.com:8778" }, "loopback"},
		"noauth on any":      {func(c *placement.Config) { c.Listen = ":8778" }, "loopback"},
		"an address of none": {func(c *placement.Config) { c.Listen = "127.0.0.1" }, "HOST:PORT"},
	} {
		cfg := config(t)
		c.change(&cfg)
		server, err := placement.New(t.Context(), cfg)
		if err == nil {
			t.Errorf("%s: it is taken", name)
			_ = server.Close()
			continue
		}
		if !errors.Is(err, placement.ErrConfig) || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestNoAuthServesLoopbackOnly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := testproc.Try(placement.New(t.Context(), config(t))).Or(t)
	t.Cleanup(func() { _ = server.Close() })
	l := &elsewhere{}
	if err := server.Serve(t.Context(), l); !errors.Is(err, placement.ErrNotLoopback) || !l.closed {
		t.Errorf("Serve: %v; the listener is closed: %v", err, l.closed)
	}
}

// elsewhere is a listener on an address of a network.
type elsewhere struct{ closed bool }

func (*elsewhere) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (*elsewhere) Addr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8778} }
func (e *elsewhere) Close() error            { e.closed = true; return nil }

func TestDirect(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cfg := config(t)
	cfg.Auth, cfg.Policy = placement.Auth{}, api.Secure
	cfg.Database = "sqlite://" + filepath.Join(t.TempDir(), "placement.db")
	direct := testproc.Try(placement.NewDirect(t.Context(), cfg)).Or(t)
	client := &http.Client{Transport: direct}
	const url = "http://placement.invalid"
	send(t, client, "GET", url, "", 200)
	send(t, client, "POST", url+"/resource_providers", `{"name":"node"}`, 200)
	send(t, client, "POST", url+"/resource_providers", `{"name":"node"}`, 409)
	send(t, client, "POST", url+"/reshaper", `{}`, 400) // Allowed: the caller is a service.
	send(t, client, "GET", url+"/nothing", "", 404)
	if got := providers(t, client, url); len(got) != 1 || got[0] != "node" {
		t.Errorf("the providers are %v", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	req := testproc.Try(http.NewRequestWithContext(ended, http.MethodGet, url+"/traits", nil)).Or(t)
	if resp, err := direct.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that was given up: %v, %v", resp, err)
	}
	testproc.NoError(t, direct.Close())
	if resp, err := direct.RoundTrip(req.WithContext(t.Context())); err == nil {
		t.Errorf("a closed service answers %v", resp)
	}
	// A server on the same database shows what was written now that it is closed.
	cfg.Auth, cfg.Policy = placement.Auth{Strategy: placement.NoAuth}, api.Legacy
	server := testproc.Try(placement.New(t.Context(), cfg)).Or(t)
	l, beside := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	network := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if got := providers(t, network, beside); len(got) != 1 || got[0] != "node" {
		t.Errorf("the server's providers are %v", got)
	}
	stop()
	testproc.NoError(t, errors.Join(<-served, server.Close()))
}
