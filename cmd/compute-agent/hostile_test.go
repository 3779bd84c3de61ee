// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// service is a server in a process of its own.
type service struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	ended   chan error

	mu  sync.Mutex
	log bytes.Buffer
}

func (s *service) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *service) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// serves starts a command that serves at ADDRESS, after the shell command before, and waits until
// it answers.
func serves(t *testing.T, before string, args ...string) *service {
	t.Helper()
	program := testproc.Try(exec.LookPath("compute-agent")).Or(t)
	s := &service{t: t, address: testproc.FreeAddress(t), ended: make(chan error, 1)}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "ADDRESS", s.address)
	}
	s.cmd = exec.Command("/bin/sh", append([]string{"-c", before + ` exec "$0" "$@"`, program}, args...)...)
	s.cmd.Stderr = s
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(t, s.cmd.Start())
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() { s.stop() })
	s.until("it serves", func() bool {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return s
}

func (s *service) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		err := <-s.ended
		s.ended <- err
	}
}

func (s *service) until(what string, is func() bool) {
	s.t.Helper()
	testproc.Eventually(s.t, testproc.Patience, what, func() error {
		select {
		case err := <-s.ended:
			s.ended <- err
			s.t.Fatalf("until %s: it ended: %v\n%s", what, err, s.said())
		default:
		}
		if !is() {
			return errors.New(s.said())
		}
		return nil
	})
}

// ask sends a request on a connection of its own.
func (s *service) ask(method, path, body string) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testproc.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.address+path, strings.NewReader(body))
	check(s.t, err)
	r.Header.Set("X-Auth-Token", "admin")
	r.Header.Set("Content-Type", "application/json")
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text := testproc.Try(io.ReadAll(answer.Body)).Or(s.t)
	return answer.StatusCode, string(text)
}

// TestFewDescriptors: 60 connections that say nothing, or that were used once, do not keep a server
// from answering which may have 64 files open.
func TestFewDescriptors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"placement": {"placement", "serve", "--state-dir", filepath.Join(dir, "p"),
			"--runtime-dir", filepath.Join(dir, "rp"), "--listen", "ADDRESS"},
		"cell": {"cells", "serve", "--name", "cell1",
			"--state-dir", filepath.Join(dir, "c"), "--runtime-dir", filepath.Join(dir, "rc"), "--listen", "ADDRESS"},
		"compute": {"cells", "api", "--state-dir", filepath.Join(dir, "a"),
			"--runtime-dir", filepath.Join(dir, "ra"), "--listen", "ADDRESS"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serves(t, "ulimit -n 64;", args...)
			for i := range 60 {
				c := testproc.Try(net.Dial("tcp", s.address)).Or(t)
				defer func() { _ = c.Close() }()
				if i%2 == 0 {
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
					_ = c.SetReadDeadline(time.Now().Add(testproc.Patience))
					if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
						t.Fatalf("connection %d: %v\n%s", i, err, s.said())
					}
				}
			}
			for range 5 {
				if status, text := s.ask(http.MethodGet, "/", ""); status == 0 || status >= 500 {
					t.Errorf("beside 60 idle connections: %d %s\n%s", status, text, s.said())
				}
			}
		})
	}
}

// TestDatabaseRemoved: after its files are removed a service refuses writes, says so within a
// moment, is not ready, and does not start again with an empty database, unless its operator does
// what the message says.
func TestDatabaseRemoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		file    string
		args    []string
		change  func(s *service) (int, string)
		metrics bool
	}{
		"placement": {"placement.db", []string{"placement", "serve"}, func(s *service) (int, string) {
			return s.ask(http.MethodPost, "/resource_providers", fmt.Sprintf(`{"name": "p%d"}`, time.Now().UnixNano()))
		}, false},
		"cell": {"cell.db", []string{"cells", "serve", "--name", "cell1"}, func(s *service) (int, string) {
			return s.ask(http.MethodPut, fmt.Sprintf("/v1/hosts/h%d", time.Now().UnixNano()),
				`{"version": "1", "nodes": []}`)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := testproc.SocketDir(t)
			state := filepath.Join(dir, "state")
			args := append(c.args, "--state-dir", state,
				"--runtime-dir", filepath.Join(dir, "run"), "--listen", "ADDRESS")
			s := serves(t, "", append([]string{}, args...)...)
			if status, text := c.change(s); status >= 300 {
				t.Fatalf("a write: %d %s", status, text)
			}
			files := testproc.Try(filepath.Glob(filepath.Join(state, c.file+"*"))).Or(t)
			for _, file := range files {
				check(t, os.Remove(file))
			}
			if status, text := c.change(s); status != http.StatusServiceUnavailable {
				t.Errorf("a write without the file: %d %s", status, text)
			}
			s.until("the log says it",
				func() bool { return strings.Contains(s.said(), "The database cannot be written to") })
			if !c.metrics {
				if status, text := s.ask(http.MethodGet, "/readyz", ""); status != http.StatusServiceUnavailable ||
					!strings.Contains(text, "deleted") || strings.Contains(text, dir) {
					t.Errorf("/readyz: %d %s", status, text)
				}
			}
			s.stop()
			marker := sqldb.Marker(filepath.Join(state, c.file))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "ADDRESS", s.address)
			}
			var out, problems bytes.Buffer
			if code := execute(t.Context(), args, &out, &problems); code != cli.ExitProtect ||
				!strings.Contains(problems.String(), "run: rm -f "+marker) {
				t.Errorf("the next start ended with %d: %s", code, problems.String())
			}
			check(t, os.Remove(marker))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], s.address, "ADDRESS")
			}
			serves(t, "", args...)
		})
	}
}
