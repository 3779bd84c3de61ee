// SPDX-License-Identifier: Apache-2.0

package gather_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	timeout  = 10 * time.Second
	fastFail = 5 * time.Second
)

// behaviour is how a cell answers one request.
type behaviour func(*http.Request) (*http.Response, error)

func answers(status int, body string) behaviour {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
			Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

var up = answers(200, `{"name":"c","epoch":"e","services":[]}`)

func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// slow answers after a while.
func slow(d time.Duration) behaviour {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return up(r)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// stalls gives half a body and then nothing.
func stalls(r *http.Request) (*http.Response, error) {
	resp, err := up(r)
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"name":`), readerFunc(func([]byte) (int, error) {
		<-r.Context().Done()
		return 0, r.Context().Err()
	})))
	return resp, err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func refused(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") }

// cloud is a number of cells whose behaviour a test changes.
type cloud struct {
	mu       sync.Mutex
	behave   map[string]behaviour // by host of the URL
	requests map[string]int
	clients  atomic.Int64
	log      bytes.Buffer
	cells    []apidb.Cell
}

func newCloud(behaviours ...behaviour) *cloud {
	c := &cloud{behave: map[string]behaviour{}, requests: map[string]int{}}
	for i, b := range behaviours {
		name := fmt.Sprintf("cell%d", i)
		c.cells = append(c.cells, apidb.Cell{UUID: fmt.Sprintf("uuid%d", i), Name: name, URL: "http://" + name})
		c.behave[name] = b
	}
	return c
}

func (c *cloud) set(i int, b behaviour) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behave[c.cells[i].Name] = b
}

func (c *cloud) asked(i int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[c.cells[i].Name]
}

// RoundTrip carries a request to the cell of that name.
func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.requests[r.URL.Host]++
	b := c.behave[r.URL.Host]
	c.mu.Unlock()
	if b == nil {
		return nil, errors.New("no such host")
	}
	return b(r)
}

func (c *cloud) gatherer(fastFail time.Duration) *gather.Gatherer {
	return gather.New(gather.Options{
		Client: func(cell apidb.Cell) (*cellclient.Client, error) {
			c.clients.Add(1)
			return cellclient.New(cellclient.Config{URL: cell.URL, Transport: c})
		},
		Timeout: timeout, FastFail: fastFail, Logger: zerolog.New(&c.log),
	})
}

func (c *cloud) all(ctx context.Context, g *gather.Gatherer) []gather.Answer[[]cellwire.Service] {
	return gather.All(ctx, g, c.cells, services)
}

func services(ctx context.Context, c *cellclient.Client) ([]cellwire.Service, error) {
	return c.Services(ctx)
}

// states are the states of answers, "down" added if they say so.
func states[T any](answers []gather.Answer[T]) []string {
	var all []string
	for _, a := range answers {
		s := a.State.String()
		if a.Down() {
			s += ", down"
		}
		all = append(all, s)
	}
	return all
}

func check(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

const (
	isUp     = "up"
	isHung   = "timed out, down"
	isFailed = "failed, down"
)

func TestErrorsThatMeanDown(t *testing.T) {
	tests := []struct {
		name string
		b    behaviour
		want string
	}{
		{"up", up, isUp},
		{"just in time", slow(timeout - time.Millisecond), isUp},
		{"just too late", slow(timeout + time.Millisecond), isHung},
		{"silent", hangs, isHung},
		{"stalling half way", stalls, isHung},
		{"no connection", refused, isFailed},
		{"garbage", answers(200, `{"services":[`), isFailed},
		{"500", answers(500, `{"code":"internal","message":"x"}`), isFailed},
		{"503", answers(503, `{"code":"unavailable","message":"x"}`), isFailed},
		{"redirect", answers(307, ``), isFailed},
		{"401", answers(401, `{"code":"unauthorized","message":"x"}`), isFailed},
		{"403", answers(403, `{"code":"forbidden","message":"x"}`), isFailed},
		{"404", answers(404, `{"code":"not_found","message":"x"}`), isUp},
		{"409", answers(409, `{"code":"conflict","message":"x"}`), isUp},
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		var want []string
		for i, test := range tests {
			name := fmt.Sprintf("cell%d", i)
			c.cells = append(c.cells, apidb.Cell{UUID: name, Name: name, URL: "http://" + name})
			c.behave[name] = test.b
			want = append(want, test.want)
		}
		start := time.Now()
		got := c.all(t.Context(), c.gatherer(0))
		if took := time.Since(start); took != timeout {
			t.Errorf("it took %v", took)
		}
		check(t, want, states(got))
		for i, a := range got {
			if a.Cell != c.cells[i] {
				t.Errorf("answer %d is of %s", i, a.Cell.Name)
			}
			var refusal *cellwire.Error
			is := strings.HasPrefix(tests[i].name, "404") || strings.HasPrefix(tests[i].name, "409")
			if errors.As(a.Err, &refusal) != is {
				t.Errorf("%s: %v", tests[i].name, a.Err)
			}
			var failure *cellclient.Failure
			if a.Down() && !errors.As(a.Err, &failure) {
				t.Errorf("%s: no failure beneath %v", tests[i].name, a.Err)
			}
		}
	})
}

// Nova's test_scatter_gather_cells_timeout: of two workers one is blocked; the other's result is
// there, and a sentinel.
func TestOneOfTwoIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up, hangs)
		check(t, []string{isUp, isHung}, states(c.all(t.Context(), c.gatherer(0))))
	})
}

// Nova's test_scatter_gather_cells_queued_task_cancelled and _exception: what runs ends, and an
// error of ask's own is its result.
func TestErrorsThatDoNotMeanDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up)
		g := c.gatherer(fastFail)
		own := errors.New("mine")
		_, err := gather.One(t.Context(), g, c.cells[0], func(context.Context, *cellclient.Client) (int, error) { return 1, own })
		if !errors.Is(err, own) || errors.Is(err, gather.ErrDown) {
			t.Errorf("got %v", err)
		}
		c.set(0, hangs)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		start := time.Now()
		_, err = gather.One(ctx, g, c.cells[0], services)
		if time.Since(start) != time.Second || !errors.Is(err, context.Canceled) || errors.Is(err, gather.ErrDown) {
			t.Errorf("a caller that goes away: %v after %v", err, time.Since(start))
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = gather.One(ctx, g, c.cells[0], services)
		if !errors.Is(err, gather.ErrDown) || g.States()[0].CircuitOpen {
			t.Errorf("a caller with less time than a cell may take: %v, %+v", err, g.States()[0])
		}
		if c.log.Len() != 0 {
			t.Errorf("logged: %s", c.log.String())
		}
	})
}

func TestPanicReachesTheCaller(t *testing.T) {
	c := newCloud(up, up)
	g := c.gatherer(0)
	defer func() {
		if p := recover(); p != "oh" {
			t.Errorf("recovered %v", p)
		}
	}()
	var asked atomic.Int64
	gather.All(t.Context(), g, c.cells, func(context.Context, *cellclient.Client) (int, error) {
		if asked.Add(1) == 2 {
			panic("oh")
		}
		return 0, nil
	})
	t.Error("no panic")
}

func TestFiftyListsDuringAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up, hangs, slow(time.Second))
		g := c.gatherer(fastFail)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = g.Run(ctx) }()
		start := time.Now()
		var lists sync.WaitGroup
		for range 50 {
			lists.Go(func() {
				check(t, []string{isUp, isHung, isUp}, states(c.all(t.Context(), g)))
				if took := time.Since(start); took > timeout {
					t.Errorf("it took %v", took)
				}
			})
		}
		lists.Wait()
		if n := strings.Count(c.log.String(), "\n"); n != 1 {
			t.Errorf("%d lines: %s", n, c.log.String())
		}
		before := time.Now()
		check(t, []string{isUp, isHung, isUp}, states(c.all(t.Context(), g)))
		if took := time.Since(before); took != time.Second {
			t.Errorf("after the hang is known it took %v, the time of the slow cell", took)
		}
	})
}

func TestFastFail(t *testing.T) {
	one := func(t *testing.T, c *cloud, g *gather.Gatherer) (time.Duration, error) {
		start := time.Now()
		_, err := gather.One(t.Context(), g, c.cells[0], services)
		return time.Since(start), err
	}
	t.Run("is for as long as it says", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(hangs)
			g := c.gatherer(fastFail)
			for i, want := range []struct{ wait, took time.Duration }{{0, timeout}, {0, 0}, {fastFail - 1, 0}, {1, timeout}, {0, 0}} {
				time.Sleep(want.wait)
				took, err := one(t, c, g)
				if took != want.took || !errors.Is(err, gather.ErrDown) {
					t.Errorf("request %d took %v: %v", i, took, err)
				}
				if want.took == 0 && !cellclient.NotSent(err) {
					t.Errorf("request %d: what was not sent does not say so: %v", i, err)
				}
			}
			check(t, 2, c.asked(0))
			s := g.States()[0]
			check(t, []uint64{0, 2, 0, 3}, []uint64{s.Answered, s.TimedOut, s.Failed, s.NotSent})
		})
	})
	t.Run("is off at 0", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(hangs)
			g := c.gatherer(0)
			for range 3 {
				if took, _ := one(t, c, g); took != timeout {
					t.Errorf("it took %v", took)
				}
			}
		})
	})
	t.Run("is not for cells that fail at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(refused)
			g := c.gatherer(fastFail)
			_, _ = one(t, c, g)
			c.set(0, up)
			if _, err := one(t, c, g); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("ends at once when the cell answers, by Run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(hangs)
			g := c.gatherer(fastFail)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- g.Run(ctx) }()
			_, _ = one(t, c, g)
			for range 20 { // much longer than FastFail: no request has to wait
				time.Sleep(7 * time.Second)
				if took, err := one(t, c, g); took != 0 || !errors.Is(err, gather.ErrDown) {
					t.Fatalf("it took %v: %v", took, err)
				}
			}
			c.set(0, up)
			time.Sleep(timeout + time.Second) // the probe under way ends, and the next is answered
			check(t, gather.OK, g.States()[0].State)
			if took, err := one(t, c, g); took != 0 || err != nil {
				t.Errorf("it took %v: %v", took, err)
			}
			lines := strings.Split(strings.TrimSpace(c.log.String()), "\n")
			if len(lines) != 2 || !strings.Contains(lines[0], "is down") || !strings.Contains(lines[0], "hint") || !strings.Contains(lines[1], "is up again") {
				t.Errorf("logged %q", lines)
			}
			asked := c.asked(0)
			time.Sleep(time.Hour)
			check(t, asked, c.asked(0))
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("ends with another URL", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(hangs)
			g := c.gatherer(fastFail)
			_, _ = one(t, c, g)
			c.cells[0].URL = "http://moved"
			c.behave["moved"] = up
			for range 3 {
				if took, err := one(t, c, g); took != 0 || err != nil {
					t.Errorf("it took %v: %v", took, err)
				}
			}
			check(t, int64(2), c.clients.Load())
			if n := strings.Count(c.log.String(), "is up again"); n != 1 {
				t.Errorf("logged %d times that it answers again: %s", n, c.log.String())
			}
		})
	})
	t.Run("logs its end after a second wrong URL", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(refused)
			g := c.gatherer(fastFail)
			for _, at := range []struct {
				url    string
				behave behaviour
			}{{"cell0", refused}, {"wrong", refused}, {"right", up}, {"also-right", up}} {
				c.cells[0].URL, c.behave[at.url] = "http://"+at.url, at.behave
				_, _ = one(t, c, g)
			}
			if down, again := strings.Count(c.log.String(), "is down"), strings.Count(c.log.String(), "is up again"); down != 2 || again != 1 {
				t.Errorf("told %d times that it is down, and %d that it answers again: %s", down, again, c.log.String())
			}
		})
	})
	t.Run("is not for the slow request of a cell that answered others meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(hangs)
			g := c.gatherer(fastFail)
			done := make(chan struct{})
			go func() { defer close(done); _, _ = one(t, c, g) }()
			time.Sleep(time.Second)
			c.set(0, up)
			_, err := one(t, c, g)
			<-done
			if s := g.States()[0]; err != nil || s.CircuitOpen || s.State != gather.OK {
				t.Errorf("%v, %+v", err, s)
			}
		})
	})
	t.Run("ends when no request asks for the cell any more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(hangs)
			g := c.gatherer(fastFail)
			go func() { _ = g.Run(t.Context()) }()
			_, _ = one(t, c, g)
			time.Sleep(time.Hour)
			asked := c.asked(0)
			time.Sleep(time.Hour)
			check(t, asked, c.asked(0))
		})
	})
	t.Run("the circuit breaker closes when a hanging cell begins to refuse", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(hangs)
			g := c.gatherer(fastFail)
			go func() { _ = g.Run(t.Context()) }()
			_, _ = one(t, c, g)
			c.set(0, refused)
			time.Sleep(timeout + time.Second)
			s := g.States()[0]
			if s.CircuitOpen || s.State != gather.Failed {
				t.Errorf("%+v", s)
			}
		})
	})
}

func TestNoClient(t *testing.T) {
	c := newCloud(up)
	g := c.gatherer(fastFail)
	c.cells[0].URL = "nonsense"
	_, err := gather.One(t.Context(), g, c.cells[0], services)
	if !errors.Is(err, gather.ErrDown) || !cellclient.NotSent(err) {
		t.Errorf("got %v", err)
	}
	c.cells[0].URL = "http://cell0"
	if _, err := gather.One(t.Context(), g, c.cells[0], services); err != nil {
		t.Error(err)
	}
}

func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up, refused)
		g := c.gatherer(0)
		start := time.Now()
		for range 3 {
			c.all(t.Context(), g)
			time.Sleep(time.Minute)
		}
		got := g.States()
		if got[1].Cause == "" || got[0].Cause != "" {
			t.Errorf("causes: %+v", got)
		}
		got[1].Cause = ""
		check(t, []gather.CellState{
			{Cell: c.cells[0], State: gather.OK, Since: start, LastAnswer: start.Add(2 * time.Minute), Answered: 3},
			{Cell: c.cells[1], State: gather.Failed, Since: start, Failed: 3},
		}, got)
		if n := strings.Count(c.log.String(), "\n"); n != 1 {
			t.Errorf("%d lines: %s", n, c.log.String())
		}
	})
}

func BenchmarkGather50(b *testing.B) {
	var behaviours []behaviour
	for range 50 {
		behaviours = append(behaviours, up)
	}
	c := newCloud(behaviours...)
	g := c.gatherer(fastFail)
	b.ReportAllocs()
	for b.Loop() {
		for _, a := range c.all(b.Context(), g) {
			if a.Err != nil {
				b.Fatal(a.Err)
			}
		}
	}
}

// The same over real sockets: cells that take connections and say nothing, or stop half way. No
// others are asked: so the short timeout decides nothing but when the test ends, however slow the
// machine is.
func TestRealTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	release := make(chan struct{})
	half := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"services":[`)
		_ = http.NewResponseController(w).Flush()
		<-release
	}))
	defer half.Close()
	defer close(release)
	g := gather.New(gather.Options{
		Client:  func(c apidb.Cell) (*cellclient.Client, error) { return cellclient.New(cellclient.Config{URL: c.URL}) },
		Timeout: 50 * time.Millisecond, FastFail: time.Hour, Logger: zerolog.Nop(),
	})
	defer g.CloseIdle()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	cells := []apidb.Cell{
		{UUID: "a", URL: "http://" + listener.Addr().String()},
		{UUID: "b", URL: half.URL},
	}
	check(t, []string{isHung, isHung}, states(gather.All(t.Context(), g, cells, services)))
	check(t, []string{isHung, isHung}, states(gather.All(t.Context(), g, cells, services)))
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestARenamedCell: a client means a cell by its name, so that another name needs another one.
func TestARenamedCell(t *testing.T) {
	var made []string
	g := gather.New(gather.Options{Timeout: time.Second, Logger: zerolog.Nop(), Client: func(c apidb.Cell) (*cellclient.Client, error) {
		made = append(made, c.Name)
		return nil, errors.New("none")
	}})
	for _, name := range []string{"a", "b"} {
		cell := apidb.Cell{UUID: "u", Name: name, URL: "http://cell"}
		_, err := gather.One(t.Context(), g, cell, func(ctx context.Context, c *cellclient.Client) (cellwire.CellInfo, error) { return c.Cell(ctx) })
		if !errors.Is(err, gather.ErrDown) {
			t.Error(err)
		}
		if s := g.States(); len(s) != 1 || s[0].Failed != 1 {
			t.Errorf("as %s: %+v", name, s)
		}
	}
}
