// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/celldb/sqlite"
	"github.com/compute-agent/compute-agent/internal/dbfile"
)

// TestFileRemovedWhileOpen: a write into a file that is no longer there is refused, it works again when the file is back, and the next
// start without it does not begin with an empty database.
func TestFileRemovedWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path)
	write := func() error { return s.Mapped(ctx, nil) }
	if err := errors.Join(write(), s.Problem()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, dbfile.ErrReplaced) || !errors.Is(err, celldb.ErrUnavailable) || !errors.Is(s.Problem(), dbfile.ErrReplaced) {
		t.Errorf("without the file: %v, problem: %v", err, s.Problem())
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(), s.Problem()); err != nil {
		t.Errorf("with the file: %v", err)
	}
	if err := errors.Join(s.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := sqlite.Open(ctx, path, "cell1"); !errors.Is(err, dbfile.ErrLost) {
			t.Errorf("a start without the file: %v", err)
		}
	}
	if err := os.Remove(dbfile.Marker(path)); err != nil {
		t.Fatal(err)
	}
	again, err := sqlite.Open(ctx, path, "cell1")
	if err != nil {
		t.Fatalf("a start with an empty database that is meant: %v", err)
	}
	closeStore(t, again)
}
