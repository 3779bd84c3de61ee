// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownGroups are the control groups of one simulation: one in each hierarchy, which its daemon takes
// for the topmost. So several simulations may have guests of the same name and number, and none of
// them is seen by a libvirtd of this machine. They are handed on when the keeper becomes another
// program.
type ownGroups struct {
	Name string
	Of   []ownGroup
}

// ownGroup is that in one hierarchy.
type ownGroup struct {
	Hierarchy hierarchy
	// Top and Lock are the numbers of open files: the directory in which the group is, for when
	// something else is mounted there, and its lock. -1 if no group can be made in the hierarchy,
	// as in a container that has it read-only: libvirt does not see it then, and starts guests
	// without it.
	Top, Lock int
}

func (g ownGroup) dir(name string) string { return filepath.Join(g.Hierarchy.At, name) }

// makeGroups makes the groups, after it removed those that killed simulations left behind.
func makeGroups(name string) (_ *ownGroups, err error) {
	_ = sweep(time.Now().Add(clearing)) // a process that survives may be in a PID namespace that this one does not see
	mounted, err := mountedHierarchies()
	if err != nil {
		return nil, err
	}
	g := &ownGroups{Name: name}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove(time.Now().Add(clearing)))
		}
	}()
	for _, h := range mounted {
		lock, err := h.makeGroup(name)
		if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
			g.Of = append(g.Of, ownGroup{h, -1, -1})
			continue
		}
		var top *os.File
		if err == nil {
			top, err = os.Open(h.At)
		}
		if err != nil {
			return nil, fmt.Errorf("control groups of its own: %w", err)
		}
		own := ownGroup{h, -1, -1}
		if own.Top, err = keepOpen(top); err != nil {
			return nil, err
		}
		if own.Lock, err = keepOpen(lock); err != nil {
			return nil, err
		}
		g.Of = append(g.Of, own)
	}
	return g, nil
}

// keepOpen is the file under another number, which stays open when this process becomes another
// program.
func keepOpen(f *os.File) (int, error) {
	number, err := unix.Dup(int(f.Fd()))
	return number, errors.Join(err, f.Close())
}

// keeperGroup is the name of the group below the simulation's own in which version 2 has the keeper
// and the daemon.
const keeperGroup = "keeper"

// enter gives the calling thread a namespace of control groups in which these are the topmost, so
// that what the kernel says in /proc/PID/cgroup of a guest fits what is mounted: libvirt finds its
// guests by that after it was restarted.
//
// In version 1 the thread is in its former groups again in the end, with whatever limits they have.
// In version 2 it is in a group below its own: a group has no processes when those below have
// controllers, and where it is mounted with nsdelegate, as systemd does, nothing in the namespace
// may move a process into it from outside, as libvirt does with each guest that it starts
// (cgroups(7), cgroup_namespaces(7)).
//
// The thread must be locked to the goroutine.
func (g *ownGroups) enter() error {
	before, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return err
	}
	move := func(h hierarchy, dir string) error {
		return os.WriteFile(filepath.Join(dir, h.members()), []byte("0"), 0) // the writer
	}
	var errs []error
	for _, own := range g.Of {
		if own.Lock >= 0 {
			errs = append(errs, move(own.Hierarchy, own.dir(g.Name)))
		}
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, unix.Unshare(unix.CLONE_NEWCGROUP))
	}
	for _, own := range g.Of {
		switch {
		case own.Lock < 0:
		case own.Hierarchy.Version == 1:
			errs = append(errs, move(own.Hierarchy, own.Hierarchy.groupOf(string(before))))
		default:
			in := filepath.Join(own.dir(g.Name), keeperGroup)
			errs = append(errs, os.Mkdir(in, 0o755), move(own.Hierarchy, in))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("control groups of its own: %w", err)
	}
	return nil
}

// begin makes this process the keeper in a namespace of its control groups. It executes this
// program again, because single threads enter such a namespace, and all of them have to. It returns
// only an error.
func begin(settings keeperSettings, again func(keeperSettings) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var err error
	if settings.Groups, err = makeGroups(groupPrefix + filepath.Base(settings.Dir)); err != nil {
		return err
	}
	if err = settings.Groups.enter(); err == nil {
		err = again(settings)
	}
	return errors.Join(err, settings.Groups.remove(time.Now().Add(clearing)))
}

// hold keeps the open files from the programs that this one starts: the owner is the keeper alone.
func (g *ownGroups) hold() {
	for _, own := range g.Of {
		if own.Lock >= 0 {
			unix.CloseOnExec(own.Top)
			unix.CloseOnExec(own.Lock)
		}
	}
}

// mount shows the groups in a directory, as if they were all that there is, and unmounts the
// hierarchies that have none: libvirt finds in /proc/mounts also what is mounted below another file
// system, and fails to start a guest where a hierarchy is read-only.
func (g *ownGroups) mount(at string) error {
	var below []ownGroup
	for _, own := range g.Of {
		switch {
		case own.Lock < 0:
			if err := unix.Unmount(own.Hierarchy.At, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmounting control groups: %s: %w", own.Hierarchy.At, err)
			}
		case own.Hierarchy.At == cgroupRoot:
			return bind(own.dir(g.Name), at)
		default:
			below = append(below, own)
		}
	}
	if below == nil {
		return nil
	}
	if err := syscall.Mount("tmpfs", at, "tmpfs", syscall.MS_NOSUID, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mounting control groups: %w", err)
	}
	for _, own := range below {
		dir := filepath.Join(at, strings.TrimPrefix(own.Hierarchy.At, cgroupRoot))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := bind(own.dir(g.Name), dir); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := os.Readlink(filepath.Join(cgroupRoot, e.Name())) // cpu → cpu,cpuacct
		if err != nil {
			return err
		}
		if err := os.Symlink(target, filepath.Join(at, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func bind(from, at string) error {
	if err := syscall.Mount(from, at, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting control groups: %s: %w", from, err)
	}
	return nil
}

// remove ends the remaining processes in the groups of version 1, and removes the groups. It waits
// for the kernel to release them; groups that remain after that are an error. This process is in
// that of version 2: the one that started it removes that.
func (g *ownGroups) remove(until time.Time) error {
	var errs []error
	for _, own := range g.Of {
		if own.Lock < 0 {
			continue
		}
		if own.Hierarchy.Version == 1 {
			if err := removeGroup(fmt.Sprintf("/proc/self/fd/%d/%s", own.Top, g.Name), until); err != nil {
				errs = append(errs, fmt.Errorf("control groups are left in %s: %w", own.dir(g.Name), err))
			}
		}
		errs = append(errs, unix.Close(own.Lock), unix.Close(own.Top))
	}
	g.Of = nil
	return errors.Join(errs...)
}
