// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/control"
	"github.com/compute-agent/compute-agent/placement/store"
)

// sidecars are the files that belong to an SQLite database: the rollback journal or the write-ahead log that a crash left, and
// the lock file of our servers, which says what was acknowledged.
var sidecars = []string{"", "-journal", "-wal", "-lock"}

// copyDatabase makes a private copy of an SQLite database that nobody uses, in the directory for temporary files, and changes
// nothing of the database. One of our servers that has it open is refused by the lock that it holds, any other program by what
// it writes meanwhile.
func copyDatabase(path string) (file string, remove func(), err error) {
	unlock, err := lockDatabase(path)
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	// SQLite keeps its own files beside the database itself, our servers their lock beside the name that they were given.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", nil, fmt.Errorf("copying the Placement database: %w", err)
	}
	if !sameFile(path+"-lock", real+"-lock") {
		unlockReal, err := lockDatabase(real)
		if err != nil {
			return "", nil, err
		}
		defer unlockReal()
	}
	dir, err := os.MkdirTemp("", "compute-agent-migrate-")
	if err != nil {
		return "", nil, fmt.Errorf("copying the Placement database: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	before, err := states(real)
	file = filepath.Join(dir, "placement.db")
	for _, s := range sidecars {
		from := real
		if s == "-lock" {
			from = path
		}
		if err == nil {
			err = copyFile(from+s, file+s)
		}
		if s != "" && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	var after [4]fileState
	if err == nil {
		after, err = states(real)
	}
	switch {
	case err != nil:
		remove()
		return "", nil, fmt.Errorf("copying the Placement database (to the directory that TMPDIR names): %w", err)
	case before != after:
		remove()
		return "", nil, fmt.Errorf("%w: %s was written while it was read: stop every Placement service that uses it first", control.ErrRefused, path)
	}
	return file, remove, nil
}

// lockDatabase keeps our servers from opening a database, if there is a lock file: without one none has it open.
func lockDatabase(path string) (unlock func(), err error) {
	f, err := os.Open(path + "-lock")
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking whether a Placement server runs: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = &store.Error{Op: "locking", Where: path, Kind: store.ErrLocked, Hint: "another process has it open; stop the Placement service first"}
			return nil, fmt.Errorf("%w: %w", control.ErrRefused, err)
		}
		return nil, fmt.Errorf("looking whether a Placement server runs: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// sameFile reports whether two names lead to one file, or to none.
func sameFile(a, b string) bool {
	one, errOne := os.Stat(a)
	two, errTwo := os.Stat(b)
	if errOne != nil || errTwo != nil {
		return errors.Is(errOne, fs.ErrNotExist) && errors.Is(errTwo, fs.ErrNotExist)
	}
	return os.SameFile(one, two)
}

// fileState is what changes when a file is written.
type fileState struct{ size, modified int64 }

func states(path string) (out [4]fileState, err error) {
	for i, s := range sidecars {
		info, err := os.Stat(path + s)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		out[i] = fileState{info.Size(), info.ModTime().UnixNano()}
	}
	return out, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
