// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ExistsError says that files are in the way.
type ExistsError struct {
	// Dir is the directory, Files are those in it that are there already.
	Dir   string
	Files []string
}

func (e *ExistsError) Error() string {
	const shown = 5
	files := strings.Join(e.Files[:min(shown, len(e.Files))], ", ")
	if more := len(e.Files) - shown; more > 0 {
		files += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("nothing was written to %s, where these files are already: %s. Name another directory (--dir)",
		e.Dir, files)
}

// Write writes files into a directory, which is made if it is not there. It overwrites nothing,
// follows no symbolic link out of the directory, and writes all of the files or none.
//
// A directory that is not there appears with everything in it, whatever happens meanwhile. In one
// that is there (a fresh clone) the files appear one by one, and are taken away again on an error.
//
// Errors: an [*ExistsError] that names every file in the way, and those of the file system.
func Write(dir string, files []File) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("finding %s: %w", dir, err)
	}
	switch st, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return writeNew(dir, files)
	case err != nil:
		return fmt.Errorf("looking at %s: %w", dir, err)
	case st.Mode()&fs.ModeSymlink == 0 && !st.IsDir():
		return fmt.Errorf("%s is there, and is no directory", dir)
	}
	return writeInto(dir, files)
}

// writeNew makes everything in a directory beside, which then gets its name.
func writeNew(dir string, files []File) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	beside, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-")
	if err != nil {
		return fmt.Errorf("making a directory beside %s: %w", dir, err)
	}
	defer func() { _ = os.RemoveAll(beside) }()
	finished := filepath.Join(beside, filepath.Base(dir)) // with the usual mode, which the one around it has not
	if err := os.Mkdir(finished, 0o755); err != nil {
		return fmt.Errorf("making a directory beside %s: %w", dir, err)
	}
	if err := writeInto(finished, files); err != nil {
		return err
	}
	if err := os.Rename(finished, dir); err != nil {
		return fmt.Errorf("giving the finished directory its name: %w", err)
	}
	return nil
}

func writeInto(dir string, files []File) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening the directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	var there []string
	for _, f := range files {
		switch _, err := root.Lstat(f.Path); {
		case err == nil:
			there = append(there, f.Path)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("looking at %s in %s: %w", f.Path, dir, err)
		}
	}
	if len(there) > 0 {
		return &ExistsError{Dir: dir, Files: there}
	}
	var made []string // in the order in which they came to be
	defer func() {
		if err == nil {
			return
		}
		for _, name := range slices.Backward(made) {
			_ = root.Remove(name)
		}
	}()
	for _, f := range files {
		for _, parent := range parents(f.Path) {
			switch err := root.Mkdir(parent, 0o755); {
			case err == nil:
				made = append(made, parent)
			case !errors.Is(err, fs.ErrExist):
				return fmt.Errorf("making %s in %s: %w", parent, dir, err)
			}
		}
		file, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fmt.Errorf("making %s in %s: %w", f.Path, dir, err)
		}
		made = append(made, f.Path)
		_, err = file.Write(f.Content)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("writing %s in %s: %w", f.Path, dir, err)
		}
	}
	return nil
}

// parents are the directories that a file is in, the outermost first.
func parents(file string) []string {
	var out []string
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}
