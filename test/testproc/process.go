// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait: after it, a test that hangs fails. Nothing is measured by it. A wait
// for a Process begins again while the process works.
const Patience = 90 * time.Second

// working is the CPU time that a process needs in Patience to count as one that works. On a busy
// machine it is a small part of what it would get; a process that only waits uses less.
const working = time.Second

// Process is a running command and its output so far. It is safe for concurrent use; methods with a
// test are called where that test's methods may be.
type Process struct {
	name   string
	forget []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	done  chan struct{} // closed when it has ended and all its output is kept
	lines []string
	more  chan struct{} // closed and replaced at every line
}

// Start starts a command and keeps what it writes to standard output and standard error. The name
// is for messages. Lines that contain all parts of forget are not kept: they are for frequent
// messages.
func Start(t testing.TB, name string, cmd *exec.Cmd, forget ...string) *Process {
	t.Helper()
	p := &Process{name: name, forget: forget, more: make(chan struct{})}
	p.start(t, cmd)
	return p
}

// Again starts the command once more, when it has ended, and returns the mark from which on it
// writes. Lines and marks of before stay good.
func (p *Process) Again(t testing.TB) (mark int) {
	t.Helper()
	mark, old := p.Mark(), p.command()
	p.start(t, &exec.Cmd{Path: old.Path, Args: old.Args, Env: old.Env, Dir: old.Dir, SysProcAttr: old.SysProcAttr})
	return mark
}

func (p *Process) start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	_ = w.Close() // the process has it
	if err != nil {
		_ = r.Close()
		t.Fatalf("starting %s: %v", p.name, err)
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	go p.read(r, cmd, done)
}

// read keeps the output, until no process can write to it, and waits for the process.
func (p *Process) read(r io.ReadCloser, cmd *exec.Cmd, done chan<- struct{}) {
	defer close(done)
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if line := scanner.Text(); len(p.forget) == 0 || !ContainsAll(line, p.forget) {
			p.mu.Lock()
			p.lines = append(p.lines, line)
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
	}
	_ = r.Close()
	_ = cmd.Wait() // how it ended is in its ProcessState
}

// Lines returns all lines so far, oldest first.
func (p *Process) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// Mark returns the number of lines so far, from which a wait can begin.
func (p *Process) Mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lines)
}

// Count counts the lines after a mark that have all parts.
func (p *Process) Count(mark int, parts ...string) int {
	p.mu.Lock()
	lines := p.lines[mark:]
	p.mu.Unlock()
	n := 0
	for _, line := range lines {
		if ContainsAll(line, parts) {
			n++
		}
	}
	return n
}

// Show writes the output to the log of a test, without the lines that contain all parts, if any are
// given.
func (p *Process) Show(t testing.TB, without ...string) {
	t.Helper()
	lines := slices.DeleteFunc(p.Lines(),
		func(line string) bool { return len(without) > 0 && ContainsAll(line, without) })
	t.Logf("output of %s (%v):\n%s", p.name, p.command().Args, strings.Join(lines, "\n"))
}

// Await waits for a line after a mark that contains all parts, and returns it. If the process ends
// first, the test fails.
func (p *Process) Await(t testing.TB, mark int, parts ...string) string {
	t.Helper()
	line, found := p.Until(t, fmt.Sprintf("%q", parts), mark,
		func(line string) bool { return ContainsAll(line, parts) })
	if !found {
		t.Fatalf("%s ended with %d before it wrote %q:\n%s", p.name, p.Code(), parts, strings.Join(p.Lines(), "\n"))
	}
	return line
}

// Until waits for a line after a mark that matches, and returns false if the process ends first.
// what names the line in messages. Each line is matched once.
func (p *Process) Until(t testing.TB, what string, mark int, match func(line string) bool) (line string, found bool) {
	t.Helper()
	deadline := newDeadline(p.used)
	defer deadline.Stop()
	for next, ended := mark, false; ; {
		p.mu.Lock()
		lines, more, done := p.lines[min(next, len(p.lines)):], p.more, p.done
		p.mu.Unlock()
		if i := slices.IndexFunc(lines, match); i >= 0 {
			return lines[i], true
		}
		if ended {
			return "", false
		}
		next += len(lines)
		select {
		case <-more:
		case <-done:
			ended = true // after one more look
		case <-deadline.C:
			if deadline.hangs() {
				t.Fatalf("%s did not write %s, nor work, for %v:\n%s",
					p.name, what, Patience, strings.Join(p.Lines(), "\n"))
			}
		}
	}
}

