// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// FuzzLockFile opens a database whose lock file holds anything: that is either refused for what it
// says or not looked at, and replaced by the next commit.
func FuzzLockFile(f *testing.F) {
	for _, content := range []string{"", "00000000000000000001\n", "00000000000000000000\n", "99999999999999999999\n",
		"-0000000000000000001\n", "0000000000000000000x\n", "1", "+0000000000000000009\n"} {
		f.Add([]byte(content))
	}
	whole := filepath.Join(f.TempDir(), "placement.db")
	s := testproc.Try(store.Open(ctx, whole, store.Options{})).Or(f)
	testproc.Check(f, s.Close())
	f.Fuzz(func(t *testing.T, content []byte) {
		testproc.Check(t, os.WriteFile(whole+"-lock", content, 0o600))
		s, err := store.Open(ctx, whole, store.Options{})
		if err != nil {
			if len(content) < 20 || !strings.Contains(err.Error(), "acknowledged changes are missing") {
				t.Errorf("opening with the lock file %q: got %v", content, err)
			}
			return
		}
		testproc.Check(t, s.Close())
	})
}
