// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAStampHasTheMode: a file that others may read now is another one, also where the kernel gives
// it the same times, as those before 6.13 do within a tick.
func TestAStampHasTheMode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "tokens")
	testproc.Check(t, os.WriteFile(path, []byte("secret"), 0o600))
	r := &Reloaded[string]{paths: []string{path}, now: time.Now}
	stamped := func() stamp {
		s := r.stat()[0]
		s.modified, s.changed, s.recent = time.Time{}, time.Time{}, false
		return s
	}
	before := stamped()
	testproc.Equal(t, stamped(), before, "an unchanged file has the stamp %+v")
	testproc.Check(t, os.Chmod(path, 0o644))
	if stamped() == before {
		t.Errorf("after a change of its mode the file has the same stamp, %+v", before)
	}
}
