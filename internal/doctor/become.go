// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/files"
)

// errNotRoot: only root can act as another user.
var errNotRoot = errors.New("only root can act as another user")

// actAs calls f with the rights of a user to files: of root's own it has none meanwhile. What f
// starts has them not.
func actAs(a Account, f func()) error {
	self := os.Geteuid()
	if self == a.UID && (self == 0 || inGroups(a.GIDs)) {
		f()
		return nil
	}
	if self != 0 {
		return errNotRoot
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread, which has another user now, ends with the goroutine
		if err := setUser(a); err != nil {
			done <- fmt.Errorf("acting as %s: %w", a.Name, err)
			return
		}
		f()
		done <- nil
	}()
	return <-done
}

func inGroups(gids []int) bool {
	own, err := os.Getgroups()
	own = append(own, os.Getegid())
	return err == nil && !slices.ContainsFunc(gids, func(gid int) bool { return !slices.Contains(own, gid) })
}

// setUser gives this thread the user and the groups of an account for all access to files, and
// takes its capabilities. Its user for signals stays root, so that the account cannot send it any.
func setUser(a Account) error {
	if len(a.GIDs) == 0 {
		return errors.New("it has no group")
	}
	err := errors.Join(unix.Setgroups(a.GIDs), unix.Setfsgid(a.GIDs[0]), unix.Setfsuid(a.UID))
	if uid, _ := unix.SetfsuidRetUid(-1); err == nil && uid != a.UID {
		err = unix.EPERM
	}
	var none [2]unix.CapUserData
	return errors.Join(err, unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]))
}

// reading calls f, which reads files for the agent: as root with no more rights than the agent has,
// because the agent's user may have put links to other files there.
func (e *Env) reading(f func()) error {
	if e.Become == nil || e.Self != 0 {
		f()
		return nil
	}
	return e.Become(e.Agent, f)
}

// asAgent is a check that reads as the agent.
func asAgent(e *Env, check func() []Result) (out []Result) {
	if err := e.reading(func() { out = check() }); err != nil {
		return skip("cannot be checked: %v", err)
	}
	return out
}

// askKernel is the kernel's answer to whether the agent has the permissions want (4 read, 2 write,
// 1 execute or enter), with access control lists and all; known is false if it cannot be asked.
func (e *Env) askKernel(p string, want fs.FileMode) (allowed, known bool) {
	if e.Become == nil {
		return false, false
	}
	name, err := unix.BytePtrFromString(e.path(p))
	if err != nil {
		return false, false
	}
	var errno unix.Errno
	err = e.Become(e.Agent, func() {
		at := unix.AT_FDCWD
		_, _, errno = unix.Syscall6(unix.SYS_FACCESSAT2,
			uintptr(at), uintptr(unsafe.Pointer(name)), uintptr(want), unix.AT_EACCESS, 0, 0)
	})
	switch {
	case err != nil:
	case errno == 0:
		return true, true
	case errno == unix.EACCES, errno == unix.EROFS:
		return false, true
	}
	return false, false // an old kernel, or a filter of system calls
}

// maxLinks is how many symbolic links a path may have.
const maxLinks = 40

// foreign is what on the way to p another user than root can have put there: the first symbolic
// link of such a user, or in a directory where such a user can make one. Root follows none: it may
// lead to any file. "" without one, or if this is not root.
func (e *Env) foreign(p string) string {
	if e.Self != 0 {
		return ""
	}
	at, rest := "/", strings.Split(p, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(at, name)
		if name == "" || name == "." || name == ".." {
			at = next
			continue
		}
		info, err := os.Lstat(e.path(next))
		if err != nil {
			return "" // the check itself says what is wrong
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(e.path(next))
		if links++; err != nil || links > maxLinks || !e.ofRoot(at, info) {
			return next
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return ""
}

// ofRoot reports whether only root can have put an entry into a directory.
func (e *Env) ofRoot(dir string, entry fs.FileInfo) bool {
	f, err := e.stat(dir)
	if err != nil || f.UID != 0 {
		return false
	}
	return f.Mode.Perm()&0o022 == 0 || f.Mode&fs.ModeSticky != 0 && fileOf(entry).UID == 0
}

// replaceable is the first directory above p in which another user than root can put another file
// in the place of what is there; "" for none.
func (e *Env) replaceable(p string) string {
	for _, dir := range files.Above(p) {
		if f, err := e.stat(dir); err != nil || f.UID != 0 || f.Mode.Perm()&0o022 != 0 && f.Mode&fs.ModeSticky == 0 {
			return dir
		}
	}
	return ""
}

// unread is the result for a file that root does not look into; nil if it may.
func (e *Env) unread(p string) *Result {
	if link := e.foreign(p); link != "" {
		return &Result{Severity: Skipped, Found: p + ": root does not follow the symbolic link " + link +
			", which another user can have made"}
	}
	if e.Self == 0 && e.Agent.UID == 0 {
		if dir := e.replaceable(p); dir != "" {
			return &Result{Severity: Skipped, Found: p +
				": root does not look into it, because another user can replace it in " + dir}
		}
	}
	return nil
}

// change is a command that changes a file. Where another user can put a link in the file's place,
// a person has to look first.
func (e *Env) change(p, format string, args ...any) string {
	if dir := e.replaceable(p); dir != "" {
		return e.command("ls -l %s", p) + "   # before you change it: another user than root can replace it in " + dir
	}
	return e.command(format, args...)
}
