// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealBackupAndRestore: what was written on one engine is backed up, restored to the next one,
// backed up there, and so on. All of them hold the same, and a server goes on with it.
func TestRealBackupAndRestore(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	o := store.DatabaseOptions()
	digest := func(name string) (out backup.Digest) {
		t.Helper()
		testproc.Check(t, backup.Examine(ctx, name, o, func(db *sqldb.DB) (err error) {
			if err := store.Verify(ctx, db); err != nil {
				return err
			}
			out, err = backup.DigestOf(ctx, db, o.Schema)
			return err
		}))
		return out
	}
	dir := t.TempDir()
	first := engines[0].fresh(t)
	l := open(t, first)
	fill(t, l)
	version := l.Current().Version()
	closeLedger(t, l)
	want := digest(first)
	if want.Rows() < 100 {
		t.Fatalf("only %d rows: that tries nothing", want.Rows())
	}
	last := first
	for i, e := range []testEngine{engines[1], engines[2], engines[1], engines[0], engines[2]} {
		if e.shared && !dbservers.Runs(e.name) {
			continue
		}
		file := filepath.Join(dir, fmt.Sprint(i, ".db"))
		testproc.Check(t, backup.Create(ctx, last, o, file))
		if got := digest(file); got.String() != want.String() {
			t.Fatalf("the backup of %s: %+v, want %+v", last, got, want)
		}
		testproc.ErrorIs(t, backup.Create(ctx, last, o, file), fs.ErrExist, "a second backup to the same file: %v")
		name := e.fresh(t)
		got := testproc.Try(backup.Restore(ctx, name, o, file)).Or(t)
		if got.String() != want.String() || digest(name).String() != want.String() {
			t.Fatalf("restored to %s: %+v, want %+v", e.name, got, want)
		}
		if _, err := backup.Restore(ctx, name, o, file); !errors.Is(err, engine.ErrNotEmpty) {
			t.Errorf("a second restore to the same database: %v", err)
		}
		last = name
	}
	l = open(t, last)
	defer closeLedger(t, l)
	if l.Current().Version() < version {
		t.Errorf("the version went back from %d to %d", version, l.Current().Version())
	}
	if _, err := l.Update(ctx, func(tx *ledger.Tx) error {
		_, err := tx.CreateProvider(ledger.NewProvider{UUID: "after", Name: "after"})
		return err
	}); err != nil {
		t.Errorf("a write after the last restore: %v", err)
	}
}

// fill makes random writes.
func fill(t *testing.T, l *transactor.Ledger) {
	t.Helper()
	model := placementtest.NewModel()
	do := func(op placementtest.Op) {
		model.Apply(op)
		if _, err := l.Update(ctx, op.Run); err != nil && ledger.KindOf(err) == 0 {
			t.Fatal(err)
		}
	}
	for _, op := range placementtest.SetupOps() {
		do(op)
	}
	ops := rapid.Custom(func(rt *rapid.T) placementtest.Op { return placementtest.DrawOp(rt, model) })
	for seed := range 200 {
		do(ops.Example(seed))
	}
}
