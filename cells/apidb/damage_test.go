// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// openers are all ways to a database.
var openers = map[string]func(path string) error{
	"Open":           func(path string) error { return closed(apidb.Open(ctx, path, apidb.Options{})) },
	"OpenAndUpgrade": func(path string) error { return closed(apidb.OpenAndUpgrade(ctx, path, apidb.Options{})) },
	"Migrate":        func(path string) error { _, err := apidb.Migrate(ctx, path, 0); return err },
	"Version":        func(path string) error { _, _, err := apidb.Version(ctx, path); return err },
}

func closed(s *apidb.DB, err error) error {
	if err == nil {
		err = s.Close()
	}
	return err
}

// TestFilesOfOtherProgramsAreRejected: what is no API database is refused, by whichever way, and
// not a byte of it or beside it changes.
func TestFilesOfOtherProgramsAreRejected(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, content := range map[string]func(t *testing.T, path string){
		"garbage": func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte(strings.Repeat("letter ", 100)), 0o600))
		},
		"a few bytes": func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("x"), 0o600)) },
		"a torn header": func(t *testing.T, path string) {
			must(t,
				os.WriteFile(path, []byte("SQLite format 3\x00\x10"), 0o600))
		},
		"keystone's": func(t *testing.T, path string) { execute(t, path, "CREATE TABLE user (id INTEGER)") },
		"one with a log": func(t *testing.T, path string) {
			execute(t, path, "PRAGMA journal_mode = WAL", "CREATE TABLE user (id INTEGER)")
		},
		"a marked one": func(t *testing.T, path string) {
			execute(t, path,
				"PRAGMA application_id = 7", "CREATE TABLE t (i)")
		},
		"a marked, empty": func(t *testing.T, path string) {
			execute(t, path, "PRAGMA application_id = 7", "CREATE TABLE t (i)", "DROP TABLE t")
		},
		"of the same name": func(t *testing.T, path string) {
			execute(t, path, "CREATE TABLE cell_mappings (id INTEGER)", "PRAGMA user_version = 1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "api.db")
			content(t, path)
			before := testproc.Try(os.ReadFile(path)).Or(t)
			for way, open := range openers {
				err := open(path)
				wantError(t, way, err, apidb.ErrSchema)
				if err != nil &&
					(!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "choose another path")) {
					t.Errorf("%s: the error does not say where and what to do: %v", way, err)
				}
				after := testproc.Try(os.ReadFile(path)).Or(t)
				if beside, _ := filepath.Glob(path + "?*"); !bytes.Equal(before, after) || len(beside) > 0 {
					t.Errorf("%s: the file was changed, or others were made: %v", way, beside)
				}
			}
		})
	}
}

// TestUnreachable: directories and files that cannot be written.
func TestUnreachable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, err := apidb.Open(ctx, t.TempDir(), apidb.Options{})
	wantError(t, "a directory in the file's place", err, apidb.ErrUnavailable)
	testproc.ErrorHas(t, err, "a directory is in its place", "got %v")
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	_, err = apidb.Open(ctx, filepath.Join(file, "api.db"), apidb.Options{})
	wantError(t, "a file in the directory's place", err, apidb.ErrUnavailable)

	dir := t.TempDir()
	path := filepath.Join(dir, "api.db")
	shut(t, open(t, path, apidb.Options{}))
	if os.Geteuid() == 0 {
		// Root may write where the mode forbids it: another user tries.
		must(t, os.Chmod(dir, 0o755)) // the other user looks inside
		must(t, os.Chmod(path, 0o644))
		for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
			must(t, os.Chmod(up, 0o755)) // the other user looks inside
		}
		output := openUnprivileged(t, path)
		for _, want := range []string{"it cannot be written", "check the owner and mode", "and this process runs as "} {
			testproc.Contains(t, output, want, "another user's error does not say %q: %s", want)
		}
		return
	}
	must(t, os.Chmod(dir, 0o500)) // the point of the test
	defer func() { must(t, os.Chmod(dir, 0o700)) }()
	_, err = apidb.Open(ctx, path, apidb.Options{})
	wantError(t, "a directory that cannot be written", err, apidb.ErrUnavailable)
	_, err = apidb.Open(ctx, filepath.Join(dir, "new.db"), apidb.Options{})
	wantError(t, "a new file in it", err, apidb.ErrUnavailable)
}

