// SPDX-License-Identifier: Apache-2.0

package files

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// pause is the time between two looks at the files.
const pause = time.Second

// MaxSize bounds each file, in bytes.
const MaxSize = 1 << 20

// ErrUnreadable is wrapped by errors of files that cannot be read; their contents were not
// evaluated.
var ErrUnreadable = errors.New("cannot be read")

// Content is one file as it was read.
type Content struct {
	Path string
	Mode os.FileMode
	// Owner is the number of the user that it belongs to.
	Owner uint32
	Data  []byte
}

// Private returns an error if others than its owner and its group may read the file, or others than
// its owner write it.
func (c Content) Private() error { return Private(c.Path, c.Mode) }

// Private is Content.Private for a file with that mode.
func Private(path string, mode os.FileMode) error {
	if mode = mode.Perm(); mode&0o027 != 0 {
		return fmt.Errorf("%s has mode %04o, so that other users can read or change it; run: chmod g-w,o= %[1]s",
			path, mode)
	}
	return nil
}

// OwnedHere returns an error unless the file belongs to root or to the user of this process.
func (c Content) OwnedHere() error {
	if c.Owner != 0 && int64(c.Owner) != int64(os.Geteuid()) {
		return fmt.Errorf(
			"%s belongs to user %d, which is neither root nor the user of this process (%d); run: chown root %[1]s, "+
				"and let a service that needs it read it by its group",
			c.Path, c.Owner, os.Geteuid(),
		)
	}
	return nil
}

// Reloaded is a T that is parsed from files. Make one with NewReloaded. It is safe for concurrent
// use.
type Reloaded[T any] struct {
	paths []string
	parse func([]Content) (T, error)
	log   zerolog.Logger
	now   func() time.Time

	current   atomic.Pointer[T]
	checkedAt atomic.Int64 // nanoseconds since 1970

	mu     sync.Mutex        // held while looking
	stamps []stamp           // of the files as they were looked at last, whether or not they could be used
	sum    [sha256.Size]byte // of what is in force
	failed string            // what was wrong with them, "" for nothing
}

// stamp changes when a file does: with every write, with its mode and owner, and when another file
// takes its place. Kernels before 6.13 may give two changes within a tick the same time.
type stamp struct {
	modified, changed time.Time
	size              int64
	mode              os.FileMode
	owner             uint32
	device, inode     uint64
	missing           bool
	recent            bool // written so shortly before that the writer may not be done
}

// tick is how long a file must have been left alone to be read again. A file that is written over
// is empty first, or holds a part, which may well make sense: less rules, less tokens. It is also
// how coarse the times of files may be.
const tick = 50 * time.Millisecond

// NewReloaded reads the files and makes the value of them; an error of either is returned as it is.
// When a file changes later, Get makes the value again. If that fails, the old value stays, and log
// says so: once for each state of the files.
func NewReloaded[T any](
	paths []string, log zerolog.Logger, now func() time.Time, parse func([]Content) (T, error),
) (*Reloaded[T], error) {
	if now == nil {
		now = time.Now
	}
	v := &Reloaded[T]{paths: slices.Clone(paths), parse: parse, log: log, now: now}
	v.stamps = v.stat()
	contents, err := v.read()
	if err != nil {
		return nil, err
	}
	made, err := parse(contents)
	if err != nil {
		return nil, err
	}
	v.current.Store(&made)
	v.sum = sum(contents)
	v.checkedAt.Store(now().UnixNano())
	return v, nil
}

// Get is the value. Cost: two atomic reads; once a second one caller pays for a stat of each file,
// and for reading them when they have changed. Others are not kept waiting: they get the old value
// meanwhile.
func (r *Reloaded[T]) Get() T {
	if now := r.now().UnixNano(); now-r.checkedAt.Load() >= int64(pause) && r.mu.TryLock() {
		func() {
			defer r.mu.Unlock()
			r.checkedAt.Store(now)
			r.refresh()
		}()
	}
	return *r.current.Load()
}

