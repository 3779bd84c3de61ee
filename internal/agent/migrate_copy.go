// SPDX-License-Identifier: Apache-2.0

package agent

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
)

// sidecars are the files that belong to an SQLite database: the rollback journal or the write-ahead log that a crash left, and
// the lock file of our servers, which says what was acknowledged.
var sidecars = []string{"", "-journal", "-wal", "-lock"}

// copyDatabase makes a private copy of an SQLite database that nobody uses, in the directory for temporary files, and changes
// nothing of the database. One of our servers that has it open is refused by the lock that it holds, any other program by what
// it writes meanwhile.
func copyDatabase(ctx context.Context, path string) (file string, remove func(), err error) {
	release, err := sqldb.Hold(ctx, path)
	if errors.Is(err, sqldb.ErrLocked) {
		err = fmt.Errorf("%w: %w", control.ErrRefused, err)
	}
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = release() }()         // nothing was written
	real, err := filepath.EvalSymlinks(path) // the other files are beside the database itself
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
		return "", nil, fmt.Errorf("%w: %s was written while it was read: stop every Placement service that uses it first", control.ErrRefused, path)
	}
	return file, remove, nil
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
