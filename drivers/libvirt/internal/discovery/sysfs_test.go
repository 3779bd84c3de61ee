// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var presets = map[string]func() testhost.Host{
	"sample": testhost.Sample, "GPU host": testhost.GPUHost, "single node": testhost.SingleNode,
	"many cells": testhost.ManyCells, "variant drivers": variantDrivers,
}

// variantDrivers is the sample with virtual functions that drivers hand to guests: vfio-pci, one
// with an entry in vfio-dev, and, on an older kernel, one that goes by its name.
func variantDrivers() testhost.Host {
	h := testhost.Sample()
	vfs := h.Device("0000:06:00.0").VFs
	h.Device(vfs[0]).Driver = "vfio-pci"
	h.Device(vfs[1]).Driver, h.Device(vfs[1]).VFIO = "xe", "vfio0"
	h.Device(vfs[2]).Driver = "mlx5_vfio_pci"
	return h
}

func render(t testing.TB, h testhost.Host, dir string) testhost.Tree {
	t.Helper()
	return testproc.Try(h.Sysfs(dir)).Or(t)
}

func scratch(t testing.TB) string {
	t.Helper()
	dir := testproc.Try(testhost.Scratch()).Or(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestTheReaderSeesTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, host := range presets {
		t.Run(name, func(t *testing.T) {
			h := host()
			got := testproc.Try(Read(string(render(t, h, scratch(t))), nil)).Or(t)
			testproc.Same(t, cmp.Diff(truth(t, h), got, cmpopts.EquateEmpty()))
		})
	}
}

func TestTheReaderSeesAnyHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		h := testhost.Random().Draw(rt, "host")
		dir := testproc.Try(testhost.Scratch()).Or(rt)
		defer func() { _ = os.RemoveAll(dir) }()
		got := testproc.Try(Read(string(render(t, h, dir)), nil)).Or(rt)
		if diff := cmp.Diff(truth(t, h), got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// TestBrokenHosts: each broken host is an error that names the file.
func TestBrokenHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, b := range testhost.Breakages() {
		t.Run(b.Name, func(t *testing.T) {
			tree := render(t, testhost.Sample(), scratch(t))
			testproc.Check(t, b.Apply(tree))
			h, err := Read(string(tree), nil)
			if err == nil || !strings.Contains(err.Error(), b.File) || !strings.Contains(err.Error(), string(tree)) {
				t.Fatalf("%v, want an error that names %s", err, b.File)
			}
			testproc.Samef(t, cmp.Diff(Host{}, h), "a host beside an error")
			var known *HostError
			if !errors.As(err, &known) || !strings.HasSuffix(err.Error(), known.Hint()) ||
				!strings.Contains(known.Hint(), "If it persists") {
				t.Errorf("%v does not say what to do", err)
			}
			if strings.Count(err.Error(), known.Hint()) != 1 {
				t.Errorf("%v says so more than once", err)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			t.Log(err)
		})
	}
}

// TestBrokenDevices: what is wrong with one device takes out that device, and no more. The problem
// names the file and says what to do.
func TestBrokenDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, b := range testhost.DeviceBreakages() {
		t.Run(b.Name, func(t *testing.T) {
			host := testhost.Sample()
			tree := render(t, host, scratch(t))
			testproc.Check(t, b.Apply(tree))
			got := testproc.Try(Read(string(tree), nil)).Or(t)
			if len(got.Unread) != 1 || got.Unread[0].Name != b.Device {
				t.Fatalf("%+v, want %s", got.Unread, b.Device)
			}
			u := got.Unread[0]
			for _, says := range []string{b.File, string(tree), "is left out", "If it persists"} {
				if !strings.Contains(u.Problem, says) {
					t.Errorf("%s: want %q in it", u.Problem, says)
				}
			}
			if (u.Address == nil) == strings.HasPrefix(b.Device, "0000:") || len(u.Problem) > 1000 {
				t.Errorf("%+v", u)
			}
			want := truth(t, host)
			want.Devices = slices.DeleteFunc(want.Devices,
				func(d machine.Device) bool { return d.Address.String() == b.Device })
			got.Unread = nil
			testproc.Same(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))
			t.Log(u.Problem)
		})
	}
}

// sampleWithout renders the sample, where readers without privileges cannot read a file.
func sampleWithout(t *testing.T, file string) string {
	t.Helper()
	dir := scratch(t)
	tree := render(t, testhost.Sample(), dir)
	testproc.Check(t, os.Chmod(dir, 0o755))
	testproc.Check(t, testhost.Unreadable("", file).Apply(tree))
	return dir
}

