// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
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
	server := start(t, unprivileged, "--state-dir", dir)
	c := server.quietly(t)
	root := providerUUID(1, 0)
	state := plantAll(t, c, 1)[1]
	o := op{kind: putInventories, tree: 1, subject: root, offers: map[string]offer{root: {0, amounts{"VCPU": 8}}}}
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
	server := start(t, unprivileged, "--state-dir", dir)
	server.quietly(t)
	server.Stop(t)
}

// overwrite changes bytes of a file.
func overwrite(path string, at int64, with []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(with, at)
	return errors.Join(err, f.Close())
}

// TestBadFiles: an error about the database file names it and what to do, the file is not changed,
// and once it is repaired all acknowledged data is there.
func TestBadFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	noise := bytes.Repeat([]byte{0xA7, 0x13, 0x5C, 0xE9}, 1024)
	lost := []string{"acknowledged changes are missing"}
	removed := slices.Concat(lost, []string{"run: rm -f ", ".placement.db.created"})
	gone := slices.Concat(removed, []string{"placement.db-lock"})
	damaged := []string{"the database is damaged", "restore a backup"}
	unwritable := []string{"it cannot be written", "check the owner and mode"}
	for name, c := range map[string]struct {
		spoil func(db string) error
		code  int
		says  []string
		// calm: the write-ahead log is in the database before.
		calm bool
	}{
		"not a database": {spoil: func(db string) error {
			return os.WriteFile(db, []byte("Dear Sir,\nwith regard to your letter\n"), 0o600)
		}, code: 3, says: []string{"it is not a database", "choose another path"}},
		"a directory in its place": {spoil: func(db string) error {
			return errors.Join(os.Remove(db), os.Mkdir(db, 0o700))
		}, code: 1, says: []string{"it cannot be opened", "move it away"}},
		"a read-only file": {spoil: func(db string) error { return os.Chmod(db, 0o400) }, code: 1, says: unwritable},
		"a read-only directory": {spoil: func(db string) error {
			return errors.Join(os.Remove(db+"-lock"), os.Chmod(filepath.Dir(db), 0o500))
		}, code: 1, says: []string{"owner and mode"}},
		"a file of another user": {spoil: func(db string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(db, 0) // only root can give a file away
			}
			return os.Chown(db, 0, 0)
		}, code: 1, says: unwritable},
		"a damaged header": {spoil: func(db string) error {
			return overwrite(db, 16, noise[:84])
		}, code: 3, says: []string{"it is not a database"}, calm: true},
		"damaged pages": {spoil: func(db string) error {
			return overwrite(db, 2*4096, bytes.Repeat(noise, 20))
		}, code: 1, says: damaged, calm: true},
		"half of it is missing": {spoil: func(db string) error {
			info, err := os.Stat(db)
			if err != nil {
				return err
			}
			return os.Truncate(db, info.Size()/2)
		}, code: 1, says: damaged, calm: true},
		"all of it is missing": {spoil: func(db string) error { return os.Truncate(db, 0) }, code: 3, says: gone},
		"the file is removed":  {spoil: os.Remove, code: 3, says: gone},
		"all files are removed": {spoil: func(db string) error {
			files, err := filepath.Glob(db + "*")
			for _, file := range files {
				err = errors.Join(err, os.Remove(file))
			}
			return err
		}, code: 3, says: removed},
		"the write-ahead log is removed": {spoil: func(db string) error {
			return os.Remove(db + "-wal")
		}, code: 3, says: slices.Concat(lost, []string{"placement.db-wal was removed"})},
		"the write-ahead log is cut": {spoil: func(db string) error {
			return os.Truncate(db+"-wal", 5000)
		}, code: 3, says: lost},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			state := used(t, dir)
			db, kept := filepath.Join(dir, "placement.db"), filepath.Join(t.TempDir(), "kept")
			check(t, os.CopyFS(kept, os.DirFS(dir)))
			if c.calm {
				checkpoint(t, dir)
			}
			check(t, c.spoil(db))
			spoiled, _ := os.ReadFile(db) // none when it is no file
			said := start(t, unprivileged, "--state-dir", dir).
				refuses(t, c.code, slices.Concat(c.says, []string{db})...)
			if strings.Count(said, "\n") > 2 {
				t.Errorf("it prints too much:\n%s", said)
			}
			if after, err := os.ReadFile(db); err == nil && len(spoiled) > 0 && !bytes.Equal(after, spoiled) {
				t.Error("the file was changed")
			}
			check(t, os.Chmod(dir, 0o700))
			check(t, os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(kept)))
			give(t, dir)
			server := start(t, unprivileged, "--state-dir", dir)
			if is := newStorm().readAll(t, server.quietly(t), 1); !is.equal(state) {
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
	const forms, unread = "sqlite:///PATH", "path cannot be read"
	for dsn, says := range map[string]string{
		"cassandra://user:s3cret@host/placement": forms, "sqlite://relative.db": forms, "placement.db": forms,
		"sqlite:///%zz": unread,
	} {
		if said := start(t, nil, "--database", dsn).refuses(t, 64, says); strings.Contains(said, "s3cret") {
			t.Errorf("%s: it prints %s", dsn, said)
		}
	}
}
