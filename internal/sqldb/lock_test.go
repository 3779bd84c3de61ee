// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestUnlockedWhileAnotherProcessStarts: a database that was closed can be opened, although a
// process that was just started has the lock file, as each has what its parent has until it
// executes its program.
func TestUnlockedWhileAnotherProcessStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	l := testproc.Try(lock(path, true, true)).Or(t)
	childs := testproc.Try(syscall.Dup(int(l.f.Fd()))).Or(t)
	defer func() { _ = syscall.Close(childs) }()
	testproc.Check(t, l.close())
	l = testproc.Try(lock(path, true, true)).Or(t)
	testproc.NoError(t, l.close())
}
