// SPDX-License-Identifier: Apache-2.0

package enrolment_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestIdentityOfAnother: Begin takes no file for the identity that the agent's user may have left
// in its place. With --again the file is replaced without being read.
func TestIdentityOfAnother(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	key, text, err := pki.NewKey()
	must(t, err)
	csr := testproc.Try(pki.NewRequest(key, "h1")).Or(t)
	request := testproc.Try(pki.ParseRequest(csr)).Or(t)
	ca := testproc.Try(pki.InitAuthority(filepath.Join(dir, "ca"), "test-ca", time.Now())).Or(t)
	certificate, err := ca.Sign(request, pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h1"}},
		pki.SignOptions{Lifetime: time.Hour, Now: time.Now()})
	must(t, err)
	content, _, err := enrolment.NewIdentity(text, certificate, time.Now())
	must(t, err)
	other := filepath.Join(dir, "other.pem")
	must(t, os.WriteFile(other, content, 0o600))
	h := enrolment.Host{StateDir: filepath.Join(dir, "state"), ConfigDir: dir, UID: os.Geteuid(), GID: os.Getegid()}
	must(t, os.Mkdir(h.StateDir, 0o700))
	must(t, os.WriteFile(h.IdentityPath(), content, 0o600))
	if _, err := h.Begin(false); !errors.Is(err, enrolment.ErrJoined) || !strings.Contains(err.Error(), "as h1") {
		t.Errorf("a host that has joined: %v", err)
	}
	for name, plant := range map[string]func(from, to string) error{"a symbolic link": os.Symlink,
		"a second name": os.Link} {
		must(t, os.Remove(h.IdentityPath()))
		must(t, plant(other, h.IdentityPath()))
		if _, err := h.Begin(false); !errors.Is(err, enrolment.ErrJoined) || strings.Contains(err.Error(), "as h1") {
			t.Errorf("%s is read: %v", name, err)
		}
	}
	testproc.Try(h.Begin(true)).Or(t)
}

// TestPendingKeyOfAnother: joining takes no file for its key that the agent's user may have left in
// its place.
func TestPendingKeyOfAnother(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, text, err := pki.NewKey()
	testproc.Check(t, err)
	for name, plant := range map[string]func(from, to string) error{
		"a symbolic link": os.Symlink,
		"a second name":   os.Link,
		"open to others": func(_, to string) error {
			if err := os.WriteFile(to, text, 0o600); err != nil {
				return err
			}
			return os.Chmod(to, 0o644)
		},
		"a directory": func(_, to string) error { return os.Mkdir(to, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			other := filepath.Join(dir, "ca.key")
			testproc.Check(t, os.WriteFile(other, text, 0o600))
			h := enrolment.Host{StateDir: filepath.Join(dir, "state"), ConfigDir: dir,
				UID: os.Geteuid(), GID: os.Getegid()}
			testproc.Try(h.Begin(false)).Or(t)
			if _, err := h.Begin(false); err != nil {
				t.Fatalf("the key that join made: %v", err)
			}
			testproc.Check(t, h.Abandon())
			testproc.Check(t, plant(other, filepath.Join(h.StateDir, enrolment.PendingKeyFile)))
			if _, err := h.Begin(false); err == nil {
				t.Error("Begin took it for the key")
			}
			if err := h.Finish(enrolment.Joined{}, time.Now(), func(string) {}); err == nil {
				t.Error("Finish took it for the key")
			}
		})
	}
}
