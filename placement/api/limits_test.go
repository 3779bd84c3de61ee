// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// pipes is a listener whose connections are made in this process, so that time can be a test's own.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

const putHead = "PUT /resource_providers/" + rp1 +
	"/inventories HTTP/1.1\r\nHost: placement\r\nX-Auth-Token: admin\r\n" +
	"OpenStack-API-Version: placement 1.39\r\nAccept: application/json\r\nContent-Type: application/json\r\n"

// TestABodyThatDoesNotArrive: a client that announces a body and does not send it gets a 408 that
// says so when the time is over, not a cut connection.
func TestABodyThatDoesNotArrive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, head := range map[string]string{
		"nothing of it":   "Content-Length: 100\r\n\r\n",
		"a part of it":    "Content-Length: 100\r\n\r\n{\"resource_provider_generation\":",
		"no last chunk":   "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
		"a large promise": "Content-Length: 1000000\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newAPI(t, func(c *api.Config) { c.Limits.BodyTime = 3 * time.Second })
				host(t, h)
				listener := newPipes()
				server := &http.Server{Handler: h, ReadTimeout: time.Minute}
				served := make(chan error, 1)
				go func() { served <- server.Serve(listener) }()
				conn, began := listener.dial(), time.Now()
				testproc.Try(io.WriteString(conn, putHead+head)).Or(t)
				resp := testproc.Try(http.ReadResponse(bufio.NewReader(conn), nil)).Or(t)
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusRequestTimeout ||
					resp.Header.Get("Content-Type") != "application/json" ||
					!strings.Contains(string(body), "did not arrive in time") {
					t.Errorf("a body that does not arrive: got %d %v %s, %v, want 408 in JSON",
						resp.StatusCode, resp.Header, body, err)
				}
				testproc.Equal(t, time.Since(began), 3*time.Second, "it took %v")
				if !resp.Close {
					t.Error("the connection stays open, with the rest of the body on it")
				}
				testproc.Equal(t, h.Load(), osapi.Load{}, "the API is left with %+v")
				testproc.NoError(t, errors.Join(conn.Close(), server.Close()))
				testproc.ErrorIs(t, <-served, http.ErrServerClosed, "the end of the server: %v")
				time.Sleep(time.Minute) // of the bubble: net/http lets the client read the answer before it closes
			})
		})
	}
}

// TestABodyThatDoesNotArriveOverHTTP2: there, the deadline is that of one stream; the others on its
// connection go on.
func TestABodyThatDoesNotArriveOverHTTP2(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t, func(c *api.Config) { c.Limits.BodyTime = 10 * time.Millisecond })
	host(t, h)
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for range 2 {
		body, rest := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(),
			http.MethodPut, server.URL+"/resource_providers/"+rp1+"/inventories", body)
		testproc.Check(t, err)
		req.ContentLength = 100
		req.Header.Set("X-Auth-Token", "admin")
		req.Header.Set("Content-Type", "application/json")
		resp := testproc.Try(server.Client().Do(req)).Or(t)
		answer, err := io.ReadAll(resp.Body)
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusRequestTimeout ||
			!strings.Contains(string(answer), "did not arrive in time") {
			t.Errorf("%s %d %s, %v", resp.Proto, resp.StatusCode, answer, err)
		}
		_ = resp.Body.Close()
		_ = rest.Close()
	}
}

// TestASlowAnswerIsNoSlowBody: the time for the body does not count against the work that follows
// it.
func TestASlowAnswerIsNoSlowBody(t *testing.T) {
	dbservers.AboutNoDatabase(t)
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t)
		host(t, newAPI(t, func(c *api.Config) { c.Ledger = l }))
		h := newAPI(t, func(c *api.Config) { c.Limits.BodyTime = time.Second; c.Ledger = slowLedger{l} })
		listener := newPipes()
		server := &http.Server{Handler: h}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		conn := listener.dial()
		reader := bufio.NewReader(conn)
		for generation := range 2 { // the second on the same connection
			body := fmt.Sprintf(`{"resource_provider_generation":%d,"inventories":{"VCPU":{"total":9}}}`, generation+1)
			testproc.Try(fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", putHead, len(body), body)).Or(t)
			resp := testproc.Try(http.ReadResponse(reader, nil)).Or(t)
			if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("PUT of an inventory by a slow client: got %d %s, %v, want 200", resp.StatusCode, answer, err)
			}
		}
		testproc.NoError(t, errors.Join(conn.Close(), server.Close()))
		<-served
	})
}

// slowLedger takes an hour for each write, unless its caller gives up.
type slowLedger struct{ *transactor.Ledger }

