// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const leaseTable = "CREATE TABLE leases (name VARCHAR(64) NOT NULL PRIMARY KEY, token VARCHAR(36) NOT NULL, beat " +
	"BIGINT NOT NULL, holder VARCHAR(255) NOT NULL)"

// leaseProcess opens a database as one more process does.
func leaseProcess(t *testing.T, name string) *sqldb.DB {
	t.Helper()
	files := steps(leaseTable, "CREATE TABLE done (number INTEGER NOT NULL PRIMARY KEY)")
	db, err := sqldb.Open(t.Context(), name,
		sqldb.Options{Schema: &sqldb.Schema{Steps: files, ApplicationID: 77, Table: "steps"}, Logger: zerolog.Nop()})
	testproc.Check(t, err)
	t.Cleanup(func() { testproc.Check(t, db.Close()) })
	return db
}

// active is a holder of a lease.
type active struct {
	lease *sqldb.Lease
	held  chan struct{} // closed when it first has the lease
	lost  chan struct{} // closed when it has lost it
	stop  func()
}

// lead has a process hold a lease, as soon as it can. A beat of an hour is that of a process that
// was stopped.
func lead(t *testing.T, db *sqldb.DB, holder string, beat time.Duration) *active {
	t.Helper()
	a := &active{held: make(chan struct{}), lost: make(chan struct{})}
	a.lease = db.NewLease(sqldb.LeaseOptions{Table: "leases", Name: "work", Holder: holder, Beat: beat,
		Silent: 3, Logger: zerolog.Nop()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		first := true
		a.lease.Run(ctx, func(ctx context.Context) {
			if first {
				close(a.held)
			}
			<-ctx.Done()
			if first {
				close(a.lost)
			}
			first = false
		})
	}()
	a.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(a.stop)
	return a
}

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testproc.Patience):
		t.Fatalf("%s: not within %v", what, testproc.Patience)
	}
}

// work is a write that only the holder may make.
func (a *active) work(db *sqldb.DB, number int) error {
	return db.Write(context.Background(), "working in", func(tx *sql.Tx) error {
		if err := a.lease.Check(context.Background(), tx); err != nil {
			return err
		}
		_, err := tx.ExecContext(context.Background(), "INSERT INTO done (number) VALUES (?)", number)
		return err
	})
}

const often = 100 * time.Millisecond

// TestLeaseIsTakenFromAStoppedHolder: a process that shows no sign of life loses the lease, and
// when it continues its writes fail. The one that follows gives the lease up at its end.
func TestLeaseIsTakenFromAStoppedHolder(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.Each(t, func(t *testing.T, empty func(t testing.TB) string) {
		name := empty(t)
		one := leaseProcess(t, name)
		a := lead(t, one, "a", time.Hour)
		within(t, "the first process gets the lease", a.held)
		testproc.Check(t, a.work(one, 1))
		testproc.Check(t, a.lease.Confirm(t.Context()))
		if !a.lease.Held() || a.lease.Holder() != "a" {
			t.Errorf("held is %v, by %q", a.lease.Held(), a.lease.Holder())
		}
		if !one.Dialect.Shared() {
			return // there is no other process
		}
		two := leaseProcess(t, name)
		b := lead(t, two, "b", often)
		testproc.ErrorIs(t, b.work(two, 2), sqldb.ErrLeaseLost, "a write of a process that stands by: %v")
		within(t, "the second process takes over", b.held)
		testproc.ErrorIs(t, a.work(one, 3), sqldb.ErrLeaseLost, "a write of the process that was stopped: %v")
		testproc.ErrorIs(t, a.lease.Confirm(t.Context()), sqldb.ErrLeaseLost, "confirming what was lost: %v")
		// On a machine that is slow, it may lose it for a moment.
		testproc.Eventually(t, testproc.Patience, "the second process works", func() error { return b.work(two, 4) })
		a.stop() // does not give up what is another's
		testproc.Eventually(t, testproc.Patience, "the second process is the active one",
			func() error { return b.lease.Confirm(t.Context()) })

		three := leaseProcess(t, name)
		c := lead(t, three, "c", often)
		testproc.Eventually(t, testproc.Patience, "the third process knows who is active", func() error {
			if got := c.lease.Holder(); got != "b" {
				return fmt.Errorf("it says %q", got)
			}
			return nil
		})
		b.stop()
		within(t, "the third process follows", c.held)
		testproc.Eventually(t, testproc.Patience, "the third process works", func() error { return c.work(three, 5) })
	})
}

// TestLeaseIsHeldByOne: of many processes one is active; when its row is taken it finds out, stops,
// and stands by.
func TestLeaseIsHeldByOne(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.Each(t, func(t *testing.T, empty func(t testing.TB) string) {
		name := empty(t)
		db := leaseProcess(t, name)
		if !db.Dialect.Shared() {
			return // another process cannot open it
		}
		var now, most, terms atomic.Int32
		var stops []func()
		for i := range 4 {
			process := leaseProcess(t, name)
			lease := process.NewLease(sqldb.LeaseOptions{Table: "leases", Name: "work", Holder: fmt.Sprint(i),
				Beat: often, Silent: 1 << 20, Logger: zerolog.Nop()})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				lease.Run(ctx, func(ctx context.Context) {
					terms.Add(1)
					most.Store(max(most.Load(), now.Add(1)))
					<-ctx.Done()
					now.Add(-1)
				})
			}()
			stops = append(stops, func() { cancel(); <-ended })
		}
		for i, stop := range stops {
			testproc.Eventually(t, testproc.Patience,
				"a process is active", testproc.True(func() bool { return terms.Load() > int32(i) && now.Load() == 1 }))
			defer stop()
			if i < len(stops)-1 {
				// As another process takes it that gives it up at once.
				testproc.Check(t, db.Write(t.Context(), "taking", func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(),
						"UPDATE leases SET token = 'other', beat = beat + 1 WHERE name = 'work'")
					return err
				}))
				testproc.Eventually(t, testproc.Patience,
					"no process is active", testproc.True(func() bool { return now.Load() == 0 }))
				testproc.Check(t, db.Write(t.Context(), "giving up", func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(),
						"UPDATE leases SET token = '', beat = beat + 1 WHERE name = 'work'")
					return err
				}))
			}
		}
		testproc.Equal(t, most.Load(), 1, "%d processes were active at a time")
	})
}
