// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// streaming is a cell of two processes, a server on h1, and an agent that asks one of them.
type streaming struct {
	*world
	cells [2]*cell.Cell
	urls  [2]string
	api   *cellclient.Client
}

// newStreaming makes one whose agent asks the process with that number, which waits for it for as
// long as it takes; the other one hardly waits.
func newStreaming(t *testing.T, asked int, change ...func(*cell.Config)) *streaming {
	s := &streaming{world: begin(t)}
	s.now = time.Now()
	for i := range s.cells {
		c := cell.Config{
			Name: "cell1", Store: s.store, Auth: cell.NoAuth(), ServiceDownTime: time.Hour,
			StreamWait: 100 * time.Millisecond, Logger: zerolog.Nop(),
		}
		if i == asked {
			c.StreamWait = time.Minute
		}
		for _, f := range change {
			f(&c)
		}
		var err error
		if s.cells[i], err = cell.New(c); err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(s.cells[i])
		s.urls[i] = web.URL
		t.Cleanup(func() { s.cells[i].CloseStreams(); web.Close() })
	}
	s.cell = s.cells[0]
	do[cellwire.HostState](s.world, "PUT", "/v1/hosts/h1", cellwire.HostReport{
		Version: "9", Nodes: []cellwire.ReportedNode{{UUID: nodeUUID("h1"), Name: "h1-node",
			Abilities: []string{plugins.AbilityConsole, plugins.AbilityConsoleLog}}},
	})
	server := building(1, "h1")
	server.NodeUUID, server.CreatedAt = nodeUUID("h1"), time.Now()
	s.release(server)
	s.api = s.client(s.urls[0] + "," + s.urls[1])
	return s
}

func (s *streaming) client(url string) *cellclient.Client {
	s.t.Helper()
	c := testproc.Try(cellclient.New(cellclient.Config{URL: url, Cell: "cell1"})).Or(s.t)
	s.t.Cleanup(c.CloseIdle)
	return c
}

// agent asks one process for work until the test ends, and serves each offer once.
func (s *streaming) agent(process int, serve func(offer cellwire.StreamOffer, end *cellwire.Stream)) {
	s.t.Helper()
	client := s.client(s.urls[process])
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		seen := map[string]bool{}
		for after, epoch := int64(0), ""; ctx.Err() == nil; {
			work, err := client.Work(ctx, "h1", after, epoch, 30*time.Second)
			if err != nil {
				continue
			}
			after, epoch = work.Revision, work.Epoch
			for _, offer := range work.Streams {
				if seen[offer.ID] {
					continue
				}
				seen[offer.ID] = true
				tasks.Go(func() {
					end, err := client.AcceptStream(ctx, "h1", offer.ID)
					if err != nil {
						// the other end may be open, and the test over, before this answer is here
						if ctx.Err() == nil {
							s.t.Error(err)
						}
						return
					}
					serve(offer, end)
					_ = end.Close() // it may be
				})
			}
		}
	})
	s.t.Cleanup(func() { cancel(); tasks.Wait() })
}

// shout answers all that comes in capital letters, and ends when the other end does.
func shout(_ cellwire.StreamOffer, end *cellwire.Stream) {
	all, _ := io.ReadAll(end)
	_, _ = io.WriteString(end, strings.ToUpper(string(all)))
	_ = end.CloseWrite()
	_, _ = io.Copy(io.Discard, end)
}

// TestStreams: what one end writes the other one reads, in both directions, whichever process of
// the cell the agent asks; the end of one direction leaves the other one open.
func TestStreams(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for process, name := range []string{"the same process", "another process"} {
		t.Run(name, func(t *testing.T) {
			s := newStreaming(t, process)
			offers := make(chan cellwire.StreamOffer, 1)
			s.agent(process, func(o cellwire.StreamOffer, end *cellwire.Stream) {
				offers <- o
				shout(o, end)
			})
			end := testproc.Try(s.api.OpenStream(t.Context(), sid(1), cellwire.PurposeConsole, 7)).Or(t)
			defer func() { _ = end.Close() }()
			text := strings.Repeat("hello ", 50_000) // several frames
			testproc.Try(io.WriteString(end, text)).Or(t)
			testproc.Check(t, end.CloseWrite())
			got, err := io.ReadAll(end)
			if err != nil || string(got) != strings.ToUpper(text) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if o := <-offers; o.UUID != sid(1) || o.Purpose != cellwire.PurposeConsole ||
				o.Length != 7 || len(o.ID) < 26 {
				t.Errorf("the agent was offered %+v", o)
			}
		})
	}
}

