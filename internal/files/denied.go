// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
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
		return "sudo " + commandLine(os.Args)
	}
	return fmt.Sprintf("sudo -u %s %s", userName(int(sys.Uid)), commandLine(os.Args))
}

const (
	firstPerson = 1000  // the first user of people; those of a directory service have high numbers
	overflow    = 65534 // the user of what has none here
)

// byPerson reports whether a person has started this process to do one thing, and no service
// manager or container.
func byPerson() bool {
	uid := os.Geteuid()
	return uid >= firstPerson && uid != overflow &&
		os.Getpid() != 1 && os.Getenv("INVOCATION_ID") == "" && !isService(os.Args)
}

// isService reports whether a command line is of a service or a driver. A person who runs one gives
// it access: as another user it has another state directory, and another identity.
func isService(args []string) bool {
	if strings.HasPrefix(filepath.Base(args[0]), "compute-driver-") {
		return true
	}
	for i, word := range args[1:] {
		switch word {
		case "run":
			if args[i] != "plugin" { // "plugin run" makes one pass
				return true
			}
		case "standalone", "serve", "api":
			return true
		}
	}
	return false
}

// secretFlag matches flags whose value is a secret, and not the file of one.
var secretFlag = regexp.MustCompile(`(?i)^--?([a-z-]+-)?(password|passphrase|secret|token|key)$`)

// commandLine is the command of these arguments. It has "…" for words that a shell does not take as
// they are, for words with an @, which may be addresses with a password, and for secrets.
func commandLine(args []string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./%"
	line, secret := []string{filepath.Base(args[0])}, false
	for _, word := range args[1:] {
		flag, _, joined := strings.Cut(word, "=")
		hide := secret || word == "" || strings.Trim(word, plain) != "" || joined && secretFlag.MatchString(flag)
		secret = !joined && secretFlag.MatchString(flag)
		switch {
		case !hide:
			line = append(line, word)
		case joined && strings.HasPrefix(flag, "-") && strings.Trim(flag, plain) == "":
			line = append(line, flag+"=…")
		default:
			line = append(line, "…")
		}
	}
	return strings.Join(line, " ")
}

// owned describes whose a file is and its mode.
func owned(info os.FileInfo) string {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprintf("has mode %04o", info.Mode().Perm())
	}
	return fmt.Sprintf("belongs to %s:%s with mode %04o",
		userName(int(sys.Uid)), groupName(int(sys.Gid)), info.Mode().Perm())
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

// Above returns the directories above a path, from the root down.
func Above(path string) []string {
	var out []string
	for dir := filepath.Dir(filepath.Clean(path)); ; dir = filepath.Dir(dir) {
		out = append(out, dir)
		if dir == "/" || dir == "." {
			break
		}
	}
	slices.Reverse(out)
	return out
}
