// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// pseudoTerminal is a terminal of 80 columns and 24 lines, and what was written to it.
type pseudoTerminal struct {
	file   *os.File // to write to
	master *os.File
	read   sync.WaitGroup

	mu  sync.Mutex
	all bytes.Buffer
}

func newPseudoTerminal(t *testing.T) *pseudoTerminal {
	t.Helper()
	// It does not block, so that closing it ends a read, and hangs up.
	fd := testproc.Try(unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)).Or(t)
	p := &pseudoTerminal{master: os.NewFile(uintptr(fd), "/dev/ptmx")}
	t.Cleanup(func() { _ = p.master.Close() })
	check(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n := testproc.Try(unix.IoctlGetInt(fd, unix.TIOCGPTN)).Or(t)
	check(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	p.file = testproc.Try(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)).Or(t)
	p.read.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := p.master.Read(b)
			p.mu.Lock()
			p.all.Write(b[:n])
			p.mu.Unlock()
			if err != nil { // it was closed
				return
			}
		}
	})
	return p
}

// hangsUp closes the terminal as its window or connection does.
func (p *pseudoTerminal) hangsUp() {
	_ = p.master.Close()
	p.read.Wait()
	_ = p.file.Close()
}

// shows reports whether text was written.
func (p *pseudoTerminal) shows(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.all.String(), text)
}

// text closes the terminal and returns what was written, with lines that end as in a file.
func (p *pseudoTerminal) text() string {
	_ = p.file.Close()
	p.read.Wait()
	return strings.ReplaceAll(p.all.String(), "\r\n", "\n")
}

// onTerminal runs a command on a terminal, and returns what it shows.
func (s *site) onTerminal(args ...string) string {
	s.t.Helper()
	p := newPseudoTerminal(s.t)
	var problems bytes.Buffer
	if code := execute(s.t.Context(), append(args, "--config", filepath.Join(s.dir, "agent.toml")), p.file,
		&problems); code != cli.ExitDone {
		s.t.Errorf("%q ended with %d: %s", args, code, problems.String())
	}
	return p.text()
}

// TestColorsOnTerminals: only what is for people, and only where it is wanted.
func TestColorsOnTerminals(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	s := newSite(t)
	s.host("cn1", own("cn1"))
	defer s.agent()()
	for _, command := range []string{"tree", "status", "plan"} {
		piped := s.says(cli.ExitDone, []string{command})
		if strings.Contains(piped, "\x1b") {
			t.Errorf("%s: escape sequences in a file: %q", command, piped)
		}
		shown := s.onTerminal(command)
		testproc.Contains(t, shown, "\x1b[1mcn1\x1b[0m", "%s: the name is not bold: %q", command)
		t.Setenv("NO_COLOR", "1")
		shown = s.onTerminal(command)
		t.Setenv("NO_COLOR", "")
		if strings.Contains(shown, "\x1b") {
			t.Errorf("%s: escape sequences with NO_COLOR: %q", command, shown)
		}
		for line := range strings.Lines(shown) {
			if strings.Count(strings.TrimSpace(line), " ") > 0 && utf8.RuneCountInString(line) > 81 &&
				!strings.Contains(line, s.dir) && !strings.Contains(line, "sha256") {
				t.Errorf("%s: a line is wider than the terminal: %q", command, line)
			}
		}
		t.Setenv("TERM", "dumb")
		if shown := s.onTerminal(command); strings.Contains(shown, "\x1b") {
			t.Errorf("%s: escape sequences with TERM=dumb: %q", command, shown)
		}
		t.Setenv("TERM", "xterm")
	}
	inJSON, inYAML := s.mask(s.onTerminal("tree", "-o", "json")), s.mask(s.onTerminal("tree", "-o", "yaml"))
	var want, got any
	check(t, json.Unmarshal([]byte(inJSON), &want))
	check(t, yaml.Unmarshal([]byte(inYAML), &got))
	again, err := json.Marshal(got) // integers as JSON has them
	check(t, err)
	check(t, json.Unmarshal(again, &got))
	testproc.Samef(t, cmp.Diff(want, got), "tree -o yaml (-json +yaml)")
}

// TestWatchOnATerminal: it goes on while the agent is restarted, and restores the terminal.
func TestWatchOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	s := newSite(t)
	s.host("cn1", own("cn1"))
	stop := s.agent()
	p := newPseudoTerminal(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan int, 1)
	var problems bytes.Buffer
	go func() {
		ended <- execute(ctx, []string{"tree", "--watch=100ms", "--config", filepath.Join(s.dir, "agent.toml")}, p.file,
			&problems)
	}()
	s.eventually("the tree", func() bool { return p.shows("\x1b[1mcn1\x1b[0m") })
	stop()
	s.eventually("the failure", func() bool {
		return p.shows("the agent is not running") &&
			p.shows("The state below is of ")
	})
	interrupt()
	if code := <-ended; code != cli.ExitDone || problems.String() != "" {
		t.Errorf("ended with %d: %s", code, problems.String())
	}
	text := p.text()
	if !strings.HasPrefix(text, "\x1b[?1049h") || !strings.HasSuffix(text, "\x1b[?7h\x1b[?25h\x1b[?1049l") {
		t.Errorf("the terminal is not restored: %q", text)
	}
}

// TestHangup: SIGHUP reloads the configuration of an agent, on a terminal, too; but the one of a
// terminal that is gone ends the agent, unless nohup started it.
func TestHangup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	// What nohup started passes on that SIGHUP is ignored, but not if it handles the signal.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(handled) })
	for _, nohup := range []bool{false, true} {
		t.Run(fmt.Sprint("nohup ", nohup), func(t *testing.T) {
			s := newSite(t)
			s.host("cn1", own("cn1"))
			terminal := newPseudoTerminal(t)
			args := []string{"compute-agent", "run", "--config", filepath.Join(s.dir, "agent.toml")}
			if nohup {
				args = append([]string{"nohup"}, args...)
			}
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Stdin, cmd.SysProcAttr = terminal.file, &syscall.SysProcAttr{Setsid: true, Setctty: true}
			p := testproc.Start(t, "compute-agent", cmd)
			p.KilledBy(t)
			p.Await(t, 0, "Set the traits of cn1")
			mark := p.Mark()
			check(t, p.Signal(syscall.SIGHUP))
			p.Await(t, mark, "Reload: reading the configuration.")
			mark = p.Mark()
			terminal.hangsUp()
			if nohup {
				p.Await(t, mark, "Reload: reading the configuration.")
				check(t, p.Signal(syscall.SIGTERM))
			} else {
				p.Await(t, mark, "The terminal is gone: the agent stops.")
			}
			testproc.Equal(t, p.Exit(t), cli.ExitDone, "ended with %d")
		})
	}
}
