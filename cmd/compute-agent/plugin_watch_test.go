// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/scaffold"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// development is a command that an author has running.
type development struct {
	*testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
}

func develop(t *testing.T, args ...string) *development {
	t.Helper()
	path := testproc.Try(exec.LookPath("compute-agent")).Or(t)
	d := &development{T: t, cmd: exec.CommandContext(t.Context(), path, args...)}
	d.cmd.Stderr = &d.stderr
	stdout, err := d.cmd.StdoutPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	testproc.Check(t, err)
	d.lines = bufio.NewScanner(stdout)
	return d
}

// until reads to the next line that contains a text.
func (d *development) until(text string) {
	d.Helper()
	for d.lines.Scan() {
		if strings.Contains(d.lines.Text(), text) {
			return
		}
	}
	d.Fatalf("it ended before it said %q: %s", text, &d.stderr)
}

// interrupt is Ctrl-C. It returns the exit code and what is still said, and checks that no process
// of the plugin is left.
func (d *development) interrupt(plugin string) (int, string) {
	d.Helper()
	testproc.NoError(d, d.cmd.Process.Signal(os.Interrupt))
	var rest strings.Builder
	for d.lines.Scan() {
		fmt.Fprintln(&rest, d.lines.Text())
	}
	_ = d.cmd.Wait() // the exit code says it
	if left := running(d.T, plugin); len(left) > 0 {
		d.Errorf("processes of the plugin are left: %v", left)
	}
	return d.cmd.ProcessState.ExitCode(), rest.String() + d.stderr.String()
}

// running are the processes of an executable.
func running(t *testing.T, executable string) []string {
	t.Helper()
	links := testproc.Try(filepath.Glob("/proc/[0-9]*/exe")).Or(t)
	var out []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.TrimSuffix(target, " (deleted)") == executable {
			out = append(out, link)
		}
	}
	return out
}

// built is the plugin of a package, in a directory of its own.
func built(t *testing.T, dir, pkg, name string) string {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", plugin, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, out)
	}
	return plugin
}

// TestRealPluginRunWatch: a device is plugged in beneath a driver just made with `plugin new`, and
// the pass that shows it comes because the driver noticed, an hour before it would come by itself.
func TestRealPluginRunWatch(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	dir := filepath.Join(t.TempDir(), "acme")
	files, err := scaffold.Render(scaffold.Params{Name: "acme", Replace: "../.."})
	if err == nil {
		err = scaffold.Write(dir, files)
	}
	testproc.Check(t, err)
	plugin := built(t, dir, ".", "compute-driver-acme")
	s := &author{T: t, machine: t.TempDir()}
	s.write(filepath.Join(s.machine, "proc/cpuinfo"), "processor\t: 0\n")
	s.write(filepath.Join(s.machine, "proc/meminfo"), "MemTotal:       24683520 kB\n")
	testproc.Check(t, os.MkdirAll(filepath.Join(s.machine, "sys/bus/pci/devices"), 0o755))
	config := filepath.Join(t.TempDir(), "acme.toml")
	s.write(config, fmt.Sprintf("[drivers.acme.config]\ndevices = [\"1af4:1044\"]\nmachine = %q\ninstances = %q\n",
		s.machine, s.machine))

	d := develop(t, "plugin", "run", plugin, "--config", config, "--watch", "--interval", "1h")
	d.until("pass 1")
	d.until("VCPU")
	beside := filepath.Join(t.TempDir(), "device") // it appears whole
	s.write(filepath.Join(beside, "vendor"), "0x1af4\n")
	s.write(filepath.Join(beside, "device"), "0x1044\n")
	testproc.Check(t, os.Rename(beside, filepath.Join(s.machine, filepath.Clean(shownDevice))))
	d.until("pass 2")
	d.until("drivertest-host_pci_0000_00_05_0 (")
	if code, rest := d.interrupt(plugin); code != cli.ExitDone {
		t.Errorf("exit code %d: %s", code, rest)
	}
}

// TestPluginRunWatchBreaks: a Watch that fails is reported, and passes go on.
func TestPluginRunWatchBreaks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	plugin := fakeDriver(t, t.TempDir())
	config := filepath.Join(t.TempDir(), "fake.toml")
	testproc.Check(t, os.WriteFile(config, []byte("faults.watch = \"error\"\n"), 0o644))
	d := develop(t, "plugin", "run", plugin, "--config", config, "--watch", "--interval", "1h")
	d.until("pass 1")
	d.until("pass 2")
	d.until("the driver does not report changes: Watch: something is wrong")
	if code, rest := d.interrupt(plugin); code != cli.ExitDone {
		t.Errorf("exit code %d: %s", code, rest)
	}
}

// TestPluginRunSaysWhatBroke: the output shows the stack of a driver that panics, and how a driver
// ended.
func TestPluginRunSaysWhatBroke(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	plugin := fakeDriver(t, t.TempDir())
	agent := testproc.Try(exec.LookPath("compute-agent")).Or(t)
	for fault, want := range map[string][]string{
		"panic": {"the driver panicked in UpdateProviderTree: a defect of the driver (its stack is in the log)",
			"log: error  The driver panicked", "drivers/fake/internal/faults/process.go:"},
		"crash": {"UpdateProviderTree: the process ended (exit status 7)"},
		"print": {"log: output "},
	} {
		config := filepath.Join(t.TempDir(), "fake.toml")
		testproc.Check(t, os.WriteFile(config, []byte("faults.update = \""+fault+"\"\n"), 0o644))
		// what it says is what matters
		output, _ := exec.CommandContext(t.Context(), agent, "plugin", "run", plugin, "--config", config).
			CombinedOutput()
		for _, text := range want {
			if !strings.Contains(string(output), text) {
				t.Errorf("%s: it does not say %q:\n%s", fault, text, output)
			}
		}
	}
}

// TestPluginTestInterrupted: Ctrl-C while a driver hangs ends the command and the driver, and says
// how far it came.
func TestPluginTestInterrupted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	plugin := fakeDriver(t, t.TempDir())
	config := filepath.Join(t.TempDir(), "fake.toml")
	testproc.Check(t, os.WriteFile(config, []byte("faults.update = \"hang\"\n"), 0o644))
	d := develop(t, "plugin", "test", plugin, "--config", config)
	testproc.Eventually(t, testproc.Patience,
		"the driver's process", testproc.True(func() bool { return len(running(t, plugin)) > 0 }))
	code, rest := d.interrupt(plugin)
	if code != cli.ExitFailed || !strings.Contains(rest, "interrupted after ") ||
		!strings.Contains(rest, " checks; 0 of them failed") {
		t.Errorf("exit code %d: %s", code, rest)
	}
}
