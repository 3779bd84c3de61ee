// SPDX-License-Identifier: Apache-2.0

//go:build linux

package libvirtd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mountNamespace opens the mount namespace of a process; nil if it is ours or unknown. While it is
// open, its number is not reused: otherwise processes of an unrelated namespace could be taken for
// the daemon's.
func mountNamespace(pid int) *os.File {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return nil
	}
	if its, err := f.Stat(); err == nil {
		if ours, err := os.Stat("/proc/self/ns/mnt"); err == nil && !os.SameFile(its, ours) {
			return f
		}
	}
	_ = f.Close()
	return nil
}

// leftovers lists the processes that belong to the daemon, other than itself and its guests. They
// are recognized by the daemon's own mount namespace, or by an environment that points into the run
// directory.
func (d *Daemon) leftovers() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	guests := d.guests()
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == d.PID() || guests[pid] {
			continue
		}
		if d.owns(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (d *Daemon) owns(pid int) bool {
	if d.namespace != nil {
		ours, err := d.namespace.Stat()
		if err != nil {
			return false
		}
		its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		return err == nil && os.SameFile(its, ours)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for _, v := range bytes.Split(env, []byte{0}) {
		_, value, _ := strings.Cut(string(v), "=")
		if strings.HasPrefix(value, d.layout.stateLink()+"/") ||
			strings.HasPrefix(value, filepath.Join(d.layout.dir, "home")) {
			return true
		}
	}
	return false
}

// guests are the processes of running guests, as the daemon noted them.
func (d *Daemon) guests() map[int]bool {
	found := map[int]bool{}
	for _, pattern := range []string{
		filepath.Join(d.layout.run, "run", "qemu", "*.pid"),
		filepath.Join(d.layout.run, "libvirt", "qemu", "run", "*.pid"),
		filepath.Join(d.layout.run, "libvirt", "qemu", "*.pid"),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				found[pid] = true
			}
		}
	}
	return found
}
