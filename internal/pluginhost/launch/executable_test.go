// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestOpen(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const text = "#!/bin/sh\nexit 0\n"
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:])
	uid := os.Geteuid()

	// Each case changes one thing about a good executable at DIR/sub/driver.
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir, path string) (use string)
		digest string
		want   string // in the error; "" is trusted
	}{
		{name: "good"},
		{name: "good digest", digest: digest},
		{name: "wrong digest", digest: strings.Repeat("0", 64), want: "the configuration demands"},
		{name: "group may write", change: mode(0o775), want: "chmod go-w"},
		{name: "world may write", change: mode(0o757), want: "chmod go-w"},
		{name: "setuid", change: mode(0o755 | os.ModeSetuid), want: "run as another user"},
		{name: "not executable", change: mode(0o644), want: "is not executable"},
		{name: "directory writable", change: func(t *testing.T, _, path string) string {
			chmod(t, filepath.Dir(path), 0o775)
			return path
		}, want: "is a directory with mode 0775"},
		{name: "directory sticky and writable", change: func(t *testing.T, _, path string) string {
			chmod(t, filepath.Dir(path), 0o777|os.ModeSticky)
			return path
		}, want: "is a directory with mode 1777"},
		{name: "directory above writable", change: func(t *testing.T, dir, path string) string {
			chmod(t, dir, 0o777)
			return path
		}, want: "is a directory with mode 0777"},
		{name: "another user's", change: func(t *testing.T, _, path string) string {
			giveAway(t, path)
			return path
		}, want: "/sub/driver belongs to user 1234"},
		{name: "directory another user's", change: func(t *testing.T, _, path string) string {
			giveAway(t, filepath.Dir(path))
			return path
		}, want: "/sub belongs to user 1234"},
		{name: "directory above another user's", change: func(t *testing.T, dir, path string) string {
			giveAway(t, dir)
			return path
		}, want: "/001 belongs to user 1234"},
		{name: "link to it", change: func(t *testing.T, dir, path string) string {
			link := filepath.Join(dir, "link")
			testproc.Check(t, os.Symlink(path, link))
			return link
		}},
		{name: "directory", change: func(_ *testing.T, _, path string) string { return filepath.Dir(path) },
			want: "is not a regular file"},
		{name: "fifo", change: func(t *testing.T, dir, _ string) string {
			fifo := filepath.Join(dir, "fifo")
			testproc.Check(t, syscall.Mkfifo(fifo, 0o755))
			return fifo
		}, want: "is not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			chmod(t, dir, 0o755)
			chmod(t, filepath.Dir(dir), 0o755)
			path := filepath.Join(dir, "sub", "driver")
			testproc.Check(t, os.Mkdir(filepath.Dir(path), 0o755))
			chmod(t, filepath.Dir(path), 0o755)
			testproc.Check(t, testproc.WriteExecutable(path, []byte(text)))
			chmod(t, path, 0o755)
			use := path
			if c.change != nil {
				use = c.change(t, dir, path)
			}
			exe, err := Open(use, c.digest, uid)
			if c.want == "" {
				testproc.Check(t, err)
				defer func() { _ = exe.File.Close() }()
				if exe.Digest != digest || exe.Path != path {
					t.Errorf("got %s %s", exe.Path, exe.Digest)
				}
				if now, err := Identify(use); err != nil || now != exe.ID {
					t.Errorf("identified as %+v (%v), opened as %+v", now, err, exe.ID)
				}
				return
			}
			if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want ErrUntrusted with %q, got %v", c.want, err)
			}
		})
	}
}

func TestForeignOwnerIsNotTrusted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if err := checkOwner("/x", 1234, 1000); !errors.Is(err, ErrUntrusted) ||
		!strings.Contains(err.Error(), "chown root /x") {
		t.Errorf("got %v", err)
	}
	for _, owner := range []uint32{0, 1000} {
		testproc.NoErrorf(t, checkOwner("/x", owner, 1000), "owner %d", owner)
	}
}

func TestInstalled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	for _, name := range []string{"compute-driver-a", "compute-driver-", "compute-driver-B", "other"} {
		testproc.Check(t, testproc.WriteExecutable(filepath.Join(dir, name), nil))
	}
	got, err := Installed(dir)
	if diff := cmp.Diff(map[string]string{"a": filepath.Join(dir, "compute-driver-a")}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func mode(m os.FileMode) func(*testing.T, string, string) string {
	return func(t *testing.T, _, path string) string {
		chmod(t, path, m)
		return path
	}
}

// giveAway has a file belong to another user than root and the agent's.
func giveAway(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		testproc.NotRun(t, "giving a file to another user needs root")
	}
	testproc.Check(t, os.Chown(path, 1234, -1))
}

func chmod(t *testing.T, path string, m os.FileMode) {
	t.Helper()
	testproc.Check(t, os.Chmod(path, m))
}