func (l slowLedger) Update(ctx context.Context, fn func(*ledger.Tx) error) (*ledger.Snapshot, error) {
	select {
	case <-time.After(time.Hour):
		return l.Ledger.Update(ctx, fn)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// breaking is a body that comes to a bad end.
type breaking struct{ end func() error }

func (b breaking) Read([]byte) (int, error) { return 0, b.end() }

// TestABodyThatBreaksOff: chunks that are none and cut connections are the client's, and no error
// of the server. Nothing stays counted, even where reading the body panics.
func TestABodyThatBreaksOff(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	for name, c := range map[string]struct {
		end    func() error
		status int
	}{
		"no chunk":       {func() error { return errors.New("invalid byte in chunk length") }, http.StatusBadRequest},
		"cut connection": {func() error { return syscall.ECONNRESET }, http.StatusBadRequest},
		"given up":       {func() error { return context.Canceled }, http.StatusServiceUnavailable},
		"panic":          {func() error { panic("a body of this process") }, http.StatusInternalServerError},
	} {
		r := httptest.NewRequest(http.MethodPut, "/resource_providers/"+rp1+"/inventories", breaking{c.end})
		r.ContentLength = -1
		r.Header.Set("X-Auth-Token", "admin")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: status %d, want %d: %s", name, w.Code, c.status, w.Body)
		}
		testproc.Equal(t, h.Load(), osapi.Load{}, "%s: still counted are %+v", name)
	}
}

// TestMemoryForBodies: a body that does not fit into what is left for all of them is refused, and
// what bodies held is given back.
func TestMemoryForBodies(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t, func(c *api.Config) { c.Limits.Bodies = 300 << 10; c.Limits.Body = 1 << 20 })
	host(t, h)
	padded := func(n int) string {
		const body = `{"resource_provider_generation":1,"inventories":{"VCPU":{"total":9}}}`
		return body + strings.Repeat(" ", n-len(body))
	}
	put := func(n, status int) *httptest.ResponseRecorder {
		t.Helper()
		return call{method: "PUT", path: "/resource_providers/" + rp1 + "/inventories", version: "1.39",
			body: padded(n), status: status}.do(t, h)
	}
	// 128 KiB of it are there when it needs 256 more.
	if w := put(200<<10, 503); w.Header().Get("Retry-After") == "" {
		t.Errorf("the refusal does not say when to come again: %v", w.Header())
	}
	testproc.Equal(t, h.Load().BodyBytes, 0, "%d bytes are still taken")
	put(128<<10, 200)
	put(1<<20+1, 413)

	// A body that is under way takes its part.
	reading, rest := io.Pipe()
	r := httptest.NewRequest(http.MethodPut, "/resource_providers/"+rp1+"/inventories", reading)
	r.Header.Set("X-Auth-Token", "admin")
	r.Header.Set("Content-Type", "application/json")
	done := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		done <- w.Code
	}()
	testproc.Try(io.WriteString(rest, strings.Repeat(" ", 100<<10))).Or(t)
	if load := h.Load(); load.Requests != 0 || load.BodyBytes != 128<<10 {
		t.Errorf("with one body under way: %+v", load)
	}
	put(128<<10, 503)
	testproc.Check(t, rest.Close())
	testproc.Equal(t, <-done, 400, "the request under way: %d")
	put(128<<10, 409) // there is room again; the generation has moved
	testproc.Equal(t, h.Load(), osapi.Load{}, "at last: %+v")
}

// TestSlowBodiesDoNotCountAsInFlight: requests whose bodies are awaited take no place from others,
// and find out when there is none left for them.
func TestSlowBodiesDoNotCountAsInFlight(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := openLedger(t)
	leave := make(chan struct{})
	held := &heldLedger{Ledger: l, entered: make(chan struct{}), leave: leave}
	h := newAPI(t, func(c *api.Config) { c.Limits.InFlight = 1; c.Ledger = held })
	statuses := make(chan int)
	send := func(body io.Reader) {
		r := httptest.NewRequest(http.MethodPost, "/resource_classes", body)
		r.Header.Set("X-Auth-Token", "admin")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("OpenStack-API-Version", "placement 1.39")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		statuses <- w.Code
	}
	var rest []*io.PipeWriter
	for range 3 {
		body, w := io.Pipe()
		rest = append(rest, w)
		go send(body)
		if _, err := io.WriteString(w, `{"name":`); err != nil { // it is being read
			t.Fatal(err)
		}
	}
	calls(t, h, call{method: "GET", path: "/resource_classes", version: "1.39", status: 200})
	go send(strings.NewReader(`{"name":"CUSTOM_A"}`))
	<-held.entered
	testproc.Try(io.WriteString(rest[0], `"CUSTOM_B"}`)).Or(t)
	_ = rest[0].Close()
	if status := <-statuses; status != http.StatusServiceUnavailable {
		t.Errorf("a body that came while another request is worked on: %d", status)
	}
	close(leave)
	testproc.Equal(t, <-statuses, http.StatusCreated, "the request that was worked on: %d")
	for _, w := range rest[1:] {
		_ = w.Close()
		testproc.Equal(t, <-statuses, http.StatusBadRequest, "half a body: %d")
	}
	testproc.Equal(t, h.Load(), osapi.Load{}, "at last: %+v")
}

