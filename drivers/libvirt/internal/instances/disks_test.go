// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/qcow2"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// layer is an image in the format qcow2 over another one, or alone.
func layer(t *testing.T, file string, size uint64, alone bool) {
	t.Helper()
	f, err := os.Create(file)
	testproc.Check(t, err)
	testproc.Check(t, qcow2.WriteOverlay(f, size, "/etc/shadow", "raw"))
	if alone {
		_, err = f.WriteAt(make([]byte, 12), 8)
	}
	testproc.Check(t, errors.Join(err, f.Close()))
}

// TestImages: an image is a file of its name in one directory, whatever the name is.
func TestImages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		for _, imagesType := range []string{"qcow2", "raw"} {
			r := newRig(t, Config{ImagesType: imagesType})
			in := func(name string) string { return filepath.Join(r.images, name) }
			r.write(in("raw"), "hello")
			r.write(filepath.Join(filepath.Dir(r.images), "outside"), "secret")
			layer(t, in("alone.qcow2"), 1<<30, true)
			layer(t, in("large.qcow2"), 1<<30+512, true)
			layer(t, in("linked.qcow2"), 1<<20, false)
			r.write(in("cut.qcow2"), "QFI\xfb")
			testproc.Check(t, errors.Join(os.Mkdir(in("dir"), 0o700), os.Symlink("raw", in("link")),
				os.Symlink("../outside", in("out")), syscall.Mkfifo(in("pipe"), 0o600)))
			for name, want := range map[string]string{ // the format of the disk, "" for none
				"raw": imagesType, "link": imagesType, "alone.qcow2": map[string]string{"qcow2": "qcow2"}[imagesType],
				"large.qcow2": "", "linked.qcow2": "", "cut.qcow2": "",
				"dir": "", "out": "", "pipe": "", ".": "", "..": "", "../outside": "", "/etc/passwd": "", "nothing": "",
				"a\x00b": "", "a\nb": "", strings.Repeat("x", 300): "",
			} {
				spec := request(1)
				spec.Image = name
				checked := r.check(spec)
				diff(t, name+", checked", []string(nil), r.left())
				_, err := r.spawn(spec)
				if (checked == nil) != (err == nil) || err != nil && checked.Error() != err.Error() {
					t.Errorf("%s: image %.20q: the check says %v, and the spawn %v", imagesType, name, checked, err)
				}
				if want == "" {
					if !isFault(err) {
						t.Errorf("%s: image %.20q: %v, want a fault", imagesType, name, err)
					}
					diff(t, name, []string(nil), r.left())
					continue
				}
				if err != nil {
					t.Errorf("%s: image %q: %v", imagesType, name, err)
					continue
				}
				if x := r.domains[id(1)].XML; !strings.Contains(x, `type="`+want+`"`) {
					t.Errorf("%s: image %q: no disk of the type in %s", imagesType, name, x)
				}
				testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
			}
			diff(t, "the image", "hello", contents(t, in("raw")))
		}
	})
}

func contents(t *testing.T, file string) string {
	t.Helper()
	text := testproc.Try(os.ReadFile(file)).Or(t)
	return string(text)
}

// TestUnusableImages: the directory of images is on a file system that is not mounted: that passes.
func TestUnusableImages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{ImagesPath: "/nonexistent/images"})
		spec := request(1)
		spec.Image = "cirros"
		testproc.Try(r.spawn(spec)).ErrorIs(t, plugins.ErrNotReady, "%v")
		spec.Image = "" // needs none
		r.mustSpawn(spec)
	})
}

