// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/testhost/sim"
)

// binaries is the directory with all binaries, which build builds once.
var binaries string

func TestMain(m *testing.M) {
	sim.Main()
	if os.Getenv(underWatch) != "" {
		fmt.Fprintln(os.Stderr, becomeWatched())
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries = dir
	return m.Run()
}

// build builds all binaries, when the first of them is needed.
var build = sync.OnceValue(func() error {
	for _, b := range []struct {
		cgo  string
		args []string
	}{{"0", []string{"./cmd/compute-agent", "./cmd/compute-driver-fake", "./cmd/compute-driver-chaos"}}, {"1", []string{"-tags", "libvirt_dlopen", "./cmd/compute-driver-libvirt"}}} {
		cmd := exec.Command("go", append([]string{"build", "-o", binaries + "/"}, b.args...)...)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building: %w\n%s", err, out)
		}
	}
	return nil
})

// patience bounds every wait. It is no timing that a test asserts: it is when a test that hangs is given up.
const patience = 60 * time.Second

// process is a running binary whose log lines can be waited for.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	name string

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced at every line
	ended bool
	done  chan struct{}
	code  int
}

// spawn starts a binary; its output is kept, and shown if the test fails.
func spawn(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	return spawnBy(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, env...) }, name, args...)
}

// spawnBy is spawn with something changed about how.
func spawnBy(t *testing.T, how func(*exec.Cmd), name string, args ...string) *process {
	t.Helper()
	check(t, build())
	p := &process{t: t, name: name, more: make(chan struct{}), done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(binaries, name), args...)
	p.cmd.Env = os.Environ()
	how(p.cmd)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, err := os.Pipe()
	check(t, err)
	p.cmd.Stdout, p.cmd.Stderr = w, w
	check(t, p.cmd.Start())
	check(t, w.Close())
	go p.read(r)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("output of %s %v:\n%s", name, args, strings.Join(p.output(), "\n"))
		}
	})
	return p
}

func (p *process) read(r io.ReadCloser) {
	defer close(p.done)
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, scanner.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
	_ = r.Close()
	_ = p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.code = true, p.cmd.ProcessState.ExitCode()
	close(p.more)
	p.more = make(chan struct{})
}

func (p *process) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// mark is the number of lines so far, from which a later wait can begin.
func (p *process) mark() int { return len(p.output()) }

// await waits for a line after mark that contains all parts, and returns it.
func (p *process) await(mark int, parts ...string) string {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		more, ended := p.more, p.ended
		for _, line := range p.lines[min(mark, len(p.lines)):] {
			if containsAll(line, parts) {
				p.mu.Unlock()
				return line
			}
		}
		p.mu.Unlock()
		if ended {
			p.t.Fatalf("%s ended with %d before it said %q", p.name, p.code, parts)
		}
		select {
		case <-more:
		case <-deadline.C:
			p.t.Fatalf("%s did not say %q within %v", p.name, parts, patience)
		}
	}
}

// count counts the lines after mark that contain all parts.
func (p *process) count(mark int, parts ...string) int {
	n := 0
	for _, line := range p.output()[mark:] {
		if containsAll(line, parts) {
			n++
		}
	}
	return n
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	check(p.t, p.cmd.Process.Signal(sig))
}

// exit waits until the process has ended and returns its exit code, -1 after a signal.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s did not end within %v", p.name, patience)
	}
	return p.code
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// freePort returns an address on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { check(t, l.Close()) }()
	return l.Addr().String()
}

// get reads a resource of a Placement, as curl would.
func get(t *testing.T, url string, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	check(t, err)
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("OpenStack-API-Version", "placement 1.37")
	resp, err := http.DefaultClient.Do(req)
	check(t, err)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", url, resp.Status)
	}
	check(t, json.NewDecoder(resp.Body).Decode(out))
}

// command runs a short-lived command and returns its output and exit code.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	check(t, build())
	cmd := exec.Command(filepath.Join(binaries, "compute-agent"), args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
