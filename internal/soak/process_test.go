// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bufio"
	"encoding/json"
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

// binary is compute-agent, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // it holds the binary, which another user runs in some tests
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "compute-agent")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/compute-agent")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// process is a `compute-agent placement serve`.
type process struct {
	cmd *exec.Cmd
	// serving gives the URL once it serves, and is closed when it has ended.
	serving chan string
	done    chan struct{}

	mu    sync.Mutex
	lines []string
}

// place is a state directory that is not there yet: with a short path, since sockets are made below it, that every user
// can reach.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ca")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755)) //nolint:gosec // it holds nothing but the state directory
	return filepath.Join(dir, "state")
}

// onStateDir are the arguments for a state directory.
func onStateDir(dir string) []string { return []string{"--state-dir", dir} }

// start starts a server on a free port; prepare changes how, when it is not nil.
func start(t *testing.T, prepare func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{serving: make(chan string, 1), done: make(chan struct{})}
	p.cmd = exec.Command(binary, append([]string{"placement", "serve", "--listen", "127.0.0.1:0"}, args...)...) //nolint:gosec // the binary that was built above
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "COMPUTE_AGENT_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	// Each has sockets of its own, in a directory that it makes itself, as whoever it runs as.
	sockets, err := os.MkdirTemp("", "cr")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(sockets)) })
	check(t, os.Chmod(sockets, 0o777)) //nolint:gosec // see above
	p.cmd.Env = append(p.cmd.Env, "COMPUTE_AGENT_AGENT_RUNTIME_DIR="+filepath.Join(sockets, "run"))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if prepare != nil {
		prepare(p.cmd)
	}
	r, w, err := os.Pipe()
	check(t, err)
	p.cmd.Stdout, p.cmd.Stderr = w, w
	check(t, p.cmd.Start())
	check(t, w.Close())
	go p.read(r)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output of a server:\n%s", strings.Join(p.output(), "\n"))
		}
	})
	return p
}

func (p *process) read(r io.ReadCloser) {
	defer close(p.done)
	defer close(p.serving)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Level, Message, Address string }
		err := json.Unmarshal(lines.Bytes(), &line)
		if err == nil && line.Level == "info" && line.Message == "request" {
			continue // there are very many of them
		}
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		p.mu.Unlock()
		if err == nil && line.Message == "The Placement service answers requests." {
			p.serving <- "http://" + line.Address
		}
	}
	_ = r.Close()
	_ = p.cmd.Wait() // how it ended is in its ProcessState
}

func (p *process) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// alarms are the lines that are more than information.
func (p *process) alarms() (out []string) {
	for _, text := range p.output() {
		var line struct{ Level string }
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Level != "info" {
			out = append(out, text)
		}
	}
	return out
}

// patience is when a test that hangs is given up; nothing is measured by it.
const patience = 60 * time.Second

// client waits until the server serves.
func (p *process) client(t *testing.T) *client {
	t.Helper()
	select {
	case url, ok := <-p.serving:
		if ok {
			c := newClient(url)
			t.Cleanup(c.http.CloseIdleConnections)
			return c
		}
		t.Fatalf("the server ended with %d before it served:\n%s", p.cmd.ProcessState.ExitCode(), strings.Join(p.output(), "\n"))
	case <-time.After(patience):
		t.Fatal("the server does not serve")
	}
	return nil
}

// quietly is client, for a start that may have nothing to complain of.
func (p *process) quietly(t *testing.T) *client {
	t.Helper()
	c := p.client(t)
	if alarms := p.alarms(); len(alarms) > 0 {
		t.Errorf("the start was alarming:\n%s", strings.Join(alarms, "\n"))
	}
	return c
}

// kill ends the process as a power cut does, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.done
}

// stop ends it as systemd does, and checks that it ends well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	check(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.exit(t); code != 0 {
		t.Errorf("SIGTERM ended the server with %d", code)
	}
}

// exit waits for the end and returns the exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("the server does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}
