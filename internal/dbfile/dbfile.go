// SPDX-License-Identifier: Apache-2.0

package dbfile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// ErrReplaced is matched by errors about a database whose path names no file any more, or another one than
// the process has open.
var ErrReplaced = errors.New("the database file was deleted, renamed or replaced while it is in use")

const (
	// interval is the time between two looks at the files.
	interval = time.Second
	// probeTime bounds one probe.
	probeTime = 10 * time.Second
	// room is how much space a directory must have for a full disk to be over, in bytes.
	room = 1 << 20
)

// beside are the files of a database beside the one at its path: SQLite's write-ahead log and its index,
// and the lock file of the stores. A commit is in the log alone until a checkpoint.
var beside = []string{"-wal", "-shm", "-lock"}

// identity is which file a path names.
type identity struct{ device, inode uint64 }

// File is a database file in use. It is safe for concurrent use. Make one with Use when the database is
// open, and Close it before the connections are closed.
type File struct {
	path  string // as it was given: links are followed
	real  string // without symbolic links
	probe func(context.Context) error
	log   zerolog.Logger
	stop  context.CancelFunc
	done  chan struct{}

	mu     sync.Mutex
	opened map[string]identity // by path
	failed error               // of the last write that failed, until a probe succeeds
	logged bool                // that writes fail
}

// Options of a File.
type Options struct {
	// Probe commits a transaction that writes and changes nothing, such as [Touch].
	Probe func(context.Context) error
	// Logger gets a line when writes begin to fail and when they work again.
	Logger zerolog.Logger
}

// Use begins to guard the database at path, which SQLite has open in WAL mode, and creates its marker. The
// guard outlives the context, until Close.
func Use(ctx context.Context, path string, o Options) (*File, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, real: real, probe: o.Probe, log: o.Logger, done: make(chan struct{}), opened: map[string]identity{}}
	id, err := identify(path)
	if err != nil {
		return nil, err
	}
	f.opened[path] = id
	if err := f.Check(); err != nil { // takes note of the files beside it
		return nil, err
	}
	if err := mark(real, time.Now()); err != nil {
		return nil, fmt.Errorf("create the marker %s: %w", Marker(real), err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	go f.run(ctx)
	return f, nil
}

// Close ends the guard. Closing a nil File does nothing.
func (f *File) Close() {
	if f != nil {
		f.stop()
		<-f.done
	}
}

func (f *File) run(ctx context.Context) {
	defer close(f.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.look(ctx)
		}
	}
}

// look probes a database to which the last write failed, and logs what has changed.
func (f *File) look(ctx context.Context) {
	if f.lastFailure() != nil && f.Check() == nil {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		if err := f.tryWrite(ctx); err == nil {
			f.mu.Lock()
			f.failed = nil
			f.mu.Unlock()
		}
	}
	problem := f.Problem()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case problem != nil && !f.logged:
		f.log.Error().Err(problem).Str("database", f.real).Msg("The database cannot be written to. Requests that change something are refused until it can.")
	case problem == nil && f.logged:
		f.log.Info().Str("database", f.real).Msg("The database can be written to again.")
	}
	f.logged = problem != nil
}

// tryWrite finds out whether writes work: whether there is room for one that is not tiny, and whether the
// database takes one.
func (f *File) tryWrite(ctx context.Context) error {
	file, err := os.CreateTemp(filepath.Dir(f.real), ".probe-*")
	if err != nil {
		return err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = file.Write(make([]byte, room))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.probe(ctx)
}

// Check returns an error that matches ErrReplaced unless the path names the files that were opened.
//
// Cost: four stats, about 5 µs.
func (f *File) Check() error {
	err := f.check(f.path)
	for i := 0; err == nil && i < len(beside); i++ {
		err = f.check(f.real + beside[i])
	}
	return err
}

func (f *File) check(path string) error {
	id, err := identify(path)
	missing := errors.Is(err, fs.ErrNotExist)
	f.mu.Lock()
	before, known := f.opened[path]
	if !known && err == nil {
		f.opened[path] = id // it was created meanwhile
	}
	f.mu.Unlock()
	switch {
	case !known && (err == nil || missing):
		return nil
	case missing:
		return fmt.Errorf("%w: there is no %s; put the same file back, or stop the service and restore a backup", ErrReplaced, path)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	case id != before:
		return fmt.Errorf("%w: %s is another file than the one that is open; put that one back, or restart the service to use the new one", ErrReplaced, path)
	}
	return nil
}

func identify(path string) (identity, error) {
	var st syscall.Stat_t
	for {
		err := syscall.Stat(path, &st)
		if err == nil {
			return identity{st.Dev, st.Ino}, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

// Transaction runs do in a transaction that db begins, and commits it. It returns nil only if what was
// committed is in the files that the path names; otherwise the outcome of the commit is not known. An error
// of do undoes all.
func (f *File) Transaction(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) (err error) {
	defer func() { f.Failed(err) }()
	if err := f.Check(); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return f.Check()
}

// Failed takes note of the error of a write. An error that is not about the storage, such as a constraint
// that was violated, says nothing about it. A nil File, which is being opened, ignores it.
func (f *File) Failed(err error) {
	if f == nil || err == nil || !storageFailed(err) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
}

func (f *File) lastFailure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Problem is why writes fail now; nil when nothing is known that keeps them from succeeding.
func (f *File) Problem() error {
	if err := f.Check(); err != nil {
		return err
	}
	return f.lastFailure()
}

// Reason is what keeps writes from succeeding in a few words, without paths: for answers to clients.
func Reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrReplaced):
		return "its file was deleted, renamed or replaced"
	}
	switch code := resultCode(err); {
	case code&0xff == codes.SQLITE_FULL, code == codes.SQLITE_IOERR_SHMSIZE:
		return "no space is left on its disk"
	case code&0xff == codes.SQLITE_READONLY, code&0xff == codes.SQLITE_PERM, code&0xff == codes.SQLITE_CANTOPEN:
		return "its files are read-only"
	case code&0xff == codes.SQLITE_CORRUPT, code&0xff == codes.SQLITE_NOTADB:
		return "it is damaged"
	case code&0xff == codes.SQLITE_BUSY, code&0xff == codes.SQLITE_LOCKED:
		return "another process has it locked"
	}
	return "its disk fails"
}

// storageFailed reports whether SQLite, or the file system below it, could not do what it was asked to.
func storageFailed(err error) bool {
	switch resultCode(err) & 0xff {
	case codes.SQLITE_FULL, codes.SQLITE_READONLY, codes.SQLITE_PERM, codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB, codes.SQLITE_IOERR, codes.SQLITE_CANTOPEN,
		codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return true
	}
	return false
}

// resultCode is SQLite's extended result code, 0 for an error that is not the driver's.
func resultCode(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}
