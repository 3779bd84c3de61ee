// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
)

// A [Dir] reads the kernel's files below a directory that stands for "/": small texts, listings and
// the ends of links. Nothing in there is trusted: links do not lead out of it ([os.Root] ensures
// that), a file must be a regular one of bounded size, a directory has a bounded number of entries,
// and nothing blocks.
//
// Every error is an [fs.PathError] or wraps one, and names the file with the directory before it.

const (
	// maxFile is more bytes than any file of sysfs or procfs that is read here has.
	maxFile = 8 << 20
	// maxNames is more than any directory there has: 8192 CPUs, some thousand devices.
	maxNames = 1 << 17
)

var (
	// ErrTooLarge means that there is more in a file or a directory than can be true.
	ErrTooLarge = errors.New("too large")
	// ErrNotRegular means that something else has the name of a file.
	ErrNotRegular = errors.New("not a regular file")
)

// Dir is an open directory. It is not safe for use after Close, otherwise for concurrent use.
type Dir struct {
	root *os.Root
	name string // for errors
	cost *atomic.Int64
}

// OpenDir opens the directory that has sys and proc in it: "/", or another one in tests and
// demonstrations.
func OpenDir(dir string) (*Dir, error) {
	dir = filepath.Join("/", dir)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Dir{root: root, name: dir, cost: new(atomic.Int64)}, nil
}

// Sub opens a directory below, at the end of links too. Only the end of links is known of what lies
// beside it.
//
// Cost: one system call for each element of the path, here as in the methods below; so open the
// directory of several files.
func (d *Dir) Sub(name string) (*Dir, error) {
	root, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, d.fail(name, err)
	}
	return &Dir{root: root, name: d.Path(name), cost: d.cost}, nil
}

// Close gives the directory back.
func (d *Dir) Close() error { return d.root.Close() }

// Path is where a file is, for errors.
func (d *Dir) Path(name string) string { return filepath.Join(d.name, name) }

// Files is how many files and directories have been read so far, here and in all directories of the
// same Open.
func (d *Dir) Files() int { return int(d.cost.Load()) }

// Text is what a file holds.
func (d *Dir) Text(name string) (string, error) {
	// A pipe must not block; that it is one is seen then.
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", d.fail(name, err)
	}
	defer func() { _ = f.Close() }()
	d.cost.Add(1)
	info, err := f.Stat()
	if err != nil {
		return "", d.fail(name, err)
	}
	if !info.Mode().IsRegular() {
		return "", d.fail(name, ErrNotRegular)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", d.fail(name, err)
	}
	if len(text) > maxFile {
		return "", d.fail(name, fmt.Errorf("%w: larger than %d bytes", ErrTooLarge, maxFile))
	}
	return string(text), nil
}

// Names are the entries of a directory, sorted; "." is the directory itself.
func (d *Dir) Names(name string) ([]string, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, d.fail(name, err)
	}
	defer func() { _ = f.Close() }()
	d.cost.Add(1)
	names, err := f.Readdirnames(maxNames + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, d.fail(name, err)
	}
	if len(names) > maxNames {
		return nil, d.fail(name, fmt.Errorf("%w: more than %d entries", ErrTooLarge, maxNames))
	}
	slices.Sort(names)
	return names, nil
}

// Target is the path, from this directory, that a relative link points to; it does not check that
// the target exists.
func (d *Dir) Target(name string) (string, error) {
	target, err := d.root.Readlink(name)
	if err != nil {
		return "", d.fail(name, err)
	}
	if path.IsAbs(target) {
		return "", d.fail(name, fmt.Errorf("the link points to %.100q: the kernel makes no absolute links", target))
	}
	return path.Join(path.Dir(name), target), nil
}

// Base is the last element of what a link points to, which in sysfs is the name of the thing.
func (d *Dir) Base(name string) (string, error) {
	target, err := d.root.Readlink(name)
	if err != nil {
		return "", d.fail(name, err)
	}
	return path.Base(target), nil
}

// fail names the file from the top, where the standard library does from the directory.
func (d *Dir) fail(name string, err error) error {
	op := "reading"
	var p *fs.PathError
	if errors.As(err, &p) {
		op, err = p.Op, p.Err
	}
	return &fs.PathError{Op: op, Path: d.Path(name), Err: err}
}
