// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/compute-agent/compute-agent/placement/store"
)

// walIndex reads the index of a write-ahead log, the file PATH-shm, which all processes on a database share. It begins with
// two copies of a header that every commit of anybody changes before it returns (SQLite's "WAL-mode file format", section
// 2.1). SQLite itself looks there to see whether the pages that it has in memory are still good.
//
// SQLite holds its locks by descriptors of that file, and POSIX takes all of a process's locks on a file away when the process
// closes any of its descriptors. So there is one walIndex for a database in a process, and it is closed after the last of
// this process's connections.
type walIndex struct {
	path string
	refs int // under indexes.mu

	mu sync.Mutex
	f  *os.File
}

// indexes are those of this process, by path.
var indexes = struct {
	mu     sync.Mutex
	byPath map[string]*walIndex
}{byPath: map[string]*walIndex{}}

// indexOf returns the index of the database at the path. It must be released after the last connection is closed.
func indexOf(path string) *walIndex {
	// As SQLite does: the index stands beside the file itself, whatever links lead there.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	indexes.mu.Lock()
	defer indexes.mu.Unlock()
	x := indexes.byPath[path]
	if x == nil {
		x = &walIndex{path: path}
		indexes.byPath[path] = x
	}
	x.refs++
	return x
}

func (x *walIndex) release() {
	indexes.mu.Lock()
	defer indexes.mu.Unlock()
	if x.refs--; x.refs > 0 {
		return
	}
	delete(indexes.byPath, x.path)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.shut()
}

// mark returns the header. It is not ok while there is none, and while one is being written.
// Cost: two system calls, about 1 µs.
func (x *walIndex) mark() (m store.Mark, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.open() {
		return m, false
	}
	var b [2 * len(m)]byte
	if _, err := x.f.ReadAt(b[:], 0); err != nil {
		return m, false
	}
	first, second := store.Mark(b[:len(m)]), store.Mark(b[len(m):])
	// All zeros: nobody has written the index yet.
	return first, first == second && first != store.Mark{}
}

// open opens the file, and again after it was removed, which whoever closes the database last does.
func (x *walIndex) open() bool {
	if x.f != nil {
		var st syscall.Stat_t
		if err := syscall.Fstat(int(x.f.Fd()), &st); err == nil && st.Nlink > 0 {
			return true
		}
		x.shut()
	}
	f, err := os.Open(x.path + "-shm")
	if err != nil {
		return false
	}
	x.f = f
	return true
}

func (x *walIndex) shut() {
	if x.f != nil {
		_ = x.f.Close() // It was only read.
		x.f = nil
	}
}
