// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// lockFile is the file PATH-lock, locked for as long as the database is open. The kernel unlocks it
// when the process ends, in whatever way.
//
// Its first line is the newest version that was acknowledged, where there is one. It is written
// after a commit and never synced, so it may lag behind the database, and is never ahead of it: a
// database with a lower version lost its write-ahead log, or is an older copy. The next lines are
// the number of the process, and where it answers administrators.
type lockFile struct {
	path string // of the database
	f    *os.File
}

// lock takes the lock: exclusively, or shared with others that only look. Without create, a
// database that has no lock file is not locked by any process of ours; the lock is nil then.
func lock(path string, exclusively, create bool) (*lockFile, error) {
	const op = "locking"
	flags, how := os.O_RDWR, syscall.LOCK_SH
	if create {
		flags |= os.O_CREATE
	}
	if exclusively {
		how = syscall.LOCK_EX
	} else {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path+"-lock", flags|syscall.O_NOFOLLOW, 0o600)
	if !create && errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, engine.FileError(op, path, err)
	}
	l := &lockFile{path, f}
	if err := files.Lock(f, how|syscall.LOCK_NB); err != nil {
		who := "another process"
		if h := holderIn(f); h.PID != 0 {
			who = fmt.Sprintf("another process (pid %d)", h.PID)
		}
		_ = f.Close() // the error above is the one that matters
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &engine.Error{Op: op, Database: path, Kind: engine.ErrLocked,
				Hint: who + " has it open, and a database file belongs to one process; stop that one first"}
		}
		return nil, engine.FileError(op, path, err)
	}
	if exclusively {
		files.GiveToOwner(f, path)
		l.recordHolder("")
	}
	return l, nil
}

// lockSoon takes the lock exclusively, and creates its file. A holder without an admin socket can
// be a command that has the database for a moment, such as a backup, or a server that just ends: it
// is waited for, up to two seconds. A server that runs is an error at once.
func lockSoon(ctx context.Context, path string) (*lockFile, error) {
	const tries, pause = 40, 50 * time.Millisecond
	for i := 0; ; i++ {
		l, err := lock(path, true, true)
		if i == tries || !errors.Is(err, engine.ErrLocked) || i > 0 && HolderOf(path).Socket != "" {
			return l, err
		}
		if !wait.For(ctx, pause) {
			return nil, err
		}
	}
}

const (
	// versionDigits is the length of the version, always the same, so that it is replaced by one
	// write.
	versionDigits = 20
	holderAt      = versionDigits + 1
)

// Holder is the process of ours that has a database open.
type Holder struct {
	PID int // 0 if it is not known
	// Socket is where the process answers administrators, "" if it does not.
	Socket string
}

// HolderOf is the process that had the database at a path open last, as it wrote down beside it.
func HolderOf(path string) Holder {
	f, err := os.Open(realName(path) + "-lock")
	if err != nil {
		return Holder{}
	}
	defer func() { _ = f.Close() }() // it was only read
	return holderIn(f)
}

func holderIn(f *os.File) (h Holder) {
	text, _ := io.ReadAll(io.NewSectionReader(f, holderAt, 4096)) // what cannot be read is not known
	lines := strings.Split(string(text), "\n")
	if pid, found := strings.CutPrefix(lines[0], "pid "); found {
		h.PID, _ = strconv.Atoi(pid)
	}
	if len(lines) > 1 {
		h.Socket, _ = strings.CutPrefix(lines[1], "socket ")
	}
	return h
}

// recordHolder writes down the process that has the database, and its admin socket. A failure only
// makes messages less specific.
func (l *lockFile) recordHolder(socket string) {
	text := fmt.Sprintf("pid %d\n", os.Getpid())
	if socket != "" {
		text += "socket " + socket + "\n"
	}
	if l.f.Truncate(holderAt) == nil {
		_, _ = l.f.WriteAt([]byte(text), holderAt)
	}
}

// recordVersion writes down the acknowledged version. A failure has no effect: the file then has an
// older one.
func (l *lockFile) recordVersion(version int64) {
	_, _ = l.f.WriteAt(fmt.Appendf(nil, "%0*d\n", versionDigits, version), 0)
}

// recordedVersion is the version written down, 0 when there is none.
func (l *lockFile) recordedVersion() int64 {
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

// regressionError is the error for a database that is at a version when a higher one was noted.
func (l *lockFile) regressionError(version int64) error {
	noted := l.recordedVersion()
	if version >= noted {
		return nil
	}
	name := filepath.Base(l.path)
	return &engine.Error{Op: "opening", Database: l.path, Kind: engine.ErrLost, Hint: fmt.Sprintf(
		"it is at version %d, and version %d was acknowledged: %s-wal was removed, or the file was removed or "+
			"replaced by an older copy; put back what was there, or remove %s-lock to go on without what is missing",
		version, noted, name, name)}
}

// close unlocks the database, also for a process that was just started and has the file until it
// executes its program.
func (l *lockFile) close() error {
	if l == nil {
		return nil
	}
	_ = files.Lock(l.f, syscall.LOCK_UN) // without it, closing does it a little later
	return l.f.Close()
}
