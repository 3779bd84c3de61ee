// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestKeyThatIsAnotherFile: who may write to the directory of a socket, and listens on it, gets no
// other file of its client.
func TestKeyThatIsAnotherFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct {
		change func(key, other string) error
		refuse bool
	}{
		"the key": {change: func(key, _ string) error {
			return os.WriteFile(key,
				[]byte("secret\n"), 0o600)
		}},
		"a symbolic link":   {func(key, other string) error { return os.Symlink(other, key) }, true},
		"with another name": {func(key, other string) error { return os.Link(other, key) }, true},
		"a directory":       {func(key, _ string) error { return os.Mkdir(key, 0o700) }, true},
		"long":              {func(key, _ string) error { return os.WriteFile(key, make([]byte, 2000), 0o600) }, true},
		"of another user": {func(key, _ string) error {
			return errors.Join(os.WriteFile(key, []byte("secret\n"), 0o600), os.Chown(key, 54321, -1))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "of another user" && os.Geteuid() != 0 {
				testproc.NotRun(t, "needs root")
			}
			dir := testproc.SocketDir(t)
			socket, other := filepath.Join(dir, "agent.sock"), filepath.Join(dir, "other")
			testproc.Check(t, os.WriteFile(other, []byte("secret\n"), 0o600))
			l := testproc.Try(net.Listen("unix", socket)).Or(t)
			defer func() { _ = l.Close() }()
			testproc.Check(t, tc.change(KeyPath(socket), other))
			h := http.Header{}
			err := SetKey(h, socket)
			if got := h.Get("Authorization"); (got != "") == tc.refuse || (err != nil) != tc.refuse ||
				errors.Is(err, fs.ErrNotExist) {
				t.Errorf("SetKey: got %q, %v, want it refused: %v", got, err, tc.refuse)
			}
		})
	}
}

// TestKeyOfServiceThatRestarts: a key that a restart replaces after it was opened is no strange
// file.
func TestKeyOfServiceThatRestarts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := testproc.SocketDir(t)
	socket, next := filepath.Join(dir, "agent.sock"), filepath.Join(dir, "next")
	l := testproc.Try(net.Listen("unix", socket)).Or(t)
	defer func() { _ = l.Close() }()
	testproc.Check(t, errors.Join(os.WriteFile(KeyPath(socket), []byte("old"), 0o600),
		os.WriteFile(next, []byte("new"), 0o600)))
	f := testproc.Try(os.Open(KeyPath(socket))).Or(t)
	defer func() { _ = f.Close() }()
	testproc.Check(t, os.Rename(next, KeyPath(socket)))
	testproc.Equal(t, string(testproc.Try(readKeyFile(f, socket)).Or(t)), "old", "%s")
}
