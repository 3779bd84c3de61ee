// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ServicesEnv is the environment variable that names the directory of the services that all tests
// of a run share. Command test/services sets it; without it, each process of tests has its own.
const ServicesEnv = "TEST_SERVICES"

//go:embed placement.py
var placementScript []byte

// placementSocket is where placement.py listens in its directory.
const placementSocket = "placement.sock"

// placements is the socket of placement.py.
var placements = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(ServicesEnv); dir != "" {
		return filepath.Join(dir, placementSocket), nil
	}
	dir, err := os.MkdirTemp("", "placement")
	if err != nil {
		return "", err
	}
	listener, err := listenForPlacement(dir)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, placementSocket), runPlacement(dir, listener)
})

// SharePlacement serves OpenStack's Placement to the tests whose environment has the directory in
// ServicesEnv. It is started when the first one asks for it, and ends with this process.
func SharePlacement(dir string) error {
	listener, err := listenForPlacement(dir)
	if err != nil {
		return err
	}
	go func() {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(listener.Fd()), Events: unix.POLLIN}}, -1)
			if n == 1 {
				break
			}
			if err != unix.EINTR { // as the system returns it
				return
			}
		}
		if err := runPlacement(dir, listener); err != nil {
			fmt.Fprintln(os.Stderr, err)
			_ = os.Remove(filepath.Join(dir, placementSocket)) // a client that asks is refused
			_ = listener.Close()
		}
	}()
	return nil
}

func listenForPlacement(dir string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, placementSocket), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }() // the file stays
	return l.File()
}

// alive are the standard inputs of what ends with this process, however it ends.
var alive []*os.File

// runPlacement starts placement.py, which writes to the file log in its directory and removes that
// at its end.
func runPlacement(dir string, listener *os.File) error {
	defer func() { _ = listener.Close() }() // the process has it
	script := filepath.Join(dir, "serve.py")
	if err := os.WriteFile(script, placementScript, 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command(python, "-W", "ignore", script, dir) //nolint:noctx // it is for all tests
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, r, log, log, []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the tests alone
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return fmt.Errorf("OpenStack's Placement: %w", err)
	}
	alive = append(alive, w)
	return nil
}
