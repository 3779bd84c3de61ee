// SPDX-License-Identifier: Apache-2.0

// Package testproc runs real processes for tests: the commands of this module, which it builds once,
// and OpenStack's Placement and Keystone from Debian's packages. It keeps what processes write, waits
// for lines of it, and ends, stops and continues them. No process outlives the tests.
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

// Binaries are commands of this module, which the tests of a package run.
type Binaries struct {
	// Build builds all of them, once: later calls return what the first one did. It is called when the first of them is
	// run; a test calls it where building must not be counted in.
	Build func() error

	dir string
}

// Of are the commands in folders of the module, such as "cmd/compute-agent". Nothing is built yet.
func Of(folders ...string) *Binaries {
	b := &Binaries{}
	b.Build = sync.OnceValue(func() error { return b.build(folders) })
	return b
}

// Main runs the tests of a package, with a directory for the binaries that is removed afterwards, and returns the exit
// code. It is to be called by TestMain.
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

// Dir is the directory of the binaries, also before they are built. It is there until Main returns.
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

// Command is one of the binaries with arguments, not started yet: in a process group of its own, so that a Ctrl-C is
// for the tests alone, and killed when these are. No COMPUTE_AGENT_ variable of this process counts. If the binaries
// cannot be built, starting it fails with the reason.
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

// Run runs one of the binaries to its end, and returns what it said and its exit code.
func (b *Binaries) Run(t testing.TB, name string, args ...string) (string, int) {
	t.Helper()
	p := Start(t, strings.Join(append([]string{name}, args...), " "), b.Command(name, args...))
	code := p.Exit(t)
	return strings.Join(p.Lines(), "\n"), code
}
