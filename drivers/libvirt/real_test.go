// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// These tests have the real library below them: with its test driver, and with a real daemon of
// their own.

// noEmulators is a search path without QEMU: the daemon has nothing to question and answers at
// once.
const noEmulators = "/usr/sbin:/sbin"

func place(t *testing.T, searchPath string) libvirtd.Options {
	t.Helper()
	run := testproc.SocketDir(t)
	return libvirtd.Options{Dir: filepath.Join(t.TempDir(), "s"), RuntimeDir: run, SearchPath: searchPath,
		Logger: zerolog.New(zerolog.NewTestWriter(t))}
}

func privateDaemon(t *testing.T, o libvirtd.Options) *libvirtd.Daemon {
	t.Helper()
	d, err := libvirtd.StartPrivate(t.Context(), o)
	if errors.Is(err, libvirtd.ErrNotInstalled) {
		testproc.NotRun(t, err.Error())
	}
	testproc.Check(t, err)
	t.Cleanup(func() { stopDaemon(t, d) })
	return d
}

func stopDaemon(t *testing.T, d *libvirtd.Daemon) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testproc.Patience)
	defer cancel()
	testproc.NoError(t, d.Stop(ctx))
}

func TestRealReportThroughLibvirtsTestDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	file := filepath.Join(t.TempDir(), "node.xml")
	testproc.Check(t, os.WriteFile(file, []byte(h.NodeXML()), 0o600))
	r := newRig(t, h, hypervisor.OpenLibvirt, map[string]any{"uri": "test://" + file})
	root := r.mustPass(newTree(t))
	diff(t, "VCPU", inv(16, 0, 4), root.Inventories["VCPU"])
	diff(t, "MEMORY_MB", inv(32768, 512, 1), root.Inventories["MEMORY_MB"])
	if !root.HasTrait("HW_CPU_HYPERTHREADING") {
		t.Errorf("threads are known from sysfs where the test driver lists no cells: %v", root.Traits)
	}
}

func TestRealReportThroughLibvirtsDefaultHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t, testhost.Sample(), hypervisor.OpenLibvirt, map[string]any{"uri": "test:///default"})
	root := r.mustPass(newTree(t))
	diff(t, "VCPU", inv(16, 0, 4), root.Inventories["VCPU"])
	diff(t, "MEMORY_MB", inv(3*1024, 512, 1), root.Inventories["MEMORY_MB"])
}

// TestRealReportOfThisMachine: the machine itself, by a real daemon: what is reported is what the
// kernel says, where that can be said.
func TestRealReportOfThisMachine(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := privateDaemon(t, place(t, noEmulators))
	r := newRig(t, testhost.Sample(), hypervisor.OpenLibvirt,
		map[string]any{"uri": d.URI(), "chroot": "/", "reserved_host_memory_mb": 1})
	root := r.mustPass(newTree(t))
	online := testproc.Try(discovery.Root("/").OnlineCPUs()).Or(t)
	diff(t, "VCPU", inv(int64(len(online)), 0, 4), root.Inventories["VCPU"])
	diff(t, "DISK_GB", inv(df(t, r.instances), 0, 1), root.Inventories["DISK_GB"])
	if arch := map[string]string{"amd64": "HW_ARCH_X86_64", "arm64": "HW_ARCH_AARCH64"}[runtime.GOARCH]; arch != "" &&
		!root.HasTrait(arch) {
		t.Errorf("no %s in %v", arch, root.Traits)
	}
	if runtime.GOARCH == "amd64" && !root.HasTrait("HW_CPU_X86_SSE2") {
		t.Errorf("an amd64 machine without SSE2: %v", root.Traits)
	}
	if root.Inventories["MEMORY_MB"].Total < 100 {
		t.Errorf("memory %+v", root.Inventories["MEMORY_MB"])
	}
}

// TestRealReportOfEmulators: with emulators: what they can run is reported, and what was learnt
// about them is kept for the next start.
func TestRealReportOfEmulators(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if _, err := os.Stat("/usr/bin/qemu-system-x86_64"); err != nil {
		testproc.NotRun(t, "no QEMU (Debian package: qemu-system-x86)")
	}
	o := place(t, "")
	d := privateDaemon(t, o)
	start := time.Now()
	r := newRig(t, testhost.Sample(), hypervisor.OpenLibvirt, map[string]any{"uri": d.URI(), "chroot": "/"})
	tree := newTree(t)
	root := r.mustPass(tree)
	t.Logf("first two passes: %s", time.Since(start))
	if !slices.Contains(root.Traits, "COMPUTE_ARCH_X86_64") {
		t.Errorf("no COMPUTE_ARCH_X86_64 in %v", root.Traits)
	}
	var cached []string // how deep depends on whether the daemon is the system's or a session's
	err := filepath.WalkDir(filepath.Join(o.Dir, "cache"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".xml" && filepath.Base(filepath.Dir(path)) == "capabilities" {
			cached = append(cached, path)
		}
		return err
	})
	if err != nil || len(cached) == 0 {
		t.Errorf("nothing is kept of what the emulators can do (%v)", err)
	}
	stopDaemon(t, d)
	again := privateDaemon(t, o)
	start = time.Now()
	testproc.Check(t, r.configure(map[string]any{"uri": again.URI(), "chroot": "/"}))
	// The first connection broke; the pass after the next attempt works.
	eventually(t, func() error { _, err := r.pass(tree); return err })
	t.Logf("pass after the second start: %s", time.Since(start))
}

