// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// leftovers are the goroutines and the sockets of this process. Its other open files are those of
// databases, whose pools have a size of their own.
type leftovers struct{ goroutines, sockets int }

func (l leftovers) more(than leftovers) bool {
	return l.goroutines > than.goroutines || l.sockets > than.sockets
}

func count(t *testing.T) leftovers {
	t.Helper()
	const dir = "/proc/self/fd/"
	files := testproc.Try(os.ReadDir(dir)).Or(t)
	l := leftovers{goroutines: runtime.NumGoroutine()}
	for _, f := range files {
		// it may be closed by now
		if what, err := os.Readlink(dir + f.Name()); err == nil && strings.HasPrefix(what, "socket:") {
			l.sockets++
		}
	}
	return l
}

// settled is what is left when no client sends requests: unused connections are closed until there
// is no more than enough, or, if that is nil, until there has been no less for a while.
func (w *world) settled(enough *leftovers) leftovers {
	w.t.Helper()
	least, same := count(w.t), 0
	testproc.Eventually(w.t, testproc.Patience, "nothing is left", func() error {
		if now := count(w.t); least.more(now) {
			least, same = now, 0
		}
		if same++; enough == nil && same > 25 || enough != nil && !least.more(*enough) {
			return nil
		}
		w.closeIdle()
		stacks := make([]byte, 1<<20)
		return fmt.Errorf("%+v\n%s", least, stacks[:runtime.Stack(stacks, true)])
	})
	return least
}

// TestRealOutageLeaksNoConnections: a thousand lists while a cell hangs take goroutines and
// connections; when it answers again, and connections that is unused is closed, there are no more
// of either than before, with pings and without.
func TestRealOutageLeaksNoConnections(t *testing.T) {
	testproc.Drawn(t, 2)
	dbservers.AboutFiles(t)
	const lists, clients = 1000, 50
	m := model{cells: 6, servers: 600, projects: 10}
	w := newWorld(t, m)
	for name, pingInterval := range map[string]time.Duration{"pings": pingInterval, "no pings": 0} {
		t.Run(name, func(t *testing.T) {
			// The time is short so that a thousand lists are soon over. Cells that are well may
			// need longer when so many ask at once: what the lists have in them is not the question
			// here.
			stop := w.startAPI(250*time.Millisecond, pingInterval)
			defer stop()
			full := w.asker()
			again := func() {
				testproc.Eventually(t, testproc.Patience, "a list of all cells", func() error {
					return errors.Join(full.ask(t.Context(), plain, 0), errors.Join(full.judged()...))
				})
			}
			again()
			base := w.settled(nil)

			w.hangs.hang()
			answered := make(chan error, lists)
			for range clients {
				go func() {
					for range lists / clients {
						answered <- w.asker().send(t.Context(), plain, "/servers", 0, func([]byte) error { return nil })
					}
				}()
			}
			most := leftovers{}
			for range lists {
				check(t, <-answered)
				now := count(t)
				most = leftovers{max(most.goroutines, now.goroutines), max(most.sockets, now.sockets)}
			}
			w.hangs.resume()
			again()

			now := w.settled(&base)
			t.Logf("goroutines and sockets: %v before, at most %v in the outage, %v after it", base, most, now)
			if perList := clients * (2*m.cells + 20); most.goroutines > base.goroutines+perList {
				t.Errorf("%d goroutines in the outage, %d before: more than %d lists at the same time need",
					most.goroutines, base.goroutines, clients)
			}
		})
	}
}
