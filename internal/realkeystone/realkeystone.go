// SPDX-License-Identifier: Apache-2.0

package realkeystone

import (
	"bufio"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

//go:embed serve.py
var script []byte

// python is Debian's own, which has Debian's packages; one from elsewhere on PATH does not.
const python = "/usr/bin/python3"

// Password is that of the user "admin" of the project "admin", both in the domain "Default".
const Password = "not-a-secret"

// Server is a running Keystone.
type Server struct {
	// URL is the endpoint of its API v3.
	URL string

	mu  sync.Mutex
	log []string
}

// Start runs a Keystone that knows nobody but the admin until the test ends. It takes some ten seconds. Without the
// package the test is skipped, and fails under CI.
func Start(t testing.TB) *Server {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import keystone.server.wsgi").CombinedOutput(); err != nil {
		missing := "Debian's package python3-keystone is not installed (tools/packages.sh test): " + string(out)
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "serve.py")
	if err := os.WriteFile(path, script, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-W", "ignore", path, dir, Password)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &Server{}
	var reading sync.WaitGroup
	reading.Go(func() { s.read(bufio.NewScanner(stderr)) })
	t.Cleanup(func() {
		_ = stdin.Close()
		kill := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		reading.Wait()
		_ = cmd.Wait()
		kill.Stop()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if port, found := strings.CutPrefix(lines.Text(), "PORT "); found {
			s.URL = "http://127.0.0.1:" + port + "/v3"
			reading.Go(func() { s.read(lines) })
			return s
		}
	}
	t.Fatalf("the real Keystone did not start: %v\n%s", lines.Err(), strings.Join(s.Log(), "\n"))
	return nil
}

func (s *Server) read(lines *bufio.Scanner) {
	for lines.Scan() {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		s.mu.Unlock()
	}
}

// Log returns the lines that the server wrote: one "METHOD PATH STATUS" per request, among others.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}