// TestFilesArePrivate: other users cannot read the files.
func TestFilesArePrivate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, filepath.Join(dir, "api.db"), apidb.Options{})
	defer shut(t, s)
	withCells(t, s, 1)
	for _, name := range []string{"api.db", "api.db-wal", "api.db-lock", "."} {
		info := testproc.Try(os.Stat(filepath.Join(dir, name))).Or(t)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

// TestFullDisk: a write for which the disk has no space is refused whole, reads go on, and writes
// work again when there is space.
func TestFullDisk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "api.db")
	s := open(t, path, apidb.Options{MaxPages: 60})
	withCells(t, s, 1)
	var full error
	var last int
	for last = 0; full == nil && last < 2000; last++ {
		full = s.CreateServers(ctx, []apidb.RequestSpec{server(fmt.Sprint("s", last), "p")}, nil)
	}
	wantError(t, "a full disk", full, apidb.ErrUnavailable)
	if full == nil || !strings.Contains(full.Error(), "the disk is full") ||
		!strings.Contains(full.Error(), "make space in") {
		t.Errorf("the error does not say what to do: %v", full)
	}
	refused := fmt.Sprint("s", last-1)
	for what, err := range map[string]error{
		"mapping": second(s.Mapping(ctx, refused)), "specification": second(s.RequestSpec(ctx, refused)),
		"build request": second(s.BuildRequest(ctx, refused)),
	} {
		wantError(t, "the "+what+" of the refused server", err, apidb.ErrNotFound)
	}
	if c, err := s.CountProject(ctx, "p", "", nil); err != nil || c.Instances != int64(last-1) {
		t.Errorf("%+v, %v; want %d", c, err, last-1)
	}
	shut(t, s)
	s = open(t, path, apidb.Options{})
	defer shut(t, s)
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{server(refused, "p")}, nil))
}

func second[T any](_ T, err error) error { return err }

// TestDamage: pages of noise are found, and the error says what to do.
func TestDamage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "api.db")
	s := open(t, path, apidb.Options{})
	withCells(t, s, 1)
	fill(t, path, 1000, 1)
	shut(t, s)
	info := testproc.Try(os.Stat(path)).Or(t)
	f := testproc.Try(os.OpenFile(path, os.O_WRONLY, 0)).Or(t)
	_, err := io.Copy(io.NewOffsetWriter(f, 4096),
		strings.NewReader(strings.Repeat("\xA7\x13", int(info.Size()-4096)/2)))
	must(t, errors.Join(err, f.Close()))
	again, err := apidb.Open(ctx, path, apidb.Options{})
	if err == nil {
		_, err = again.Mappings(ctx, apidb.MappingFilter{})
		_ = again.Close() // it may say again that the file is damaged
	}
	wantError(t, "a damaged file", err, apidb.ErrUnavailable)
	testproc.ErrorHas(t, err, "restore a backup", "the error does not say what to do: %v")
}

// TestDamagedRow: the error names a row with invalid JSON.
func TestDamagedRow(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{server("a", "p")}, nil))
	execute(t, s.name, "UPDATE request_specs SET spec = '{'", "UPDATE build_requests SET instance = '['")
	_, err := s.RequestSpec(ctx, "a")
	wantError(t, "specification", err, apidb.ErrUnavailable)
	_, err = s.BuildRequests(ctx, "", 0)
	wantError(t, "build request", err, apidb.ErrUnavailable)
	testproc.ErrorHas(t, err, "server a", "the error does not name the server: %v")
}

// TestContext: who gives up learns that, and nothing is written.
func TestContext(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Mapping(gone, "a")
	wantError(t, "reading", err, context.Canceled)
	wantError(t, "writing", s.SetQuotas(gone, "p", apidb.QuotaSet{"cores": 1}), context.Canceled)
	_, err = s.Mappings(gone, apidb.MappingFilter{})
	wantError(t, "listing", err, context.Canceled)
	// In the middle of a transaction.
	late, cancel := context.WithCancel(ctx)
	err = s.CreateServers(late, []apidb.RequestSpec{server("a", "p")},
		func(apidb.Counts) error { cancel(); return nil })
	wantError(t, "in the middle", err, context.Canceled)
	_, err = s.Mapping(ctx, "a")
	wantError(t, "what was given up", err, apidb.ErrNotFound)
}

// openUnprivileged opens the database in a process of another user, and returns its output.
func openUnprivileged(t *testing.T, path string) string {
	t.Helper()
	self := testproc.Try(os.Executable()).Or(t)
	binary := filepath.Join(filepath.Dir(path), "child")
	content, err := os.ReadFile(self)
	must(t, err)
	must(t, testproc.WriteExecutable(binary, content))
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), childEnv+"=open|"+path)
	cmd.SysProcAttr = unprivileged()
	output, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("another user opened the database: %s", output)
	}
	return string(output)
}