// heldLedger keeps the first write until it may leave.
type heldLedger struct {
	*transactor.Ledger
	entered chan struct{}
	leave   <-chan struct{}
	once    sync.Once
}

func (l *heldLedger) Update(ctx context.Context, fn func(*ledger.Tx) error) (*ledger.Snapshot, error) {
	l.once.Do(func() { close(l.entered) })
	<-l.leave
	return l.Ledger.Update(ctx, fn)
}

// TestBodiesOfAllLengths: bodies around the sizes at which memory grows, with and without a length,
// arrive whole.
func TestBodiesOfAllLengths(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const limit = 256<<10 + 5
	h := newAPI(t, func(c *api.Config) { c.Limits.Body = limit })
	for _, n := range []int{2, 3, 4096, 64<<10 - 1, 64 << 10, 64<<10 + 1, 128 << 10, 128<<10 + 1, limit - 1,
		limit, limit + 1, 2 * limit} {
		for _, known := range []bool{true, false} {
			// A space too few or too many would make a name of it that is not allowed.
			body := `{"name":"a"}`
			if n < len(body) {
				body = "{}"
			}
			body += strings.Repeat(" ", max(n-len(body), 0))
			r := httptest.NewRequest(http.MethodPost, "/resource_classes", io.MultiReader(strings.NewReader(body)))
			r.ContentLength = -1
			if known {
				r.ContentLength = int64(len(body))
			}
			r.Header.Set("X-Auth-Token", "admin")
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("OpenStack-API-Version", "placement 1.39")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want := 400 // the name lacks CUSTOM_
			if len(body) > limit {
				want = 413
			}
			if w.Code != want {
				t.Errorf("%d bytes, length known %v: %d %s", len(body), known, w.Code, w.Body)
			}
		}
	}
}

// answers collects what an API tells its observer.
type answers struct{ list []string }

func (an *answers) Answered(a osapi.Answer) {
	an.list = append(an.list, fmt.Sprintf("%s %s %d %s in %d", a.Method, a.Route, a.Status, a.Code, a.Received))
}
func (*answers) Searched(api.Search)     {}
func (*answers) ReadStale(time.Duration) {}

// HostLimited counts nothing.
func (*answers) HostLimited() {}

// TestObserver: one line for each request, of words that no client can make up.
func TestObserver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var seen answers
	h := newAPI(t, func(c *api.Config) { c.Observer = &seen })
	stale := `{"resource_provider_generation":7,"inventories":{}}`
	calls(t, h,
		call{method: "GET", path: "/", status: 200},
		call{method: "GET", path: "/resource_providers", status: 200},
		call{method: "POST", path: "/resource_providers",
			version: "1.39", body: `{"name":"n","uuid":"` + rp1 + `"}`, status: 200},
		call{method: "PUT", path: "/resource_providers/" + rp1 + "/inventories", body: stale, status: 409},
		call{method: "BREW", path: "/resource_providers", status: 405},
		call{method: "GET", path: "/coffee/" + rp1, status: 404},
		call{method: "GET", path: "/traits", headers: []string{"-X-Auth-Token"}, status: 401},
		call{method: "GET", path: "/healthz", status: 200},
	)
	want := []string{
		"GET / 200  in 0",
		"GET /resource_providers 200  in 0",
		"POST /resource_providers 200  in 58",
		fmt.Sprintf("PUT /resource_providers/{uuid}/inventories 409 placement.concurrent_update in %d", len(stale)),
		"other /resource_providers 405 placement.undefined_code in 0",
		"GET  404 placement.undefined_code in 0",
		"GET  401 placement.undefined_code in 0",
		"GET /healthz 200  in 0",
	}
	if got, want := strings.Join(seen.list, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("observed\n%s\nwant\n%s", got, want)
	}
}
