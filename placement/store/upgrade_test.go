// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// follows counts the refreshes of a ledger, and those that loaded everything.
type follows struct {
	all, whole int
}

func (f *follows) Committed(transactor.Commit) {}

func (f *follows) Followed(by transactor.Follow) {
	f.all++
	if by.Whole {
		f.whole++
	}
}

// watched opens a ledger whose refreshes are counted.
func watched(t *testing.T, name string) (*transactor.Ledger, *follows) {
	t.Helper()
	s := testproc.Try(store.Open(ctx, name, store.Options{})).Or(t)
	seen := new(follows)
	l := testproc.Try(transactor.Open(ctx, s, transactor.Options{Observer: seen})).Or(t)
	return l, seen
}

// provider makes a resource provider.
func provider(uuid string) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		_, err := tx.CreateProvider(ledger.NewProvider{UUID: uuid, Name: uuid})
		return err
	}
}

// commits are the statements by which a newer program commits a version with a change of a kind.
func commits(kind string, changes ...string) []string {
	return append(append([]string{"UPDATE ledger_version SET version = version + 1"}, changes...),
		"INSERT INTO ledger_changes (shard, version, seq, kind, id, uuid) SELECT 0, version, 0, 0, 0, 'newer' FROM "+
			"ledger_version",
		"INSERT INTO ledger_changes (shard, version, seq, kind, id, uuid) SELECT 0, version, 1, "+kind+
			", 1, NULL FROM ledger_version")
}

// TestChangesOfUnknownKind: a server that meets a change of a kind that it does not know loads
// everything, so that it shows what a newer one changed; and the next changes by their kinds.
func TestChangesOfUnknownKind(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		l, seen := watched(t, name)
		defer closeLedger(t, l)
		testproc.Try(l.Update(ctx, provider("a"))).Or(t)
		execute(t, name, commits("99", "UPDATE resource_providers SET name = 'renamed by a newer program'")...)
		s, err := l.Snapshot(ctx)
		testproc.Check(t, err)
		if p, ok := s.Provider("a"); !ok || p.Name != "renamed by a newer program" || seen.whole != 1 {
			t.Errorf("%+v after %+v", p, *seen)
		}
		other := open(t, name)
		defer closeLedger(t, other)
		testproc.Try(other.Update(ctx, provider("b"))).Or(t)
		if s, err = l.Snapshot(ctx); err != nil {
			t.Fatal(err)
		}
		same(t, "the one that writes -, the one that follows +", other.Current(), s)
		if seen.whole != 1 || seen.all != 2 {
			t.Errorf("the changes that it knows are loaded by %+v", *seen)
		}
	})
}

// TestUpgradedWhileStopped: a server that was stopped while a newer program took away what it uses
// shows nothing and writes nothing when it goes on, and another one like it does not start.
func TestUpgradedWhileStopped(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		l := open(t, name)
		defer closeLedger(t, l)
		idle := open(t, name)
		defer closeLedger(t, idle)
		testproc.Try(l.Update(ctx, provider("a"))).Or(t)
		execute(t, name,
			"INSERT INTO ledger_migrations (number, done, needs, token, beat) VALUES (99, 0, 99, 'newer', 0)")
		execute(t, name, commits("10")...)
		for what, do := range map[string]func() error{
			"a read":             func() error { _, err := idle.Snapshot(ctx); return err },
			"a write":            func() error { _, err := l.Update(ctx, provider("b")); return err },
			"a write after that": func() error { _, err := l.Update(ctx, provider("b")); return err },
			"another server":     func() error { _, err := store.Open(ctx, name, store.Options{}); return err },
		} {
			if err := do(); !errors.Is(err, ledger.ErrSchema) || !errors.Is(err, engine.ErrSchema) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestPruning: rows of old versions are removed, and a server that was stopped all the time since
// them loads everything.
func TestPruning(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const pruneEvery, kept = 256, 4096
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		active := open(t, name)
		defer closeLedger(t, active)
		idle, seen := watched(t, name)
		defer closeLedger(t, idle)
		for _, op := range placementtest.SetupOps() {
			testproc.Try(active.Update(ctx, op.Run)).Or(t)
		}
		// As after the commits of many days; the next but one removes rows.
		execute(t, name,
			"UPDATE ledger_version SET version = version + 10000 - MOD(version, 256) + 256 - MOD(10000, 256) - 2")
		for _, uuid := range []string{"a", "b", "c"} {
			testproc.Try(active.Update(ctx, provider(uuid))).Or(t)
		}
		db := dbservers.Open(t, name)
		var rows, oldest, version int64
		testproc.Check(t,
			db.QueryRowContext(ctx,
				"SELECT COUNT(*), MIN(c.version), MAX(v.version) FROM ledger_changes c, ledger_version v").
				Scan(&rows, &oldest, &version))
		if oldest < version-kept-pruneEvery || rows != 6 {
			t.Errorf("%d rows, from version %d on, at version %d", rows, oldest, version)
		}
		s := testproc.Try(idle.Snapshot(ctx)).Or(t)
		same(t, "the active server -, the idle one +", active.Current(), s)
		if seen.whole != 1 {
			t.Errorf("it followed by %+v", *seen)
		}
	})
}
