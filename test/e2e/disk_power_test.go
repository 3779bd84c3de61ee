// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// platter is what of a directory would be left if the power were cut: files as they were when they
// were last synced, under the names that their directories had when those were. Real file systems
// often keep more, and need not.
type platter struct {
	dir     string
	content map[inode][]byte
	names   map[string]inode // in directories that are synced
	folders map[string]bool  // those of the names that are directories
}

// inode is a file whatever its name is. The number alone may be used again.
type inode struct {
	number uint64
	born   unix.StatxTimestamp
}

func inodeOf(path string) (inode, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &st)
	return inode{st.Ino, st.Btime}, err
}

// newPlatter takes the content of a directory as synced.
func newPlatter(dir string) (*platter, error) {
	p := &platter{dir: dir, content: map[inode][]byte{}, names: map[string]inode{}, folders: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == dir:
			return nil
		case err != nil:
			return err
		}
		return p.sync(path)
	})
	return p, err
}

// sync follows a sync of a file or directory.
func (p *platter) sync(path string) error {
	id, err := inodeOf(path)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, unix.ENOTDIR) {
		p.content[id], err = os.ReadFile(path)
		return err
	}
	maps.DeleteFunc(p.names, func(name string, _ inode) bool { return filepath.Dir(name) == path })
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if p.names[name], err = inodeOf(name); err != nil {
			return err
		}
		p.folders[name] = e.IsDir()
	}
	return err
}

// cut makes the directory what a power cut would leave.
func (p *platter) cut() error {
	if err := os.RemoveAll(p.dir); err != nil {
		return err
	}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		var err error
		if p.folders[name] {
			err = os.Mkdir(name, 0o700)
		} else {
			err = os.WriteFile(name, p.content[p.names[name]], 0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the directory that it is in was never synced into its own
			return err
		}
	}
	return nil
}
