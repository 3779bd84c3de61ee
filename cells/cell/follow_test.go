// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestFollowWakes: a change that another process made wakes its host alone, within half a second;
// and without Follow nothing does before the end of its wait.
func TestFollowWakes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	waits(t, func(t *testing.T, w *world, asked *atomic.Int64) {
		another := testproc.Try(cell.New(cell.Config{Store: w.store, Auth: cell.NoAuth(), Now: w.clock})).Or(t)
		change := func(n int, host string) {
			t.Helper()
			s := building(n, host)
			if got := send(t, another, http.MethodPut, "/v1/servers/"+s.UUID, s); got.Code != http.StatusOK {
				t.Fatalf("insert: %s", got.Body)
			}
			if got := send(t, another, http.MethodPost,
				"/v1/servers/"+s.UUID+"/release", nil); got.Code != http.StatusOK {
				t.Fatalf("release: %s", got.Body)
			}
		}
		// elapsed is how long the host waits for its work after the change.
		elapsed := func(n int) time.Duration {
			t.Helper()
			polled := w.poll(t.Context(), "h1", w.work("h1", 0, ""), 80)
			synctest.Wait()
			began := time.Now()
			change(n, "h1")
			work := decodeAs[cellwire.Work](t, (<-polled).Body.Bytes())
			same(t, "its work", wants(t, work), map[int]cellwire.Want{n: cellwire.WantPresent})
			return time.Since(began)
		}
		testproc.Equal(t, elapsed(1), 80*time.Second, "without Follow the host was woken after %v")
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			w.cell.WatchChanges(ctx)
		}()
		synctest.Wait()
		if d := elapsed(2); d > 500*time.Millisecond {
			t.Errorf("the host was woken after %v", d)
		}
		// A change for another host does not make it look.
		polled := w.poll(t.Context(), "h1", w.work("h1", 0, ""), 10)
		synctest.Wait()
		asked.Store(0)
		change(3, "h2")
		time.Sleep(5 * time.Second)
		testproc.Equal(t, asked.Load(), 0, "the database was asked %d times for a host without changes")
		<-polled
		cancel()
		<-followed
	})
}
