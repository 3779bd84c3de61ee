// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/apidb/sqlite"
	"github.com/compute-agent/compute-agent/internal/dbfile"
)

// TestFileRemovedWhileOpen: a write into a file that is no longer there is refused, it works again when the file is back, and the next
// start without it does not begin with an empty database.
func TestFileRemovedWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path, sqlite.Options{})
	write := func() error { return s.SetQueued(ctx, map[string]bool{"x": true}) }
	if err := errors.Join(write(), s.Problem()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, dbfile.ErrReplaced) || !errors.Is(err, apidb.ErrUnavailable) || !errors.Is(s.Problem(), dbfile.ErrReplaced) {
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
		if _, err := sqlite.Open(ctx, path, sqlite.Options{}); !errors.Is(err, dbfile.ErrLost) {
			t.Errorf("a start without the file: %v", err)
		}
	}
	if err := os.Remove(dbfile.Marker(path)); err != nil {
		t.Fatal(err)
	}
	again, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		t.Fatalf("a start with an empty database that is meant: %v", err)
	}
	shut(t, again)
}
