// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is compute-agent, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "clients")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
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

// patience bounds every wait; it is when a test that hangs is given up.
const patience = 60 * time.Second

// serve starts "compute-agent placement serve" with an empty database on a free port, until the test ends, and returns its
// endpoint.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	return launch(t, nil, append([]string{"placement", "serve", "--listen", "127.0.0.1:0", "--state-dir", t.TempDir()}, args...)...).endpoint
}

// service is a process of compute-agent that serves.
type service struct {
	endpoint string
	process  *os.Process
	killed   bool
}

// kill ends it in the way that it can do nothing about. Its port refuses connections from then on.
func (s *service) kill(t *testing.T) {
	t.Helper()
	s.killed = true
	check(t, s.process.Kill())
}

// launch starts compute-agent with more of an environment, until the test ends, and waits until it says where it serves.
func launch(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Nothing of the machine's own configuration counts, and lines are JSON.
	cmd.Env = slices.Concat(os.Environ(), []string{"COMPUTE_AGENT_LOG_FORMAT=json"}, env)
	stderr, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	s := &service{process: cmd.Process}
	var said []string
	address := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			said = append(said, lines.Text())
			var line struct{ Address, Auth string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Auth != "" {
				address <- line.Address
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		<-done
		if err := cmd.Wait(); err != nil && !s.killed {
			t.Errorf("the service did not end well: %v", err)
		}
		kill.Stop()
		if t.Failed() {
			t.Logf("output of compute-agent %v:\n%s", args, strings.Join(said, "\n"))
		}
	})
	select {
	case a := <-address:
		s.endpoint = "http://" + a
	case <-done:
		t.Fatal("the service ended before it served")
	case <-time.After(patience):
		t.Fatalf("the service did not say within %v that it serves", patience)
	}
	return s
}

// tokenFile writes a token file with one token of the roles.
func tokenFile(t *testing.T, token, roles string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	line := fmt.Sprintf("%x %s operator operators\n", sha256.Sum256([]byte(token)), roles)
	check(t, os.WriteFile(path, []byte(line), 0o600))
	return path
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
