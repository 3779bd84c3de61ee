// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaries is the directory with the binaries, which build builds once.
var binaries string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "outage")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries = dir
	return m.Run()
}

// build builds what is run, when it is needed first.
var build = sync.OnceValue(func() error {
	cmd := exec.Command("go", "build", "-o", binaries+"/", "./cmd/compute-agent", "./cmd/compute-driver-fake")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	return nil
})

// patience bounds every wait: it is when a test that hangs is given up, and nothing is measured by it.
const patience = 45 * time.Second

// process is a running compute-agent.
type process struct {
	name string
	args []string
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	lines []string
}

// start starts compute-agent with arguments. name is for the log of a test that fails.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	check(t, build())
	p := &process{name: name, args: args, done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(binaries, "compute-agent"), args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "COMPUTE_AGENT_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	check(t, err)
	p.cmd.Stdout, p.cmd.Stderr = w, w
	check(t, p.cmd.Start())
	check(t, w.Close())
	go p.read(r)
	return p
}

func (p *process) read(r io.ReadCloser) {
	defer close(p.done)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		p.mu.Unlock()
	}
	_ = r.Close()
	_ = p.cmd.Wait() // how it ended is in its ProcessState
}

func (p *process) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// mark is the number of lines so far, from which a wait can begin.
func (p *process) mark() int { return len(p.output()) }

// await waits for a line after a mark that has all parts.
func (p *process) await(t *testing.T, mark int, parts ...string) string {
	t.Helper()
	var found string
	eventually(t, fmt.Sprintf("%s says %q", p.name, parts), func() error {
		all := p.output()
		for _, line := range all[min(mark, len(all)):] {
			if containsAll(line, parts) {
				found = line
				return nil
			}
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended with %d before it said %q:\n%s", p.name, p.cmd.ProcessState.ExitCode(), parts, strings.Join(p.output(), "\n"))
		default:
		}
		return errors.New("it has not said so")
	})
	return found
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// kill ends the process as a power cut does, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.done
}

// freeze stops the process in the middle of whatever it does: connections to it are made, and nothing answers.
func (p *process) freeze(t *testing.T) {
	t.Helper()
	check(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	eventually(t, p.name+" is stopped", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		if after := stat[strings.LastIndexByte(string(stat), ')')+1:]; !strings.HasPrefix(string(after), " T") {
			return fmt.Errorf("it is in state %.2s", after)
		}
		return nil
	})
}

// thaw has it go on.
func (p *process) thaw(t *testing.T) {
	t.Helper()
	check(t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// command runs compute-agent to its end and returns what it printed and its exit code.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	p := start(t, strings.Join(args, " "), args...)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.kill()
		t.Fatalf("compute-agent %v does not end:\n%s", args, strings.Join(p.output(), "\n"))
	}
	return strings.Join(p.output(), "\n"), p.cmd.ProcessState.ExitCode()
}

// must runs a command that succeeds.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, code := command(t, args...)
	if code != 0 {
		t.Fatalf("compute-agent %v ended with %d:\n%s", args, code, out)
	}
	return out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		<-tick.C
	}
}
