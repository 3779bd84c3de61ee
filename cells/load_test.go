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
)

// The tests in load*_test.go put load on the compute API over many cells, with many servers and
// clients, while one cell hangs and another one refuses connections. Every answer is compared with
// the servers in the databases, and resources that remain at the end are counted. The small sizes
// of `go test` check correctness; `make load-cells` measures.
//
// A process of its own, which is this package's test binary, serves the healthy cells, with real
// databases and the real HTTP service. The clients are another one: they keep their answers in
// files and check them when all have theirs. The compute API and the two failing cells are in the
// test's process.

// The measures. Those that go test takes are small, so that it is over soon; `make load-cells`
// gives others.
var (
	cellCount   = flag.Int("load.cells", 12, "cells")
	serverCount = flag.Int("load.servers", 4800, "servers in all cells together")
	clientCount = flag.Int("load.clients", 10, "clients that ask at the same time")
	askCount    = flag.Int("load.each", 6, "requests that each of them sends")
	cellTimeout = flag.Duration("load.timeout", 10*time.Second, "how long a cell may take")
	allowance   = flag.Duration("load.slack", 100*time.Millisecond, "how much longer than that the 99th of a hundred answers may take, with load.figures")
	figures     = flag.Bool("load.figures", false, "print figures, and hold the times to their bounds")
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
	goleak.VerifyTestMain(m)
}

// skipShort keeps the load from short tests, which run under the race detector.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("many servers and clients")
	}
}

// slack is how much longer than the cells' time an answer may take on a machine that does other
// things as well.
const slack = 20 * time.Second

// TestLoad: every answer is right, and there within the time of the cells, with all cells up, and
// with one that hangs and one that refuses, with fast-fail and without; afterwards nothing is left.
func TestLoad(t *testing.T) {
	skipShort(t)
	m := model{cells: *cellCount, servers: *serverCount / *cellCount * *cellCount}
	m.projects = max(1, m.perCell()/10)
	w := newWorld(t, m)
	w.startClients()
	t.Logf("%d cells, %d servers of %d projects, %d clients; a cell has %v", m.cells, m.servers, m.projects, *clientCount, *cellTimeout)
	const fast = 5 * time.Second
	if *figures {
		w.alone(fast)
	}
	w.phase("all cells up", fast, *askCount)
	w.refuses.refuse()
	w.hangs.hang()
	w.phase("one hangs, one refuses, fast-fail", fast, *askCount, hung, refused)
	each := *askCount
	if !*figures {
		each = 1 // each request takes all the time that a cell has
	}
	w.phase("one hangs, one refuses, no fast-fail", 0, each, hung, refused)
	w.hangs.resume()
	w.phase("one refuses", fast, *askCount, refused)
}

// phase has all clients send requests, while the cells in down are.
func (w *world) phase(name string, fastFail time.Duration, each int, down ...int) {
	w.t.Helper()
	defer w.startAPI(*cellTimeout, fastFail)()
	before := w.usage()
	o := w.crowd(*clientCount, each, kinds, down...)
	bound, q := *cellTimeout+slack, 1.0
	if *figures {
		w.t.Logf("%s", o.report(name, before, w.usage()))
		bound, q = *cellTimeout+*allowance, 0.99
	}
	for _, wrong := range o.Wrong {
		w.t.Errorf("%s: %s", name, wrong)
	}
	if longest := o.quantile("", q); longest > bound {
		w.t.Errorf("%s: an answer took %v, and the cells have %v", name, longest, *cellTimeout)
	}
}

// alone prints what a request costs when there is one at a time.
func (w *world) alone(fastFail time.Duration) {
	defer w.startAPI(*cellTimeout, fastFail)()
	wrong := w.crowd(1, len(kinds), kinds).Wrong // connections are made and databases read
	for _, kind := range kinds {
		before := w.usage()
		o := w.crowd(1, 50, []string{kind})
		w.t.Logf("alone: %s", o.line(kind, before, w.usage()))
		wrong = append(wrong, o.Wrong...)
	}
	for _, err := range wrong {
		w.t.Errorf("alone: %s", err)
	}
}
