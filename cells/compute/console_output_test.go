// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// consoleHost is a cloud of real cells with a server on a host whose agent serves streams.
type consoleHost struct {
	*cloud
	cell *httptest.Server
	id   string

	mu    sync.Mutex
	serve func(offer cellwire.StreamOffer, end *cellwire.Stream)
}

func newConsoleHost(t *testing.T, abilities ...string) *consoleHost {
	t.Helper()
	c := &consoleHost{cloud: newCloud(t, Options{})}
	c.cell = c.realCells()[1]
	client := testproc.Try(cellclient.New(cellclient.Config{URL: c.cell.URL})).Or(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := client.Report(ctx,
		"h1", cellwire.HostReport{Version: "1",
			Nodes: []cellwire.ReportedNode{{UUID: uuid(1001), Name: "h1", Abilities: abilities}}})
	testproc.Check(t, err)
	s := server(1, "web")
	s.VMState, s.TaskState, s.PowerState, s.LaunchedAt,
		s.ID, s.HostUp = cellwire.VMBuilding, cellwire.TaskSpawning, 0, nil, 0, false
	s.Host, s.Node, s.NodeUUID = "h1", "h1", uuid(1001)
	s = c.has(1, s)
	c.id = s.UUID
	testproc.Try(client.Insert(ctx, s)).Or(t)
	testproc.Try(client.Release(ctx, s.UUID)).Or(t)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for after, epoch, seen := int64(0), "", map[string]bool{}; ctx.Err() == nil; {
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
					if end, err := client.AcceptStream(ctx, "h1", offer.ID); err == nil {
						c.mu.Lock()
						serve := c.serve
						c.mu.Unlock()
						serve(offer, end)
						_ = end.Close() // it may be
					}
				})
			}
		}
	})
	t.Cleanup(func() { cancel(); tasks.Wait(); client.CloseIdle() })
	return c
}

func (c *consoleHost) serves(serve func(offer cellwire.StreamOffer, end *cellwire.Stream)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serve = serve
}

func (c *consoleHost) act(who, body string) reply {
	return c.do(who, "2.71", "POST", "/v2.1/servers/"+c.id+"/action", body)
}

func says(text string) func(cellwire.StreamOffer, *cellwire.Stream) {
	return func(_ cellwire.StreamOffer, end *cellwire.Stream) {
		_, _ = io.WriteString(end, text)
		_ = end.CloseWrite()
		_, _ = io.Copy(io.Discard, end)
	}
}

// TestConsoleOutput: the last lines of the log, without control characters, and the answer
// when there is none.
func TestConsoleOutput(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newConsoleHost(t, plugins.AbilityConsoleLog)
	c.serves(says("boot\x1b[0m\r\none\ntwo\nlogin: \xff"))
	all := "boot[0m\none\ntwo\nlogin: \ufffd"
	for body, want := range map[string]string{
		`{"os-getConsoleOutput":{}}`: all, `{"os-getConsoleOutput":{"length":null}}`: all,
		`{"os-getConsoleOutput":{"length":-1}}`:  all,
		`{"os-getConsoleOutput":{"length":"2"}}`: "two\nlogin: \ufffd",
		`{"os-getConsoleOutput":{"length":1}}`:   "login: \ufffd",
		`{"os-getConsoleOutput":{"length":0}}`:   "", `{"os-getConsoleOutput":{"length":99999999999999999999}}`: all,
	} {
		if got := c.act(member, body); got.status != 200 || got.body["output"] != want {
			t.Errorf("%s: %d %q, want %q", body, got.status, got.text, want)
		}
	}
	for body, want := range map[string]int{
		`{"os-getConsoleOutput":{"length":-2}}`: 400, `{"os-getConsoleOutput":{"length":"x"}}`: 400,
		`{"os-getConsoleOutput":{"lines":2}}`: 400, `{"os-getConsoleOutput":null}`: 400,
	} {
		if got := c.act(member, body); got.status != want {
			t.Errorf("%s: %d %s", body, got.status, got.text)
		}
	}
	const plain = `{"os-getConsoleOutput":{}}`
	if got := c.act(reader, plain); got.status != 403 ||
		!strings.Contains(got.text, "os_compute_api:os-console-output") {
		t.Errorf("a reader: %d %s", got.status, got.text)
	}
	for text, refusal := range map[string]struct {
		why    cellwire.Error
		status int
	}{
		"its serial console is not written": {cellwire.Error{Status: 409, Code: cellwire.CodeConflict,
			Message: "Instance x: its serial console is not written to a file"}, 409},
		"functionality is not supported": {*cellwire.Unable(c.id, plugins.AbilityConsoleLog), 501},
		"could not be found": {cellwire.Error{Status: 404, Code: cellwire.CodeNotFound, Message: "gone"},
			404},
		"is not ready": {cellwire.Error{Status: 503, Code: cellwire.CodeUnavailable, Message: "The host is not ready."},
			503},
	} {
		c.serves(func(_ cellwire.StreamOffer, end *cellwire.Stream) { end.Abort(&refusal.why) })
		if got := c.act(administrator, plain); got.status != refusal.status || !strings.Contains(got.text, text) {
			t.Errorf("%s: %d %s", text, got.status, got.text)
		}
	}
	c.serves(func(_ cellwire.StreamOffer, end *cellwire.Stream) {
		end.Abort(&cellwire.Error{Status: 500, Code: cellwire.CodeInternal,
			Message: "/var/lib/nova: permission denied"})
	})
	if got := c.act(administrator, plain); got.status != 503 || strings.Contains(got.text, "denied") {
		t.Errorf("an error of the driver: %d %s", got.status, got.text)
	}
	c.serves(func(_ cellwire.StreamOffer, end *cellwire.Stream) { _ = end.Close() })
	if got := c.act(administrator, plain); got.status != 503 {
		t.Errorf("a lost stream: %d %s", got.status, got.text)
	}
	if got := c.ask(administrator, "2.71", "/v2.1/servers/"+c.id); got.status != 200 {
		t.Errorf("the cell counts as down: %d %s", got.status, got.text)
	}
}

// TestConsoleOutputOfOlderAgents: Nova's answer where a driver has no console.
func TestConsoleOutputOfOlderAgents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newConsoleHost(t)
	if got := c.act(member, `{"os-getConsoleOutput":{}}`); got.status != 501 ||
		!strings.Contains(got.text, "The requested functionality is not supported.") {
		t.Errorf("the console output of an older agent: got %d %s, want 501", got.status, got.text)
	}
}
