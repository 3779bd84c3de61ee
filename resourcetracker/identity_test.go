// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestIdentityIsMadeOnceAndKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
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
	testproc.Parallel(t, testproc.Light)
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
					testproc.Check(t,
						os.WriteFile(filepath.Join(dir, resourcetracker.IdentityFile), []byte(content), 0o600))
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

// TestIdentityThatCannotBeRead or written is an error that names the file, and none is made.
func TestIdentityThatCannotBeRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	state := t.TempDir()
	path := filepath.Join(state, resourcetracker.IdentityFile)
	testproc.Check(t, os.Mkdir(path, 0o700))
	id, created, err := resourcetracker.LoadIdentity(state)
	if id != "" || created || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a directory in its place: got %q, created %v, error %v; want an error that names it",
			id, created, err)
	}
	id, created, err = resourcetracker.LoadIdentity(filepath.Join(state, "absent"))
	if id != "" || created || err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("no state directory: got %q, created %v, error %v; want an error that names it", id, created, err)
	}
}

func TestIdentityOfTwoStartsAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
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

// TestIdentityIsReplaced wherever it is another one, and in the state directory if it is nowhere;
// what was there before stays beside it.
func TestIdentityIsReplaced(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const id, other = "11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000001"
	const kept = "compute_id.replaced-20260102T020405.678Z"
	now := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.FixedZone("", 3600))
	type files = map[string]string
	for name, c := range map[string]struct{ before, want files }{
		"nowhere": {files{}, files{"state/compute_id": id + "\n"}},
		"everywhere already": {files{"state/compute_id": id + "\n", "etc/compute_id": id},
			files{"state/compute_id": id + "\n", "etc/compute_id": id}},
		"another in both": {files{"state/compute_id": other, "etc/compute_id": other + "\n"},
			files{"state/compute_id": id + "\n", "state/" +
				kept: other, "etc/compute_id": id + "\n", "etc/" + kept: other + "\n"}},
		"one of two": {files{"state/compute_id": id, "etc/compute_id": other},
			files{"state/compute_id": id, "etc/compute_id": id + "\n", "etc/" + kept: other}},
		"not in the state": {files{"etc/compute_id": id}, files{"etc/compute_id": id}},
		"what is no identity": {files{"state/compute_id": "rubbish"},
			files{"state/compute_id": id + "\n", "state/" + kept: "rubbish"}},
		"what cannot be linked": {files{"state/compute_id": other, "state/" + kept: "in the way"},
			files{"state/compute_id": other, "state/" + kept: "in the way"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			state, etc := filepath.Join(dir, "state"), filepath.Join(dir, "etc")
			check(t, os.Mkdir(state, 0o700), os.Mkdir(etc, 0o700))
			for name, content := range c.before {
				check(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
			}
			err := resourcetracker.ReplaceIdentity(id, now, state, etc)
			if fails := name == "what cannot be linked"; (err != nil) != fails {
				t.Error(err)
			}
			got := files{}
			for _, sub := range []string{"state", "etc"} {
				entries := testproc.Try(os.ReadDir(filepath.Join(dir, sub))).Or(t)
				for _, e := range entries {
					content := testproc.Try(os.ReadFile(filepath.Join(dir, sub, e.Name()))).Or(t)
					got[sub+"/"+e.Name()] = string(content)
				}
			}
			testproc.Same(t, cmp.Diff(c.want, got))
			if info, err := os.Stat(filepath.Join(state, "compute_id")); c.want["state/compute_id"] == id+"\n" &&
				c.before["state/compute_id"] != id+"\n" && (err != nil || info.Mode().Perm() != 0o644) {
				t.Errorf("the file compute_id: got %v, %v, want the mode 0644", info, err)
			}
		})
	}
	if err := resourcetracker.ReplaceIdentity(id, now, filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an identity was written to a directory that is not there")
	}
}
