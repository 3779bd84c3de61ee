// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// OnSmallDisk makes a command start in a mount namespace of its own, with a file system of the size
// given at dir, after the shell commands before. It needs no rights: the namespace belongs to a
// user namespace.
func OnSmallDisk(t testing.TB, dir, size, before string) func(*exec.Cmd) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt").
		CombinedOutput(); err != nil {
		NotRun(t, fmt.Sprintf("a full disk needs user namespaces, which this kernel does not give (%v: %s)", err, out))
	}
	Check(t, os.MkdirAll(dir, 0o700))
	return func(cmd *exec.Cmd) {
		script := fmt.Sprintf(`mount -t tmpfs -o mode=700,size=%s tmpfs "$0" || exit 99; %s exec "$@"`, size, before)
		cmd.Args = append([]string{"sh", "-c", script, dir}, append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = "/bin/sh"
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
}

// Inside is where a path of a process in a mount namespace of its own is for others.
func (p *Process) Inside(path string) string {
	return filepath.Join("/proc", strconv.Itoa(p.Pid()), "root", path)
}

// Fill writes a file until nothing more fits.
func Fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	Check(t, err)
	defer func() { _ = f.Close() }() // it only has to fill the disk
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