// refresh makes the value again if a file has changed since the last look.
func (r *Reloaded[T]) refresh() {
	stamps := r.stat()
	if slices.Equal(stamps, r.stamps) || slices.ContainsFunc(stamps, func(s stamp) bool { return s.recent }) {
		return
	}
	r.stamps = stamps // taken before the files are read: what is written meanwhile is a change at the next look
	contents, err := r.read()
	var made T
	if err == nil {
		if same := sum(contents); same == r.sum && r.failed == "" {
			return // only touched
		}
		made, err = r.parse(contents)
	}
	if err != nil {
		if r.failed != err.Error() {
			r.failed = err.Error()
			r.log.Error().Err(err).Strs("files", r.paths).
				Msg("Failed to reload a changed file. Its previous contents stay in effect; fix the file, it is " +
					"read again when it changes.")
		}
		return
	}
	r.failed, r.sum = "", sum(contents)
	r.current.Store(&made)
	r.log.Info().Strs("files", r.paths).Msg("Reloaded a changed file.")
}

func (r *Reloaded[T]) stat() []stamp {
	stamps := make([]stamp, len(r.paths))
	for i, path := range r.paths {
		info, err := os.Stat(path)
		if err != nil {
			stamps[i].missing = true
			continue
		}
		stamps[i].modified, stamps[i].size, stamps[i].mode = info.ModTime(), info.Size(), info.Mode()
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			stamps[i].device, stamps[i].inode, stamps[i].owner = sys.Dev, sys.Ino, sys.Uid
			stamps[i].changed = time.Unix(sys.Ctim.Unix())
			age := r.now().Sub(stamps[i].changed)
			stamps[i].recent = age >= 0 && age < tick
		}
	}
	return stamps
}

func (r *Reloaded[T]) read() (contents []Content, err error) {
	contents = make([]Content, len(r.paths))
	for i, path := range r.paths {
		if contents[i], err = Read(path); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

// sum is equal for equal contents, file by file.
func sum(contents []Content) (all [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range contents {
		one := sha256.Sum256(c.Data)
		_, _ = h.Write(one[:]) // It never fails.
		_, _ = fmt.Fprint(h, c.Mode, c.Owner)
	}
	h.Sum(all[:0])
	return all
}

// ReadOwn reads a secret of a user in a directory that this user may write to, for root: a regular
// file with one name, of the user or of root, that no other user can read. Links are not followed,
// so that the user cannot have root take another file for it. An error wraps os.ErrNotExist if
// it does not exist.
func ReadOwn(path string, uid int) (c Content, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return c, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return c, err
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || sys.Nlink != 1 ||
		sys.Uid != 0 && int(sys.Uid) != uid || info.Mode().Perm()&0o077 != 0 {
		return c, fmt.Errorf("%s %w: it is not a regular file with one name and mode 0600, of the user %d or of root",
			path, ErrUnreadable, uid)
	}
	return readOpen(f, Content{Path: path, Mode: info.Mode(), Owner: sys.Uid})
}

// readOpen reads a file of at most MaxSize.
func readOpen(f *os.File, c Content) (Content, error) {
	var err error
	if c.Data, err = io.ReadAll(io.LimitReader(f, MaxSize+1)); err != nil {
		return c, fmt.Errorf("%s %w: %w", c.Path, ErrUnreadable, err)
	}
	if len(c.Data) > MaxSize {
		return c, fmt.Errorf("%s %w: it is larger than %d bytes", c.Path, ErrUnreadable, MaxSize)
	}
	return c, nil
}

// Read reads one regular file of at most a MiB; anything else could hold the caller up. What
// everybody may change says nothing about who may do what, and is refused with ErrUnreadable.
func Read(path string) (c Content, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return c, fmt.Errorf("%s %w: %w", path, ErrUnreadable, Denied(err))
	}
	if !info.Mode().IsRegular() {
		return c, fmt.Errorf("%s %w: it is not a regular file", path, ErrUnreadable)
	}
	if mode := info.Mode().Perm(); mode&0o002 != 0 {
		return c, fmt.Errorf("%s %w: it has mode %04o, so that all users can change it; run: chmod o-w %[1]s",
			path, ErrUnreadable, mode)
	}
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("%s %w: %w", path, ErrUnreadable, Denied(err))
	}
	defer func() { _ = f.Close() }() // It was only read.
	c = Content{Path: path, Mode: info.Mode()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		c.Owner = sys.Uid
	}
	return readOpen(f, c)
}