func TestDisks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{ImagesType: "raw"})
		data := append(bytes.Repeat([]byte("x"), 3<<20), make([]byte, 5<<20)...)
		data = append(data, "end"...)
		r.write(filepath.Join(r.images, "image"), string(data))
		spec := request(1)
		spec.Image = "image"
		spec.Flavor.EphemeralGB = 2
		spec.Allocations[rootUUID]["DISK_GB"] = 4
		r.mustSpawn(spec)
		dir := filepath.Join(r.dir, domain.Name(id(1)))
		for name, want := range map[string]struct {
			size  int64
			holds string
		}{
			rootDisk: {1 << 30, string(data)}, ephemeralDisk: {2 << 30, "\x00\x00"}, swapDisk: {64 << 20, ""},
			seedDisk: {1 << 20, "\xeb\x3c\x90"},
		} {
			f := testproc.Try(os.Open(filepath.Join(dir, name))).Or(t)
			info := testproc.Try(f.Stat()).Or(t)
			testproc.Equal(t, info.Size(), want.size, "%s has %d bytes", name)
			if blocks := info.Sys().(*syscall.Stat_t).Blocks * 512; blocks > int64(len(want.holds))+1<<20+1<<16 {
				t.Errorf("%s takes %d bytes", name, blocks)
			}
			got := make([]byte, len(want.holds))
			if _, err := f.Read(got); err != nil && len(got) > 0 || string(got) != want.holds {
				t.Errorf("%s holds something else (%v)", name, err)
			}
			if name == swapDisk {
				page := make([]byte, 4096)
				if _, err := f.ReadAt(page, 0); err != nil || string(page[4086:]) != "SWAPSPACE2" || page[1024] != 1 ||
					page[1028] != 0xff || page[1029] != 0x3f {
					t.Errorf("%q, %v", page[1024:1040], err)
				}
			}
			testproc.NoError(t, f.Close())
		}
		if r.domains[id(1)] == nil || !strings.Contains(r.domains[id(1)].XML, seedDisk) ||
			!strings.Contains(r.domains[id(1)].XML, "<readonly>") {
			t.Error("no seed in the domain")
		}
	})
}

// TestCancelledCopyLeavesNoFile: a copy stops when its caller no longer waits for it.
func TestCancelledCopyLeavesNoFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ctx, cancel := context.WithCancel(t.Context())
	f := testproc.Try(os.Create(filepath.Join(t.TempDir(), "disk"))).Or(t)
	defer func() { _ = f.Close() }()
	n := 0
	endless := reader(func(p []byte) (int, error) {
		if n += len(p); n > 3<<20 {
			cancel()
		}
		return len(p), nil
	})
	testproc.ErrorIs(t, copySparse(ctx, f, endless), context.Canceled, "%v")
}

type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

func TestConfig(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		config Config
		key    string
	}{
		{Config{}, ""},
		{Config{ImagesPath: "/srv/images", ImagesType: "raw", VirtType: "kvm", ShutdownTimeout: "0s"}, ""},
		{Config{ImagesPath: "images"}, "instances.images_path"},
		{Config{ImagesPath: "/srv/../etc"}, "instances.images_path"},
		{Config{ImagesType: "rbd"}, "instances.images_type"},
		{Config{VirtType: "lxc"}, "instances.virt_type"},
		{Config{ShutdownTimeout: "60"}, "instances.shutdown_timeout"},
		{Config{ShutdownTimeout: "-1s"}, "instances.shutdown_timeout"},
		{Config{ShutdownTimeout: "2h"}, "instances.shutdown_timeout"},
	} {
		_, err := Parse(c.config)
		var bad *plugins.ConfigError
		if errors.As(err, &bad) != (c.key != "") || bad != nil && bad.Key != c.key {
			t.Errorf("%+v: %v", c.config, err)
		}
	}
	for virt, want := range map[string][2]string{"": {"qemu", "kvm"}, "auto": {"qemu", "kvm"},
		"kvm": {"kvm", "kvm"}, "qemu": {"qemu", "qemu"}} {
		s := testproc.Try(Parse(Config{VirtType: virt})).Or(t)
		diff(t, virt, want, [2]string{s.domainType(Host{}), s.domainType(Host{KVM: true})})
	}
}
