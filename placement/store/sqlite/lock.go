// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/placement/store"
)

// lockFile is the file PATH-lock. Its lock, shared or exclusive, is held for
// as long as the store is open: SQLite's own locks last one transaction, this
// one says who may be there at all.
//
// Its content is the newest version that a server on this file acknowledged.
// It is written after a commit and never synced, so it may lag behind the
// database, and is never ahead of it: a database with a lower version lost
// its write-ahead log, or is an older copy.
type lockFile struct {
	path string // of the database
	f    *os.File
}

// lock takes the lock.
func lock(path string, exclusive bool) (*lockFile, error) {
	const op = "locking"
	f, err := os.OpenFile(path+"-lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fileError(op, path, err)
	}
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close() // the error above is the one that matters
		if errors.Is(err, syscall.EWOULDBLOCK) {
			hint := "another process uses it exclusively; stop that one first"
			if exclusive {
				hint = "another process has it open; stop that one first, or do not ask for exclusive use"
			}
			return nil, &store.Error{Op: op, Where: path, Kind: store.ErrLocked, Hint: hint}
		}
		return nil, fileError(op, path, err)
	}
	giveToOwner(f, path)
	return &lockFile{path, f}, nil
}

// giveToOwner gives a file of root's to the owner of the database, as SQLite does with its own files: or else a command that
// root runs once would keep the service, which runs as another user, from starting.
func giveToOwner(f *os.File, path string) {
	if os.Geteuid() != 0 {
		return
	}
	info, err := os.Stat(path)
	if err != nil {
		return
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(owner.Uid), int(owner.Gid)) // not possible everywhere, and not needed where the owner is root
	}
}

// versionDigits is the length of the content, always the same, so that it is
// replaced by one write.
const versionDigits = 20

// note writes down what was acknowledged. Failing to is no harm: the file
// then says less.
func (l *lockFile) note(version int64) {
	_, _ = l.f.WriteAt(fmt.Appendf(nil, "%0*d\n", versionDigits, version), 0)
}

// noted is the version written down, 0 when there is none.
func (l *lockFile) noted() int64 {
	text, err := io.ReadAll(io.NewSectionReader(l.f, 0, versionDigits))
	if err != nil || len(text) != versionDigits {
		return 0
	}
	version, err := strconv.ParseInt(strings.TrimLeft(string(text), "0"), 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// refuseLoss is the error for a database that is at a version when a higher
// one was noted.
func (l *lockFile) refuseLoss(version, noted int64) error {
	if version >= noted {
		return nil
	}
	name := filepath.Base(l.path)
	return &store.Error{Op: "opening", Where: l.path, Kind: store.ErrLost, Hint: fmt.Sprintf(
		"it is at version %d, and version %d was acknowledged: %s-wal was removed, or the file was removed or replaced by an older copy; put back what was there, or remove %s-lock to go on without what is missing",
		version, noted, name, name)}
}

func (l *lockFile) close() error { return l.f.Close() }
