// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// home is the directory of servers of this process, and the user they run as.
type home struct {
	dir string
	// as is nil if they run as the user of this process.
	as *syscall.Credential
	// alive is held open: the reaper acts when it is closed, however this process ends.
	alive *os.File
}

// unprivileged is the id of Debian's user and group that own nothing. Database servers refuse to
// run as root, and this user exists on every machine.
const unprivileged = 65534

// onDisk and inMemory make the directory at the first call, and start what removes it.
var (
	onDisk   = sync.OnceValues(func() (*home, error) { return newHome(os.TempDir(), "/tmp", "/var/tmp") })
	inMemory = sync.OnceValues(func() (*home, error) {
		const enough = 4 << 30 // for some hundred databases of PostgreSQL
		if !hasSpace(sharedMemory, enough) {
			return onDisk()
		}
		return newHome(sharedMemory)
	})
)

// newHome makes the directory below the first of some parents that can have it.
func newHome(parents ...string) (*home, error) {
	h := &home{}
	if os.Geteuid() == 0 {
		h.as = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
	}
	var problems []error
	for _, parent := range parents {
		dir, err := h.makeBelow(parent)
		if err == nil {
			h.dir = dir
			return h, h.startReaper()
		}
		problems = append(problems, err)
	}
	return nil, fmt.Errorf("making a directory for database servers: %w", errors.Join(problems...))
}

// longest is how long the path of the directory may be: sockets below it have at most 107 bytes.
const longest = 60

// makeBelow makes a directory that the user of the servers can reach and write to.
func (h *home) makeBelow(parent string) (string, error) {
	parent, err := filepath.EvalSymlinks(parent) // the reaper compares paths
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, "dbs")
	if err != nil {
		return "", err
	}
	err = h.give(dir)
	if err == nil && len(dir) > longest {
		err = fmt.Errorf("%s is too long a path for sockets below it", dir)
	}
	if err == nil {
		try := exec.Command("/bin/sh", "-c", `cd "$0" && [ -w . ]`, dir) //nolint:noctx // it ends at once
		try.SysProcAttr = &syscall.SysProcAttr{Credential: h.as}
		try.Dir = "/"
		if out, bad := try.CombinedOutput(); bad != nil {
			err = fmt.Errorf("the servers' user cannot reach %s: %w: %s", dir, bad, out)
		}
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// environment is that of the programs of a server: what is set for the tests does not matter. tmp
// is also where a server finds the programs that this package makes for it.
func environment(tmp string) []string {
	return []string{"PATH=" + tmp + ":/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "TMPDIR=" + tmp}
}

// give makes a file or directory the property of the servers' user.
func (h *home) give(path string) error {
	if h.as == nil {
		return nil
	}
	return os.Chown(path, int(h.as.Uid), int(h.as.Gid))
}

// sweep ends all processes that work below a directory, which is its first argument, removes the
// shared memory of killed PostgreSQL servers (the id is the second word of line 7 of
// postmaster.pid), the file systems that are mounted there, and the directory. It is a loop because
// a process may start another while it is being killed. Processes of servers are found by their
// working directory, as PostgreSQL's are in sessions of their own and overwrite their command lines
// and environments.
const sweep = `
while pids=$(find /proc -mindepth 2 -maxdepth 2 -name cwd -lname "$1/*" 2>/dev/null | cut -d/ -f3) && [ -n "$pids" ]; do
  kill -9 $pids 2>/dev/null
done
find "$1" -name postmaster.pid 2>/dev/null | while read -r file; do
  id=$(awk 'NR == 7 { print $2 }' "$file")
  [ -z "$id" ] || ipcrm -m "$id" 2>/dev/null
done
awk -v "dir=$1" '$2 == dir || index($2, dir "/") == 1 { print $2 }' /proc/mounts | while read -r at; do
  umount --lazy "$at"
done
rm -rf "$1"`

// remove ends all processes that work below a directory, and removes it.
func remove(dir string) error {
	cmd := exec.Command("/bin/sh", "-c", sweep, "sweep", dir) //nolint:noctx // a test that is over must not leave it
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("removing %s: %w: %s", dir, err, out)
	}
	return nil
}

// startReaper starts the process that ends the servers and removes their directory when this
// process has ended, also by SIGKILL or a timeout of the tests. The signal that the kernel sends
// when a parent dies (Pdeathsig) is no help: it comes when the parent's thread ends, which Go's
// threads may do at any time, and only to the first process of a server.
func (h *home) startReaper() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // the reaper has it
	const script = "trap '' HUP INT TERM\ncat >/dev/null\n" + sweep
	cmd := exec.Command("/bin/sh", "-c", script, "reaper", h.dir) //nolint:noctx // it outlives this process
	cmd.Dir, cmd.Stdin = "/", r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what is sent to the group of the tests is not for it
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return fmt.Errorf("starting what ends the database servers: %w", err)
	}
	h.alive = w
	return nil
}
