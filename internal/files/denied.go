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
// how it gets access, if access is what it lacks. Other errors are returned as they are.
func Denied(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	self, group := userName(os.Geteuid()), groupName(os.Getegid())
	if info, statErr := os.Stat(path); statErr == nil {
		return fmt.Errorf("%w: it %s, and this process runs as %s; run: chgrp %s %s && chmod g+r %[5]s", err, owned(info), self, group, path)
	}
	// What cannot be looked at is in a directory that is closed.
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, statErr := os.Stat(dir); statErr == nil {
			return fmt.Errorf("%w: %s cannot enter %s, which %s; run: chgrp %s %[3]s && chmod g+x %[3]s", err, self, dir, owned(info), group)
		}
	}
	return err
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
