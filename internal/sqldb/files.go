// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

const (
	// interval is the time between two looks at the files.
	interval = time.Second
	// probeTime bounds one probe.
	probeTime = 10 * time.Second
	// minSpace is how much space a directory must have for a full disk to be over, in bytes.
	minSpace = 1 << 20
)

// beside are the files of a database beside the one at its path: SQLite's write-ahead log, in which
// alone a commit is until a checkpoint, and the lock file.
var beside = []string{"-wal", "-lock"}

// identity is which file a path names.
type identity struct{ device, inode uint64 }

// databaseFiles protects the files of a SQLite database in use, and watches whether its writes
// fail. A database of servers has no files here and is only watched. It is safe for concurrent use.
type databaseFiles struct {
	path string // as it was given: links are followed
	real string // without symbolic links
	log  zerolog.Logger
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	probe  func(context.Context) error
	opened map[string]identity // by path
	failed error               // of the last write that failed, until a probe succeeds
	logged bool                // that writes fail
}

// protect begins to protect the files of the database at path, which SQLite has open in WAL mode,
// and creates its marker, until close. probe commits a transaction that writes and changes nothing.
// The log gets a line when writes begin to fail and when they work again. The protection outlives
// the context.
func protect(
	ctx context.Context, path string, log zerolog.Logger, probe func(context.Context) error,
) (*databaseFiles, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	f := &databaseFiles{path: path, real: real, probe: probe, log: log, done: make(chan struct{}),
		opened: map[string]identity{}}
	id, err := identify(path)
	if err != nil {
		return nil, err
	}
	f.opened[path] = id
	if err := f.check(); err != nil { // takes note of the files beside it
		return nil, err
	}
	if err := createMarker(real, time.Now()); err != nil {
		return nil, fmt.Errorf("create the marker %s: %w", Marker(real), err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	go f.run(ctx)
	return f, nil
}

// watch looks once a second whether a database of servers can be written to, after a write failed.
// name is its address. It outlives the context.
func watch(ctx context.Context, name string, log zerolog.Logger, probe func(context.Context) error) *databaseFiles {
	f := &databaseFiles{real: name, probe: probe, log: log, done: make(chan struct{})}
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	go f.run(ctx)
	return f
}

// close ends the protection.
func (f *databaseFiles) close() {
	if f != nil {
		f.stop()
		<-f.done
	}
}

func (f *databaseFiles) run(ctx context.Context) {
	defer close(f.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.probeAfterFailure(ctx)
		}
	}
}

// probeAfterFailure probes a database to which the last write failed, and logs what has changed.
func (f *databaseFiles) probeAfterFailure(ctx context.Context) {
	if f.lastFailure() != nil && f.check() == nil {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		if err := f.tryWrite(ctx); err == nil {
			f.mu.Lock()
			f.failed = nil
			f.mu.Unlock()
		}
	}
	problem := f.problem()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case problem != nil && !f.logged:
		f.log.Error().Err(problem).Str("database", f.real).
			Msg("The database cannot be written to. Requests that change something are refused until it can.")
	case problem == nil && f.logged:
		f.log.Info().Str("database", f.real).Msg("The database can be written to again.")
	}
	f.logged = problem != nil
}

// tryWrite finds out whether writes work: whether there is space for one that is not tiny, and
// whether the database takes one.
func (f *databaseFiles) tryWrite(ctx context.Context) error {
	if f.path != "" {
		if err := f.trySpace(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	probe := f.probe
	f.mu.Unlock()
	return probe(ctx)
}

func (f *databaseFiles) trySpace() error {
	file, err := os.CreateTemp(filepath.Dir(f.real), ".probe-*")
	if err != nil {
		return err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = file.Write(make([]byte, minSpace))
	}
	return errors.Join(err, file.Close())
}

func (f *databaseFiles) probeBy(probe func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probe = probe
}

// check returns an error that matches engine.ErrReplaced unless the path names the files that were
// opened.
//
// Cost: three stats, about 4 µs.
func (f *databaseFiles) check() error {
	if f.path == "" {
		return nil
	}
	err := f.checkOne(f.path)
	for i := 0; err == nil && i < len(beside); i++ {
		err = f.checkOne(f.real + beside[i])
	}
	return err
}

func (f *databaseFiles) checkOne(path string) error {
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
		return fmt.Errorf("%w: there is no %s; put the same file back, or stop the service and restore a backup",
			engine.ErrReplaced, path)
	case err != nil:
		return fmt.Errorf("%w: %w", engine.ErrReplaced, err)
	case id != before:
		return fmt.Errorf(
			"%w: %s is another file than the one that is open; put that one back, or restart the service to use "+
				"the new one", engine.ErrReplaced, path)
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

// writeFailed takes note of the error of a write. An error that is not about the storage, such as a
// constraint that was violated, says nothing about it.
func (f *databaseFiles) writeFailed(err error) {
	if err == nil || !engine.StorageFailed(err) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
}

func (f *databaseFiles) lastFailure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// problem is why writes fail now; nil when nothing is known that keeps them from succeeding.
func (f *databaseFiles) problem() error {
	if err := f.check(); err != nil {
		return err
	}
	return f.lastFailure()
}

// Marker is the path of the file that says that a database was created at path. Its name does not
// begin with that of the database, so that deleting "placement.db*" leaves it.
func Marker(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".created")
}

// checkNew returns what to do if there is no database at path, or an empty file, and there was one
// before.
func checkNew(path string) error {
	marker := Marker(path)
	switch _, err := os.Lstat(marker); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return lostHint(path)
	}
	return nil // what is wrong with it comes when it is opened
}

// lostHint says what to do about a database that was at path and is missing.
func lostHint(path string) error {
	remove := Marker(path)
	for _, suffix := range []string{"-lock", "-wal"} {
		if _, err := os.Lstat(path + suffix); err == nil {
			remove += " " + path + suffix
		}
	}
	return fmt.Errorf("the database was here and is missing: %s; put the file back, or restore a backup; to start "+
		"with an empty database, run: rm -f %s", path, remove)
}

// createMarker makes that of a database that exists. One that exists stays as it is.
func createMarker(path string, now time.Time) error {
	marker := Marker(path)
	if _, err := os.Lstat(marker); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := fmt.Sprintf("compute-agent has used the database %s since %s.\n"+
		"This file keeps a service from starting with an empty database when that one is lost.\n"+
		"To start with an empty database, stop the service and remove this file too.\n", filepath.Base(path),
		now.UTC().Format(time.DateOnly))
	disk := files.OS{}
	return errors.Join(disk.WriteFile(marker, []byte(text)), disk.SyncDir(filepath.Dir(marker)))
}