// deadline is the end of a wait for a process.
type deadline struct {
	*time.Timer
	used   func() time.Duration // the CPU time so far
	before time.Duration
}

func newDeadline(used func() time.Duration) *deadline {
	return &deadline{Timer: time.NewTimer(Patience), used: used, before: used()}
}

// hangs reports, when the timer has fired, whether the process has hardly used CPU time since the
// timer was set. If it works, the wait goes on.
func (d *deadline) hangs() bool {
	used := d.used()
	if used-d.before < working {
		return true
	}
	d.before = used
	d.Reset(Patience)
	return false
}

// used is the CPU time of the process so far, 0 when it is gone.
func (p *Process) used() time.Duration {
	used, _ := CPU(p.Pid())
	return used
}

// Name is that for messages.
func (p *Process) Name() string { return p.name }

// command is the one that runs, or ran last.
func (p *Process) command() *exec.Cmd {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.command().Process.Pid }

// Done is closed when the process has ended and all its output is kept.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Code returns the exit code of a process that has ended, -1 after a signal.
func (p *Process) Code() int { return p.command().ProcessState.ExitCode() }

// Exit waits for the end and returns the exit code, -1 after a signal. A process that does not end
// is killed, and the test fails.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	deadline := newDeadline(p.used)
	defer deadline.Stop()
	for {
		select {
		case <-p.Done():
			return p.Code()
		case <-deadline.C:
			if deadline.hangs() {
				p.Kill()
				t.Fatalf("%s does not end:\n%s", p.name, strings.Join(p.Lines(), "\n"))
			}
		}
	}
}

// Signal sends a signal. It fails if the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.command().Process.Signal(sig); err != nil {
		return fmt.Errorf("sending %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// Kill ends the process as a power cut does, and returns when it has ended. It may have ended
// before.
func (p *Process) Kill() {
	_ = p.command().Process.Kill()
	<-p.Done()
}

// Stop ends the process as systemd does, and checks that it ends well.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%v: it ended before it was to", err)
	}
	if code := p.Exit(t); code != 0 {
		t.Errorf("%s ended with %d", p.name, code)
	}
}

// KilledBy kills the process when a test ends, and shows its output if that test failed.
func (p *Process) KilledBy(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			p.Show(t)
		}
	})
}

// Freeze stops the process, and returns when it is stopped: connections to it succeed, and no
// request is answered.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, p.name+" is stopped", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		if err != nil {
			return err
		}
		// After the name, which is in parentheses and may have some, comes the state.
		if _, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]),
			" "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("it is in state %.1s", state)
		}
		return nil
	})
}

// Thaw continues the process.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// ContainsAll reports whether a text contains all parts, in any order.
func ContainsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// True is a condition for Eventually.
func True(is func() bool) func() error {
	return func() error {
		if !is() {
			return errors.New("it is not so")
		}
		return nil
	}
}

// Eventually waits until a condition holds. If it does not in time, the test fails with the last
// error. The time begins again when the error is another one, ten times at most: with an error that
// says how much is left, it bounds a step and not the whole. It asks a fifth of the time at most:
// the rest is for what it waits for.
func Eventually(t testing.TB, within time.Duration, what string, holds func() error) {
	t.Helper()
	var asked time.Duration
	begin, last := time.Now(), ""
	for deadline, end := begin.Add(within),
		begin.Add(10*within); ; time.Sleep(min(max(20*time.Millisecond, 4*asked), time.Second)) {
		ask := time.Now()
		err := holds()
		asked = time.Since(ask)
		if err == nil {
			return
		}
		now := time.Now()
		if text := err.Error(); text != last && now.Before(end) {
			last, deadline = text, now.Add(within)
		}
		if now.After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, now.Sub(begin).Round(time.Second), err)
		}
	}
}
