// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// manager is systemd's side: a datagram socket that NOTIFY_SOCKET names.
func manager(t *testing.T, address string) *net.UnixConn {
	t.Helper()
	conn := testproc.Try(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})).Or(t)
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", address)
	return conn
}

func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	testproc.Check(t, conn.SetReadDeadline(time.Now().Add(testproc.Patience)))
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	testproc.Checkf(t, err, "nothing arrived")
	return string(buf[:n])
}

func TestNotifications(t *testing.T) {
	for name, address := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": fmt.Sprintf("@compute-agent-test-%d", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			conn := manager(t, address)
			n, err := New()
			if err != nil || !n.Enabled() {
				t.Fatalf("New: enabled %t, %v", n.Enabled(), err)
			}
			if _, set := os.LookupEnv("NOTIFY_SOCKET"); set {
				t.Error("children would inherit NOTIFY_SOCKET")
			}
			for _, step := range []struct {
				send func(string) error
				text string
				want string
			}{
				{n.Ready, "reporting 1 node", "READY=1\nSTATUS=reporting 1 node"},
				{n.Ready, "", "READY=1"},
				{n.Status, "two\nlines\tREADY=1", "STATUS=two lines READY=1"},
				{n.Reloading, "", "RELOADING=1\nMONOTONIC_USEC=N"},
				{n.Stopping, "ending drivers", "STOPPING=1\nSTATUS=ending drivers"},
				{func(string) error { return n.ping() }, "", "WATCHDOG=1"},
			} {
				testproc.Check(t, step.send(step.text))
				got := regexp.MustCompile(`USEC=[0-9]+`).ReplaceAllString(receive(t, conn), "USEC=N")
				testproc.Samef(t, cmp.Diff(step.want, got), "message")
			}
		})
	}
}

// TestReloadingSendsMonotonicTime: the time of a reload is on the clock that systemd compares with,
// and rises.
func TestReloadingSendsMonotonicTime(t *testing.T) {
	conn := manager(t, filepath.Join(t.TempDir(), "notify"))
	n := testproc.Try(New()).Or(t)
	var last int64
	for range 3 {
		testproc.Check(t, n.Reloading("reading the configuration"))
		lines := strings.Split(receive(t, conn), "\n")
		text, ok := strings.CutPrefix(lines[1], "MONOTONIC_USEC=")
		usec, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || usec <= last {
			t.Fatalf("%q after %d: %v", lines[1], last, err)
		}
		last = usec
		testproc.Equal(t, lines[2], "STATUS=reading the configuration", "status is %q")
	}
}

// TestStartingExtendsTheTimeout: systemd gets a sign of life of a start at most every ten seconds,
// whose next one may take two minutes, and none after the end of the start.
func TestStartingExtendsTheTimeout(t *testing.T) {
	conn := manager(t, filepath.Join(t.TempDir(), "notify"))
	n := testproc.Try(New()).Or(t)
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	n.now = func() time.Time { return now }
	var sent []int
	send := n.send
	for second := range 60 {
		n.send = func(message string) error { sent = append(sent, second); return send(message) }
		if second == 45 {
			testproc.Check(t, n.Ready(""))
		}
		for range 1000 {
			testproc.Check(t, n.Starting())
		}
		now = now.Add(time.Second)
	}
	testproc.EqualList(t, sent, []int{0, 10, 20, 30, 40, 45}, "messages in seconds %v")
	for i := range sent {
		want := "EXTEND_TIMEOUT_USEC=120000000"
		if i == len(sent)-1 {
			want = "READY=1"
		}
		testproc.Equal(t, receive(t, conn), want, "message %d is %q", i)
	}
}

func TestNotifierWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "1000000")
	n := testproc.Try(New()).Or(t)
	for name, n := range map[string]*Notifier{"no socket": n, "zero": {}, "nil": nil} {
		if n.Enabled() || n.WatchdogInterval() != 0 {
			t.Errorf("%s: enabled", name)
		}
		for _, err := range []error{n.Ready("x"), n.Reloading("x"), n.Stopping("x"), n.Status("x"), n.Starting()} {
			testproc.NoErrorf(t, err, "%s", name)
		}
	}
}

func TestLostNotification(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	n := testproc.Try(New()).Or(t)
	testproc.ErrorIs(t, n.Ready("x"), ErrNotify, "Ready: %v")
	t.Setenv("NOTIFY_SOCKET", "vsock:2:1234")
	if n, err := New(); !errors.Is(err, ErrNotify) || n.Enabled() {
		t.Errorf("a socket of another kind: enabled %t, %v", n.Enabled(), err)
	}
}

func TestLongStatusIsOneShortLine(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	line := statusLine(strings.Repeat("ä", 2*maxStatus))
	if len(line) > len("STATUS=")+maxStatus+len("…") || strings.Contains(line, "\n") {
		t.Errorf("%d bytes", len(line))
	}
	testproc.Equal(t, statusLine("bad \xff bytes"), "STATUS=bad ? bytes", "got %q")
}

func TestWatchdogIsForThisProcessOnly(t *testing.T) {
	for _, tc := range []struct {
		usec, pid string
		want      time.Duration
		bad       bool
	}{
		{"30000000", strconv.Itoa(os.Getpid()), 30 * time.Second, false},
		{"30000000", "", 30 * time.Second, false},
		{"30000000", "1", 0, false},
		{"", "", 0, false},
		{"soon", "", 0, true},
		{"-1", "", 0, true},
	} {
		manager(t, filepath.Join(t.TempDir(), "notify"))
		t.Setenv("WATCHDOG_USEC", tc.usec)
		t.Setenv("WATCHDOG_PID", tc.pid)
		n, err := New()
		if got := n.WatchdogInterval(); got != tc.want || (err != nil) != tc.bad {
			t.Errorf("WATCHDOG_USEC=%s WATCHDOG_PID=%s: interval %v, %v", tc.usec, tc.pid, got, err)
		}
		if !n.Enabled() {
			t.Error("the notifier must work without its watchdog")
		}
		for _, name := range []string{"WATCHDOG_USEC", "WATCHDOG_PID"} {
			if _, set := os.LookupEnv(name); set {
				t.Errorf("children would inherit %s", name)
			}
		}
	}
}
