// SPDX-License-Identifier: Apache-2.0

package sim

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

// cgroupRoot is where the keeper sees the control groups, which are this machine's.
const cgroupRoot = "/sys/fs/cgroup"

// dying is how long a guest may take to end after SIGKILL.
const dying = 10 * time.Second

// guestCgroups are the directories of the control groups that libvirt made for a guest, by what the kernel says in /proc/PID/cgroup. With the daemon gone
// nobody else removes them.
func guestCgroups(text string) (dirs []string) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		of, found := fields[2], false
		for ; of != "/" && of != "."; of = path.Dir(of) { // emulator, vcpu0 and the like are below
			if strings.HasPrefix(path.Base(of), "qemu-") && strings.HasSuffix(path.Base(of), ".libvirt-qemu") {
				found = true
				break
			}
		}
		if !found {
			continue
		}
		hierarchies := []string{strings.TrimPrefix(fields[1], "name=")}
		if fields[1] == "" { // version 2, alone or beside version 1
			hierarchies = []string{"", "unified"}
		}
		for _, h := range hierarchies {
			dirs = append(dirs, filepath.Join(cgroupRoot, h, of))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
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
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(time.Until(deadline), 0).Milliseconds()))
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

// removeCgroup removes a control group without processes, with all below it. One that is not there is fine.
func removeCgroup(dir string) error {
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
