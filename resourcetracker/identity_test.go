// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/resourcetracker"
)

func TestIdentityIsMadeOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	id, created, err := resourcetracker.LoadIdentity(dir)
	if err != nil || !created {
		t.Fatal(id, created, err)
	}
	again, created, err := resourcetracker.LoadIdentity(dir, t.TempDir())
	if err != nil || created || again != id {
		t.Errorf("second start: %s (created: %v, %v), want %s", again, created, err, id)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestIdentityRefusals(t *testing.T) {
	one, other := "11111111-0000-4000-8000-000000000001\n", "22222222-0000-4000-8000-000000000001\n"
	for name, c := range map[string]struct{ state, etc, says string }{
		"two identities": {one, other, "two identities"},
		"an empty file":  {"", one, "one uuid"},
		"rubbish":        {"\x00\x01" + strings.Repeat("x", 1000), "", "one uuid"},
		"two uuids":      {one + other, "", "one uuid"},
	} {
		t.Run(name, func(t *testing.T) {
			state, etc := t.TempDir(), t.TempDir()
			for dir, content := range map[string]string{state: c.state, etc: c.etc} {
				if dir == state || content != "" {
					if err := os.WriteFile(filepath.Join(dir, resourcetracker.IdentityFile), []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			_, _, err := resourcetracker.LoadIdentity(state, etc)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), state) {
				t.Errorf("got %v, want an error that names the file and says %q", err, c.says)
			}
			if kept, _ := os.ReadFile(filepath.Join(state, resourcetracker.IdentityFile)); string(kept) != c.state {
				t.Error("the file was replaced")
			}
		})
	}
}

func TestIdentityOfTwoStartsAtOnce(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			var err error
			if ids[i], _, err = resourcetracker.LoadIdentity(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("different identities: %v", ids)
		}
	}
}
