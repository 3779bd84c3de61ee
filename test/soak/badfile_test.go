// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serverUser is the user that servers run as where root runs the tests: root may do everything.
const serverUser = 65534

// unprivileged makes a server run as a user whom modes of files bind.
func unprivileged(cmd *exec.Cmd) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: serverUser, Gid: serverUser}
	}
}

// give changes the owner of a directory with its content to the user that runs the servers.
func give(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	check(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, serverUser, serverUser)
	}))
}

// used makes a state directory in which a server was killed, after it acknowledged a tree and an
// inventory which are in the write-ahead log alone. It returns what was acknowledged.
func used(t *testing.T, dir string) *forest {
	t.Helper()
	check(t, os.Mkdir(dir, 0o700))
	give(t, dir)
	checkpoint(t, dir)
	server := start(t, unprivileged, onStateDir(dir)...)
	c := server.quietly(t)
	state := plantAll(t, c, 1)[1]
	o := op{kind: putInventories, tree: 1, subject: providerUUID(1, 0), offers: map[string]offer{providerUUID(1, 0): {0, amounts{"VCPU": 8}}}}
	a := testproc.Try(c.do(t.Context(), o)).Or(t)
	state, want := apply(state, o)
	if a != want {
		t.Fatalf("got %+v, want %+v", a, want)
	}
	server.Kill()
	return state
}

// checkpoint brings what is in the write-ahead log into the database, as every orderly end does.
func checkpoint(t *testing.T, dir string) {
	t.Helper()
	server := start(t, unprivileged, onStateDir(dir)...)
	server.quietly(t)
	server.Stop(t)
}

// overwrite changes bytes of a file.
func overwrite(t *testing.T, path string, at int64, with []byte) {
	t.Helper()
	f := testproc.Try(os.OpenFile(path, os.O_WRONLY, 0)).Or(t)
	testproc.Try(f.WriteAt(with, at)).Or(t)
	check(t, f.Close())
}

// TestBadFiles: an error about the database file names it and what to do, the file is not changed,
// and once it is repaired all acknowledged data is there.
func TestBadFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	noise := bytes.Repeat([]byte{0xA7, 0x13, 0x5C, 0xE9}, 1024)
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir, db string)
		code  int
		says  []string
	}{
		"not a database": {func(t *testing.T, _, db string) {
			check(t, os.WriteFile(db, []byte("Dear Sir,\nwith regard to your letter\n"), 0o600))
		}, 3, []string{"it is not a database", "choose another path"}},
		"a directory in its place": {func(t *testing.T, _, db string) {
			check(t, os.Remove(db))
			check(t, os.Mkdir(db, 0o700))
		}, 1, []string{"it cannot be opened", "move it away"}},
		"a read-only file": {func(t *testing.T, _, db string) {
			check(t, os.Chmod(db, 0o400))
		}, 1, []string{"it cannot be written", "check the owner and mode"}},
		"a read-only directory": {func(t *testing.T, dir, db string) {
			check(t, os.Remove(db+"-lock"))
			check(t, os.Chmod(dir, 0o500)) //nolint:gosec // a directory
		}, 1, []string{"owner and mode"}},
		"a file of another user": {func(t *testing.T, _, db string) {
			if os.Geteuid() != 0 {
				check(t, os.Chmod(db, 0)) // only root can give a file away
				return
			}
			check(t, os.Chown(db, 0, 0))
		}, 1, []string{"it cannot be written", "check the owner and mode"}},
		"a damaged header": {func(t *testing.T, _, db string) {
			checkpoint(t, filepath.Dir(db))
			overwrite(t, db, 16, noise[:84])
		}, 3, []string{"it is not a database"}},
		"damaged pages": {func(t *testing.T, _, db string) {
			checkpoint(t, filepath.Dir(db))
			for page := range int64(20) {
				overwrite(t, db, 4096*(page+2), noise)
			}
		}, 1, []string{"the database is damaged", "restore a backup"}},
		"half of it is missing": {func(t *testing.T, _, db string) {
			checkpoint(t, filepath.Dir(db))
			info := testproc.Try(os.Stat(db)).Or(t)
			check(t, os.Truncate(db, info.Size()/2))
		}, 1, []string{"the database is damaged", "restore a backup"}},
		"all of it is missing": {func(t *testing.T, _, db string) {
			check(t, os.Truncate(db, 0))
		}, 3, []string{"acknowledged changes are missing", "run: rm -f ", ".placement.db.created", "placement.db-lock"}},
		"the file is removed": {func(t *testing.T, _, db string) {
			check(t, os.Remove(db))
		}, 3, []string{"acknowledged changes are missing", "run: rm -f ", ".placement.db.created", "placement.db-lock"}},
		"all files are removed": {func(t *testing.T, _, db string) {
			files := testproc.Try(filepath.Glob(db + "*")).Or(t)
			for _, file := range files {
				check(t, os.Remove(file))
			}
		}, 3, []string{"acknowledged changes are missing", "run: rm -f ", ".placement.db.created"}},
		"the write-ahead log is removed": {func(t *testing.T, _, db string) {
			check(t, os.Remove(db+"-wal"))
		}, 3, []string{"acknowledged changes are missing", "placement.db-wal was removed"}},
		"the write-ahead log is cut": {func(t *testing.T, _, db string) {
			check(t, os.Truncate(db+"-wal", 5000))
		}, 3, []string{"acknowledged changes are missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			state := used(t, dir)
			db, kept := filepath.Join(dir, "placement.db"), filepath.Join(t.TempDir(), "kept")
			check(t, os.CopyFS(kept, os.DirFS(dir)))
			c.spoil(t, dir, db)
			spoiled, _ := os.ReadFile(db) // none when it is no file
			server := start(t, unprivileged, onStateDir(dir)...)
			testproc.Equal(t, server.Exit(t), c.code, "it ended with %d")
			said := strings.Join(server.Lines(), "\n")
			for _, words := range append(c.says, db) {
				testproc.Contains(t, said, words, "it does not say %q:\n%s", words)
			}
			if strings.Count(said, "\n") > 2 {
				t.Errorf("it prints too much:\n%s", said)
			}
			if after, err := os.ReadFile(db); err == nil && len(spoiled) > 0 && !bytes.Equal(after, spoiled) {
				t.Error("the file was changed")
			}
			check(t, os.Chmod(dir, 0o700)) //nolint:gosec // a directory
			check(t, os.RemoveAll(dir))
			check(t, os.CopyFS(dir, os.DirFS(kept)))
			give(t, dir)
			server = start(t, unprivileged, onStateDir(dir)...)
			s := newStorm()
			if is := s.readAll(t, server.quietly(t), 1); !is.equal(state) {
				t.Errorf("repaired, it has %+v, want %+v", is, state)
			}
			server.Stop(t)
		})
	}
}

// TestInvalidAddresses: an address that can be no database is a wrong flag. What it holds may be a
// password.
func TestInvalidAddresses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	for _, dsn := range []string{"cassandra://user:s3cret@host/placement", "sqlite://relative.db", "sqlite:///%zz", "placement.db"} {
		server := start(t, nil, "--database", dsn)
		code, said := server.Exit(t), strings.Join(server.Lines(), "\n")
		if code != 64 || !strings.Contains(said, "sqlite:///PATH") && !strings.Contains(said, "path cannot be read") || strings.Contains(said, "s3cret") {
			t.Errorf("%s: it ended with %d and printed: %s", dsn, code, said)
		}
	}
}
