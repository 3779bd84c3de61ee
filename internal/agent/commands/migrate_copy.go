// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/store"
)

// sidecars are the suffixes of the files of an SQLite database: rollback journal, write-ahead log,
// and the lock file of our servers, which records what was acknowledged.
var sidecars = []string{"", "-journal", "-wal", "-lock"}

// copyDatabase copies a database to an SQLite file in the directory for temporary files.
func copyDatabase(ctx context.Context, a engine.Address, name string) (file string, remove func(), err error) {
	if !a.Shared() {
		return copyFiles(ctx, a.Path)
	}
	dir, err := os.MkdirTemp("", "compute-agent-migrate-")
	if err != nil {
		return "", nil, fmt.Errorf("copying the Placement database: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	file = filepath.Join(dir, "placement.db")
	if err := backup.Create(ctx, name, store.DatabaseOptions(), file); err != nil {
		remove()
		if errors.Is(err, engine.ErrSchema) {
			err = fmt.Errorf("%w: %w", control.ErrRefused, err)
		}
		return "", nil, err
	}
	return file, remove, nil
}

// copyFiles copies an unused SQLite database. It detects our servers by their lock, and other
// programs by their writes during the copy.
func copyFiles(ctx context.Context, path string) (file string, remove func(), err error) {
	release, err := sqldb.LockFile(ctx, path)
	if errors.Is(err, engine.ErrLocked) {
		err = fmt.Errorf("%w: %w", control.ErrRefused, err)
	}
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = release() }()         // nothing was written
	real, err := filepath.EvalSymlinks(path) // the other files are next to the database itself
	if err != nil {
		return "", nil, fmt.Errorf("copying the Placement database: %w", err)
	}
	dir, err := os.MkdirTemp("", "compute-agent-migrate-")
	if err != nil {
		return "", nil, fmt.Errorf("copying the Placement database: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	before, err := states(real)
	file = filepath.Join(dir, "placement.db")
	for _, s := range sidecars {
		if err == nil {
			err = copyFile(real+s, file+s)
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
		return "", nil, fmt.Errorf(
			"%w: %s changed while it was copied: stop every Placement service that uses it first", control.ErrRefused,
			path)
	}
	return file, remove, nil
}

// fileState changes when a file is written.
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
