// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestHierarchies(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		mountinfo, groups string
		want              map[string]string // where mounted → the process's group
	}{
		"version 2": {
			"30 25 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
			"0::/system.slice/ssh.service\n",
			map[string]string{"/sys/fs/cgroup": "/sys/fs/cgroup/system.slice/ssh.service"},
		},
		"version 1, with both": {
			"31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n" +
				"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 master:4 - cgroup cgroup rw,cpu,cpuacct\n" +
				"33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
				"34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"3:cpu,cpuacct:/jobs/1\n2:name=systemd:/\n0::/user\n",
			map[string]string{
				"/sys/fs/cgroup/cpu,cpuacct": "/sys/fs/cgroup/cpu,cpuacct/jobs/1",
				"/sys/fs/cgroup/systemd":     "/sys/fs/cgroup/systemd",
				"/sys/fs/cgroup/unified":     "/sys/fs/cgroup/unified/user",
			},
		},
		"a container that sees its own part": {
			"9 8 0:28 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "3:cpu:/docker/1/init\n",
			map[string]string{"/sys/fs/cgroup/cpu": "/sys/fs/cgroup/cpu/init"},
		},
		"outside of what is mounted": {
			"9 8 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"0::/../other\n", map[string]string{"/sys/fs/cgroup": "/sys/fs/cgroup"},
		},
		"beside what is mounted": {
			"9 8 0:28 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"0::/docker/12\n", map[string]string{"/sys/fs/cgroup": "/sys/fs/cgroup"},
		},
		"one over the other": {
			"8 1 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n9 1 0:29 / /sys/fs/cgroup rw - tmpfs tmpfs " +
				"rw\n10 9 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
			"3:cpu:/a\n4:pids:/b\n", map[string]string{"/sys/fs/cgroup/pids": "/sys/fs/cgroup/pids/b"},
		},
		"elsewhere":    {"9 8 0:28 / /mnt/cgroup rw - cgroup2 cgroup2 rw\n", "0::/\n", nil},
		"other things": {"\n9 8\n - \n9 8 0:1 / /sys/fs/cgroup rw\n", "x\n::\n", nil},
		"no controller": {
			"9 8 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
			"x\n3:cpuset:/a\n", map[string]string{"/sys/fs/cgroup/cpu": "/sys/fs/cgroup/cpu"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string]string
			for _, h := range hierarchies(c.mountinfo) {
				if got == nil {
					got = map[string]string{}
				}
				got[h.At] = h.groupOf(c.groups)
			}
			testproc.Same(t, cmp.Diff(c.want, got))
		})
	}
}

func TestRemoveTree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := filepath.Join(t.TempDir(), "qemu-1-web.libvirt-qemu")
	testproc.Check(t, os.MkdirAll(filepath.Join(dir, "vcpu0", "below"), 0o755))
	for range 2 { // the second time it is not there
		testproc.NoError(t, removeTree(dir))
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
}

