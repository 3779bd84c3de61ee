// SPDX-License-Identifier: Apache-2.0

package cellsload

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// leftovers are the goroutines and the open files of this process.
type leftovers struct{ goroutines, files int }

func count(t *testing.T) leftovers {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return leftovers{runtime.NumGoroutine(), len(files)}
}

// TestNothingIsLeftOfAnOutage: a thousand lists while a cell hangs take goroutines and connections; when it answers again, and connections that
// nobody uses are closed, there are no more of either than before, with fast-fail and without.
func TestNothingIsLeftOfAnOutage(t *testing.T) {
	const lists, clients = 1000, 50
	m := model{cells: 6, servers: 600, projects: 10}
	w := newWorld(t, m)
	for name, fastFail := range map[string]time.Duration{"fast-fail": time.Second, "no fast-fail": 0} {
		t.Run(name, func(t *testing.T) {
			// The time is short so that a thousand lists are soon over. Cells that are well may need longer when so many ask at once: what the lists have
			// in them is not the question here.
			stop := w.startAPI(250*time.Millisecond, fastFail)
			defer stop()
			full := newAsker(w)
			again := func() (err error) {
				for deadline := time.Now().Add(slack); time.Now().Before(deadline); {
					if err = full.ask(plain, 0); err == nil {
						return nil
					}
				}
				return err
			}
			check(t, again())
			w.settle()
			base := count(t)

			w.hangs.hang()
			answered := make(chan error, lists)
			for range clients {
				go func() {
					for range lists / clients {
						answered <- newAsker(w).send(plain, "/servers", 0, func([]byte) error { return nil })
					}
				}()
			}
			most := leftovers{}
			for range lists {
				check(t, <-answered)
				now := count(t)
				most = leftovers{max(most.goroutines, now.goroutines), max(most.files, now.files)}
			}
			w.hangs.resume()
			check(t, again())

			now := count(t)
			for deadline := time.Now().Add(slack); (now.goroutines > base.goroutines || now.files > base.files) && time.Now().Before(deadline); now = count(t) {
				w.settle()
				runtime.Gosched()
			}
			if now.goroutines > base.goroutines || now.files > base.files {
				stacks := make([]byte, 1<<20)
				t.Errorf("before the outage there were %v (goroutines, open files), and after it there are %v:\n%s", base, now, stacks[:runtime.Stack(stacks, true)])
			}
			t.Log(fmt.Sprintf("%d goroutines and %d files before, at most %d and %d in the outage, %d and %d after it",
				base.goroutines, base.files, most.goroutines, most.files, now.goroutines, now.files))
			if perList := clients * (2*m.cells + 20); most.goroutines > base.goroutines+perList {
				t.Errorf("%d goroutines in the outage, %d before: more than %d lists at the same time need", most.goroutines, base.goroutines, clients)
			}
		})
	}
}

// settle closes what is kept for later.
func (w *world) settle() { w.closeIdle() }
