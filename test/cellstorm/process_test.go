// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var binaries = testproc.Of("cmd/compute-agent", "cmd/compute-driver-fake", "cmd/compute-driver-libvirt")

func TestMain(m *testing.M) {
	testhost.SimMain()
	flag.Parse()
	os.Exit(binaries.Main(m))
}

// process is a compute-agent that can be ended and started again with the same arguments. Its log
// is a file, which is long, goes on where it was and can be kept; that it ends by itself is
// remembered.
type process struct {
	name string
	args []string
	log  string // the file
	// serves is what it logs when it serves. One that ends before, because its database does not
	// answer, is started again, as systemd does. "": it has to start at the first try.
	serves string

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended
	from   int64         // where its log begins since it was started
	ending bool          // the test ends it
	died   []string      // that it ended by itself, and how
}

// start starts it; it does not run.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd, err := p.launch(log)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	done := make(chan struct{})
	p.cmd, p.done, p.ending = cmd, done, false
	go func() {
		defer close(done)
		defer func() { _ = log.Close() }()
		for p.again(cmd.Wait(), log) {
			p.mu.Lock()
			cmd = p.cmd
			p.mu.Unlock()
		}
	}()
	return nil
}

// launch starts the program, whose log has its size first.
func (p *process) launch(log *os.File) (*exec.Cmd, error) {
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	p.from = info.Size()
	cmd := binaries.Command("compute-agent", p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, cmd.Start()
}

// restartAfter is after what time one that could not start is started again.
const restartAfter = 500 * time.Millisecond

// again starts it once more if it ended by itself before it served; otherwise how it ended is
// remembered, unless the test has ended it.
func (p *process) again(how error, log *os.File) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status *exec.ExitError
	text, err := os.ReadFile(p.log)
	switch {
	case p.ending:
		return false
	case p.serves == "" || !errors.As(how, &status) || status.ExitCode() != 1 || err != nil || bytes.Contains(text[p.from:], []byte(p.serves)):
		p.died = append(p.died, fmt.Sprintf("%s ended by itself: %v; the end of its log: %s", p.name, how, endOfLog(p.log)))
		return false
	}
	p.mu.Unlock()
	<-time.After(restartAfter)
	p.mu.Lock()
	if p.ending {
		return false
	}
	if p.cmd, err = p.launch(log); err != nil {
		p.died = append(p.died, fmt.Sprintf("%s cannot be started: %v", p.name, err))
	}
	return err == nil
}

// end ends it with a signal, and returns when it has ended. One that is stopped gets no signal but
// SIGKILL.
func (p *process) end(sig syscall.Signal) {
	p.mu.Lock()
	p.ending = true
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	_ = cmd.Process.Signal(sig) // it may have ended
	select {
	case <-done:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-done
	}
}

// endOfLog is the end of a log.
func endOfLog(file string) string {
	const enough = 600
	log, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-enough):])
}

// kill ends it as a power cut does.
func (p *process) kill() { p.end(syscall.SIGKILL) }

// signal stops it, or has it go on.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(sig) // it may have ended
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// troubles are that it ended by itself, and that its log has a panic.
func (p *process) troubles() []string {
	p.mu.Lock()
	out := slices.Clone(p.died)
	p.mu.Unlock()
	text, err := os.ReadFile(p.log)
	if err != nil {
		return append(out, err.Error())
	}
	for line := range bytes.Lines(text) {
		for _, bad := range []string{"panic:", "fatal error:", "panicked", "DATA RACE"} {
			if bytes.Contains(line, []byte(bad)) {
				out = append(out, fmt.Sprintf("the log of %s has: %s", p.name, line))
			}
		}
	}
	return out
}

// await waits for a line in the log that has all parts.
func (p *process) await(t *testing.T, parts ...string) string {
	t.Helper()
	var found string
	testproc.Eventually(t, patience, fmt.Sprintf("%s logs %q", p.name, parts), func() error {
		text, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if testproc.ContainsAll(line, parts) {
				found = line
				return nil
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.died) > 0 {
			t.Fatalf("%v; its log:\n%s", p.died, text)
		}
		return errors.New("no such line")
	})
	return found
}

// children are the processes of drivers that an agent has.
func (p *process) children() []int {
	var out []int
	parent := fmt.Sprintf("PPid:\t%d\n", p.pid())
	files, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), parent) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/status", &pid); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// command runs compute-agent to its end.
func command(t *testing.T, args ...string) {
	t.Helper()
	if out, code := binaries.Run(t, "compute-agent", args...); code != 0 {
		t.Fatalf("compute-agent %v ended with %d:\n%s", args, code, out)
	}
}

const patience = testproc.Patience

var check = testproc.Check