// groups are a simulation's own, as they are seen from outside.
func (s *Sim) groups(t *testing.T) (dirs []string) {
	t.Helper()
	mounted := testproc.Try(mountedHierarchies()).Or(t)
	for _, h := range mounted {
		dir := filepath.Join(h.At, groupPrefix+filepath.Base(s.dir))
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// guests are the directories of the guests in them.
func (s *Sim) guests(t *testing.T) (dirs []string) {
	t.Helper()
	for _, dir := range s.groups(t) {
		found := testproc.Try(filepath.Glob(filepath.Join(dir, "machine", "qemu-*"))).Or(t)
		dirs = append(dirs, found...)
	}
	return dirs
}

// boot defines and boots guests, and returns their processes.
func (s *Sim) boot(t *testing.T, names ...string) (pids []int) {
	t.Helper()
	for i, name := range names {
		d := Domain{Name: name, UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1), VCPUs: 2, MemoryMiB: 16}
		if err := errors.Join(s.Define(t.Context(), d.XML("qemu")), s.Boot(t.Context(), name)); err != nil {
			t.Error(err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.dir, "run", "run", "qemu", name+".pid"))
		var pid int
		if err == nil {
			_, err = fmt.Sscan(string(text), &pid)
		}
		testproc.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// needGroups ends a test if libvirt makes no control groups for guests, as where version 2 is
// mounted and has no controllers.
func (s *Sim) needGroups(t *testing.T) {
	t.Helper()
	if len(s.guests(t)) > 0 {
		return
	}
	testproc.NotRun(t, fmt.Sprintf("no guest has a control group in %q", s.groups(t)))
}

// gone reports whether a process has ended, or is about to: the one that buries it may take its
// time.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

// TestRealSimulationsWithEqualGuests: two simulations at once have guests of the same names and
// numbers, and neither knows of the other's.
func TestRealSimulationsWithEqualGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t, "virsh", "libvirt-clients")
	need(t, "qemu-system-x86_64", "qemu-system-x86")
	sims := []*Sim{
		SimForTest(t, SingleNode(), SimOptions{Emulators: true}),
		SimForTest(t, Sample(), SimOptions{Passthrough: true}),
	}
	pids := make([][]int, len(sims))
	var both sync.WaitGroup
	for i, s := range sims {
		both.Go(func() { pids[i] = s.boot(t, "guest", "second") })
	}
	both.Wait()
	if t.Failed() {
		t.FailNow()
	}
	before := testproc.Try(os.ReadFile("/proc/self/cgroup")).Or(t)
	for i, s := range sims {
		s.needGroups(t)
		now, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", s.PID()))
		if err != nil || version1(string(now)) != version1(string(before)) {
			t.Errorf("the daemon is in %s, and its parent in %s: limits are not kept (%v)", now, before, err)
		}
		// The names and numbers are libvirt's way to find a guest that runs already.
		testproc.Check(t, s.Restart(t.Context()))
		for _, ask := range [][]string{{"schedinfo", "guest"}, {"vcpuinfo", "guest"}} {
			s.askUntilAnswered(t, ask...)
		}
		if _, err := s.Virsh(t.Context(), "schedinfo",
			"guest", "--set", fmt.Sprintf("cpu_shares=%d", 700+i)); err != nil {
			t.Errorf("after the restart: %v", err)
		}
		testproc.NoError(t, s.Destroy(t.Context(), "second"))
		testproc.Eventually(t, testproc.Patience, "nothing is left of what ended in order", func() error {
			for _, dir := range s.guests(t) { // the kernel removes them when all processes are gone
				if strings.Contains(dir, "second") {
					return errors.New(dir)
				}
			}
			return nil
		})
	}
	for i, s := range sims {
		testproc.NoError(t, s.Close(t.Context()))
		if left := s.groups(t); left != nil {
			t.Errorf("%q is left", left)
		}
		if !gone(pids[i][0]) {
			t.Errorf("the guest runs on as %d", pids[i][0])
		}
		if i == 0 && (len(sims[1].guests(t)) == 0 || gone(pids[1][0])) {
			t.Error("the end of one was that of the other")
		}
	}
}

// version1 is what /proc/PID/cgroup says of version 1.
func version1(text string) (lines string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "0::") {
			lines += line
		}
	}
	return lines
}

// askUntilAnswered asks a daemon that was started a moment ago: it looks for its running guests
// while it answers already.
func (s *Sim) askUntilAnswered(t *testing.T, ask ...string) {
	t.Helper()
	testproc.Eventually(t, testproc.Patience, "an answer after the restart", func() error {
		_, err := s.Virsh(t.Context(), ask...)
		return err
	})
}

// TestRealKilledKeeper: a keeper that is killed cannot clean up. Close does, or else the next
// simulation.
func TestRealKilledKeeper(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t, "virsh", "libvirt-clients")
	need(t, "qemu-system-x86_64", "qemu-system-x86")
	for name, end := range map[string]func(*testing.T, *Sim){
		"closed": func(t *testing.T, s *Sim) {
			testproc.ErrorHas(t, s.Close(t.Context()), "killed", "%v")
		},
		"followed by another": func(t *testing.T, _ *Sim) { SimForTest(t, SingleNode(), SimOptions{Emulators: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			s, pid := leftByKilled(t)
			end(t, s)
			if left := s.groups(t); left != nil {
				t.Errorf("%q is left", left)
			}
			if !gone(pid) {
				t.Errorf("the guest runs on as %d", pid)
			}
		})
	}
}

