// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestOpenCreatesAndReopens(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "deep", "er", "cell.db")
	s := open(t, path)
	for name, want := range map[string]os.FileMode{path: 0o600, path + "-lock": 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
	if has, knows, err := s.SchemaVersion(ctx); err != nil || has != knows || has < 1 {
		t.Errorf("the schema has had %d of %d steps, %v", has, knows, err)
	}
	before, err := s.Info(ctx)
	if err != nil || before.Name != "cell1" || len(before.Epoch) != 36 || before.Revision != 1 {
		t.Errorf("it is %+v, %v", before, err)
	}
	release(t, s, building(1))
	closeStore(t, s)
	s = open(t, path)
	defer closeStore(t, s)
	after, err := s.Info(ctx)
	if err != nil || after.Epoch != before.Epoch || after.Revision <= before.Revision {
		t.Errorf("opened again it is %+v, %v; it was %+v", after, err, before)
	}
	if got, err := s.Server(ctx, sid(1), moment); err != nil || got.Name != "server-1" {
		t.Errorf("opened again it has %+v, %v", got, err)
	}
	for _, name := range []string{path + "-wal", path + "-lock"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestTwoDatabasesHaveTwoEpochs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var epochs []string
	for range 2 {
		s := open(t, filepath.Join(t.TempDir(), "cell.db"))
		info := testproc.Try(s.Info(ctx)).Or(t)
		closeStore(t, s)
		epochs = append(epochs, info.Epoch)
	}
	if epochs[0] == epochs[1] {
		t.Error("they have the same")
	}
}

// TestRefusedFiles: what is not this program's, or not this cell's, is refused with what and where,
// and keeps every byte.
func TestRefusedFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		want    error
		says    string
	}{
		"a text": {func(t *testing.T, path string) { write(t, path, strings.Repeat("something else\n", 20)) },
			celldb.ErrSchema, "not a database"},
		"a cut header": {func(t *testing.T, path string) { write(t, path, "SQLite format 3\x00") },
			celldb.ErrSchema, "not a database"},
		"another program's": {func(t *testing.T, path string) {
			execute(t, path, "CREATE TABLE instances (id INTEGER)")
		}, celldb.ErrSchema, "another program"},
		"a newer program's": {func(t *testing.T, path string) {
			closeStore(t, open(t, path))
			execute(t, path, "PRAGMA user_version = 99")
		}, celldb.ErrSchema, "99 steps of the schema"},
		"another cell's": {func(t *testing.T, path string) {
			s := testproc.Try(celldb.Open(ctx, path, "cell2", celldb.Options{})).Or(t)
			closeStore(t, s)
		}, celldb.ErrName, `"cell2"`},
		"a directory": {func(t *testing.T, path string) {
			testproc.Check(t, os.Mkdir(path, 0o700))
		}, celldb.ErrUnavailable, "a directory is in its place"},
		"a log without its file": {func(t *testing.T, path string) { write(t, path+"-wal", "x") },
			celldb.ErrUnavailable, "write-ahead log"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cell.db")
			c.prepare(t, path)
			before, _ := os.ReadFile(path)
			s, err := celldb.Open(ctx, path, "cell1", celldb.Options{})
			if err == nil {
				closeStore(t, s)
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v saying %q", err, c.want, c.says)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
			if _, err := os.Stat(path + "-lock"); name == "another program's" && err == nil {
				t.Error("a lock was left beside the file of another program")
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	testproc.Check(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestOneProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "cell.db")
	s := open(t, path)
	link := filepath.Join(t.TempDir(), "link.db")
	testproc.Check(t, os.Symlink(path, link))
	for _, name := range []string{path, link} {
		second, err := celldb.Open(ctx, name, "cell1", celldb.Options{})
		if err == nil {
			closeStore(t, second)
		}
		if !errors.Is(err, celldb.ErrUnavailable) || !strings.Contains(err.Error(), "another process (pid ") {
			t.Errorf("a second one by %s: %v", name, err)
		}
	}
	closeStore(t, s)
	closeStore(t, open(t, path))
}

// TestEnded: after the end of its context a change is not written.
func TestEnded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Insert(ended, building(1), moment); err == nil {
		t.Error("an ended request was done")
	}
	if states, err := s.States(ctx, []string{sid(1)}); err != nil || len(states) != 0 {
		t.Errorf("it left %+v, %v", states, err)
	}
}

// TestDamage: damage that is met in the middle of the work is an error with what to do, not an
// answer with less.
func TestDamage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "cell.db")
	s := open(t, path)
	for n := range 50 {
		release(t, s, building(n))
	}
	closeStore(t, s)
	data := testproc.Try(os.ReadFile(path)).Or(t)
	seen := 0
	const page = 4096
	for at := page; at < len(data); at += page {
		damaged := bytes.Clone(data)
		copy(damaged[at:], bytes.Repeat([]byte{0xa7, 0x13}, page/2))
		other := filepath.Join(t.TempDir(), "cell.db")
		write(t, other, string(damaged))
		s, err := celldb.Open(ctx, other, "cell1", celldb.Options{})
		if err == nil {
			var got cellwire.ServerPage
			got, err = s.Servers(ctx,
				cellwire.ServerQuery{Limit: 100, Sort: []cellwire.SortKey{{Key: "created_at", Desc: true}}}, moment)
			if err == nil && len(got.Rows) != 50 {
				t.Errorf("page %d is damaged, and %d of 50 servers are listed", at/page+1, len(got.Rows))
			}
			closeStore(t, s)
		}
		if err != nil {
			seen++
			if !errors.Is(err, celldb.ErrUnavailable) || !errors.Is(err, celldb.ErrDamaged) ||
				!strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("page %d: %v", at/page+1, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no damage was seen")
	}
}

func TestAlive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := celldb.Moment{Now: start, DownTime: time.Minute}
	for ago, want := range map[time.Duration]bool{0: true,
		time.Minute: true, time.Minute + 1: false, -time.Minute: true, -2 * time.Minute: false} {
		testproc.Equal(t, m.Alive(start.Add(-ago)), want, "seen %v ago: alive is %v", ago)
	}
	if m.Alive(time.Time{}) {
		t.Error("a host that was never seen is alive")
	}
}
