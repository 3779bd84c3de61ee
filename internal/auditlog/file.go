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
func (fl *file) open() error {
	if fl.f != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(fl.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(fl.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", fl.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if info.Size() == 0 {
		files.GiveToOwner(f, filepath.Dir(f.Name()))
	}
	fl.f, fl.end = f, -1
	return nil
}

func (fl *file) close() error {
	if fl.f == nil {
		return nil
	}
	err := fl.f.Close()
	fl.f = nil
	return err
}

// write appends lines in one write, and syncs them if that is configured and sync says so. If it
// fails nothing is appended, or an incomplete line that the next write ends.
//
// Without lines it finds out whether some could be written.
func (fl *file) write(lines []byte, sync bool) error {
	size, err := fl.lock()
	if err != nil {
		return err
	}
	if size > 0 && size+int64(len(lines)) > fl.maxSize {
		if size, err = fl.rotate(size); err != nil {
			return err
		}
	}
	defer fl.unlock()
	if size != fl.end && size > 0 {
		// Another process wrote, or was killed while it wrote.
		last := make([]byte, 1)
		if _, err := fl.f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	n, err := 0, error(nil)
	switch {
	case fl.append != nil:
		n, err = fl.append(fl.f, lines)
	case len(lines) == 0:
		err = fl.reserve(size)
	default:
		n, err = fl.f.Write(lines)
	}
	if err == nil && fl.sync && sync {
		if fl.flush == nil {
			err = fl.f.Sync()
		} else {
			err = fl.flush(fl.f)
		}
	}
	if err != nil {
		fl.end = -1
		if n > 0 && fl.f.Truncate(size) == nil {
			fl.end = size
		}
		return err
	}
	fl.end = size + int64(n)
	return nil
}

// reserve reports whether there is space for a record, without changing the file: it takes the
// space behind its end. File systems that cannot do that are taken to have some.
func (fl *file) reserve(size int64) error {
	err := retryEINTR(func() error { return unix.Fallocate(int(fl.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, maxLine) })
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) {
		return fmt.Errorf("reserve %d bytes: %w", maxLine, err)
	}
	return nil
}

// lock opens the file that has the path now, locks it, and returns its size. Logrotate and other
// processes may have renamed the one that was open.
func (fl *file) lock() (size int64, err error) {
	for range 10 {
		if err := fl.open(); err != nil {
			return 0, err
		}
		if err := files.Lock(fl.f, unix.LOCK_EX); err != nil {
			return 0, fmt.Errorf("lock %s: %w", fl.path, err)
		}
		open, err := fl.f.Stat()
		if err != nil {
			return 0, errors.Join(err, fl.close())
		}
		there, err := os.Lstat(fl.path)
		if err == nil && os.SameFile(open, there) {
			return open.Size(), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, errors.Join(err, fl.close())
		}
		_ = fl.close() // also the lock
	}
	return 0, fmt.Errorf("%s is replaced by another file again and again", fl.path)
}

func (fl *file) unlock() {
	if fl.f != nil {
		_ = files.Lock(fl.f, unix.LOCK_UN)
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
func (fl *file) rotate(size int64) (int64, error) {
	if fl.unrotated = fl.shift(); fl.unrotated != nil {
		return size, nil //nolint:nilerr // it is logged, and the file is written on
	}
	if err := fl.close(); err != nil {
		return 0, err
	}
	return fl.lock()
}

// shift renames the files, of which any may be gone: logrotate does not take the lock.
func (fl *file) shift() error {
	if fl.keep == 0 {
		return ignoreNotExist(os.Remove(fl.path))
	}
	for n := fl.keep; n > 1; n-- {
		if err := ignoreNotExist(os.Rename(numbered(fl.path, n-1), numbered(fl.path, n))); err != nil {
			return err
		}
	}
	return ignoreNotExist(os.Rename(fl.path, numbered(fl.path, 1)))
}

func ignoreNotExist(err error) error {
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
