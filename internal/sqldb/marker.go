// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
)

// Marker is the path of the file that says that a database was created at path. Its name does not
// begin with that of the database, so that deleting "placement.db*" leaves it.
func Marker(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".created")
}

// checkNew returns what to do if there is no database at path, or an empty file, and there was one
// before.
func checkNew(path string) error {
	marker := Marker(path)
	switch _, err := os.Lstat(marker); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return lostHint(path)
	}
	return nil // what is wrong with it comes when it is opened
}

// lostHint says what to do about a database that was at path and is missing.
func lostHint(path string) error {
	remove := Marker(path)
	for _, suffix := range []string{"-lock", "-wal"} {
		if _, err := os.Lstat(path + suffix); err == nil {
			remove += " " + path + suffix
		}
	}
	return fmt.Errorf("the database was here and is missing: %s; put the file back, or restore a backup; to start "+
		"with an empty database, run: rm -f %s", path, remove)
}

// createMarker makes that of a database that exists. One that exists stays as it is.
func createMarker(path string, now time.Time) error {
	marker := Marker(path)
	if _, err := os.Lstat(marker); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := fmt.Sprintf("compute-agent has used the database %s since %s.\n"+
		"This file keeps a service from starting with an empty database when that one is lost.\n"+
		"To start with an empty database, stop the service and remove this file too.\n", filepath.Base(path),
		now.UTC().Format(time.DateOnly))
	disk := files.OS{}
	return errors.Join(disk.WriteFile(marker, []byte(text)), disk.SyncDir(filepath.Dir(marker)))
}
