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
	"syscall"
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

// world is a compute API in this process over the cells of a model: most in one process of their
// own, and two in one each, of which one can be made to hang, and one to refuse connections.
type world struct {
	t        *testing.T
	model    model
	dir      string
	healthy  *child
	hangs    *child
	refuses  *child
	orders   *json.Encoder // to the clients, which are in a process of their own
	outcomes *json.Decoder
	client   *http.Client
	api      *cells.API // while one serves
	url      string

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
	m.seedAPI(t, filepath.Join(dir, "api.db"),
		func(c int) string { return "unix://" + filepath.Join(dir, cellName(c)+".sock") })
	var elsewhere []string
	for c := range m.cells {
		if c != hung && c != refused {
			elsewhere = append(elsewhere, cellName(c))
		}
	}
	w.healthy = w.startCells(elsewhere...)
	w.hangs, w.refuses = w.startCells(cellName(hung)), w.startCells(cellName(refused))
	return w
}

// child is a process of this test binary. It ends when its standard input does.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	once sync.Once
}

// end ends the process, if it was not ended before. Nothing answers at its addresses from then on.
func (c *child) end() {
	c.t.Helper()
	c.once.Do(func() {
		c.resume() // or it would not see the end of its input
		_ = c.in.Close()
		check(c.t, c.cmd.Wait())
	})
}

// hang stops the process: connections to it are made, and nothing answers.
func (c *child) hang() {
	c.t.Helper()
	check(c.t, c.cmd.Process.Signal(syscall.SIGSTOP))
}

// resume has a process that hangs go on.
func (c *child) resume() {
	c.t.Helper()
	check(c.t, c.cmd.Process.Signal(syscall.SIGCONT))
}

// again runs this test binary once more, with something in its environment that TestMain looks at.
func (w *world) again(env ...string) *child {
	w.t.Helper()
	self := testproc.Try(os.Executable()).Or(w.t)
	cmd := exec.Command(self) // it ends when its standard input does
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in := testproc.Try(cmd.StdinPipe()).Or(w.t)
	out := testproc.Try(cmd.StdoutPipe()).Or(w.t)
	check(w.t, cmd.Start())
	c := &child{t: w.t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	w.t.Cleanup(c.end)
	return c
}

// startCells has a process of their own serve cells.
func (w *world) startCells(names ...string) *child {
	w.t.Helper()
	c := w.again(serveEnv+"="+w.dir, "CELLS_LOAD_CELLS="+strings.Join(names, ","))
	if line, err := c.out.ReadString('\n'); err != nil || line != "ready\n" {
		w.t.Fatalf("the process of the cells wrote %q: %v", line, err)
	}
	return c
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
	fmt.Println("ready") // it is for the test that started this process
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	return group.Wait()
}

func openCell(ctx context.Context, dir, name string) (*cells.Cell, net.Listener, error) {
	c, err := cells.NewCell(ctx, cells.CellConfig{Name: name, Database: filepath.Join(dir, name+".db"),
		Auth: cell.NoAuth(), ServiceDownTime: downTime, Logger: zerolog.Nop()})
	if err != nil {
		return nil, nil, err
	}
	l, err := osapi.Listen(ctx, "unix://"+filepath.Join(dir, name+".sock"))
	return c, l, err
}

// startAPI serves the compute API, which pings cells at an interval, if that is not 0, until the
// function that it returns is called.
func (w *world) startAPI(timeout, pingInterval time.Duration) (stop func()) {
	w.t.Helper()
	api := testproc.Try(cells.NewAPI(w.t.Context(), cells.APIConfig{
		Database: filepath.Join(w.dir, "api.db"), Auth: osapi.NoAuth{}, Open: true,
		Options:    compute.Options{MaxLimit: maxLimit, ListSkipsDownCells: true, DefaultZone: "nova"},
		CellClient: w.cellClient, CellTimeout: timeout, CellPingInterval: pingInterval, CellDownTime: *cellDownTime,
		Placement: placementclient.Config{Endpoint: func(context.Context) (string, error) {
			return "",
				errors.New("there is no Placement here")
		}},
		Quotas: apidb.QuotaSet{"instances": -1, "cores": -1, "ram": -1},
		Logger: zerolog.Nop(),
	})).Or(w.t)
	l := testproc.Try(osapi.Listen(w.t.Context(), "127.0.0.1:0")).Or(w.t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, l) }()
	w.api, w.url = api, "http://"+l.Addr().String()+"/v2.1"
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