// TestStreamEnds: an end learns how the other one ended.
func TestStreamEnds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newStreaming(t, 0)
	how := make(chan func(end *cellwire.Stream), 1)
	s.agent(0, func(_ cellwire.StreamOffer, end *cellwire.Stream) { (<-how)(end) })
	for name, c := range map[string]struct {
		agent func(end *cellwire.Stream)
		here  func(end *cellwire.Stream)
		want  string
	}{
		"abort with a reason": {agent: func(end *cellwire.Stream) {
			end.Abort(&cellwire.Error{Status: 409, Code: cellwire.CodeConflict, Message: "it does not run"})
		}, want: "it does not run (409 conflict)"},
		"lost": {agent: func(end *cellwire.Stream) { _ = end.Close() },
			want: "The other end of the stream is gone. (503 unavailable)"},
		"too much": {agent: func(end *cellwire.Stream) {
			_, _ = io.Copy(end, io.LimitReader(zeros{}, 3<<20))
		}, want: "An end of the stream sent more than 2097152 bytes. (413 too_large)"},
		"in good order": {agent: func(end *cellwire.Stream) { _ = end.CloseWrite(); _, _ = io.Copy(io.Discard, end) }},
		"cancelled here": {agent: func(end *cellwire.Stream) {
			if _, err := end.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the agent sees %v", err)
			}
		}, here: func(end *cellwire.Stream) { _ = end.Close() }, want: "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			how <- c.agent
			end := testproc.Try(s.api.OpenStream(t.Context(), sid(1), cellwire.PurposeConsoleLog, 0)).Or(t)
			defer func() { _ = end.Close() }()
			if c.here != nil {
				c.here(end)
			}
			switch _, err := io.Copy(io.Discard, end); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "lost" && !errors.Is(err, cellwire.ErrStreamLost):
				t.Error(err)
			case c.want != "" && c.want != "lost" && (err == nil || err.Error() != c.want):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestStreamsAreRefused: only the compute API opens a stream, and only the host that the server is
// on accepts it; what the host cannot do is refused before it is asked.
func TestStreamsAreRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newStreaming(t, 0)
	open := func(uuid string, purpose cellwire.Purpose) error {
		_, err := s.api.OpenStream(t.Context(), uuid, purpose, 0)
		return err
	}
	status := func(what string, err error, want int) {
		t.Helper()
		var refused *cellwire.Error
		if !errors.As(err, &refused) || refused.Status != want {
			t.Errorf("%s: %v, want %d", what, err, want)
		}
	}
	status("an unknown server", open(sid(9), cellwire.PurposeConsole), 404)
	status("an unknown purpose", open(sid(1), "sql"), 400)
	_, err := s.api.AcceptStream(t.Context(), "h1", "nothing")
	status("an unknown stream", err, 404)
	offered := make(chan string)
	s.agent(0, func(o cellwire.StreamOffer, end *cellwire.Stream) {
		_, err := s.api.AcceptStream(t.Context(), "h1", o.ID)
		status("a stream that is open", err, 404)
		end.Abort(&cellwire.Error{Status: 409, Code: cellwire.CodeConflict, Message: <-offered})
	})
	end := testproc.Try(s.api.OpenStream(t.Context(), sid(1), cellwire.PurposeConsole, 0)).Or(t)
	offered <- "done"
	_, err = io.Copy(io.Discard, end)
	status("what the agent says", err, 409)

	s.refused(426, "bad_request", "GET", "/v1/servers/"+sid(1)+"/stream?purpose=console", nil)
	do[cellwire.HostState](s.world, "PUT",
		"/v1/hosts/h1", cellwire.HostReport{Version: "9",
			Nodes: []cellwire.ReportedNode{{UUID: nodeUUID("h1"), Name: "h1-node"}}})
	status("an agent that cannot do it any more", open(sid(1), cellwire.PurposeConsole), 409)
	s.pass(time.Hour)
	status("a host that is down", open(sid(1), cellwire.PurposeConsole), 409)
}

// TestStreamOfAnotherHost: a host does not accept what is offered to another one.
func TestStreamOfAnotherHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newStreaming(t, 0)
	refused := make(chan error, 1)
	client := s.client(s.urls[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		work, err := client.Work(ctx, "h1", 0, "", 0)
		for err == nil && len(work.Streams) == 0 {
			work, err = client.Work(ctx, "h1", work.Revision, work.Epoch, 30*time.Second)
		}
		if err == nil {
			_, err = client.AcceptStream(ctx, "h2", work.Streams[0].ID)
		}
		refused <- err
		cancel() // no agent accepts it: the other end gives up
	}()
	if _, err := s.api.OpenStream(ctx, sid(1), cellwire.PurposeConsole, 0); err == nil {
		t.Error("opened without the host")
	}
	if err := <-refused; !cellclient.IsNotFound(err) {
		t.Errorf("another host: %v", err)
	}
}

// TestStreamsWithoutAgent: while the agent asks no process of the cell, the answer is a clear 503,
// and one that begins to ask in time is found.
func TestStreamsWithoutAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newStreaming(t, 1, func(c *cell.Config) { c.StreamWait = 100 * time.Millisecond })
	_, err := s.api.OpenStream(t.Context(), sid(1), cellwire.PurposeConsole, 0)
	var failure *cellclient.Failure
	if !errors.As(err, &failure) || strings.Count(err.Error(), "does not ask this process") != 2 {
		t.Errorf("got %v, want both processes to say why", err)
	}
	s = newStreaming(t, 1)
	opened := make(chan error, 1)
	go func() {
		end, err := s.api.OpenStream(t.Context(), sid(1), cellwire.PurposeConsole, 0)
		if err == nil {
			_ = end.Close()
		}
		opened <- err
	}()
	s.agent(1, shout)
	testproc.NoError(t, <-opened)
}
