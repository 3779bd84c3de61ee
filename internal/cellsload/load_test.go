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
	cellTimeout = flag.Duration("load.timeout", 5*time.Second, "how long a cell may take")
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
	t.Logf("%d cells, %d servers of %d projects, %d clients", m.cells, m.servers, m.projects, *clientCount)
	phase := func(name string, fastFail time.Duration, clients int, down ...int) {
		t.Helper()
		stop := w.startAPI(*cellTimeout, fastFail)
		defer stop()
		a := newAsker(w, down...)
		usage := w.usage()
		begin := time.Now()
		for _, err := range a.crowd(clients, *askCount) {
			t.Errorf("%s: %v", name, err)
		}
		took := time.Since(begin)
		bound := *cellTimeout + slack
		if *figures {
			t.Logf("%s", a.report(name, took, usage, w.usage()))
			bound = *cellTimeout + 100*time.Millisecond
			if p99 := a.quantile("", 0.99); p99 > bound {
				t.Errorf("%s: p99 is %v, and the cells have %v", name, p99, *cellTimeout)
			}
			return
		}
		if longest := a.quantile("", 1); longest > bound {
			t.Errorf("%s: an answer took %v, and the cells have %v", name, longest, *cellTimeout)
		}
	}
	const fast = 5 * time.Second
	phase("all cells up, one client", fast, 1)
	phase("all cells up", fast, *clientCount)
	w.refuses.refuse()
	w.hangs.hang()
	phase("one hangs, one refuses, fast-fail", fast, *clientCount, hung, refused)
	phase("one hangs, one refuses, no fast-fail", 0, *clientCount, hung, refused)
	w.hangs.resume()
	phase("one refuses", fast, *clientCount, refused)
}