// TestAnUnreadableDevice: where a reader has no rights, the hint is about these.
func TestAnUnreadableDevice(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const file = "sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/class"
	dir := sampleWithout(t, file)
	var h Host
	testproc.Check(t, unprivileged(func() (err error) { h, err = Read(dir, nil); return err }))
	if len(h.Unread) != 1 || !strings.Contains(h.Unread[0].Problem, file+": permission denied") ||
		!strings.Contains(h.Unread[0].Problem, "Let the agent's user read") {
		t.Errorf("%+v, want one that names %s", h.Unread, file)
	}
}

// TestOddCells: where cells share CPUs, or name some that are not online, the reader says so, with
// the likely cause, and has each CPU that is online in one cell.
func TestOddCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, b := range testhost.OddCells() {
		t.Run(b.Name, func(t *testing.T) {
			tree := render(t, testhost.Sample(), scratch(t))
			testproc.Check(t, b.Apply(tree))
			h := testproc.Try(Read(string(tree), nil)).Or(t)
			for _, says := range []string{b.File, b.Cause} {
				if h.Odd == nil || !strings.Contains(h.Odd.Error(), says) {
					t.Errorf("%v, want %q in it", h.Odd, says)
				}
			}
			online, inCells := 0, map[int]int{}
			for _, c := range h.CPUs {
				if c.Online {
					online++
				}
			}
			for _, cell := range h.Cells {
				for _, id := range cell.CPUs {
					if c := h.CPU(id); c == nil || !c.Online || c.Cell != cell.ID {
						t.Errorf("cell %d has CPU %d, which is %+v", cell.ID, id, c)
					}
					inCells[id]++
				}
			}
			if online != b.Online || len(inCells) != online {
				t.Errorf("%d CPUs are online, and %v in cells, want %d", online, inCells, b.Online)
			}
			if h.Machine("").Odd == nil {
				t.Error("the machine does not say so")
			}
			t.Log(h.Odd)
		})
	}
	if h := testproc.Try(Read(string(render(t, testhost.ManyCells(), scratch(t))), nil)).Or(t); h.Odd != nil {
		t.Errorf("%v: nothing is wrong with it", h.Odd)
	}
}

// TestBrokenEncryption: a host that contradicts itself about memory encryption is not one without
// it.
func TestBrokenEncryption(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const parameters = "sys/module/kvm_amd/parameters"
	for _, b := range []testhost.Breakage{
		testhost.Missing("no parameters", parameters),
		testhost.Text("SEV in words", parameters+"/sev", "perhaps\n"),
		testhost.Text("SEV-ES in words", parameters+"/sev_es", "perhaps\n"),
		testhost.Text("guests in words", "sys/fs/cgroup/misc.capacity", "sev many\n"),
	} {
		t.Run(b.Name, func(t *testing.T) {
			tree := render(t, testhost.GPUHost(), scratch(t))
			testproc.Check(t, b.Apply(tree))
			if _, err := Read(string(tree), nil); err == nil || !strings.Contains(err.Error(), tree.Path(b.File)) ||
				!strings.Contains(err.Error(), "If it persists") {
				t.Errorf("%v, want an error that names %s and a hint", err, b.File)
			}
		})
	}
}

// TestAnUnreadableFile: where a reader has no rights, the file is named, too. Root has all rights,
// and gives them up for a thread.
func TestAnUnreadableFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const file = "sys/devices/system/node/node1/meminfo"
	dir := sampleWithout(t, file)
	if err := unprivileged(func() error { _, err := Read(dir, nil); return err }); err == nil ||
		!strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "permission denied") ||
		!strings.Contains(err.Error(), "Let the agent's user read") {
		t.Errorf("%v, want one that names %s", err, file)
	}
}

func TestReadWithoutSys(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.Try(Read(filepath.Join(t.TempDir(), "none"), nil)).ErrorHas(t, "none", "%v")
	testproc.Try(Read(t.TempDir(), nil)).ErrorHas(t, "sys/devices/system/cpu", "%v")
}

// TestOnlyWantedTypesAreRead: only types that a caller asks for are read.
func TestOnlyWantedTypesAreRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tree := render(t, testhost.Sample(), scratch(t))
	testproc.Check(t, tree.Write(
		"sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0/mdev_supported_types/nvidia-231/available_instances",
		"broken"))
	r := testproc.Try(Open(string(tree))).Or(t)
	defer func() { _ = r.Close() }()
	before := r.Files()
	h, err := r.Read(func(id string) bool { return id == "nvidia-222" })
	if err != nil || len(h.Parents) != 2 || len(h.Parents[0].Types) != 1 || h.Parents[0].Types[0].Available != 15 ||
		len(h.Parents[0].Mdevs) != 1 {
		t.Errorf("%+v, %v", h.Parents, err)
	}
	if got := h.Machine("x86_64").Parents[0]; len(got.Types) != 1 || len(got.Others) != 1 ||
		got.Others[0] != "nvidia-231" {
		t.Errorf("%+v: it is not known any more what else there is", got)
	}
	some := r.Files() - before
	if _, err := r.Read(nil); err == nil {
		t.Error("a type is broken, and all are asked for")
	}
	none := r.Files()
	if _, err := r.Read(func(string) bool { return false }); err != nil || r.Files()-none != some-2*4 {
		t.Errorf("%v: %d files without types, %d with two of one", err, r.Files()-none, some)
	}
}

