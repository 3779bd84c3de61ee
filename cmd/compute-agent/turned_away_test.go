// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealTurnedAway: clients that wait on the socket that systemd passed are answered when the
// service cannot start, so that systemd starts it again, whatever is missing: the socket stays
// open. With an exit code after which systemd closes the socket, it is left alone.
func TestRealTurnedAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	missing := filepath.Join(t.TempDir(), "missing")
	invalid := filepath.Join(t.TempDir(), "invalid.toml")
	file := filepath.Join(t.TempDir(), "file")
	denied := filepath.Join(t.TempDir(), "denied.toml")
	key := filepath.Join(t.TempDir(), "key.toml")
	testproc.Check(t, errors.Join(
		os.WriteFile(invalid, []byte("[log]\nno_such_key = 1\n"), 0o600),
		os.WriteFile(file, nil, 0o600),
		os.WriteFile(denied, []byte("[deny_list]\nfile = \""+missing+"\"\n"), 0o600),
		os.WriteFile(key, []byte("[placement_tls]\ncert_file = \""+missing+"\"\nkey_file = \""+missing+"\"\n"), 0o600),
	))
	for name, c := range map[string]struct {
		command string
		args    []string
		code    int
	}{
		"no configuration": {"placement serve", []string{"--config", missing}, cli.ExitFailed},
		"no tokens": {"placement serve",
			[]string{"--auth", "token", "--token-file", missing}, cli.ExitFailed},
		"no deny list": {"placement serve", []string{"--config", denied}, cli.ExitFailed},
		"no key":       {"placement serve", []string{"--config", key}, cli.ExitFailed},
		"no state directory": {"placement serve",
			[]string{"--state-dir", filepath.Join(file, "state")}, cli.ExitFailed},
		"no address for metrics": {"placement serve", []string{"--metrics-listen", "192.0.2.1:1"},
			cli.ExitFailed},
		"no configuration, standalone":  {"standalone", []string{"--config", missing}, cli.ExitFailed},
		"invalid configuration":         {"placement serve", []string{"--config", invalid}, cli.ExitConfig},
		"invalid configuration, in one": {"standalone", []string{"--config", invalid}, cli.ExitConfig},
	} {
		t.Run(name, func(t *testing.T) {
			dir := testproc.SocketDir(t)
			socket := testproc.Try(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})).Or(t)
			passed := testproc.Try(socket.File()).Or(t)
			defer func() { _, _ = socket.Close(), passed.Close() }()
			address := socket.Addr().String()
			connect := func() net.Conn {
				t.Helper()
				c := testproc.Try(net.Dial("tcp", address)).Or(t)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			// A client with a request, one without, and one that begins a handshake.
			plain, silent, secured := connect(), connect(), connect()
			_ = testproc.Try(io.WriteString(plain, "GET /resource_providers HTTP/1.1\r\nHost: placement\r\n\r\n")).Or(t)
			shaken := make(chan error, 1)
			go func() {
				shaken <- tls.Client(secured, &tls.Config{ServerName: "placement"}).HandshakeContext(t.Context())
			}()

			// LISTEN_PID is the process's own, which only it knows.
			args := append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`,
				testproc.Try(exec.LookPath("compute-agent")).Or(t)}, strings.Fields(c.command)...)
			args = append(append(args, "--state-dir", filepath.Join(dir, "state"),
				"--runtime-dir", filepath.Join(dir, "run")), c.args...)
			cmd := exec.CommandContext(t.Context(), "/bin/sh", args...)
			cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=placement", testproc.ShareUser)
			cmd.ExtraFiles = []*os.File{passed}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			var ended *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &ended) || ended.ExitCode() != c.code {
				t.Fatalf("%v, want exit status %d: %s", err, c.code, &out)
			}
			if c.code != cli.ExitFailed {
				// All wait yet.
				for range 3 {
					testproc.Check(t, testproc.Try(socket.Accept()).Or(t).Close())
				}
				return
			}
			// What waits yet is cut, as it waits for good.
			testproc.Check(t, errors.Join(socket.Close(), passed.Close()))
			answer, err := http.ReadResponse(bufio.NewReader(plain), nil)
			testproc.Check(t, err)
			body := testproc.Try(io.ReadAll(answer.Body)).Or(t)
			if answer.StatusCode != http.StatusServiceUnavailable || !answer.Close ||
				!strings.Contains(string(body), "Placement cannot start") {
				t.Errorf("the request was answered with %s, %q", answer.Status, body)
			}
			for what, c := range map[string]net.Conn{"with a request": plain, "without one": silent} {
				if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
					t.Errorf("the client %s got %q, %v", what, rest, err)
				}
			}
			testproc.ErrorIs(t, <-shaken, io.EOF, "the handshake: %v")
		})
	}
}
