// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Backup writes a consistent copy of the database to a new file (mode 0600), while the database is
// in use. A file that is there is refused with fs.ErrExist. Writing goes on meanwhile.
func (db *DB) Backup(ctx context.Context, file string) error {
	const op = "copying"
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	err = db.backup(ctx, file)
	if err != nil {
		return errors.Join(db.Explain(ctx, op, err), os.Remove(file))
	}
	return nil
}

func (db *DB) backup(ctx context.Context, file string) (err error) {
	if err := db.Check(); err != nil {
		return err
	}
	// A connection of its own: a copy takes as long as it takes. It may not be query_only, which
	// would be true of the copy as well.
	pool, c, err := connect(db.path, 1, url.Values{"_pragma": {busyPragma}, "vfs": {exclusive}})
	if err != nil {
		return err
	}
	c.files.Store(db.files)
	defer func() { err = errors.Join(err, pool.Close()) }()
	if _, err := pool.ExecContext(ctx, "VACUUM INTO ?", file); err != nil {
		return err
	}
	return SyncFile(file)
}

// SyncFile puts a new file and its name on the disk.
func SyncFile(file string) error {
	for _, name := range []string{file, filepath.Dir(file)} {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// BackUpFile is DB.Backup for a database file that no process of ours has open.
func BackUpFile(ctx context.Context, path, file string) (err error) {
	path, err = filepath.Abs(path)
	db := &DB{Dialect: engine.SQLite, path: realName(path)}
	if err == nil {
		err = db.lockExisting()
	}
	if err == nil {
		err = db.Backup(ctx, file)
	}
	return errors.Join(db.Explain(ctx, "copying", err), db.Close())
}

// lockExisting locks a file that is there, and does not open it.
func (db *DB) lockExisting() (err error) {
	if _, err := os.Stat(db.path); err != nil {
		return engine.FileError("", db.path, err)
	}
	db.lock, err = lock(db.path, true, false)
	return err
}

// LockFile locks a database file that is there, so that no process of ours opens it. Errors are
// *[engine.Error].
func LockFile(ctx context.Context, path string) (release func() error, err error) {
	db := &DB{Dialect: engine.SQLite, path: realName(path)}
	if err := db.lockExisting(); err != nil {
		return nil, db.Explain(ctx, "locking", err)
	}
	return db.lock.close, nil
}

// BackupPath is where the admin socket of a process answers GET with a backup of its database.
const BackupPath = "/database"

// ServeBackup answers a request with a backup of the database. It takes as much space beside the
// database as that has, for as long as the answer takes.
func (db *DB) ServeBackup(w http.ResponseWriter, r *http.Request) {
	if err := db.sendBackup(w, r); err != nil {
		// or nothing, in the middle of the answer, which is too short then
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (db *DB) sendBackup(w http.ResponseWriter, r *http.Request) error {
	dir, err := os.MkdirTemp(filepath.Dir(db.path), ".backup-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "copy.db")
	if err := db.Backup(r.Context(), file); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	// Where an open file can be removed, nothing is left from here on, also if this process is
	// killed.
	_ = os.RemoveAll(dir)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	noDeadline(w) // a copy takes as long as it takes
	w.Header().Set("Content-Type", "application/vnd.sqlite3")
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	_, err = io.Copy(w, f)
	return err
}

// noDeadline lets an answer take as long as it takes.
func noDeadline(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	// a server without deadlines has none to lift
	_ = errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
}

// request sends one to the process at an admin socket, with its key, and returns the body of the
// answer.
func request(ctx context.Context, socket, method, path string, body []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://process"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if err := files.SetKey(req.Header, socket); err != nil {
		return nil, err
	}
	resp, err := files.Client(socket).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what came of it says enough
	_ = resp.Body.Close()
	return nil, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
}

// FetchBackup asks the process at an admin socket for a backup of its database, and writes it to a
// new file (mode 0600). A file that is there is refused with fs.ErrExist.
func FetchBackup(ctx context.Context, socket, file string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("back up the database of the process at %s: %w", socket, err), os.Remove(file))
		}
	}()
	answer, err := request(ctx, socket, http.MethodGet, BackupPath, nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	if _, err := io.Copy(f, answer); err != nil { // one that ends early is an error, by its length
		return err
	}
	return SyncFile(file)
}
