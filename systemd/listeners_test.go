// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// roleVariable turns the test binary into a socket-activated service.
const roleVariable = "SYSTEMD_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "service" {
		os.Exit(serve())
	}
	os.Exit(m.Run())
}

// serve is that service: it takes over its sockets, answers one connection on
// the one called placement and reports what it saw.
func serve() int {
	// LISTEN_PID must be the process's own, which only it knows.
	if err := os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())); err != nil {
		return 1
	}
	listeners, err := Listeners()
	if err != nil {
		fmt.Println("error:", errors.Is(err, ErrNotListener), len(listeners))
		return 0
	}
	_, inherited := os.LookupEnv("LISTEN_FDS")
	conn, err := listeners[PlacementSocket][0].Accept()
	if err != nil {
		return 1
	}
	again, err := Listeners()
	_, _ = fmt.Fprintf(conn, "placement=%d other=%d inherited=%t again=%d %v", len(listeners[PlacementSocket]),
		len(listeners["other"]), inherited, len(again), err)
	_ = conn.Close()
	return 0
}

func activated(t *testing.T, names string, files ...*os.File) *exec.Cmd {
	t.Helper()
	self := testproc.Try(os.Executable()).Or(t)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), roleVariable+"=service",
		"LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+names)
	cmd.ExtraFiles = files
	return cmd
}

func listeningFile(t *testing.T) (net.Addr, *os.File) {
	t.Helper()
	l := testproc.Try(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})).Or(t)
	t.Cleanup(func() { _ = l.Close() })
	f := testproc.Try(l.File()).Or(t)
	t.Cleanup(func() { _ = f.Close() })
	return l.Addr(), f
}

func TestListenersByName(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	addr, first := listeningFile(t)
	_, second := listeningFile(t)
	cmd := activated(t, "placement:other", first, second)
	testproc.Check(t, cmd.Start())
	// The socket was open before the service was: the connection waits.
	conn := testproc.Try(net.Dial("tcp", addr.String())).Or(t)
	answer, err := io.ReadAll(conn)
	_ = conn.Close()
	if waitErr := cmd.Wait(); err != nil || waitErr != nil {
		t.Fatalf("read %v, wait %v", err, waitErr)
	}
	if got, want := string(answer), "placement=1 other=1 inherited=false again=0 <nil>"; got != want {
		t.Errorf("the service saw %q, want %q", got, want)
	}
}

func TestListenersRejectOtherSockets(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, good := listeningFile(t)
	file := testproc.Try(os.Create(filepath.Join(t.TempDir(), "file"))).Or(t)
	defer func() { _ = file.Close() }()
	out, err := activated(t, "placement:other", good, file).Output()
	if err != nil || strings.TrimSpace(string(out)) != "error: true 0" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestNoSocketActivation(t *testing.T) {
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "1")
	if got, err := Listeners(); err != nil || len(got) != 0 {
		t.Errorf("sockets of another process: %v, %v", got, err)
	}
	if _, set := os.LookupEnv("LISTEN_FDS"); set {
		t.Error("children would inherit LISTEN_FDS")
	}
}

func TestCredentialPath(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "token"), []byte("x"), 0o400))
	if got, err := CredentialPath(dir, "token"); err != nil || got != filepath.Join(dir, "token") {
		t.Errorf("%q, %v", got, err)
	}
	for _, tc := range [][2]string{{dir, "absent"}, {dir, "../token"}, {dir, ".."}, {dir, ""},
		{"", "token"}, {"relative", "token"}} {
		if got, err := CredentialPath(tc[0], tc[1]); !errors.Is(err, ErrNoCredential) {
			t.Errorf("CredentialPath(%q, %q) is %q, %v", tc[0], tc[1], got, err)
		}
	}
}
