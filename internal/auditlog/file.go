// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/files"
)

// file is a file that is appended to by whole lines. Several processes can append to it: each holds
// its lock while it writes or rotates.
type file struct {
	path    string
	maxSize int64
	keep    int
	sync    bool

	// append writes at the end of the file; nil is os.File.Write. Tests have it fail.
	append func(f *os.File, lines []byte) (int, error)
	// flush makes them durable; nil is os.File.Sync. Tests count it.
	flush func(f *os.File) error

	f *os.File
	// end is where the file ended after the last write of this process, with a whole line; -1 if
	// that is not known.
	end int64
	// unrotated is why the last rotation failed, for the log; nil.
	unrotated error
}

// open opens the file, and makes it and its directory if they are not there. It is for its owner
// only.
func (w *file) open() error {
	if w.f != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(w.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(w.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", w.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if info.Size() == 0 {
		files.GiveToOwner(f, filepath.Dir(f.Name()))
	}
	w.f, w.end = f, -1
	return nil
}

func (w *file) close() error {
	if w.f == nil {
		return nil
	}
	err := w.f.Close()
	w.f = nil
	return err
}

// write appends lines in one write, and syncs them if that is configured and sync says so. If it
// fails nothing is appended, or an incomplete line that the next write ends.
//
// Without lines it finds out whether some could be written.
func (w *file) write(lines []byte, sync bool) error {
	size, err := w.lock()
	if err != nil {
		return err
	}
	if size > 0 && size+int64(len(lines)) > w.maxSize {
		if size, err = w.rotate(size); err != nil {
			return err
		}
	}
	defer w.unlock()
	if size != w.end && size > 0 {
		// Another process wrote, or was killed while it wrote.
		last := make([]byte, 1)
		if _, err := w.f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	n, err := 0, error(nil)
	switch {
	case w.append != nil:
		n, err = w.append(w.f, lines)
	case len(lines) == 0:
		err = w.reserve(size)
	default:
		n, err = w.f.Write(lines)
	}
	if err == nil && w.sync && sync {
		if w.flush == nil {
			err = w.f.Sync()
		} else {
			err = w.flush(w.f)
		}
	}
	if err != nil {
		w.end = -1
		if n > 0 && w.f.Truncate(size) == nil {
			w.end = size
		}
		return err
	}
	w.end = size + int64(n)
	return nil
}

// reserve reports whether there is space for a record, without changing the file: it takes the
// space behind its end. File systems that cannot do that are taken to have some.
func (w *file) reserve(size int64) error {
	err := retryEINTR(func() error { return unix.Fallocate(int(w.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, maxLine) })
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) {
		return fmt.Errorf("reserve %d bytes: %w", maxLine, err)
	}
	return nil
}

// lock opens the file that has the path now, locks it, and returns its size. Logrotate and other
// processes may have renamed the one that was open.
func (w *file) lock() (size int64, err error) {
	for range 10 {
		if err := w.open(); err != nil {
			return 0, err
		}
		if err := files.Lock(w.f, unix.LOCK_EX); err != nil {
			return 0, fmt.Errorf("lock %s: %w", w.path, err)
		}
		open, err := w.f.Stat()
		if err != nil {
			return 0, errors.Join(err, w.close())
		}
		there, err := os.Lstat(w.path)
		if err == nil && os.SameFile(open, there) {
			return open.Size(), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, errors.Join(err, w.close())
		}
		_ = w.close() // also the lock
	}
	return 0, fmt.Errorf("%s is replaced by another file again and again", w.path)
}

func (w *file) unlock() {
	if w.f != nil {
		_ = files.Lock(w.f, unix.LOCK_UN)
	}
}

func retryEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// rotate gives the file of the path, which is locked, the number 1, those with numbers the next
// one, and removes the last. It returns the size of the new file, which is locked. If files cannot
// be renamed, the old one is written on.
func (w *file) rotate(size int64) (int64, error) {
	if w.unrotated = w.shift(); w.unrotated != nil {
		return size, nil //nolint:nilerr // it is logged, and the file is written on
	}
	if err := w.close(); err != nil {
		return 0, err
	}
	return w.lock()
}

// shift renames the files, of which any may be gone: logrotate does not take the lock.
func (w *file) shift() error {
	if w.keep == 0 {
		return ifThere(os.Remove(w.path))
	}
	for n := w.keep; n > 1; n-- {
		if err := ifThere(os.Rename(numbered(w.path, n-1), numbered(w.path, n))); err != nil {
			return err
		}
	}
	return ifThere(os.Rename(w.path, numbered(w.path, 1)))
}

func ifThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// numbered is the path of a file that was rotated n times.
func numbered(path string, n int) string { return path + "." + strconv.Itoa(n) }

// Files are the files of a log that are there, oldest first: those that were rotated, and last the
// one that is written.
func Files(path string) ([]string, error) {
	var list []string
	matches, err := filepath.Glob(escapeGlob(path) + ".*")
	if err != nil {
		return nil, err
	}
	highest := 0
	for _, match := range matches {
		if n, err := strconv.Atoi(match[len(path)+1:]); err == nil && n > 0 && numbered(path, n) == match {
			highest = max(highest, n)
		}
	}
	for n := highest; n > 0; n-- {
		if _, err := os.Lstat(numbered(path, n)); err == nil {
			list = append(list, numbered(path, n))
		}
	}
	if _, err := os.Stat(path); err != nil {
		if !errors.Is(err, fs.ErrNotExist) || len(list) == 0 {
			return nil, err
		}
		return list, nil
	}
	return append(list, path), nil
}

func escapeGlob(path string) string {
	out := make([]byte, 0, len(path))
	for i := range len(path) {
		if c := path[i]; c == '*' || c == '?' || c == '[' || c == '\\' {
			out = append(out, '\\')
		}
		out = append(out, path[i])
	}
	return string(out)
}
