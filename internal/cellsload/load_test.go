// SPDX-License-Identifier: Apache-2.0

package cellsload

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The measures. Those that go test takes are small, so that it is over soon; `make load-cells` gives others.
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
		if err := serveCells(dir, strings.Split(os.Getenv("CELLSLOAD_CELLS"), ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// slack is how much longer than the cells' time an answer may take on a machine that does other things as well.
const slack = 20 * time.Second

// TestLoad: every answer is right, and there within the time of the cells, with all cells up, and with one that hangs and one that refuses, with
// fast-fail and without; afterwards nothing is left.
func TestLoad(t *testing.T) {
	m := model{cells: *cellCount, servers: *serverCount / *cellCount * *cellCount}
	m.projects = max(1, m.perCell()/10)
	w := newWorld(t, m)
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
	a := newAsker(w, down...)
	before, begin := w.usage(), time.Now()
	wrong := a.crowd(*clientCount, each)
	bound, q := *cellTimeout+slack, 1.0
	if *figures {
		w.t.Logf("%s", a.report(name, time.Since(begin), before, w.usage()))
		bound, q = *cellTimeout+*allowance, 0.99
	}
	for _, err := range append(wrong, a.judged()...) {
		w.t.Errorf("%s: %v", name, err)
	}
	if longest := a.quantile("", q); longest > bound {
		w.t.Errorf("%s: an answer took %v, and the cells have %v", name, longest, *cellTimeout)
	}
}

// alone prints what a request costs when there is one at a time.
func (w *world) alone(fastFail time.Duration) {
	defer w.startAPI(*cellTimeout, fastFail)()
	first := newAsker(w) // connections are made and databases read
	wrong := first.crowd(1, len(kinds))
	wrong = append(wrong, first.judged()...)
	for _, kind := range kinds {
		a := newAsker(w)
		before, begin := w.usage(), time.Now()
		for n := range 50 {
			if err := a.ask(kind, n); err != nil {
				wrong = append(wrong, err)
			}
		}
		w.t.Logf("alone: %s", a.line(kind, time.Since(begin), before, w.usage()))
		wrong = append(wrong, a.judged()...)
	}
	for _, err := range wrong {
		w.t.Errorf("alone: %v", err)
	}
}
