// SPDX-License-Identifier: Apache-2.0

package enrolment_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// TestPendingKeyOfAnother: joining takes no file for its key that the agent's user may have left in
// its place.
func TestPendingKeyOfAnother(t *testing.T) {
	_, text, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
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
			if err := os.WriteFile(other, text, 0o600); err != nil {
				t.Fatal(err)
			}
			h := enrolment.Host{StateDir: filepath.Join(dir, "state"), ConfigDir: dir, UID: os.Geteuid(), GID: os.Getegid()}
			if _, err := h.Begin(false); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Begin(false); err != nil {
				t.Fatalf("the key that join made: %v", err)
			}
			if err := h.Abandon(); err != nil {
				t.Fatal(err)
			}
			if err := plant(other, filepath.Join(h.StateDir, enrolment.PendingKeyFile)); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Begin(false); err == nil {
				t.Error("Begin took it for the key")
			}
			if err := h.Finish(enrolment.Joined{}, time.Now(), func(string) {}); err == nil {
				t.Error("Finish took it for the key")
			}
		})
	}
}
