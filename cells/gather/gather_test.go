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
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	timeout      = 10 * time.Second
	pingInterval = time.Second
	downTime     = 2 * time.Second
)

// behaviour is how a cell answers one request.
type behaviour func(*http.Request) (*http.Response, error)

func answers(status int, body string) behaviour {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status,
			Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
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
	late     atomic.Int64 // nanoseconds that the gatherer's clock is ahead
	log      bytes.Buffer
	cells    []apidb.Cell
}

func (c *cloud) now() time.Time { return time.Now().Add(time.Duration(c.late.Load())) }

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

// gatherer makes one that pings cells at an interval, if that is not 0 and it runs.
func (c *cloud) gatherer(interval time.Duration) *gather.Gatherer {
	return gather.New(gather.Options{
		Client: func(cell apidb.Cell) (*cellclient.Client, error) {
			c.clients.Add(1)
			return cellclient.New(cellclient.Config{URL: cell.URL, Transport: c})
		},
		Timeout: timeout, PingInterval: interval, DownTime: 2 * interval, Now: c.now, Logger: zerolog.New(&c.log),
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
	testproc.Same(t, cmp.Diff(want, got))
}

const (
	isUp     = "up"
	isHung   = "timed out, down"
	isFailed = "failed, down"
)

func TestErrorsThatMeanDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
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
		testproc.Equal(t, time.Since(start), timeout, "it took %v")
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

// TestOneOfTwoIsBlocked: Nova's test_scatter_gather_cells_timeout: of two workers one is blocked;
// the other's result is there, and a sentinel.
func TestOneOfTwoIsBlocked(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up, hangs)
		check(t, []string{isUp, isHung}, states(c.all(t.Context(), c.gatherer(0))))
	})
}

// TestErrorsThatDoNotMeanDown: Nova's test_scatter_gather_cells_queued_task_cancelled and
// _exception: what runs ends, and an error of ask's own is its result.
func TestErrorsThatDoNotMeanDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up)
		g := c.gatherer(pingInterval)
		own := errors.New("mine")
		_, err := gather.One(t.Context(), g, c.cells[0],
			func(context.Context, *cellclient.Client) (int, error) { return 1, own })
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
	testproc.Parallel(t, testproc.Light)
	c := newCloud(up, up)
	g := c.gatherer(0)
	defer func() {
		testproc.Equal(t, recover(), "oh", "recovered %v")
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
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up, hangs, slow(time.Second))
		g := c.gatherer(0)
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
	})
}

func TestNoClient(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(up)
	g := c.gatherer(0)
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
	testproc.Parallel(t, testproc.Light)
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
			{Cell: c.cells[0], State: gather.OK, Since: start, LastAnswer: start.Add(2 * time.Minute),
				Requests: gather.Counts{Answered: 3}},
			{Cell: c.cells[1], State: gather.Failed, Since: start, Requests: gather.Counts{Failed: 3}},
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
	g := c.gatherer(0)
	b.ReportAllocs()
	for b.Loop() {
		for _, a := range c.all(b.Context(), g) {
			if a.Err != nil {
				b.Fatal(a.Err)
			}
		}
	}
}

// TestTimeoutOverSockets: the same over real sockets: cells that take connections and say nothing,
// or stop half way. No others are asked: so the short timeout decides nothing but when the test
// ends, however slow the machine is.
func TestTimeoutOverSockets(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	listener := testproc.Try(net.Listen("tcp", "127.0.0.1:0")).Or(t)
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
		Client: func(c apidb.Cell) (*cellclient.Client, error) {
			return cellclient.New(
				cellclient.Config{URL: c.URL})
		},
		Timeout: 50 * time.Millisecond, Logger: zerolog.Nop(),
	})
	defer g.CloseIdle()
	cells := []apidb.Cell{
		{UUID: "a", URL: "http://" + listener.Addr().String()},
		{UUID: "b", URL: half.URL},
	}
	check(t, []string{isHung, isHung}, states(gather.All(t.Context(), g, cells, services)))
}

// TestARenamedCell: a client means a cell by its name, so that another name needs another one.
func TestARenamedCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var made []string
	g := gather.New(gather.Options{Timeout: time.Second,
		Logger: zerolog.Nop(), Client: func(c apidb.Cell) (*cellclient.Client, error) {
			made = append(made, c.Name)
			return nil, errors.New("none")
		}})
	for _, name := range []string{"a", "b"} {
		cell := apidb.Cell{UUID: "u", Name: name, URL: "http://cell"}
		_, err := gather.One(t.Context(), g, cell,
			func(ctx context.Context, c *cellclient.Client) (cellwire.CellInfo, error) { return c.Cell(ctx) })
		testproc.ErrorIs(t, err, gather.ErrDown, "a request to a cell that is down: %v")
		if s := g.States(); len(s) != 1 || s[0].Requests.Failed != 1 {
			t.Errorf("as %s: %+v", name, s)
		}
	}
}
