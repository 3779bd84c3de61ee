// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// proxy is between the compute API and a cell: a network that can do what networks and broken
// programs do.
type proxy struct {
	server  *httptest.Server
	forward http.Handler
	ended   chan struct{}

	mu    sync.Mutex
	fault fault
	asked map[string]int // requests by path
}

// fault answers a request in the place of the cell, or says that it is to be passed on. n counts
// the requests to the same path, from 1.
type fault func(w http.ResponseWriter, r *http.Request, n int) (pass bool)

// between puts a proxy between the compute API and a cell, as an operator changes the URL of a
// cell.
func (w *world) between(t *testing.T, cell string) *proxy {
	t.Helper()
	socket := strings.TrimPrefix(w.cells[cell].url, "unix://")
	var dialer net.Dialer
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", socket)
	}}
	p := &proxy{ended: make(chan struct{}), asked: map[string]int{}}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "cell"})
	forward.Transport = transport
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) } // as a connection that breaks
	p.forward = forward
	p.server = httptest.NewServer(p)
	w.after(func() {
		close(p.ended)
		p.server.CloseClientConnections()
		p.server.Close()
		transport.CloseIdleConnections()
	})
	if out, code := w.manage(t, "update", cell, "--url", p.server.URL); code != 0 {
		t.Fatalf("update %s ended with %d:\n%s", cell, code, out)
	}
	return p
}

// fails sets how requests fail from now on; nil passes all on.
func (p *proxy) fails(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.asked = f, map[string]int{}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.URL.Path]++
	f, n := p.fault, p.asked[r.URL.Path]
	p.mu.Unlock()
	if f == nil || f(w, r, n) {
		p.forward.ServeHTTP(w, r)
	}
}

// requests is how many requests to a path there were since fails.
func (p *proxy) requests(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

// hangs takes the request and never answers.
func (p *proxy) hangs(_ http.ResponseWriter, r *http.Request, _ int) bool {
	select {
	case <-r.Context().Done():
	case <-p.ended:
	}
	panic(http.ErrAbortHandler)
}

// says answers with a status and a body.
func says(status int, kind, body string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return false
	}
}

// half answers with the beginning of a body, and breaks the connection.
func half(w http.ResponseWriter, _ *http.Request, _ int) bool {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "100000")
	_, _ = w.Write([]byte(`{"rows": [{"server": {"uuid": "`))
	panic(http.ErrAbortHandler)
}

// stuck answers with the beginning of a body, and goes no further.
func (p *proxy) stuck(w http.ResponseWriter, r *http.Request, n int) bool {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"rows": [`))
	_ = http.NewResponseController(w).Flush()
	return p.hangs(w, r, n)
}

// loses has the cell do what it is asked, and loses its answer.
func (p *proxy) loses(r *http.Request) {
	p.forward.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// breaks takes the request and breaks the connection without an answer.
func breaks(http.ResponseWriter, *http.Request, int) bool { panic(http.ErrAbortHandler) }
