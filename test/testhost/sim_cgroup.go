// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// cgroupRoot is where control groups are mounted: the one hierarchy of version 2, or a
	// directory for each hierarchy of version 1.
	cgroupRoot = "/sys/fs/cgroup"
	// groupPrefix begins the name of a simulation's own control group, which is the same in all
	// hierarchies. The rest is the name of its directory.
	groupPrefix = "compute-agent-sim-"
	// dying bounds the end of a guest after SIGKILL, and the removal of its control groups.
	dying = time.Minute
	// clearing bounds the attempts to remove a control group, which is locked meanwhile.
	clearing = 5 * time.Second
	// making only ends a hang. It is much longer than clearing: other simulations clean up what
	// they take for abandoned, one after the other, also a group that is being made.
	making = 90 * time.Second
)

// hierarchy is one of control groups. Version 2 has one for all controllers, version 1 several.
type hierarchy struct {
	At      string // where it is mounted
	Root    string // which of its groups is mounted there; "/" but in a container without a namespace for them
	Version int
	// Options are its controllers, and name=NAME, among others.
	Options []string
}

// hierarchies parses /proc/PID/mountinfo (proc_pid_mountinfo(5)). Of several mounts on one
// directory the last counts.
func hierarchies(mountinfo string) (found []hierarchy) {
	for line := range strings.Lines(mountinfo) {
		mount, system, _ := strings.Cut(strings.TrimSpace(line), " - ")
		of, is := strings.Fields(mount), strings.Fields(system)
		if len(of) < 5 || len(is) < 3 || of[4] != cgroupRoot && !strings.HasPrefix(of[4], cgroupRoot+"/") {
			continue
		}
		found = slices.DeleteFunc(found,
			func(h hierarchy) bool { return h.At == of[4] || strings.HasPrefix(h.At, of[4]+"/") })
		switch is[0] {
		case "cgroup":
			found = append(found, hierarchy{At: of[4], Root: of[3], Version: 1, Options: strings.Split(is[2], ",")})
		case "cgroup2":
			found = append(found, hierarchy{At: of[4], Root: of[3], Version: 2})
		}
	}
	return found
}

// mountedHierarchies are those that this thread sees.
func mountedHierarchies() ([]hierarchy, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	return hierarchies(string(text)), nil
}

// groupOf is the directory of the group that a process is in, by what the kernel says in
// /proc/PID/cgroup. A process that is in none that is mounted gets the topmost that is.
func (h hierarchy) groupOf(text string) string {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		first, _, _ := strings.Cut(fields[1], ",")
		if (h.Version == 2) != (first == "") || h.Version == 1 && !slices.Contains(h.Options, first) {
			continue
		}
		if below, err := filepath.Rel(h.Root, fields[2]); err == nil && filepath.IsLocal(below) &&
			!strings.HasPrefix(fields[2], "/..") {
			return path.Join(h.At, below)
		}
	}
	return h.At
}

// members is the file that lists the members of a group, and adds one that is written to it. That
// is a thread in version 1, a process in version 2.
func (h hierarchy) members() string {
	if h.Version == 1 {
		return "tasks"
	}
	return "cgroup.procs"
}

// makeGroup makes a group at the top of the hierarchy. The group has an owner as long as the
// returned file, a lock, is open in some process.
func (h hierarchy) makeGroup(name string) (*os.File, error) {
	dir := filepath.Join(h.At, name)
	for deadline := time.Now().Add(making); ; time.Sleep(10 * time.Millisecond) {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		lock, err := lockGroup(dir)
		switch {
		case err == nil:
			return lock, h.furnish(dir)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errOwned):
			return nil, err
		case time.Now().After(deadline): // another process that cleans up was faster than our lock, again and again
			return nil, fmt.Errorf("making the control group %s: %w", dir, err)
		}
	}
}

