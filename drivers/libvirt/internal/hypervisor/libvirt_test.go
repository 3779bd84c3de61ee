// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestMain(m *testing.M) {
	testhost.SimMain()
	os.Exit(m.Run())
}

func connect(t testing.TB, r Request) Conn {
	t.Helper()
	c, err := OpenLibvirt(r)
	if errors.Is(err, ErrNoLibrary) {
		testproc.NotRun(t, err.Error())
	}
	testproc.Check(t, err)
	t.Cleanup(func() { testproc.NoError(t, c.Close()) })
	return c
}

func privateDaemon(t testing.TB) *libvirtd.Daemon {
	t.Helper()
	run := testproc.Try(os.MkdirTemp("", "lv")).Or(t)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	d, err := libvirtd.StartPrivate(t.Context(), libvirtd.Options{
		Dir: filepath.Join(t.TempDir(), "s"), RuntimeDir: run, SearchPath: "/usr/sbin:/sbin", Logger: zerolog.Nop(),
	})
	if errors.Is(err, libvirtd.ErrNotInstalled) {
		testproc.NotRun(t, err.Error())
	}
	testproc.Check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testproc.Patience)
		defer cancel()
		testproc.NoError(t, d.Stop(ctx))
	})
	return d
}

func TestRealTestDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	c := connect(t, Request{URI: nodeFile(t, h)})
	if kind, err := c.Type(); err != nil || strings.ToUpper(kind) != "TEST" {
		t.Errorf("type %q, %v", kind, err)
	}
	n, err := c.NodeInfo()
	if want := (NodeInfo{CPUs: 16, MemoryKiB: h.MemoryKiB()}); err != nil || n != want {
		t.Errorf("%+v, %v, want %+v", n, err, want)
	}
	if caps, err := c.Capabilities(); err != nil || !strings.Contains(caps, "<capabilities>") {
		t.Errorf("%.100s, %v", caps, err)
	}
	if !c.Alive() {
		t.Error("not alive")
	}
}

// TestRealLeakIsReported: what every test's cleanup relies on.
func TestRealLeakIsReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, err := dial("test:///default", false, keepAliveInterval, keepAliveCount)
	if errors.Is(err, ErrNoLibrary) {
		testproc.NotRun(t, err.Error())
	}
	testproc.Check(t, err)
	list, err := c.ListAllDomains(0)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	testproc.ErrorHas(t, hangUp(c), "1 references", "a domain that was not given back: %v")
	testproc.NoError(t, list[0].Free())
}

func TestRealErrorsAreClassified(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := connect(t, Request{URI: "test:///default"})
	_, err := c.ExpandCPU("<cpu/>")
	if err == nil {
		t.Error("a CPU without a model was expanded")
	}
	if _, err := OpenLibvirt(Request{URI: "nonsense:///"}); err == nil || errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v", err)
	}
}

func TestRealEndOfTheConnectionIsReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := privateDaemon(t)
	received := make(chan string, 1)
	c := testproc.Try(OpenLibvirt(Request{URI: d.URI(), Closed: func(reason string) { received <- reason }})).Or(t)
	m, err := c.CPUMap()
	if err != nil || len(m) == 0 {
		t.Errorf("%v, %v", m, err)
	}
	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGKILL))
	testproc.Equal(t, <-received, "the daemon ended", "reason %q")
	if _, err := c.NodeInfo(); err == nil || c.Alive() {
		t.Errorf("a dead connection answers: %v, alive %v", err, c.Alive())
	}
	testproc.NoErrorf(t, c.Close(), "a dead connection leaks")
	if _, err := OpenLibvirt(Request{URI: d.URI()}); err == nil {
		t.Error("connected to a dead daemon")
	}
}

// TestRealStoppedDaemonIsGivenUp: a daemon that is stopped holds a call until keep-alive gives it
// up.
func TestRealStoppedDaemonIsGivenUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := privateDaemon(t)
	received := make(chan string, 1)
	c, err := openLibvirt(Request{URI: d.URI(), Closed: func(reason string) { received <- reason }}, 1, 1)
	testproc.Check(t, err)
	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGSTOP))
	if _, err := c.NodeInfo(); err == nil {
		t.Error("a stopped daemon answers")
	}
	testproc.Equal(t, <-received, "the daemon stopped responding", "reason %q")
	testproc.NoErrorf(t, c.Close(), "the connection leaks")
}
