// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
)

// directory is that of an instance.
type directory struct{ path, name string }

// file is the path of a file in it.
func (d directory) file(name string) string { return filepath.Join(d.path, d.name, name) }

func (d directory) exists() bool {
	_, err := os.Lstat(filepath.Join(d.path, d.name))
	return err == nil
}

// remove removes it with all that is in it. Links are not followed.
func (d directory) remove() error {
	if err := os.RemoveAll(filepath.Join(d.path, d.name)); err != nil {
		return fmt.Errorf("removing the directory of an instance: %w", err)
	}
	return nil
}

// fill makes the directory and the disks in it that are missing. One that is there under its name is complete.
func (d directory) fill(ctx context.Context, disks []disk) error {
	dir := filepath.Join(d.path, d.name)
	err := os.Mkdir(dir, 0o711) // the emulator has a user of its own
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory of an instance: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // see above
		return fmt.Errorf("making the directory of an instance: %w", err)
	}
	for _, disk := range disks {
		if err := d.make(ctx, disk); err != nil {
			return fmt.Errorf("making the %s of an instance: %w", disk.name, err)
		}
	}
	return nil
}

// make makes a disk under another name, which it loses when it is complete.
func (d directory) make(ctx context.Context, disk disk) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := os.Lstat(d.file(disk.name)); err == nil {
		return nil
	}
	part := d.file(disk.name + ".part")
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(disk.write(ctx, f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, d.file(disk.name))
}

// note notes that the instance ran. libvirt knows it too, until its daemon ends.
func (d directory) note(log zerolog.Logger) {
	f, err := os.OpenFile(d.file(startedNote), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		log.Warn().Err(err).Msg("It cannot be noted that an instance ran. If it is off when libvirt's daemon is restarted, a repeated request to make it starts it.")
	}
}

// noted tells whether that is noted.
func (d directory) noted() bool {
	_, err := os.Lstat(d.file(startedNote))
	return err == nil
}
