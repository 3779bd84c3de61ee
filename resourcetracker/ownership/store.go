// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/providertree"
)

// DirName is the directory of the records below the agent's state directory.
const DirName = "nodes"

const suffix = ".json"

// maxFile bounds what is read of a file: a record of 10,000 providers with 50 items each is about
// 40 MiB.
const maxFile = 256 << 20

// maxShown keeps what a damaged file has from filling a log line, in bytes.
const maxShown = 80

var (
	// ErrDamaged says that the file of a record exists but cannot be decoded. It is never replaced,
	// because nothing else has what is ours of the node.
	ErrDamaged = errors.New("the record of what the agent owns is damaged")
	// ErrNewer says that the file of a record was written by a newer version of the agent.
	ErrNewer = errors.New("a newer version of the agent wrote the record of what the agent owns")
)

// The disk is the machine's, but in tests.
type (
	disk     = files.Disk
	realDisk = files.OS
)

// Store keeps the records of one state directory, one file each. The directory must belong to this
// process alone (the agent holds it locked). All methods may be called from any goroutine.
//
// Cost: a Load is one read. A Save reads what is there and, if that is the same, ends; else it
// writes, with two fsyncs (the file, the directory), and two more the first time (the new directory
// and the one above). A Remove is one fsync.
type Store struct {
	dir  string
	disk disk

	mu       sync.Mutex
	unsynced map[string]bool // roots of which the last write failed half-way
}

// Open returns the store of a state directory. It touches nothing on disk before the first call of
// another method.
func Open(dir string) *Store {
	return &Store{dir: filepath.Join(dir, DirName), disk: realDisk{}, unsynced: map[string]bool{}}
}

// Path is where the record of a node is, or would be.
func (s *Store) Path(root string) string { return filepath.Join(s.dir, root+suffix) }

// Load returns the record of a node; nil and no error, if there is none yet.
//
// Errors: [ErrDamaged], [ErrNewer], and whatever keeps the file from being read.
func (s *Store) Load(root string) (*Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(root)
}

func (s *Store) load(root string) (*Record, error) {
	if err := checkRoot(root); err != nil {
		return nil, err
	}
	path := s.Path(root)
	content, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the agent owns of node %s: %w", root, err)
	}
	r, err := decode(content)
	if err == nil && r.Root != root {
		err = fmt.Errorf("%w: it belongs to node %s", ErrDamaged, textutil.Clip(r.Root, maxShown))
	}
	switch {
	case errors.Is(err, ErrNewer):
		return nil, fmt.Errorf("%s: %w; install that version again, or a newer one", path, err)
	case err != nil:
		return nil, fmt.Errorf(
			"%s: %w; restore the file from a backup, or move it away: the agent then adopts the node's tree again, "+
				"and whatever it does not recognize as its driver's stays in Placement as another client's", path, err)
	}
	return r, nil
}

// checkRoot keeps names that are no uuid from becoming paths.
func checkRoot(root string) error {
	if !providertree.IsCanonicalUUID(root) {
		return fmt.Errorf("%q is not the uuid of a node in canonical form", textutil.Clip(root, maxShown))
	}
	return nil
}

func readBounded(path string) (content []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, files.Denied(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%w: it has more than %d bytes", ErrDamaged, maxFile)
	}
	return content, err
}

// Save puts a record on disk; when it returns without an error, the record outlives a crash. A file
// that cannot be read is not replaced: see [Store.Load] for the errors. A record that breaks the
// rules of a record is refused.
func (s *Store) Save(r *Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r == nil {
		return errors.New("there is no record to save")
	}
	if err := r.validate(); err != nil {
		return fmt.Errorf("saving the record of what the agent owns of node %s: %w",
			textutil.Clip(r.Root, maxShown), err)
	}
	there, err := s.load(r.Root)
	if err != nil {
		return err
	}
	if there != nil && there.Equal(r) && !s.unsynced[r.Root] {
		return nil
	}
	s.unsynced[r.Root] = true
	if err := s.write(r); err != nil {
		return fmt.Errorf("saving what the agent owns of node %s: %w", r.Root, err)
	}
	delete(s.unsynced, r.Root)
	return nil
}

func (s *Store) write(r *Record) error {
	content, err := encode(r)
	if err != nil {
		return err
	}
	return s.replace(s.Path(r.Root), content)
}

// replace puts a file into the directory: old or new, never part of one.
func (s *Store) replace(path string, content []byte) error {
	if err := files.MakeDir(s.disk, s.dir); err != nil {
		return err
	}
	return files.ReplaceOn(s.disk, path, content)
}

// List returns all records that can be read, ordered by the uuids of their nodes, and the joined
// errors of the others.
func (s *Store) List() ([]*Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing what the agent owns: %w", err)
	}
	var out []*Record
	var errs []error
	for _, f := range files { // sorted by name
		root, isRecord := strings.CutSuffix(f.Name(), suffix)
		if !isRecord || checkRoot(root) != nil {
			continue
		}
		r, err := s.load(root)
		if err != nil {
			errs = append(errs, err)
		} else if r != nil {
			out = append(out, r)
		}
	}
	return out, errors.Join(errs...)
}

// Remove removes the record of a node and its snapshot, after its providers were deleted or given
// back. It succeeds if there is no record.
func (s *Store) Remove(root string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkRoot(root); err != nil {
		return err
	}
	removed := false
	var err error
	// a snapshot alone does no harm
	for _, path := range []string{s.Path(root), s.AdoptedPath(root)} {
		gone := s.disk.Remove(path)
		if !errors.Is(gone, fs.ErrNotExist) {
			removed, err = true, errors.Join(err, gone)
		}
	}
	if !removed {
		return nil
	}
	if err == nil {
		delete(s.unsynced, root)
		err = s.disk.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("removing the record of what the agent owned of node %s: %w", root, err)
	}
	return nil
}
