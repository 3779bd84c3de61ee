// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Denied adds to an error of opening a file for reading whose the file is, who this process is, and
// how it gets access, if access is what it lacks. The error names the file, see [fs.PathError].
// Other errors are returned as they are.
func Denied(err error) error {
	why, command := WhyDenied(err)
	if why == "" {
		return err
	}
	return fmt.Errorf("%w: %s; run: %s", err, why, command)
}

// WhyDenied returns what [Denied] adds: why access is denied, and the command that gives it. Both
// are empty for other errors.
func WhyDenied(err error) (why, command string) {
	var file *fs.PathError
	if !errors.As(err, &file) || !errors.Is(file, fs.ErrPermission) {
		return "", ""
	}
	self, group := userName(os.Geteuid()), groupName(os.Getegid())
	info, statErr := os.Stat(file.Path)
	if statErr == nil {
		needs := "r"
		if info.IsDir() {
			needs = "rx"
		}
		return fmt.Sprintf("it %s, and this process runs as %s", owned(info), self),
			fmt.Sprintf("chgrp %s %s && chmod g+%s %[2]s", group, file.Path, needs)
	}
	if !errors.Is(statErr, fs.ErrPermission) {
		return "", "" // it was to be made
	}
	// What cannot be looked at is in a directory that is closed.
	for dir := filepath.Dir(file.Path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, statErr := os.Stat(dir); statErr == nil {
			return fmt.Sprintf("%s cannot enter %s, which %s", self, dir, owned(info)), fmt.Sprintf("chgrp %s %s && chmod g+x %[2]s", group, dir)
		}
	}
	return "", ""
}

// owned describes whose a file is and its mode.
func owned(info os.FileInfo) string {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprintf("has mode %04o", info.Mode().Perm())
	}
	return fmt.Sprintf("belongs to %s:%s with mode %04o", userName(int(sys.Uid)), groupName(int(sys.Gid)), info.Mode().Perm())
}

// groupName is the name of a group, or the number.
func groupName(id int) string {
	if g, err := user.LookupGroupId(strconv.Itoa(id)); err == nil {
		return g.Name
	}
	return strconv.Itoa(id)
}

// userName is the name of a user, or the number.
func userName(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return u.Username
	}
	return strconv.Itoa(id)
}
