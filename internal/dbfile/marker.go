// SPDX-License-Identifier: Apache-2.0

package dbfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/compute-agent/compute-agent/internal/durable"
)

// ErrLost is matched by the error about a database that was here once and is missing.
var ErrLost = errors.New("the database was here and is missing")

// Marker is the path of the file that says that a database was created at path. Its name does not begin
// with that of the database, so that deleting "placement.db*" leaves it.
func Marker(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".created")
}

// CheckNew returns an error that matches ErrLost if there is no database at path, or an empty file, and there
// was one before. also are further files that keep a new one from being created.
func CheckNew(path string, also ...string) error {
	marker := Marker(path)
	switch _, err := os.Lstat(marker); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	// After the marker: it is created when another process that creates the database is done.
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return Lost(path, also...)
	}
	return nil // what is wrong with it comes when it is opened
}

// Lost is the error about a database that was at path and is missing.
func Lost(path string, also ...string) error {
	remove := Marker(path)
	for _, other := range also {
		if _, err := os.Lstat(other); err == nil {
			remove += " " + other
		}
	}
	return fmt.Errorf("%w: %s; put the file back, or restore a backup; to start with an empty database, run: rm -f %s", ErrLost, path, remove)
}

// mark creates the marker of a database that exists. One that exists stays as it is.
func mark(path string, now time.Time) error {
	marker := Marker(path)
	if _, err := os.Lstat(marker); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := fmt.Sprintf("compute-agent has used the database %s since %s.\n"+
		"This file keeps a service from starting with an empty database when that one is lost.\n"+
		"To start with an empty database, stop the service and remove this file too.\n", filepath.Base(path), now.UTC().Format(time.DateOnly))
	// That it exists is all that counts, so processes that open the database at once may all write it.
	disk := durable.Files{}
	return errors.Join(disk.WriteFile(marker, []byte(text)), disk.SyncDir(filepath.Dir(marker)))
}
