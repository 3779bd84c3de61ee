// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// containerEnv has TestRealGuestsInAContainer run inside what it made.
const containerEnv = "COMPUTE_AGENT_SIM_CONTAINER"

// TestRealGuestsInAContainer: a container usually sees the control groups of its host read-only.
// Guests boot there without groups of their own.
func TestRealGuestsInAContainer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t, "virsh", "libvirt-clients")
	need(t, "qemu-system-x86_64", "qemu-system-x86")
	if os.Getenv(containerEnv) == "" {
		SimForTest(t, SingleNode(), SimOptions{}) // reports what is missing
		inside := exec.CommandContext(t.Context(),
			"/proc/self/exe", "-test.run=^TestRealGuestsInAContainer$", "-test.v")
		inside.Env = append(os.Environ(), containerEnv+"=1")
		inside.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if out, err := inside.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	mounted := testproc.Try(mountedHierarchies()).Or(t)
	testproc.Check(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, h := range mounted {
		testproc.Check(t, unix.Mount("", h.At, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	}
	s := SimForTest(t, SingleNode(), SimOptions{Emulators: true})
	if pids := s.boot(t, "guest"); len(pids) != 1 || gone(pids[0]) {
		t.Errorf("the guest does not run: %v", pids)
	}
	if groups := s.groups(t); groups != nil {
		t.Errorf("control groups were made where they are read-only: %q", groups)
	}
}
