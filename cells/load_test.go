// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The tests in load*_test.go put load on the compute API over many cells, with many servers and
// clients, while one cell hangs and another one refuses connections. Every answer is compared with
// the servers in the databases, and resources that remain at the end are counted. The small sizes
// of make test-real check correctness; `make load-cells` measures.
//
// A process of its own, which is this package's test binary, serves the healthy cells, with real
// databases and the real HTTP service, and one more each of the two that fail: one is stopped by a
// signal, and one ends. The clients are another one: they keep their answers in files and check
// them when all have theirs. The compute API is in the test's process.

// The measures. Those that go test takes are small, so that it is over soon; `make load-cells`
// gives others.
var (
	cellCount    = flag.Int("load.cells", 12, "cells")
	serverCount  = flag.Int("load.servers", 4800, "servers in all cells together")
	clientCount  = flag.Int("load.clients", 10, "clients that ask at the same time")
	askCount     = flag.Int("load.each", 6, "requests that each of them sends")
	cellTimeout  = flag.Duration("load.timeout", 10*time.Second, "how long a cell may take")
	cellDownTime = flag.Duration("load.down", 8*time.Second,
		"how long after its last answer a cell is down that answers no pings")
	allowance = flag.Duration("load.slack", 2*time.Second,
		"how much longer than a cell that hangs is waited for the 99th of a hundred answers may take, with "+
			"load.figures")
	figures = flag.Bool("load.figures", false, "print figures, and hold the times to their bounds")
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		if err := serveCells(dir, strings.Split(os.Getenv("CELLS_LOAD_CELLS"), ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(clientsEnv) != "" {
		if err := serveClients(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(dbservers.Tests{M: m})
}

// pingInterval is the default of [compute_api] cell_ping_interval.
const pingInterval = time.Second

// TestRealLoad: every answer is right with all cells up, with one that begins to hang while clients
// ask, and with one that hangs and one that refuses, with pings and without; afterwards nothing is
// left.
func TestRealLoad(t *testing.T) {
	testproc.Drawn(t, 2)
	dbservers.AboutFiles(t)
	m := model{cells: *cellCount, servers: *serverCount / *cellCount * *cellCount}
	m.projects = max(1, m.perCell()/10)
	w := newWorld(t, m)
	w.startClients()
	t.Logf("%d cells, %d servers of %d projects, %d clients; a cell has %v",
		m.cells, m.servers, m.projects, *clientCount, *cellTimeout)
	if *figures {
		w.idle(0)
		w.idle(pingInterval)
		w.alone()
	}
	all := crowd{Clients: *clientCount, Each: *askCount, Kinds: kinds}
	w.phase(phase{name: "all cells up", pings: true, crowd: all})

	begins := phase{name: "one begins to hang", pings: true, crowd: all, halfway: w.hangs.hang}
	begins.crowd.Kinds, begins.crowd.Perhaps = single, []int{hung}
	w.phase(begins)
	w.refuses.end()

	all.Down = []int{hung, refused}
	w.phase(phase{name: "one hangs, one refuses", pings: true, known: true, crowd: all})
	each := all
	each.Each = 1 // each request takes all the time that a cell has
	if *figures {
		each.Each = min(*askCount, len(kinds))
	}
	w.phase(phase{name: "one hangs, one refuses, no pings", crowd: each})
	w.hangs.resume()

	all.Down = []int{refused}
	w.phase(phase{name: "the hung one answers again, one refuses", pings: true, crowd: all})
}

// phase is what clients do, and what happens meanwhile.
type phase struct {
	name    string
	pings   bool // the API pings cells
	known   bool // it has found out that one hangs before the first request
	crowd   crowd
	halfway func() // called when half of the requests have their answers; may be nil
}

func (w *world) phase(p phase) {
	w.t.Helper()
	interval, most := time.Duration(0), *cellTimeout
	if p.pings {
		interval, most = pingInterval, *cellDownTime
	}
	defer w.startAPI(*cellTimeout, interval)()
	if p.known {
		w.until("it is known that a cell hangs", func(s gather.CellState) bool { return s.CircuitOpen }, 1)
		most = 0
	}
	before := w.usage()
	o := w.crowd(p.crowd, p.halfway)
	for _, wrong := range o.Wrong {
		w.t.Errorf("%s: %s", p.name, wrong)
	}
	if *figures {
		w.t.Logf("%s", o.report(p.name, before, w.usage()))
		if longest, bound := o.quantile("", 0.99), most+*allowance; longest > bound {
			w.t.Errorf("%s: an answer took %v, and should not take more than %v", p.name, longest, bound)
		}
	}
}

// until waits until so many cells are as the API that serves now is to see them.
func (w *world) until(what string, is func(gather.CellState) bool, cells int) {
	w.t.Helper()
	testproc.Eventually(w.t, testproc.Patience, what, func() error {
		n := 0
		for _, s := range w.api.States() {
			if is(s) {
				n++
			}
		}
		if n < cells {
			return fmt.Errorf("of %d cells, not %d", n, cells)
		}
		return nil
	})
}

// idle prints what the API and the cells do while no client asks.
func (w *world) idle(pingInterval time.Duration) {
	defer w.startAPI(*cellTimeout, pingInterval)()
	if pingInterval > 0 {
		w.until("all cells are pinged", func(s gather.CellState) bool { return s.Pings.Answered > 0 }, w.model.cells)
	}
	sent := func() (n uint64) {
		for _, s := range w.api.States() {
			n += s.Pings.Answered
		}
		return n
	}
	const long = 10 // seconds
	n, before := sent(), w.usage()
	<-time.After(long * time.Second)
	after := w.usage()
	w.t.Logf("no client: %.1f pings a second, and %.1f ms of CPU time a second here and %.1f in the cells",
		float64(sent()-n)/long,
		milliseconds(after.api-before.api)/long, milliseconds(after.cells-before.cells)/long)
}

// alone prints what a request costs when there is one at a time.
func (w *world) alone() {
	defer w.startAPI(*cellTimeout, pingInterval)()
	// connections are made and databases read
	wrong := w.crowd(crowd{Clients: 1, Each: len(kinds), Kinds: kinds}, nil).Wrong
	for _, kind := range kinds {
		before := w.usage()
		o := w.crowd(crowd{Clients: 1, Each: 50, Kinds: []string{kind}}, nil)
		w.t.Logf("alone: %s", o.line(kind, before, w.usage()))
		wrong = append(wrong, o.Wrong...)
	}
	for _, err := range wrong {
		w.t.Errorf("alone: %s", err)
	}
}
