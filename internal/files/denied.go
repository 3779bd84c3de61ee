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
	"strings"
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

// WhyDenied returns what [Denied] adds: why access is denied, and a command. For a service it is
// the one that gives its group access; for a person it is the same command as the user whose the
// file is, because a secret of a service is not for people's groups. Both are empty for other
// errors.
func WhyDenied(err error) (why, command string) {
	var file *fs.PathError
	if !errors.As(err, &file) || !errors.Is(file, fs.ErrPermission) {
		return "", ""
	}
	self := userName(os.Geteuid())
	info, statErr := os.Stat(file.Path)
	if statErr == nil {
		needs := "r"
		if info.IsDir() {
			needs = "rx"
		}
		return fmt.Sprintf("it %s, and this process runs as %s", owned(info), self),
			access(info, file.Path, needs)
	}
	if !errors.Is(statErr, fs.ErrPermission) {
		return "", "" // it was to be made
	}
	// What cannot be looked at is in a directory that is closed.
	for dir := filepath.Dir(file.Path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, statErr := os.Stat(dir); statErr == nil {
			return fmt.Sprintf("%s cannot enter %s, which %s", self, dir, owned(info)), access(info, dir, "x")
		}
	}
	return "", ""
}

// access is the command that gives this process what it needs of a file.
func access(info os.FileInfo, path, needs string) string {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !byPerson() || int64(sys.Uid) == int64(os.Geteuid()) {
		return fmt.Sprintf("chgrp %s %s && chmod g+%s %[2]s", groupName(os.Getegid()), path, needs)
	}
	if sys.Uid == 0 {
		return "sudo " + commandLine()
	}
	return fmt.Sprintf("sudo -u %s %s", userName(int(sys.Uid)), commandLine())
}

const (
	// firstPerson and lastPerson are the first and the last user of people, as systemd and Debian
	// number them.
	firstPerson = 1000
	lastPerson  = 59999
)

// byPerson reports whether a person has started this process, and no service manager or container.
func byPerson() bool {
	uid := os.Geteuid()
	return uid >= firstPerson && uid <= lastPerson && os.Getpid() != 1 && os.Getenv("INVOCATION_ID") == ""
}

// commandLine is the command of this process, as far as a shell takes its words as they are.
func commandLine() string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%"
	line := []string{filepath.Base(os.Args[0])}
	for _, word := range os.Args[1:] {
		if word == "" || strings.Trim(word, plain) != "" {
			return line[0] + " …"
		}
		line = append(line, word)
	}
	return strings.Join(line, " ")
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