// TestRealDaemonRestarts: the daemon is stopped, goes on, is killed and comes back beneath the
// driver.
func TestRealDaemonRestarts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	o := place(t, noEmulators)
	d := privateDaemon(t, o)
	r := newRig(t, testhost.Sample(), hypervisor.OpenLibvirt,
		map[string]any{"uri": d.URI(), "chroot": "/", "call_timeout": "2s", "connect_timeout": "2s"})
	eventLog := r.watched()
	tree := newTree(t)
	eventually(t, func() error { _, err := r.pass(tree); return err })
	before := tree.Clone()
	<-eventLog

	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGSTOP))
	if _, err := r.pass(tree.Clone()); !errors.Is(err, plugins.ErrNotReady) || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("stopped: %v, want NotReady", err)
	}
	if err := r.Health(t.Context()); err == nil {
		t.Error("stopped, yet healthy")
	}
	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGCONT))
	eventually(t, func() error { _, err := r.pass(tree); return err })

	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGKILL))
	<-d.Done()
	eventually(t, func() error {
		if err := r.Health(t.Context()); err == nil {
			return errors.New("killed, yet healthy")
		}
		return nil
	})
	_, err := r.pass(tree.Clone())
	testproc.ErrorIs(t, err, plugins.ErrNotReady, "killed: %v")
	eventually(t, func() error { // the next attempt finds out why
		_, err := r.pass(tree.Clone())
		if !errors.Is(err, plugins.ErrNotReady) || !strings.Contains(err.Error(), "start the daemon") {
			return errors.New("killed, and no hint told: " + err.Error())
		}
		return nil
	})
	stopDaemon(t, d)

	privateDaemon(t, o)
	<-eventLog
	eventually(t, func() error { _, err := r.pass(tree); return err })
	memory, _ := before.Inventory(nodeUUID, "MEMORY_MB") // this machine's may be hot-plugged meanwhile
	testproc.Try(tree.SetInventory(nodeUUID, "MEMORY_MB", memory)).Or(t)
	if !tree.Equal(before) {
		t.Error("the tree changed on the way")
	}
}

func TestRealDriverAgainstTheMachinesOwnDaemon(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	uri, ok, why := libvirtd.Find(t.Context())
	if !ok {
		t.Skipf("no libvirt daemon runs on this machine (%s)", why)
	}
	driver := New()
	raw := testproc.Try(json.Marshal(map[string]any{"uri": uri, "reserved_host_memory_mb": 1})).Or(t)
	testproc.Check(t, driver.Configure(t.Context(), raw, plugins.HostInfo{Name: nodeName}))
	tree := newTree(t)
	if _, err := driver.UpdateProviderTree(t.Context(), tree, nodeName, nil); err != nil {
		t.Error(err)
	}
	testproc.NoError(t, driver.Shutdown(t.Context()))
}

// TestRealGuestsThroughLibvirtsTestDriver: one domain that Nova made, and one that another program
// created and that is off.
func TestRealGuestsThroughLibvirtsTestDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	file := filepath.Join(t.TempDir(), "node.xml")
	node := h.NodeXML(testhost.Domain{Name: "instance-00000001", UUID: guestUUID,
		Metadata: novaInstance, VCPUs: 1, MemoryMiB: 1},
		testhost.Domain{Name: "other", UUID: otherUUID, Off: true, VCPUs: 1, MemoryMiB: 1})
	testproc.Check(t, os.WriteFile(file, []byte(node), 0o600))
	r := newRig(t, h, hypervisor.OpenLibvirt, map[string]any{"uri": "test://" + file})
	got := testproc.Try(r.Guests(t.Context(), treeWithDisk(t), nodeName)).Or(t)
	slices.SortFunc(got, func(a, b plugins.Guest) int { return strings.Compare(a.UUID, b.UUID) })
	diff(t, "guests", []plugins.Guest{
		{
			UUID: guestUUID, Name: "instance-00000001", ProjectID: "9d3e4f5a", UserID: "2c5f0a1b", FromFlavor: true,
			Resources: providertree.ProviderResources{nodeUUID: {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20}},
		},
		{UUID: otherUUID, Name: "other", ResourcesUnknown: notNovas},
	}, got)
}

// TestRealCPUModels: libvirt's own models, whatever this machine is.
func TestRealCPUModels(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if runtime.GOARCH != "amd64" {
		t.Skip("the models are of x86")
	}
	if _, err := os.Stat("/usr/share/libvirt/cpu_map/index.xml"); err != nil {
		testproc.NotRun(t, err.Error())
	}
	d := privateDaemon(t, place(t, noEmulators))
	r := newRig(t, testhost.Sample(), hypervisor.OpenLibvirt, map[string]any{
		"uri": d.URI(), "chroot": "/", "reserved_host_memory_mb": 1, "cpu_mode": "custom",
		"cpu_models": []string{"nehalem"}, "cpu_model_extra_flags": []string{"-ssse3", "avx"},
	})
	traits := cpuTraits(r.mustPass(newTree(t)).Traits)
	diff(t, "traits", []string{"AVX", "MMX", "SSE", "SSE2", "SSE41", "SSE42"}, traits)
}
