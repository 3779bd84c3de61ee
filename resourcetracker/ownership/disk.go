// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"os"
)

// disk is what the store does to files; each step of it can fail.
type disk interface {
	MkdirAll(dir string) error
	// WriteFile makes a file with this content, for its owner only, and syncs it.
	WriteFile(path string, content []byte) error
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(dir string) error
}

type realDisk struct{}

func (realDisk) MkdirAll(dir string) error    { return os.MkdirAll(dir, 0o700) }
func (realDisk) Rename(from, to string) error { return os.Rename(from, to) }
func (realDisk) Remove(path string) error     { return os.Remove(path) }

func (realDisk) WriteFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (realDisk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
