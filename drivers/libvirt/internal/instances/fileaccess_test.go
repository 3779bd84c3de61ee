// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var qemu = User{UID: 64055, GID: 64055, Groups: []int{107}}

// TestACLGrants follows acl(5): the owner's entry, else the one for the user, else any of its
// groups, else that of others.
func TestACLGrants(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	acl := func(entries ...aclEntry) []aclEntry { return entries }
	for name, c := range map[string]struct {
		acl          []aclEntry
		owner, group int
		want         bool
	}{
		"others":                     {fromMode(0o755), 0, 0, true},
		"closed to others":           {fromMode(0o750), 0, 0, false},
		"owner":                      {fromMode(0o700), qemu.UID, 0, true},
		"owner, and only others may": {fromMode(0o005), qemu.UID, 0, false},
		"group":                      {fromMode(0o750), 0, qemu.GID, true},
		"another group":              {fromMode(0o750), 0, 107, true},
		"group, and only others may": {fromMode(0o705), 0, 107, false},
		"an entry": {acl(aclEntry{tagUserObj, 7, 0}, aclEntry{tagUser, 5, qemu.UID},
			aclEntry{tagGroupObj, 5, 0}, aclEntry{tagMask, 5, 0}, aclEntry{tagOther, 0, 0}), 0, 0, true},
		"an entry that the mask closes": {acl(aclEntry{tagUserObj, 7, 0}, aclEntry{tagUser, 5, qemu.UID},
			aclEntry{tagMask, 4, 0}, aclEntry{tagOther, 5, 0}), 0, 0, false},
		"an entry of another user": {acl(aclEntry{tagUserObj, 7, 0}, aclEntry{tagUser, 5, 1},
			aclEntry{tagMask, 5, 0}, aclEntry{tagOther, 0, 0}), 0, 0, false},
		"an entry of a group": {acl(aclEntry{tagUserObj, 7, 0}, aclEntry{tagGroupObj, 0, 0},
			aclEntry{tagGroup, 5, 107}, aclEntry{tagMask, 5, 0}, aclEntry{tagOther, 0, 0}), 0, 0, true},
		"a group's, and only others may": {acl(aclEntry{tagUserObj, 7, 0}, aclEntry{tagGroup, 0, 107},
			aclEntry{tagMask, 7, 0}, aclEntry{tagOther, 5, 0}), 0, 0, false},
	} {
		testproc.Equal(t, qemu.granted(c.acl, c.owner, c.group, aclSearch), c.want, "%s: %t", name)
	}
}

func TestParseACL(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	raw := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []aclEntry{{tagUserObj, 7, 0xffffffff}, {tagUser, 5, 64055}} {
		raw = binary.LittleEndian.AppendUint32(
			binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(raw, e.tag), e.perm), uint32(e.id))
	}
	got, err := parseACL(raw)
	if err != nil || len(got) != 2 || got[1] != (aclEntry{tagUser, 5, 64055}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, broken := range [][]byte{nil, raw[:3], raw[:10], {1, 0, 0, 0}} {
		if _, err := parseACL(broken); err == nil {
			t.Errorf("%v is taken for a list", broken)
		}
	}
}

// TestEnterAndRead: the first directory that is closed is named, also one that a link leads
// through; the mode of a file is for those who read.
func TestEnterAndRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	for p := dir; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		testproc.Check(t, os.Chmod(p, 0o755))
	}
	closed, open := filepath.Join(dir, "state"), filepath.Join(dir, "images")
	for _, d := range []string{closed, filepath.Join(closed, "images"), open} {
		testproc.Check(t, os.Mkdir(d, 0o755))
	}
	write := func(path string, mode fs.FileMode) string {
		t.Helper()
		testproc.Check(t, os.WriteFile(path, nil, mode))
		return path
	}
	inClosed, readable, secret := write(filepath.Join(closed, "images", "a"), 0o644),
		write(filepath.Join(open, "a"), 0o644), write(filepath.Join(open, "b"), 0o600)
	link := filepath.Join(open, "link")
	testproc.Check(t, errors.Join(os.Symlink(inClosed, link), os.Chmod(closed, 0o750)))
	for path, denied := range map[string]string{
		readable: "", open: "", filepath.Join(open, "none"): "", filepath.Join(dir, "none", "none"): "",
		inClosed: closed, filepath.Join(closed, "images"): closed, closed: closed, link: closed, secret: secret,
	} {
		for name, check := range map[string]func(User, string) error{"enter": CanEnter, "read": CanRead} {
			want := denied
			if name == "enter" && path == secret {
				want = ""
			}
			err := check(qemu, path)
			var e *DeniedError
			switch {
			case want == "" && err != nil:
				t.Errorf("%s %s: %v", name, path, err)
			case want != "" && (!errors.As(err, &e) || e.Path != want):
				t.Errorf("%s %s: %v, want that %s is closed", name, path, err, want)
			}
			testproc.NoErrorf(t, check(User{UID: 0}, path), "%s %s, as root", name, path)
		}
	}
}
