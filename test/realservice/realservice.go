// SPDX-License-Identifier: Apache-2.0

package realservice

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// python is Debian's own, which has Debian's packages; one from elsewhere on PATH does not.
const python = "/usr/bin/python3"

// Service is what to run.
type Service struct {
	// Name is what messages call it.
	Name string
	// Package is Debian's, and Module one of its Python modules.
	Package, Module string
	// Script is run with a directory of its own as the first argument, and Args after it.
	Script []byte
	Args   []string
}

// Server is a running service.
type Server struct {
	// Address is HOST:PORT.
	Address string

	mu  sync.Mutex
	log []string
}

// Start runs a service until the test ends. Without its package the test is skipped, and fails under CI.
func Start(t testing.TB, service Service) *Server {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import "+service.Module).CombinedOutput(); err != nil {
		missing := "Debian's package " + service.Package + " is not installed (tools/packages.sh test): " + string(out)
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "serve.py")
	if err := os.WriteFile(path, service.Script, 0o600); err != nil {
		t.Fatal(err)
	}
	// Not bound to the test's context: the service ends by its standard input, in order.
	cmd := exec.CommandContext(context.Background(), python, append([]string{"-W", "ignore", path, dir}, service.Args...)...)
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
			s.Address = "127.0.0.1:" + port
			reading.Go(func() { s.read(lines) })
			return s
		}
	}
	t.Fatalf("the real %s did not start: %v\n%s", service.Name, lines.Err(), strings.Join(s.Log(), "\n"))
	return nil
}

func (s *Server) read(lines *bufio.Scanner) {
	for lines.Scan() {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		s.mu.Unlock()
	}
}

// Log returns the lines that the service wrote: one "METHOD PATH STATUS" per request, among others.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}
