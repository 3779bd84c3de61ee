// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/files"
)

// File is the mode and owner of a file.
type File struct {
	Mode     fs.FileMode
	UID, GID int
	ACL      bool // it has an access control list, which says more than the mode
}

func statFile(path string) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	f := fileOf(info)
	size, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	f.ACL = err == nil && size > 0
	return f, nil
}

func fileOf(info fs.FileInfo) File {
	f := File{Mode: info.Mode()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.UID, f.GID = int(st.Uid), int(st.Gid)
	}
	return f
}

// path converts a path of the checked host to one of this machine.
func (e *Env) path(p string) string { return filepath.Join(e.Root, p) }

func (e *Env) stat(p string) (File, error) { return e.Stat(e.path(p)) }

// resolveLinks resolves symbolic links in a path of the checked host.
func (e *Env) resolveLinks(p string) (string, error) {
	found, err := filepath.EvalSymlinks(e.path(p))
	if err != nil {
		return "", err
	}
	if rest, inside := strings.CutPrefix(found, e.Root); inside && e.Root != "" {
		return rest, nil
	}
	return found, nil
}

// agentMay reports whether the agent has the permissions want to a file: 4 read, 2 write, 1 execute
// or enter. It is true if that is not known, or if the agent's service has it by
// CAP_DAC_READ_SEARCH.
func (e *Env) agentMay(p string, f File, want fs.FileMode) bool {
	allowed, known := e.permits(p, f, want)
	return allowed || !known || e.Agent.ReadsAll && (want == 4 || f.Mode.IsDir() && want&2 == 0)
}

// permits is what the kernel says of the permissions of the agent, or, if it cannot be asked, what
// owner, group and mode say; known is false for what an access control list decides then.
func (e *Env) permits(p string, f File, want fs.FileMode) (allowed, known bool) {
	if e.Agent.UID == 0 {
		return true, true
	}
	if allowed, known = e.askKernel(p, want); known {
		return allowed, true
	}
	perm := f.Mode.Perm()
	switch {
	case f.UID == e.Agent.UID:
		return perm>>6&want == want, true
	case f.ACL:
		return false, false
	case slices.Contains(e.Agent.GIDs, f.GID):
		return perm>>3&want == want, true
	}
	return perm&want == want, true
}

// blockedBy returns the first directory above p that the agent cannot enter.
func (e *Env) blockedBy(p string) (string, bool) {
	for _, dir := range files.Above(p) {
		if f, err := e.stat(dir); err == nil && !e.agentMay(dir, f, 1) {
			return dir, true
		}
	}
	return "", false
}

// nearest returns p or the closest directory above it that exists.
func (e *Env) nearest(p string) string {
	for p != "/" && p != "." {
		if _, err := e.stat(p); err == nil {
			return p
		}
		p = filepath.Dir(p)
	}
	return "/"
}

// trusted checks that only root and the agent's user can change p, by the agent's rules for
// plugins. holds is set for the directory of an executable, where the sticky bit is not enough.
func (e *Env) trusted(p string, holds bool) []Result {
	const why = "A user who can change this can run programs as the agent's user, so the agent refuses to start " +
		"plugins from it."
	f, err := e.stat(p)
	if err != nil {
		return fail(reason(err, p), why, e.command("ls -ld %s", p))
	}
	kind := "file"
	if f.Mode.IsDir() {
		kind = "directory"
	}
	if f.UID != 0 && f.UID != e.Agent.UID {
		return fail(fmt.Sprintf("the %s %s belongs to user %d, which is neither root nor %s",
			kind, p, f.UID, e.Agent.Name), why, e.command("chown root:root %s", p))
	}
	if f.Mode.Perm()&0o022 != 0 && (holds || !f.Mode.IsDir() || f.Mode&fs.ModeSticky == 0) {
		return fail(fmt.Sprintf("the %s %s has mode %04o: other users than its owner can change it",
			kind, p, f.Mode.Perm()), why, e.command("chmod go-w %s", p))
	}
	return nil
}

// trustedPath is trusted for p and every directory above it. holds is set if p is a directory of
// executables.
func (e *Env) trustedPath(p string, holds bool) []Result {
	above := files.Above(p)
	for i, dir := range above {
		if r := e.trusted(dir, !holds && i == len(above)-1); r != nil {
			return r
		}
	}
	return e.trusted(p, holds)
}

// reason describes an error of stat with the path of the checked host.
func reason(err error, p string) string {
	switch {
	case os.IsNotExist(err):
		return p + " does not exist"
	case os.IsPermission(err):
		return p + " is not accessible"
	default:
		return fmt.Sprintf("cannot access %s: %v", p, err)
	}
}
