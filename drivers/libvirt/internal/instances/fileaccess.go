// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/files"
)

// [CanEnter] and [CanRead] determine from owners, modes and access control lists whether another
// user can reach and read a file: the user of QEMU, which opens the disks of guests and their
// images.

// User is a user with its groups.
type User struct {
	UID, GID int
	// Groups are the supplementary groups.
	Groups []int
}

// LookupUser is a user of this machine by its numbers, with the groups that the machine knows of
// it.
func LookupUser(uid, gid int) User {
	u := User{UID: uid, GID: gid}
	known, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return u
	}
	ids, err := known.GroupIds()
	if err != nil {
		return u
	}
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil && n != gid {
			u.Groups = append(u.Groups, n)
		}
	}
	return u
}

// String names the user, for people.
func (u User) String() string {
	if known, err := user.LookupId(strconv.Itoa(u.UID)); err == nil {
		return known.Username
	}
	return "user " + strconv.Itoa(u.UID)
}

// DeniedError is what a user cannot do with a file or directory.
type DeniedError struct {
	User User
	// Path is the directory that cannot be entered, or the file that cannot be read.
	Path     string
	Mode     fs.FileMode
	UID, GID int
}

func (e *DeniedError) Error() string {
	what := "read"
	if e.Mode.IsDir() {
		what = "enter"
	}
	return fmt.Sprintf("%s cannot %s %s (mode %04o, user %d, group %d)",
		e.User, what, e.Path, e.Mode.Perm(), e.UID, e.GID)
}

const (
	aclSearch = 1
	aclRead   = 4
)

// CanEnter reports whether a user can enter every directory above a path, also above what links
// lead to, and the path itself if it is a directory. Of a path that does not exist, it checks the
// directories that do.
//
// Errors: a [*DeniedError] if it surely cannot; those of the file system if this process may not
// look. For root there is none: what root's processes may depends on more than the files.
func CanEnter(u User, path string) error { return u.checkAll(path, false) }

// CanRead reports whether a user can read a file, as Enter does.
func CanRead(u User, path string) error { return u.checkAll(path, true) }

func (u User) checkAll(path string, file bool) error {
	if u.UID == 0 {
		return nil
	}
	all := append(files.Above(path), path)
	if real, err := filepath.EvalSymlinks(path); err == nil && real != filepath.Clean(path) {
		all = append(append(all, files.Above(real)...), real)
	}
	for _, p := range all {
		info, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !file && !info.IsDir() {
			continue
		}
		if err := u.check(p, info); err != nil {
			return err
		}
	}
	return nil
}

func (u User) check(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	want := uint16(aclRead)
	if info.IsDir() {
		want = aclSearch
	}
	e := &DeniedError{User: u, Path: path, Mode: info.Mode(), UID: int(st.Uid), GID: int(st.Gid)}
	acl, err := readACL(path)
	if err != nil {
		return err
	}
	if acl == nil {
		acl = fromMode(info.Mode())
	}
	if u.granted(acl, e.UID, e.GID, want) {
		return nil
	}
	return e
}

// Tags of entries (linux/posix_acl.h).
const (
	tagUserObj  = 0x01
	tagUser     = 0x02
	tagGroupObj = 0x04
	tagGroup    = 0x08
	tagMask     = 0x10
	tagOther    = 0x20
)

// aclEntry is one of an access control list.
type aclEntry struct {
	tag, perm uint16
	id        int
}

func fromMode(mode fs.FileMode) []aclEntry {
	perm := uint16(mode.Perm())
	return []aclEntry{{tagUserObj, perm >> 6 & 7, 0}, {tagGroupObj, perm >> 3 & 7, 0}, {tagOther, perm & 7, 0}}
}

// readACL reads the access control list of a file; nil if it has none.
func readACL(path string) ([]aclEntry, error) {
	const name, most = "system.posix_acl_access", 64 << 10
	raw := make([]byte, most)
	n, err := unix.Getxattr(path, name, raw)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil, nil
	case err != nil:
		return nil, &fs.PathError{Op: "getxattr " + name, Path: path, Err: err}
	}
	return parseACL(raw[:n])
}

// parseACL decodes the kernel's form: a version, and entries of tag, permissions and id.
func parseACL(raw []byte) ([]aclEntry, error) {
	const version, head, size = 2, 4, 8
	if len(raw) < head || binary.LittleEndian.Uint32(raw) != version || (len(raw)-head)%size != 0 {
		return nil, fmt.Errorf("an access control list of %d bytes cannot be decoded", len(raw))
	}
	var out []aclEntry
	for e := range slices.Chunk(raw[head:], size) {
		out = append(out, aclEntry{binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:]),
			int(binary.LittleEndian.Uint32(e[4:]))})
	}
	return out, nil
}

// granted goes through a list as the kernel does (acl(5), "Access check algorithm").
func (u User) granted(acl []aclEntry, owner, group int, want uint16) bool {
	mask := uint16(7)
	for _, e := range acl {
		if e.tag == tagMask {
			mask = e.perm
		}
	}
	if u.UID == owner {
		return u.byTag(acl, tagUserObj)&want == want
	}
	for _, e := range acl {
		if e.tag == tagUser && e.id == u.UID {
			return e.perm&mask&want == want
		}
	}
	inGroup := false
	for _, e := range acl {
		if e.tag == tagGroupObj && u.isIn(group) || e.tag == tagGroup && u.isIn(e.id) {
			inGroup = true
			if e.perm&mask&want == want {
				return true
			}
		}
	}
	return !inGroup && u.byTag(acl, tagOther)&want == want
}

func (u User) byTag(acl []aclEntry, tag uint16) uint16 {
	for _, e := range acl {
		if e.tag == tag {
			return e.perm
		}
	}
	return 0
}

func (u User) isIn(group int) bool { return group == u.GID || slices.Contains(u.Groups, group) }
