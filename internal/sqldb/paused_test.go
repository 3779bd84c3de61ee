// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDatabasesServerIsStopped stops a server (SIGSTOP) in the middle of what it does, and kills it
// or lets it go on: what each writer got as its answer is true.
func TestDatabasesServerIsStopped(t *testing.T) {
	t.Parallel()
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	for kind, start := range map[string]func(testing.TB,
		dbservers.Options) *dbservers.Server{"mariadb": dbservers.StartMariaDB,
		"postgresql": dbservers.StartPostgreSQL} {
		t.Run(kind, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			s := start(t, dbservers.Options{})
			patient := s.Database(t, "words")
			name := withOption(withOption(patient, "connect_timeout=1"), "read_timeout=1")
			const clients = 3
			var mu sync.Mutex
			var acked, refused []int64
			unknown, next := 0, atomic.Int64{}
			for round := range 6 {
				var running sync.WaitGroup
				stop := make(chan struct{})
				var done atomic.Int64
				var opened []*sqldb.DB
				for range clients {
					opened = append(opened, openAtLast(t, name))
				}
				for _, db := range opened {
					running.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
							}
							n := next.Add(1)
							_, err := add(t.Context(), db, n)
							mu.Lock()
							switch {
							case err == nil:
								acked = append(acked, n)
								done.Add(1)
							case errors.Is(err, engine.ErrOutcomeUnknown):
								unknown++
							case errors.Is(err, engine.ErrUnreachable):
								refused = append(refused, n)
							default:
								t.Errorf("commit %d: got %v", n, err)
							}
							mu.Unlock()
						}
					})
				}
				some := int64(5 + rand.IntN(20))
				testproc.Eventually(t, testproc.Patience,
					"some writes", testproc.True(func() bool { return done.Load() >= some }))
				s.Pause(t)
				mu.Lock()
				before := len(refused) + unknown
				mu.Unlock()
				testproc.Eventually(t, testproc.Patience, "a writer waits, or has given up", testproc.True(func() bool {
					mu.Lock()
					defer mu.Unlock()
					gaveUp := len(refused)+unknown > before
					return gaveUp || round%3 != 0 &&
						slices.ContainsFunc(opened, func(db *sqldb.DB) bool { return db.Writer.Stats().InUse > 0 })
				}))
				if round%2 == 0 {
					s.Kill(t)
					s.Start(t)
				} else {
					s.Continue(t)
				}
				was := done.Load()
				testproc.Eventually(t, testproc.Patience,
					"writes after it is back", testproc.True(func() bool { return done.Load() >= was+20 }))
				close(stop)
				running.Wait()
			}
			got := parts(t, openSummed(t, patient))
			for _, n := range acked {
				if !slices.Contains(got, n) {
					t.Errorf("the acknowledged %d is lost", n)
				}
			}
			for _, n := range refused {
				if slices.Contains(got, n) {
					t.Errorf("%d was made, and its writer got the answer that it was not", n)
				}
			}
			t.Logf("%d acknowledged, %d refused, %d unknown", len(acked), len(refused), unknown)
		})
	}
}
