// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestSpecIsCheckedBeforeAnythingElse(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		name string
		spec Spec
		path string
		want string
	}{
		{name: "only a name", spec: Spec{Name: "libvirt"}, path: "/plugins/compute-driver-libvirt"},
		{name: "relative", spec: Spec{Name: "x", Path: "sub/x"}, path: "/plugins/sub/x"},
		{name: "absolute", spec: Spec{Name: "x", Path: "/opt/x"}, path: "/opt/x"},
		{name: "no name", spec: Spec{}, want: "driver name"},
		{name: "bad name", spec: Spec{Name: "../x"}, want: "driver name"},
		{name: "out of the directory", spec: Spec{Name: "x", Path: "../../bin/sh"}, want: "is outside of"},
		{name: "short digest", spec: Spec{Name: "x", SHA256: "abcd"}, want: "drivers.x.sha256"},
		{name: "digest of letters", spec: Spec{Name: "x", SHA256: strings.Repeat("z", 64)}, want: "drivers.x.sha256"},
		{name: "cookie", spec: Spec{Name: "x", Env: map[string]string{"COMPUTE_DRIVER_COOKIE": "1"}},
			want: "cannot be set"},
		{name: "go-plugin's own", spec: Spec{Name: "x", Env: map[string]string{"PLUGIN_CLIENT_CERT": "1"}},
			want: "cannot be set"},
		{name: "no variable", spec: Spec{Name: "x", Env: map[string]string{"A=B": "1"}},
			want: "not an environment variable"},
		{name: "bad configuration", spec: Spec{Name: "x", Config: []byte("{")}, want: "drivers.x.config"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.spec.Complete("/plugins")
			if c.want != "" {
				testproc.ErrorHas(t, err, c.want, "want %q, got %v", c.want)
				return
			}
			if err != nil || got.Path != c.path || string(got.Config) != "{}" ||
				got.Timeouts.Update == 0 || got.Restart.Misses != 3 {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got := environment(
		[]string{"PATH=/bin", "HOME=/root", "LC_ALL=C",
			"LD_PRELOAD=/evil.so", "NOTIFY_SOCKET=/x", "LIBVIRT_DEBUG=1", "BROKEN", "OS_PASSWORD=s"},
		map[string]string{"HOME": "/var/lib/x", "EXTRA": "1"}, "PLUGIN_X=y")
	want := []string{"PATH=/bin", "HOME=/root", "LC_ALL=C",
		"LIBVIRT_DEBUG=1", "EXTRA=1", "HOME=/var/lib/x", "PLUGIN_X=y"}
	testproc.Same(t, cmp.Diff(want, got))
}

func TestRuntimeDirectory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	open := func(dir string) error {
		h, err := New(Options{RuntimeDir: dir, Logger: zerolog.Nop()})
		if err != nil {
			return err
		}
		return h.Close()
	}
	short := func(t *testing.T) string {
		dir := testproc.SocketDir(t)
		return dir
	}
	wants := func(t *testing.T, err error, words string) {
		t.Helper()
		if !errors.Is(err, ErrRuntimeDir) || !strings.Contains(err.Error(), words) {
			t.Errorf("want ErrRuntimeDir with %q, got %v", words, err)
		}
	}
	t.Run("too long", func(t *testing.T) {
		wants(t, open("/run/"+strings.Repeat("x", 60)), "at most 61 bytes")
	})
	t.Run("longest", func(t *testing.T) {
		dir := short(t)
		dir = filepath.Join(dir, strings.Repeat("x", 61-len(dir)-1))
		testproc.Check(t, os.Mkdir(dir, 0o700))
		testproc.NoError(t, open(dir))
	})
	t.Run("missing", func(t *testing.T) { wants(t, open("/nonexistent"), "no such file") })
	t.Run("not given", func(t *testing.T) { wants(t, open(""), "none is given") })
	t.Run("open to others", func(t *testing.T) {
		dir := short(t)
		testproc.Check(t, os.Mkdir(filepath.Join(dir, socketDirName), 0o755))
		testproc.Check(t, os.Chmod(filepath.Join(dir, socketDirName), 0o755))
		wants(t, open(dir), "mode 0755")
	})
	t.Run("in use", func(t *testing.T) {
		dir := short(t)
		h := testproc.Try(New(Options{RuntimeDir: dir, Logger: zerolog.Nop()})).Or(t)
		wants(t, open(dir), "another compute-agent")
		testproc.Check(t, h.Close())
		testproc.NoErrorf(t, open(dir), "after the other one has ended")
	})
}

func TestOnePluginPerName(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	testproc.Try(r.Plugin(Spec{Name: "a"})).Or(t)
	if _, err := r.Plugin(Spec{Name: "a"}); err == nil {
		t.Error("the same name twice")
	}
	if got := r.Status(); len(got) != 1 || got[0].State != Discovered {
		t.Errorf("status: %+v", got)
	}
}