// furnish prepares a new group: CPUs in version 1 before anything can enter it, and in version 2
// those controllers that libvirt uses and would get for itself at the top. libvirt works without
// those that are not available. Where the topmost group has processes, as in a container, it
// enables none: with one enabled no process could enter the new group.
func (h hierarchy) furnish(dir string) error {
	if h.Version == 2 {
		if h.hasProcesses() {
			return nil
		}
		for _, controller := range []string{"+cpu", "+cpuset", "+io", "+memory"} {
			_ = os.WriteFile(filepath.Join(h.At, "cgroup.subtree_control"), []byte(controller), 0)
		}
		return nil
	}
	if !slices.Contains(h.Options, "cpuset") {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(h.At, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasProcesses reports whether the topmost group that is mounted has processes and is not the root
// of the hierarchy, which may have both processes and controllers for the groups below.
func (h hierarchy) hasProcesses() bool {
	if _, err := os.Stat(filepath.Join(h.At, "cgroup.type")); err != nil {
		return false
	}
	text, err := os.ReadFile(filepath.Join(h.At, "cgroup.procs"))
	return err != nil || len(text) > 0
}

// errOwned means that the simulation that made a control group still runs.
var errOwned = errors.New("it has an owner")

// lockGroup opens a group whose owner has ended, and owns it.
func lockGroup(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errOwned
	}
	if err == nil { // it may have been removed, and even made again, before it was locked
		var opened, there fs.FileInfo
		if opened, err = f.Stat(); err == nil {
			there, err = os.Stat(dir)
		}
		if err == nil && !os.SameFile(opened, there) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// SimLeftovers returns the directories of control groups of simulations that were killed before
// they could clean up. The next simulation with emulators removes them, as far as it sees the
// guests' processes.
func SimLeftovers() ([]string, error) {
	mounted, err := mountedHierarchies()
	if err != nil {
		return nil, err
	}
	var left []string
	for _, h := range mounted {
		groups, err := filepath.Glob(filepath.Join(h.At, groupPrefix+"*"))
		if err != nil {
			return nil, err
		}
		for _, dir := range groups {
			if lock, err := lockGroup(dir); err == nil {
				left = append(left, dir)
				_ = lock.Close()
			}
		}
	}
	return left, nil
}

// sweep removes what earlier simulations left behind.
func sweep(until time.Time) error {
	left, err := SimLeftovers()
	return errors.Join(err, clearGroups(left, until))
}

// clearGroups removes groups that have no owner, and ends the processes in them. Missing groups and
// groups with an owner are no error.
func clearGroups(dirs []string, until time.Time) error {
	var errs []error
	for _, dir := range dirs {
		lock, err := lockGroup(dir)
		if err != nil {
			continue
		}
		errs = append(errs, removeGroup(dir, until), lock.Close())
	}
	return errors.Join(errs...)
}

// removeGroup ends the processes in a group and below it, and removes the groups. The kernel
// releases a killed process some time after its end, so it retries until the deadline.
func removeGroup(dir string, until time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		killGroup(dir)
		err := removeTree(dir)
		if err == nil || time.Now().After(until) {
			return err
		}
		time.Sleep(pause)
	}
}

// killGroup kills the processes in a group or below it that this PID namespace shows; with version
// 2 also the others.
func killGroup(dir string) {
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a group that was removed has no processes
		}
		text, err := os.ReadFile(filepath.Join(name, "cgroup.procs"))
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		for _, line := range strings.Fields(string(text)) {
			var pid int
			if _, err := fmt.Sscan(line, &pid); err == nil && pid > 1 && pid != os.Getpid() {
				_ = unix.Kill(pid, unix.SIGKILL) // what does not work shows when the group is removed
			}
		}
		return nil
	})
}

// awaitEnd waits until a process that was killed has ended.
func awaitEnd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for deadline := time.Now().Add(dying); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			int(max(time.Until(deadline), 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("guest %d does not end, not even by SIGKILL", pid)
		default:
			return nil
		}
	}
}

// removeTree removes a control group without processes, with all below it. One that is not there is
// fine.
func removeTree(dir string) error {
	var below []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			below = append(below, name)
		}
		return err
	})
	slices.Reverse(below)
	for _, name := range below {
		if err == nil {
			err = os.Remove(name)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
