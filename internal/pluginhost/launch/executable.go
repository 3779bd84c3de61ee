// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Executable is an open plugin executable that passed the checks. It is executed by its descriptor,
// so that it cannot be exchanged in between. The caller closes File.
type Executable struct {
	File *os.File
	Path string // without symbolic links
	// Digest is its sha256 in hexadecimal. It and ID are empty after OpenOwn.
	Digest string
	ID     ID
}

// ID changes when a file is replaced or written to.
type ID struct {
	Dev, Ino     uint64
	Size         int64
	Mtime, Ctime unix.Timespec
}

// Open opens an executable and checks that only root and the user uid can have changed it:
// the owner and mode of the file and of every directory above it, and its digest if one is given.
//
// The directories are opened from the root without following links, so what is checked is what is
// opened. Errors: [*NotInstalledError] without the driver's name, [*UntrustedError], and those of
// the file system. Cost: reads the file once.
func Open(path, digest string, uid int) (*Executable, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &NotInstalledError{Path: path}
		}
		return nil, unreadable(path, "finding the plugin executable", err)
	}
	fd, err := walkTrusted(real, uid)
	if err != nil {
		return nil, err
	}
	exe := &Executable{File: os.NewFile(uintptr(fd), real), Path: real}
	if err := exe.check(digest, uid); err != nil {
		_ = exe.File.Close()
		return nil, err
	}
	return exe, nil
}

// OpenOwn opens an executable that the caller chose, also if other users can change it.
//
// Errors: it is not an executable file; those of the file system.
func OpenOwn(path string) (*Executable, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("finding the plugin executable: %w", err)
	}
	st, err := os.Stat(real)
	switch {
	case err != nil:
		return nil, fmt.Errorf("checking the plugin executable: %w", err)
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: give the path of the plugin's executable", real)
	case st.Mode()&0o111 == 0:
		return nil, fmt.Errorf("%s has mode %04o: it is not executable. Fix it with: chmod 0755 %s",
			real, st.Mode().Perm(), real)
	}
	file, err := os.Open(real)
	if err != nil {
		return nil, fmt.Errorf("opening the plugin executable: %w", err)
	}
	return &Executable{File: file, Path: real}, nil
}

// walkTrusted opens a file below checked directories and returns its descriptor.
func walkTrusted(path string, uid int) (int, error) {
	parts := strings.Split(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	dir, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening /: %w", err)
	}
	defer func() { _ = unix.Close(dir) }()
	at := "/"
	for i, part := range parts {
		last := i == len(parts)-1
		if err := checkDirectory(dir, at, uid, last); err != nil {
			return 0, err
		}
		at = filepath.Join(at, part)
		flags := unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
		if last {
			flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK // a fifo must not block
		}
		next, err := unix.Openat(dir, part, flags, 0)
		if err != nil {
			return 0, unreadable(at, "opening "+at, err)
		}
		if last {
			return next, nil
		}
		_ = unix.Close(dir)
		dir = next
	}
	return 0, fmt.Errorf("opening %s: %w", path, unix.EISDIR)
}

// unreadable converts an error of the file system. A file that the agent cannot read is untrusted,
// because it cannot be verified.
func unreadable(path, what string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &UntrustedError{
			Path: path, Problem: "cannot be read by the user of the agent, so it and what is below it " +
				"cannot be checked",
			Hint: "Let the user of the agent read it, for example with: chmod a+rX " + path,
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// checkDirectory checks one directory of the path. Other users can write to it only if it has the
// sticky bit, as /tmp has, and does not hold the executable itself.
func checkDirectory(fd int, path string, uid int, holds bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("checking %s: %w", path, err)
	}
	if err := checkOwner(path, st.Uid, uid); err != nil {
		return err
	}
	if st.Mode&0o022 != 0 && (holds || st.Mode&unix.S_ISVTX == 0) {
		return &UntrustedError{
			Path: path, Problem: fmt.Sprintf(
				"is a directory with mode %04o: other users than its owner can create files there", st.Mode&0o7777),
			Hint: "Fix it with: chmod go-w " + path,
		}
	}
	return nil
}

func checkOwner(path string, owner uint32, uid int) error {
	if owner == 0 || int(owner) == uid {
		return nil
	}
	return &UntrustedError{
		Path: path, Problem: fmt.Sprintf("belongs to user %d, which is neither root nor the user of the agent (%d)",
			owner, uid),
		Hint: "Fix it with: chown root " + path,
	}
}

func (e *Executable) check(digest string, uid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(e.File.Fd()), &st); err != nil {
		return fmt.Errorf("checking %s: %w", e.Path, err)
	}
	refuse := func(problem, hint string) error {
		return &UntrustedError{Path: e.Path, Problem: problem, Hint: hint}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return refuse("is not a regular file", "Correct drivers.NAME.path")
	}
	if err := checkOwner(e.Path, st.Uid, uid); err != nil {
		return err
	}
	switch {
	case st.Mode&0o022 != 0:
		return refuse(fmt.Sprintf("has mode %04o: other users than its owner can write to it", st.Mode&0o7777),
			"Fix it with: chmod go-w "+e.Path)
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return refuse(fmt.Sprintf("has mode %04o: it would run as another user or group", st.Mode&0o7777),
			"Fix it with: chmod ug-s "+e.Path)
	case st.Mode&0o111 == 0:
		return refuse(fmt.Sprintf("has mode %04o: it is not executable", st.Mode&0o7777),
			"Fix it with: chmod 0755 "+e.Path)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, e.File); err != nil {
		return fmt.Errorf("reading %s: %w", e.Path, err)
	}
	e.Digest = hex.EncodeToString(hash.Sum(nil))
	if digest != "" && e.Digest != digest {
		return refuse(fmt.Sprintf("has sha256 %s, the configuration demands %s", e.Digest, digest),
			"If the driver was updated on purpose, put the new sum into drivers.NAME.sha256; if not, install the "+
				"driver's package again")
	}
	e.ID = ID{Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim, Ctime: st.Ctim}
	return nil
}

// Identify returns the id of the file that a path leads to now.
//
// Errors: those of the file system.
func Identify(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, fmt.Errorf("checking %s: %w", path, err)
	}
	return ID{Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim, Ctime: st.Ctim}, nil
}
