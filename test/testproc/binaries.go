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
	"io/fs"
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

	dir     string
	folders []string
	older   bool // of the previous release
}

// Of returns the commands in folders of the module, such as "cmd/compute-agent", not built yet.
// Those in the directory that TEST_BINARIES names are taken from there.
func Of(folders ...string) *Binaries {
	b := &Binaries{folders: folders}
	b.Build = sync.OnceValue(func() error { return b.build(".") })
	return b
}

// previous is the last commit of the release before this one, 0.2.0.
const previous = "7c31dbf6f921e592918649fdeb17e79d49b11d48"

// Previous builds the same commands of the release before this one, for tests of upgrades, but for
// the libvirt driver. Its source comes from the history of the repository, which a shallow clone
// does not have.
func (b *Binaries) Previous(t testing.TB) *Binaries {
	t.Helper()
	older := &Binaries{
		dir: filepath.Join(b.dir, "previous"), older: true,
		folders: slices.DeleteFunc(slices.Clone(b.folders),
			func(folder string) bool { return folder == libvirtDriver }),
	}
	source, err := os.MkdirTemp("", "previous")
	Check(t, err)
	t.Cleanup(func() { Check(t, os.RemoveAll(source)) })
	Check(t, os.MkdirAll(older.dir, 0o755)) // another user runs the binaries in some tests
	// Of a commit, git archive takes what is below the working directory: here that is all.
	top, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-toplevel").Output()
	Check(t, err)
	archive := filepath.Join(source, "archive.tar")
	for _, words := range [][]string{
		{"git", "-C", strings.TrimSpace(string(top)), "archive", "--output", archive, previous},
		{"tar", "-x", "-C", source, "-f", archive},
	} {
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).
			CombinedOutput(); err != nil {
			t.Fatalf("the source of the previous release, commit %s: %v: %v\n%s\nIn a shallow clone, run git fetch "+
				"--unshallow.", previous, words, err, out)
		}
	}
	Check(t, older.build(source))
	older.Build = func() error { return nil }
	return older
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
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b.dir = dir
	return m.Run()
}

// Dir returns the directory of the binaries, also before they are built. It exists until Main
// returns.
func (b *Binaries) Dir() string { return b.dir }

// made names a directory with commands that are built already, of this source: make builds them
// once for the tests of all packages.
const made = "TEST_BINARIES"

// take copies a command from that directory. It is fs.ErrNotExist that there is none.
func (b *Binaries) take(name string) error {
	dir := os.Getenv(made)
	if dir == "" {
		return fs.ErrNotExist
	}
	return copyProgram(filepath.Join(dir, name), filepath.Join(b.dir, name))
}

// Copy builds the commands and copies one of them. A test that wants a driver of its own takes a
// copy: a link changes the time of the file's status, by which agents of other tests see that their
// driver was replaced.
func (b *Binaries) Copy(t testing.TB, name, to string) {
	t.Helper()
	Check(t, b.Build(), copyProgram(filepath.Join(b.dir, name), to))
}

// copyProgram copies an executable file.
func copyProgram(from, to string) error {
	content, err := os.ReadFile(from)
	if err == nil {
		err = WriteExecutable(to, content)
	}
	if err != nil {
		return fmt.Errorf("copying a command: %w", err)
	}
	return nil
}

// build builds the commands of the module that source is a directory of.
func (b *Binaries) build(source string) error {
	if b.dir == "" {
		return errors.New("building what is tested: TestMain does not call Main")
	}
	for _, folder := range b.folders {
		if source == "." {
			if err := b.take(path.Base(folder)); err == nil {
				continue
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		args := []string{"build", "-trimpath", "-o", filepath.Join(b.dir, path.Base(folder))}
		cgo := "0"
		if folder == libvirtDriver {
			args, cgo = append(args, "-tags", "libvirt_dlopen"), "1"
		}
		cmd := exec.Command("go", append(args, module+folder)...) //nolint:noctx // it ends, and the tests wait for it
		cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", folder, err, out)
		}
	}
	return nil
}

// ShareUser is the variable with which several agents of one user run on a machine.
const ShareUser = "COMPUTE_AGENT_AGENT_SHARE_USER=true"

// Command returns one of the binaries with arguments, not started yet: in a process group of its
// own, so that a Ctrl-C is for the tests alone, and killed with them. It gets no COMPUTE_AGENT_
// variable of this process; an agent gets [ShareUser], since tests run many as one user. If the
// binaries cannot be built, starting it fails with the reason.
func (b *Binaries) Command(name string, args ...string) *exec.Cmd {
	err := b.Build()
	cmd := exec.Command(filepath.Join(b.dir, name), args...) //nolint:noctx // a process ends when its test has it end
	if err != nil {
		cmd.Err = err
	}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COMPUTE_AGENT_") })
	if !b.older && len(args) > 0 && (args[0] == "run" || args[0] == "standalone") {
		cmd.Env = append(cmd.Env, ShareUser)
	}
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
