// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Users and a group that own nothing on this machine.
const (
	someUser  = 54321
	someGroup = 54322
)

// asRoot is a directory that all users can enter, for tests that act as other users.
func asRoot(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		testproc.NotRun(t, "needs root")
	}
	dir := testproc.Try(os.MkdirTemp("/tmp", "become")).Or(t) // $TMPDIR may be closed to others
	t.Cleanup(func() { testproc.NoError(t, os.RemoveAll(dir)) })
	testproc.Check(t, os.Chmod(dir, 0o755))
	return dir
}

// allow gives a user a right to a file by an access control list.
func allow(t *testing.T, path string, uid uint32, perm uint16) {
	t.Helper()
	list := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, 1<<32 - 1}, {2, perm, uid}, {4, 0, 1<<32 - 1}, {16, perm, 1<<32 - 1}, {32, 0, 1<<32 - 1}} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.perm)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	err := unix.Setxattr(path, "system.posix_acl_access", list, 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		testproc.NotRun(t, "the file system has no access control lists")
	}
	testproc.Check(t, err)
}

// TestBecome: what a user may read and enter is what the kernel says, with supplementary groups and
// access control lists; the rest of the process stays root.
func TestBecome(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := asRoot(t)
	of := func(name string, mode os.FileMode, uid, gid int) string {
		path := filepath.Join(dir, name)
		testproc.Check(t,
			errors.Join(os.WriteFile(path, []byte("secret"), mode), os.Chmod(path, mode), os.Chown(path, uid, gid)))
		return path
	}
	e := &Env{Become: actAs, Stat: statFile,
		Agent: Account{Name: "some", UID: someUser, GIDs: []int{someUser, someGroup}}}
	listed := of("listed", 0o600, 0, 0)
	allow(t, listed, someUser, 4)
	for path, want := range map[string]bool{
		listed:                                  true,
		of("own", 0o400, someUser, 0):           true,
		of("own, closed", 0o044, someUser, 0):   false,
		of("group", 0o640, 0, someGroup):        true,
		of("group, closed", 0o604, 0, someUser): false,
		of("root", 0o600, 0, 0):                 false,
	} {
		f := testproc.Try(e.stat(path)).Or(t)
		if allowed, known := e.permits(path, f, 4); allowed != want || !known {
			t.Errorf("%s: %t, %t", path, allowed, known)
		}
		var err error
		testproc.Check(t, e.reading(func() { _, err = os.ReadFile(path) }))
		if (err == nil) != want || err != nil && !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s is read: %v", path, err)
		}
		testproc.Try(os.ReadFile(path)).Or(t)
	}
	e.Agent.ReadsAll = true
	root := filepath.Join(dir, "root")
	f := testproc.Try(e.stat(root)).Or(t)
	if !e.agentMay(root, f, 4) || e.agentMay(root, f, 2) {
		t.Error("CAP_DAC_READ_SEARCH does not let read, or lets write")
	}
	if r := e.readable(root, f, nil); r == nil ||
		r.Severity != Skipped || !strings.Contains(r.Found, "CAP_DAC_READ_SEARCH") {
		t.Errorf("a file of root, with CAP_DAC_READ_SEARCH: %+v", r)
	}
	e.Agent.ReadsAll = false
	closed := filepath.Join(dir, "closed")
	testproc.Check(t, os.Mkdir(closed, 0o700))
	if at, blocked := e.blockedBy(filepath.Join(closed, "x")); !blocked || at != closed {
		t.Errorf("blocked by %q", at)
	}
	allow(t, closed, someUser, 1)
	if at, blocked := e.blockedBy(filepath.Join(closed, "x")); blocked {
		t.Errorf("blocked by %q", at)
	}
	e.Become = nil // as another user than root
	f = testproc.Try(e.stat(listed)).Or(t)
	if allowed, known := e.permits(listed, f, 4); allowed || known {
		t.Errorf("a list that the kernel is not asked about: %t, %t", allowed, known)
	}
	if r := e.readable(listed, f, nil); r == nil || r.Severity != Skipped {
		t.Errorf("readable of a list that the kernel is not asked about: got %+v, want it skipped", r)
	}
}

// TestIdentityBehindALink: root reads the agent's identity as the agent, so that a link of the
// agent's user to another file does not have it read.
func TestIdentityBehindALink(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := asRoot(t)
	secret, state := filepath.Join(dir, "secret"), filepath.Join(dir, "state")
	testproc.Check(t, errors.Join(os.WriteFile(secret, []byte("5f2a1f3e-6b1c-4f0e-9d35-0a2f1d6c7b11\n"), 0o600),
		os.Mkdir(state, 0o755),
		os.Symlink(secret, filepath.Join(state, computeID)), os.Chown(state, someUser, someUser)))
	file := filepath.Join(dir, "agent.toml")
	testproc.Check(t, os.WriteFile(file, fmt.Appendf(nil, "[agent]\nstate_dir = %q\n", state), 0o644))
	cfg := testproc.Try(config.Load(config.Options{File: file, Environ: []string{"HOME=/nonexistent"}})).Or(t)
	e := &Env{Become: actAs, Stat: statFile,
		Agent: Account{Name: "some", UID: someUser, GIDs: []int{someUser}}, Config: cfg}
	got := checkComputeID(context.Background(), e)
	if len(got) != 1 || got[0].Severity != Error ||
		!strings.Contains(got[0].Found, "some cannot read "+filepath.Join(state, computeID)) {
		t.Errorf("checkComputeID: got %+v, want an error that names the file", got)
	}
	e.Agent.ReadsAll = true
	if got := checkComputeID(context.Background(), e); len(got) != 1 || got[0].Severity != Skipped ||
		!strings.Contains(got[0].Found, "CAP_DAC_READ_SEARCH") {
		t.Errorf("of an agent that reads all files: %+v", got)
	}
}
