// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func tree(t *testing.T, files map[string]string) *Dir {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		testproc.Check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		var err error
		switch target, link := strings.CutPrefix(text, "-> "); {
		case link:
			err = os.Symlink(target, file)
		case text == "pipe":
			err = syscall.Mkfifo(file, 0o600)
		default:
			err = os.WriteFile(file, []byte(text), 0o600)
		}
		testproc.Check(t, err)
	}
	d := testproc.Try(OpenDir(dir)).Or(t)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestFilesAreReadAlongTheTreesOwnLinks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := tree(t, map[string]string{"sys/devices/a/vendor": "0x10de\n", "sys/bus/pci/a": "-> ../../devices/a",
		"sys/devices/a/driver": "-> ../../bus/pci/drivers/nvidia"})
	if text, err := d.Text("sys/bus/pci/a/vendor"); err != nil || text != "0x10de\n" {
		t.Errorf("%q, %v", text, err)
	}
	if target, err := d.Target("sys/bus/pci/a"); err != nil || target != "sys/devices/a" {
		t.Errorf("%q, %v", target, err)
	}
	sub := testproc.Try(d.Sub("sys/bus/pci/a")).Or(t)
	if base, err := sub.Base("driver"); err != nil || base != "nvidia" {
		t.Errorf("%q, %v", base, err)
	}
	if names, err := sub.Names("."); err != nil || !slices.Equal(names, []string{"driver", "vendor"}) {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := sub.Text("vendor"); err != nil {
		t.Error(err)
	}
	testproc.NoError(t, sub.Close())
	testproc.Equal(t, d.Files(), 3, "%d files")
}

func TestWhatIsNotRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := tree(t, map[string]string{
		"dir/file": "x", "pipe": "pipe", "absolute": "-> /etc/passwd", "above": "-> ../../../../../../etc/passwd",
		"loop": "-> loop", "dangling": "-> nothing",
		"huge": "x", "dir/up": "-> ../dir/file",
	})
	testproc.Check(t, os.Truncate(d.Path("huge"), maxFile+1))
	for name, want := range map[string]error{
		"none": fs.ErrNotExist, "dangling": fs.ErrNotExist, "dir": ErrNotRegular, "pipe": ErrNotRegular,
		"huge": ErrTooLarge, "loop": syscall.ELOOP, "dir/file/x": syscall.ENOTDIR,
		"absolute": nil, "above": nil, "../etc/passwd": nil, // that they lead out has no error of its own in package os
	} {
		_, err := d.Text(name)
		var p *fs.PathError
		if err == nil || want != nil && !errors.Is(err, want) || !errors.As(err, &p) || p.Path != d.Path(name) {
			t.Errorf("%s: %v, want %v, with the whole path", name, err, want)
		}
	}
	if _, err := d.Names("pipe"); err == nil {
		t.Error("a pipe was listed")
	}
	testproc.Try(d.Target("absolute")).ErrorHas(t, "/etc/passwd", "%v")
	if text, err := d.Text("dir/up"); err != nil || text != "x" {
		t.Errorf("a link that goes up and stays inside: %q, %v", text, err)
	}
	testproc.Try(OpenDir(filepath.Join(t.TempDir(), "none"))).ErrorIs(t, fs.ErrNotExist, "%v")
}
