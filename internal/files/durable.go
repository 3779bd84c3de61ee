// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Disk is what is done to files, for stores whose tests have each step of it fail.
type Disk interface {
	MkdirAll(dir string) error
	// WriteFile makes a file with this content, for its owner only, and syncs it. It follows no
	// symbolic link.
	WriteFile(path string, content []byte) error
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(dir string) error
}

// OS is the machine's own disk.
type OS struct{}

// MkdirAll implements [Disk].
func (OS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

// Rename implements [Disk].
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements [Disk].
func (OS) Remove(path string) error { return os.Remove(path) }

// WriteFile implements [Disk].
func (OS) WriteFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	GiveToOwner(f, filepath.Dir(path))
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// GiveToOwner gives a file that root has made to the owner of a path: otherwise a command that an
// administrator runs once would keep the service, which runs as another user, from using the file.
// That user must not get another file of root's instead: the caller opens the file without
// following a symbolic link, and one with several names stays as it is.
func GiveToOwner(f *os.File, path string) {
	if os.Geteuid() != 0 {
		return
	}
	var owner, file syscall.Stat_t
	if syscall.Stat(path, &owner) != nil || syscall.Fstat(int(f.Fd()), &file) != nil || file.Nlink != 1 {
		return
	}
	// Not possible everywhere, and not needed where the owner is root.
	_ = f.Chown(int(owner.Uid), int(owner.Gid))
}

// SyncDir implements [Disk].
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeDir makes a directory, unless it is there, and makes sure that it is there after a crash.
func MakeDir(d Disk, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := d.MkdirAll(dir); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(dir))
}

// TmpPrefix begins the name of a file that is about to replace another one beside it. A crash may
// leave it; it means nothing.
const TmpPrefix = ".tmp-"

// ReplaceOn is [Replace] on a disk.
func ReplaceOn(d Disk, path string, content []byte) error {
	dir := filepath.Dir(path)
	tmp := filepath.Join(dir, TmpPrefix+filepath.Base(path))
	err := d.WriteFile(tmp, content)
	if err == nil {
		err = d.Rename(tmp, path)
	}
	if err != nil {
		_ = d.Remove(tmp) // the next write replaces it
		return err
	}
	return d.SyncDir(dir)
}

// Replace gives a file another content: written beside, synced, renamed into place, and the
// directory synced. One process at a time may do so below a directory. Beside an error the file is
// the old one, or the new one that may not outlive a power cut yet. If root does it, the file
// belongs to the owner of the directory.
//
// Cost: two fsyncs.
func Replace(path string, content []byte) error {
	return ReplaceMode(path, content, 0o600)
}

// ReplaceMode is Replace for a file with that mode.
func ReplaceMode(path string, content []byte, mode os.FileMode) error {
	return writeAndMove(path, content, mode, os.Rename)
}

// Create makes a file as ReplaceMode does, and fails with an error that wraps [os.ErrExist] if the
// path has one.
func Create(path string, content []byte, mode os.FileMode) error {
	return writeAndMove(path, content, mode, func(tmp, path string) error {
		if err := os.Link(tmp, path); err != nil {
			return err
		}
		return os.Remove(tmp)
	})
}

// writeAndMove writes a file beside its path and has it moved there.
func writeAndMove(path string, content []byte, mode os.FileMode, move func(from, to string) error) error {
	return writeAndMoveFor(path, content, mode, -1, -1, move)
}

// ReplaceFor is ReplaceMode for a file of another user, as root does it.
func ReplaceFor(path string, content []byte, mode os.FileMode, uid, gid int) error {
	return writeAndMoveFor(path, content, mode, uid, gid, os.Rename)
}

// writeAndMoveFor is writeAndMove for a file of a user and group, -1 for those of the directory if
// root does it. The directory may be one that others can write to: it follows no symbolic link
// there, and uses no file of theirs.
func writeAndMoveFor(
	path string, content []byte, mode os.FileMode, uid, gid int, move func(from, to string) error,
) error {
	dir := filepath.Dir(path)
	tmp := filepath.Join(dir, TmpPrefix+filepath.Base(path))
	const created = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := os.OpenFile(tmp, created, 0o600)
	if errors.Is(err, os.ErrExist) { // a crash left it
		if err = os.Remove(tmp); err == nil {
			f, err = os.OpenFile(tmp, created, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if uid == -1 && gid == -1 {
		GiveToOwner(f, dir)
	} else if err == nil {
		err = f.Chown(uid, gid)
	}
	if err == nil && mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = move(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // it means nothing, and the next write replaces it
		return err
	}
	return OS{}.SyncDir(dir)
}
