// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// world is a compute API in this process over the cells of a model: most in a process of their own,
// and two here, of which one can be made to hang, and one to refuse connections.
type world struct {
	t         *testing.T
	model     model
	dir       string
	hangs     *here
	refuses   *here
	elsewhere *os.Process   // of the other cells
	orders    *json.Encoder // to the clients, which are in a process of their own
	outcomes  *json.Decoder
	client    *http.Client
	url       string // of the compute API, while one serves

	mu      sync.Mutex
	clients []*cellclient.Client
}

// The cells that get into trouble.
const (
	hung    = 1
	refused = 2
)

func newWorld(t *testing.T, m model) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "load") // short: it holds sockets
	check(t, err)
	w := &world{t: t, model: m, dir: dir, client: newClient()}
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, seed(t.Context(), m, dir))
	m.seedAPI(t, filepath.Join(dir, "api.db"), func(c int) string { return "unix://" + filepath.Join(dir, cellName(c)+".sock") })
	var elsewhere []string
	for c := range m.cells {
		if c != hung && c != refused {
			elsewhere = append(elsewhere, cellName(c))
		}
	}
	w.startCells(elsewhere)
	w.hangs, w.refuses = w.serveHere(hung), w.serveHere(refused)
	return w
}

// again runs this test binary once more, with something in its environment that TestMain looks at.
// The process ends when its standard input does.
func (w *world) again(env ...string) (*os.Process, io.Writer, *bufio.Reader) {
	w.t.Helper()
	self, err := os.Executable()
	check(w.t, err)
	cmd := exec.Command(self) //nolint:noctx // it ends when its standard input does
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	check(w.t, err)
	out, err := cmd.StdoutPipe()
	check(w.t, err)
	check(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = in.Close()
		check(w.t, cmd.Wait())
	})
	return cmd.Process, in, bufio.NewReader(out)
}

// startCells has a process of their own serve cells.
func (w *world) startCells(names []string) {
	w.t.Helper()
	process, _, out := w.again(serveEnv+"="+w.dir, "CELLS_LOAD_CELLS="+strings.Join(names, ","))
	w.elsewhere = process
	if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
		w.t.Fatalf("the process of the cells wrote %q: %v", line, err)
	}
}

// serveEnv names the directory of the databases for the process that serves cells.
const serveEnv = "CELLS_LOAD_SERVE"

// serveCells is what that process does, until its standard input ends.
func serveCells(dir string, names []string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		c, l, err := openCell(ctx, dir, name)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		group.Go(func() error { return c.Serve(ctx, l) })
	}
	fmt.Println("ready") //nolint:forbidigo // it is for the test that started this process
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	return group.Wait()
}

func openCell(ctx context.Context, dir, name string) (*cells.Cell, net.Listener, error) {
	c, err := cells.NewCell(ctx, cells.CellConfig{Name: name, Database: filepath.Join(dir, name+".db"), Auth: cell.NoAuth(), ServiceDownTime: downTime, Logger: zerolog.Nop()})
	if err != nil {
		return nil, nil, err
	}
	l, err := osapi.Listen(ctx, "unix://"+filepath.Join(dir, name+".sock"))
	return c, l, err
}

// gate is before a cell, and closed while it hangs: connections are made, and nothing answers.
type gate struct {
	next http.Handler
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	// The body has to be read, or the server does not notice that the client goes away.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	select {
	case <-open:
		g.next.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

func (g *gate) hang() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// here is a cell in this process.
type here struct {
	*gate
	server *http.Server
}

// refuse ends it. Nothing answers at its address from then on.
func (h *here) refuse() { _ = h.server.Close() }

func (w *world) serveHere(number int) *here {
	w.t.Helper()
	c, l, err := openCell(w.t.Context(), w.dir, cellName(number))
	check(w.t, err)
	h := &here{gate: &gate{next: c.Handler(), open: make(chan struct{})}}
	h.resume()
	h.server = &http.Server{Handler: h.gate, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.server.Serve(l) // it ends with Close
	}()
	w.t.Cleanup(func() {
		_ = h.server.Close()
		<-done
		check(w.t, c.Close())
	})
	return h
}

// startAPI serves the compute API until the function that it returns is called.
func (w *world) startAPI(timeout, fastFail time.Duration) (stop func()) {
	w.t.Helper()
	api, err := cells.NewAPI(w.t.Context(), cells.APIConfig{
		Database: filepath.Join(w.dir, "api.db"), Auth: osapi.NoAuth{}, Open: true,
		Options:    compute.Options{MaxLimit: maxLimit, ListSkipsDownCells: true, DefaultZone: "nova"},
		CellClient: w.cellClient, CellTimeout: timeout, CellFastFail: fastFail,
		Placement: placementclient.Config{Endpoint: func(context.Context) (string, error) { return "", errors.New("there is no Placement here") }},
		Quotas:    apidb.QuotaSet{"instances": -1, "cores": -1, "ram": -1},
		Logger:    zerolog.Nop(),
	})
	check(w.t, err)
	l, err := osapi.Listen(w.t.Context(), "127.0.0.1:0")
	check(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, l) }()
	w.url = "http://" + l.Addr().String() + "/v2.1"
	return func() {
		w.t.Helper()
		w.client.CloseIdleConnections()
		cancel()
		check(w.t, <-served)
		check(w.t, api.Close())
		w.closeIdle()
	}
}

func (w *world) cellClient(c apidb.Cell) (*cellclient.Client, error) {
	client, err := cellclient.New(cellclient.Config{URL: c.URL})
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clients = append(w.clients, client)
	}
	return client, err
}

// closeIdle closes all connections that are not in use.
func (w *world) closeIdle() {
	w.client.CloseIdleConnections()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range slices.Clone(w.clients) {
		c.CloseIdle()
	}
}

// asker asks the API that serves now, from this process.
func (w *world) asker() *asker {
	return &asker{model: w.model, url: w.url, client: w.client, dir: w.dir, took: map[string][]time.Duration{}}
}

var check = testproc.Check
