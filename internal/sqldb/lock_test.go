// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnlockedWhileAnotherProcessStarts: a database that was closed can be opened, although a
// process that was just started has the lock file, as each has what its parent has until it
// executes its program.
func TestUnlockedWhileAnotherProcessStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	l, err := lock(path, true, true)
	if err != nil {
		t.Fatal(err)
	}
	childs, err := syscall.Dup(int(l.f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(childs) }()
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l, err = lock(path, true, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}
