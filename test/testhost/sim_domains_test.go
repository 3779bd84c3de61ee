// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// need ends a test without a program.
func need(t *testing.T, program, debian string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		testproc.NotRun(t, fmt.Sprintf("%v (Debian package: %s)", err, debian))
	}
}

// TestRealGuestsWithMadeUpHardwareRun: a guest runs that is pinned to CPUs and a cell which this
// machine does not have, with a virtual GPU and a virtual function that do not exist. It outlives
// the daemon's restart, and not the simulation.
func TestRealGuestsWithMadeUpHardwareRun(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t, "qemu-system-x86_64", "qemu-system-x86")
	need(t, "virsh", "libvirt-clients")
	s := SimForTest(t, GPUHost(), SimOptions{Passthrough: true})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	const gpu, nic, id = "0000:c1:00.0", "0000:84:01.0", "c0ffee00-0000-4000-8000-000000000001"
	guest := Domain{
		Name: "guest", UUID: "00000000-0000-4000-8000-000000000001", VCPUs: 2, MemoryMiB: 32,
		Mdevs: []string{id}, PCI: []string{nic},
		Pins: []Pin{{VCPU: 0, CPUs: []int{100}}, {VCPU: 1, CPUs: []int{228}}}, EmulatorPin: []int{96, 97},
		Memory: &MemoryPlacement{Mode: "strict",
			Cells: []int{3}, Nodes: []MemoryNode{{GuestCell: 0, Mode: "strict", Cells: []int{3}}}},
		GuestCells: []GuestCell{{VCPUs: []int{0, 1}, MemoryMiB: 32}},
	}
	must(s.Tree().Bind(nic, "vfio-pci"))
	must(s.Define(ctx, guest.XML("qemu")))
	if err := s.Boot(ctx, "guest"); !errors.Is(err, ErrRemotely) || !strings.Contains(err.Error(), id) {
		t.Errorf("booted without its virtual GPU: %v", err)
	}
	must(s.AddMdev(ctx, gpu, "nvidia-222", id, 900))
	must(s.Boot(ctx, "guest"))
	running := func() string {
		t.Helper()
		text, err := s.Virsh(ctx, "list", "--name")
		must(err)
		return strings.TrimSpace(text)
	}
	if got := running(); got != "guest" {
		t.Fatalf("%q run", got)
	}
	text, err := s.Virsh(ctx, "dumpxml", "guest")
	must(err)
	for _, part := range []string{id, "<vcpupin vcpu='1' cpuset='228'/>",
		"<memnode cellid='0' mode='strict' nodeset='3'/>", "<alias name='hostdev1'/>"} {
		testproc.Contains(t, text, part, "no %s in %s", part)
	}
	other := Domain{Name: "other", UUID: "00000000-0000-4000-8000-000000000002", VCPUs: 1,
		MemoryMiB: 16, Mdevs: []string{id}}
	must(s.Define(ctx, other.XML("qemu")))
	testproc.ErrorHas(t, s.Boot(ctx, "other"), "in use", "a second guest has the same virtual GPU: %v")
	// Its own one libvirt makes by itself.
	const own = "c0ffee00-0000-4000-8000-000000000002"
	file := filepath.Join(t.TempDir(), "device.xml")
	must(os.WriteFile(file,
		[]byte("<device><parent>"+NodeDeviceName(gpu)+"</parent><capability type='mdev'><type id='nvidia-222'/><uuid>"+
			own+"</uuid></capability></device>"), 0o600))
	_, err = s.Virsh(ctx, "nodedev-create", file)
	must(err)
	other.Mdevs = []string{own}
	must(s.Define(ctx, other.XML("qemu")))
	must(s.Boot(ctx, "other"))
	must(s.Destroy(ctx, "other"))
	must(s.Restart(ctx))
	testproc.Equal(t, running(), "guest", "%q run after the daemon's restart")
	must(s.Destroy(ctx, "guest"))
	must(s.Undefine(ctx, "guest"))
	if text, err := s.Virsh(ctx, "list", "--all", "--name"); err != nil || strings.TrimSpace(text) != "other" {
		t.Errorf("%q are left, %v", text, err)
	}
}