// TestDescriptions: a type's description is the vendor's, and need not be there.
func TestDescriptions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	tree := render(t, h, scratch(t))
	const types = "sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0/mdev_supported_types/"
	testproc.Check(t, errors.Join(tree.Remove(types+"nvidia-222/description"),
		tree.Write(types+"nvidia-231/description", "low_gm_size: 128MB\nresolution: 1920x1200\n")))
	read := testproc.Try(Read(string(tree), nil)).Or(t)
	var got []string
	for _, p := range read.Machine("x86_64").Parents {
		for _, kind := range p.Types {
			got = append(got, kind.Description)
		}
	}
	said := h.Device("0000:82:00.0").Types
	testproc.Same(t, cmp.Diff([]string{"", "low_gm_size: 128MB\nresolution: 1920x1200",
		said[0].Description, said[1].Description}, got))
	testproc.Check(t, testhost.Text("", types+"nvidia-231/description", strings.Repeat("x", maxFile+1)).Apply(tree))
	testproc.Try(Read(string(tree), nil)).ErrorHas(t, types+"nvidia-231/description", "endless: %v")
}

// TestFilesRead: the files read per host: the arithmetic of the package's comment holds, and does
// not grow unseen.
func TestFilesRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, want := range map[string]int{"sample": 120, "GPU host": 861, "single node": 25, "many cells": 108} {
		tree := render(t, presets[name](), scratch(t))
		r := testproc.Try(Open(string(tree))).Or(t)
		testproc.Try(r.Read(nil)).Or(t)
		if got := r.Files(); got != want {
			t.Errorf("%s: %d files, want %d", name, got, want)
		}
		testproc.NoError(t, r.Close())
	}
}

func TestNothingStaysOpen(t *testing.T) { // not in parallel: it counts what this process has open
	open := func() int {
		names := testproc.Try(os.ReadDir("/proc/self/fd")).Or(t)
		return len(names)
	}
	tree := render(t, testhost.Sample(), scratch(t))
	before := open()
	testproc.Try(Read(string(tree), nil)).Or(t)
	testproc.Check(t, tree.Write("sys/devices/system/node/node1/meminfo", "x"))
	if _, err := Read(string(tree), nil); err == nil {
		t.Fatal("no error")
	}
	if after := open(); after > before {
		t.Errorf("%d files are open, before %d", after, before)
	}
}

// TestThisMachine: this machine, whatever it is, can be read, and says what the kernel says
// elsewhere.
func TestThisMachine(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testproc.Try(Read("/", nil)).Or(t)
	online := 0
	for _, c := range h.CPUs {
		if c.Online {
			online++
		}
	}
	var set [128]uint64 // sched_getaffinity of all this process may use: at most what is online
	if n, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, uintptr(len(set)*8),
		affinity(&set)); errno != 0 || n == 0 {
		t.Fatal(errno)
	}
	usable := 0
	for id := range len(set) * 64 {
		if set[id/64]>>(id%64)&1 == 1 {
			usable++
			if c := h.CPU(id); c == nil || !c.Online {
				t.Errorf("this process runs on CPU %d, which is not online", id)
			}
		}
	}
	if usable == 0 || usable > online {
		t.Errorf("%d CPUs usable, %d online", usable, online)
	}
	t.Logf("%d CPUs, %d cells, %d devices", online, len(h.Cells), len(h.Devices))
}

func BenchmarkRead(b *testing.B) {
	for name, host := range presets {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			h := host()
			tree := render(b, h, scratch(b))
			b.ReportAllocs()
			files := 0
			for b.Loop() {
				r := testproc.Try(Open(string(tree))).Or(b)
				testproc.Try(r.Read(nil)).Or(b)
				files = r.Files()
				_ = r.Close()
			}
			b.ReportMetric(float64(files), "files/op")
			b.ReportMetric(float64(len(h.Devices)), "devices")
		})
	}
}

func BenchmarkParse(b *testing.B) {
	text := "Node 1 MemTotal:       16777216 kB\n" + strings.Repeat("Node 1 Other: 5 kB\n", 30)
	for b.Loop() {
		if _, err := memTotal(text, "Node 1 MemTotal:"); err != nil { // Try would cost more than it
			b.Fatal(err)
		}
	}
}

// unprivileged runs f without root's right to read everything. The thread that gave it up is not
// used again.
func unprivileged(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 &&
			errno != syscall.EPERM {
			done <- errno
			return
		}
		done <- f()
	}()
	return <-done
}

func affinity(set *[128]uint64) uintptr { return uintptr(unsafe.Pointer(set)) }