// leftByKilled returns a simulation whose keeper was killed, and the process of its guest, which is
// left. A simulation of another test binary that starts at that moment removes it; then there is a
// next try.
func leftByKilled(t *testing.T) (s *Sim, pid int) {
	t.Helper()
	for try := 1; ; try++ {
		s = startToBeKilled(t)
		pids := s.boot(t, "guest")
		if len(pids) != 1 {
			t.FailNow()
		}
		s.needGroups(t)
		if left := abandoned(t, s); left != nil {
			t.Errorf("%q have no owner", left)
		}
		killed(t, s)
		if len(abandoned(t, s)) > 0 && !gone(pids[0]) {
			return s, pids[0]
		}
		if try == 5 {
			t.Fatalf("nothing is left of a keeper that was killed, so this test shows nothing: %q", s.groups(t))
		}
	}
}

// abandoned are its groups of which Leftovers tells.
func abandoned(t *testing.T, s *Sim) (dirs []string) {
	t.Helper()
	left := testproc.Try(SimLeftovers()).Or(t)
	for _, dir := range left {
		if filepath.Base(dir) == groupPrefix+filepath.Base(s.dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// startToBeKilled starts a simulation that ends with an error.
func startToBeKilled(t *testing.T) *Sim {
	t.Helper()
	SimForTest(t, SingleNode(), SimOptions{}) // says what is missing
	s := testproc.Try(StartSim(t.Context(), SingleNode(), SimOptions{Emulators: true})).Or(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// killed kills the keeper, and waits until it and the daemon have ended.
func killed(t *testing.T, s *Sim) {
	t.Helper()
	daemon := testproc.Try(unix.PidfdOpen(s.PID(), 0)).Or(t)
	defer func() { _ = unix.Close(daemon) }()
	keeper := testproc.Try(unix.PidfdOpen(s.keeper.Pid, 0)).Or(t)
	defer func() { _ = unix.Close(keeper) }()
	testproc.Check(t, s.keeper.Kill())
	for _, fd := range []int{keeper, daemon} {
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
				-1); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}

// TestClearGroups: processes in a group are ended with it, wherever they are in it, and a group
// with an owner stays.
func TestClearGroups(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	mounted := testproc.Try(mountedHierarchies()).Or(t)
	if os.Geteuid() != 0 || len(mounted) == 0 {
		testproc.NotRun(t, "this needs root, and control groups that are mounted")
	}
	for _, h := range mounted {
		lock := testproc.Try(h.makeGroup(groupPrefix + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid()))).Or(t)
		dir := lock.Name()
		below := filepath.Join(dir, "below")
		testproc.Check(t, os.Mkdir(below, 0o755))
		sleeper := exec.CommandContext(t.Context(), "sleep", "1000")
		testproc.Check(t, sleeper.Start())
		in := below
		if len(h.Options) > 0 && strings.Contains(strings.Join(h.Options, " "), "cpuset") {
			in = dir // what is below needs CPUs first
		}
		testproc.NoError(t, os.WriteFile(filepath.Join(in, "cgroup.procs"), fmt.Append(nil, sleeper.Process.Pid), 0))
		testproc.NoError(t, clearGroups([]string{dir}, time.Now().Add(clearing)))
		if gone(sleeper.Process.Pid) {
			t.Errorf("%s has an owner, and was cleared", dir)
		}
		testproc.NoError(t, lock.Close())
		testproc.NoError(t, clearGroups([]string{dir}, time.Now().Add(clearing)))
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
		testproc.ErrorHas(t, sleeper.Wait(), "killed", "%s: %v", dir)
	}
}
