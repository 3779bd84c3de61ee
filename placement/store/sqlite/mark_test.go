// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// TestMark: the mark stays while nobody commits, and every commit changes it, whoever commits.
func TestMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "placement.db")
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	ours, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := Open(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	wal := indexOf(path)
	defer wal.release()
	if other := indexOf(link); other != wal {
		t.Error("two names of one database have two indexes: closing one would take away the locks of the other")
	} else {
		other.release()
	}
	before, ok := wal.mark()
	if !ok {
		t.Fatal("there is no mark while the database is open")
	}
	for range 3 {
		if _, err := ours.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m, ok := wal.mark(); !ok || m != before {
			t.Fatal("the mark changes though nobody commits")
		}
	}
	for version := range int64(5) {
		if err := theirs.Commit(t.Context(), version, []ledger.Change{}); err != nil {
			t.Fatal(err)
		}
		m, ok := wal.mark()
		if !ok || m == before {
			t.Fatal("a commit does not change the mark")
		}
		before = m
		if got, err := ours.Version(t.Context()); err != nil || got != version+1 {
			t.Fatalf("after a commit of the other the version is %d, %v; not %d", got, err, version+1)
		}
	}
	// The last to close the database removes the index; who opens it again makes another.
	for _, s := range []interface{ Close() error }{theirs, ours} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := wal.mark(); ok {
		t.Error("there is a mark of a database that nobody has open")
	}
	again, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if _, ok := wal.mark(); !ok {
		t.Error("there is no mark after the database was opened again")
	}
	if got, err := again.Version(t.Context()); err != nil || got != 5 {
		t.Errorf("the version is %d, %v", got, err)
	}
}
