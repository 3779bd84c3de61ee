// SPDX-License-Identifier: Apache-2.0

package realplacement

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"net/http"
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

// Server is a running Placement.
type Server struct {
	// URL is its endpoint.
	URL string

	mu  sync.Mutex
	log []string
}

// Start runs a Placement with an empty database until the test ends. Without the packages the test is skipped, and fails
// under CI.
func Start(t testing.TB) *Server {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import placement.wsgi").CombinedOutput(); err != nil {
		missing := "Debian's package python3-placement is not installed (tools/packages.sh test): " + string(out)
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
	cmd := exec.Command(python, "-W", "ignore", path, dir)
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
			s.URL = "http://127.0.0.1:" + port
			reading.Go(func() { s.read(lines) })
			return s
		}
	}
	t.Fatalf("the real Placement did not start: %v\n%s", lines.Err(), strings.Join(s.Log(), "\n"))
	return nil
}

func (s *Server) read(lines *bufio.Scanner) {
	for lines.Scan() {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		s.mu.Unlock()
	}
}

// Reset deletes all that was written to the service. Its standard traits and resource classes stay.
func (s *Server) Reset(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/-/reset", http.NoBody)
	if err != nil {
		return fmt.Errorf("empty the real Placement: %w", err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("empty the real Placement: %w", err)
	}
	_ = resp.Body.Close() // It is empty.
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("empty the real Placement: status %s", resp.Status)
	}
	return nil
}

// Log returns the lines that the server wrote: one "METHOD PATH STATUS" per request, among others.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}
