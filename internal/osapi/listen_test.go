// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestListenUnix: a socket is its owner's from the first moment, one that is left over is replaced,
// and one on which a process answers is not.
func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "cell.sock")
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	l, err := Listen(t.Context(), "unix://"+path)
	testproc.Check(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again, err := Listen(t.Context(), "unix://"+path); !errors.Is(err, ErrInUse) {
		t.Errorf("a second time: %v, %v", again, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	testproc.Check(t, l.Close())
	if l, err = Listen(t.Context(), "unix://"+path); err != nil {
		t.Fatalf("on one that is left over: %v", err)
	}
	testproc.NoError(t, l.Close())
	testproc.Check(t, os.WriteFile(path, []byte("precious"), 0o600))
	if l, err := Listen(t.Context(), "unix://"+path); err == nil {
		t.Errorf("on a file: %v", l)
	}
}
