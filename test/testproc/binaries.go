// SPDX-License-Identifier: Apache-2.0

// Package testproc runs real processes for tests: the commands of this module, which it builds
// once, and OpenStack's Placement and Keystone and RabbitMQ from Debian's packages. It keeps what
// processes write, waits for lines of it, and ends, stops and continues them. No process outlives
// the tests.
//
// It also has what tests of every kind need: [Check], [Eventually], [Buffer], [Clock],
// [FreeAddress] and [SocketDir].
package testproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const module = "github.com/compute-agent/compute-agent/"

// libvirtDriver is the only command with cgo.
const libvirtDriver = "cmd/compute-driver-libvirt"

// Binaries are commands of this module that the tests of a package run.
type Binaries struct {
	// Build builds all of them, once: later calls return the result of the first. The first Command
	// calls it; a test calls it where the time of a build must not count.
	Build func() error

	dir string
}

// Of returns the commands in folders of the module, such as "cmd/compute-agent", not built yet.
func Of(folders ...string) *Binaries {
	b := &Binaries{}
	b.Build = sync.OnceValue(func() error { return b.build(folders) })
	return b
}

// Main runs the tests of a package, with a directory for the binaries that is removed afterwards,
// and returns the exit code. TestMain calls it.
func (b *Binaries) Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // it holds the binaries, which another user runs in some tests
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b.dir = dir
	return m.Run()
}

// Dir returns the directory of the binaries, also before they are built. It exists until Main
// returns.
func (b *Binaries) Dir() string { return b.dir }

func (b *Binaries) build(folders []string) error {
	if b.dir == "" {
		return errors.New("building what is tested: TestMain does not call Main")
	}
	for _, folder := range folders {
		args := []string{"build", "-o", filepath.Join(b.dir, path.Base(folder))}
		cgo := "0"
		if folder == libvirtDriver {
			args, cgo = append(args, "-tags", "libvirt_dlopen"), "1"
		}
		cmd := exec.Command("go", append(args, module+folder)...) //nolint:noctx // it ends by itself, and the tests wait for it
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", folder, err, out)
		}
	}
	return nil
}

// Command returns one of the binaries with arguments, not started yet: in a process group of its
// own, so that a Ctrl-C is for the tests alone, and killed with them. It gets no COMPUTE_AGENT_
// variable of this process. If the binaries cannot be built, starting it fails with the reason.
func (b *Binaries) Command(name string, args ...string) *exec.Cmd {
	err := b.Build()
	cmd := exec.Command(filepath.Join(b.dir, name), args...) //nolint:noctx // a process ends when its test has it end
	if err != nil {
		cmd.Err = err
	}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COMPUTE_AGENT_") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Run runs one of the binaries to its end, and returns its output and exit code.
func (b *Binaries) Run(t testing.TB, name string, args ...string) (string, int) {
	t.Helper()
	p := Start(t, strings.Join(append([]string{name}, args...), " "), b.Command(name, args...))
	code := p.Exit(t)
	return strings.Join(p.Lines(), "\n"), code
}