func TestRealWhatDomainsNeed(t *testing.T) {
	need(t, "virsh", "libvirt-clients")
	s := SimForTest(t, SingleNode(), SimOptions{})
	guest := Domain{Name: "guest", UUID: "00000000-0000-4000-8000-000000000001", VCPUs: 1, MemoryMiB: 16}
	testproc.ErrorIs(t, s.Define(t.Context(), guest.XML("qemu")), ErrRemotely, "defined without emulators: %v")
	if err := s.Boot(t.Context(), "guest"); !errors.Is(err, ErrRemotely) || !strings.Contains(err.Error(), "guest") {
		t.Errorf("booted: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	testproc.Try(s.Virsh(t.Context(), "list")).ErrorIs(t, ErrNoVirsh, "%v")
}

// TestEmulatorWrapper: the emulator in front passes all arguments on, without made-up devices, and
// reserves no memory.
func TestEmulatorWrapper(t *testing.T) {
	realDir, dir := t.TempDir(), filepath.Join(t.TempDir(), "front")
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"
	testproc.Check(t, testproc.WriteExecutable(filepath.Join(realDir, "qemu-system-x86_64"), []byte(script)))
	t.Setenv("PATH", realDir)
	testproc.Check(t, emulators(dir))
	front := filepath.Join(dir, "qemu-system-x86_64")
	first := testproc.Try(os.Stat(front)).Or(t)
	testproc.Check(t, emulators(dir))
	if again, err := os.Stat(front); err != nil || !again.ModTime().Equal(first.ModTime()) {
		t.Errorf("it was rewritten, and libvirt would ask it everything again: %v", err)
	}
	given := []string{
		"-name", "guest=a b,debug-threads=on", "-device",
		`{"driver":"vfio-pci","id":"hostdev0","sysfsdev":"/sys/bus/mdev/devices/x"}`,
		"-device", `{"driver":"virtio-balloon-pci"}`, "", "*", "-device", "vfio-pci,host=0000:84:01.0", "-S",
		"-object", `{"qom-type":"memory-backend-ram","id":"pc.ram","size":8589934592}`, "-device",
	}
	out := testproc.Try(exec.CommandContext(t.Context(), front, given...).Output()).Or(t)
	want := []string{
		"-name", "guest=a b,debug-threads=on", "-device", `{"driver":"virtio-balloon-pci"}`, "", "*", "-S",
		"-object", `{"qom-type":"memory-backend-ram","id":"pc.ram","size":8589934592,"reserve":false}`, "-device", "",
	}
	testproc.Same(t, cmp.Diff(want, strings.Split(string(out), "\n")))
}

// TestRealMachineDevicesStayInNamespace: this machine's /dev is not to be found in what is removed
// at the end.
func TestRealMachineDevicesStayInNamespace(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t, "qemu-system-x86_64", "qemu-system-x86")
	s := SimForTest(t, Sample(), SimOptions{Passthrough: true})
	for name, want := range map[string]bool{
		"/dev/null": true, "/dev/vfio/40": true, // in the namespace
		filepath.Join(filepath.Dir(s.Root()), "staging", "null"): false,
	} {
		inside := fmt.Sprintf("/proc/%d/root%s", s.PID(), name)
		if _, err := os.Stat(inside); (err == nil) != want {
			t.Errorf("%s: %v, want there %v", inside, err, want)
		}
	}
	if left, err := os.ReadDir(filepath.Join(filepath.Dir(s.Root()), "staging")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/udev/control", s.PID())); err != nil {
		t.Errorf("libudev will hear of no event: %v", err)
	}
	if _, err := os.Stat("/dev/vfio/40"); err == nil {
		t.Error("the made-up node is in this machine's /dev")
	}
}

// TestRealNothingIsMountedInStaging: of what /dev was made from nothing is left in the daemon's
// mount table. libvirt does not start guests, nor itself, where it finds file systems of huge pages
// there in directories that were removed; systemd mounts one at /dev/hugepages.
func TestRealNothingIsMountedInStaging(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := SimForTest(t, SingleNode(), SimOptions{Passthrough: true})
	mounts := testproc.Try(os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.PID()))).Or(t)
	if !strings.Contains(string(mounts), " /dev/vfio") && !strings.Contains(string(mounts), " /dev ") {
		t.Fatalf("no /dev was made, so this test shows nothing:\n%s", mounts)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "/staging") {
			t.Errorf("left behind: %s", line)
		}
	}
}
