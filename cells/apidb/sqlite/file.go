// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/dbfile"
)

// file is an open database's file, under its real name. Whoever has it must close it, after the connections.
//
// POSIX takes all of a process's locks on a file away when the process closes any of its descriptors; and with its locks gone, another process may
// take SQLite's write-ahead log for abandoned, and remove it. So the file itself is looked into only while this process has no connection to it.
type file struct {
	path string
	once sync.Once
}

// files are those that this process has open: how often, by path.
var files = struct {
	mu   sync.Mutex
	open map[string]int
}{open: map[string]int{}}

// close closes connections, and lets go of the file.
func (f *file) close(connections ...io.Closer) (err error) {
	files.mu.Lock()
	defer files.mu.Unlock()
	for _, c := range connections {
		err = errors.Join(err, c.Close())
	}
	f.once.Do(func() {
		if files.open[f.path]--; files.open[f.path] == 0 {
			delete(files.open, f.path)
		}
	})
	return classify("closing the API database", f.path, err)
}

// What the first page of a file says (SQLite's "Database File Format", section 1.3).
type mark int

const (
	markEmpty mark = iota // no content
	markNone              // an SQLite file that is not marked as this program's
	markOurs
)

var magic = []byte("SQLite format 3\x00")

// applicationID marks files of this program's API database: "CAap".
const applicationID = 0x43416170

// prepare makes the directory and the file, and finds the plain mistakes that SQLite reports late or in its own words.
func prepare(op, path string) (*file, mark, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, 0, fileError(op, path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, 0, fileError(op, path, err)
	}
	if err := dbfile.CheckNew(realName(path)); err != nil {
		return nil, 0, &Error{Op: op, Path: path, Kind: apidb.ErrUnavailable, What: "there is no database, and there was one", Err: err}
	}
	return take(op, path, os.O_RDWR|os.O_CREATE)
}

// look takes a file that is there, for reading.
func look(op, path string) (*file, mark, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, 0, fileError(op, path, err)
	}
	return take(op, path, os.O_RDONLY)
}

func take(op, path string, flags int) (*file, mark, error) {
	files.mu.Lock()
	defer files.mu.Unlock()
	path = realName(path)
	if files.open[path] > 0 {
		files.open[path]++
		return &file{path: path}, markNone, nil // SQLite is to look
	}
	f, err := os.OpenFile(path, flags, 0o600) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, 0, fileError(op, path, err)
	}
	found, err := markOf(op, path, f)
	if closing := f.Close(); err == nil && closing != nil {
		err = fileError(op, path, closing)
	}
	if err != nil {
		return nil, 0, err
	}
	files.open[path]++
	return &file{path: path}, found, nil
}

// realName is the path without symbolic links, also of a file that is not there yet.
func realName(path string) string {
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		return whole
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

func markOf(op, path string, f io.Reader) (mark, error) {
	head := make([]byte, 100)
	n, err := io.ReadFull(f, head)
	switch {
	case errors.Is(err, io.EOF):
		return markEmpty, nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return 0, fileError(op, path, err)
	case n < len(head) || !bytes.HasPrefix(head, magic):
		return 0, notADatabase(op, path)
	case binary.BigEndian.Uint32(head[68:]) == applicationID:
		return markOurs, nil
	}
	return markNone, nil
}
