// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package binding

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/testhost"
	"github.com/compute-agent/compute-agent/internal/libvirtd"
)

func connect(t *testing.T, uri string) hypervisor.Conn {
	t.Helper()
	c, err := Open(uri, func(string) {})
	if errors.Is(err, hypervisor.ErrNoLibrary) {
		notTested(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func notTested(t *testing.T, why error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("NOT TESTED, and CI must have it: %v", why)
	}
	t.Skipf("NOT TESTED: %v", why)
}

func privateDaemon(t *testing.T) *libvirtd.Daemon {
	t.Helper()
	run, err := os.MkdirTemp("", "lv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	d, err := libvirtd.StartPrivate(t.Context(), libvirtd.Options{
		Dir: filepath.Join(t.TempDir(), "s"), RuntimeDir: run, SearchPath: "/usr/sbin:/sbin", Logger: zerolog.Nop(),
	})
	if errors.Is(err, libvirtd.ErrNotInstalled) {
		notTested(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestTestDriver(t *testing.T) {
	h := testhost.Sample()
	file := filepath.Join(t.TempDir(), "node.xml")
	if err := os.WriteFile(file, []byte(h.TestDriverXML()), 0o600); err != nil {
		t.Fatal(err)
	}
	c := connect(t, "test://"+file)
	if kind, err := c.Type(); err != nil || strings.ToUpper(kind) != "TEST" {
		t.Errorf("type %q, %v", kind, err)
	}
	n, err := c.NodeInfo()
	if want := (hypervisor.NodeInfo{CPUs: 16, MemoryKiB: h.MemoryKiB()}); err != nil || n != want {
		t.Errorf("%+v, %v, want %+v", n, err, want)
	}
	if caps, err := c.Capabilities(); err != nil || !strings.Contains(caps, "<capabilities>") {
		t.Errorf("%.100s, %v", caps, err)
	}
	if !c.Alive() {
		t.Error("not alive")
	}
}

func TestErrorsAreSorted(t *testing.T) {
	c := connect(t, "test:///default")
	_, err := c.ExpandCPU("<cpu/>")
	if err == nil {
		t.Error("a CPU without a model was expanded")
	}
	if _, err := Open("nonsense:///", func(string) {}); err == nil || errors.Is(err, hypervisor.ErrNoLibrary) {
		t.Errorf("%v", err)
	}
}

func TestAnotherDaemonsEndIsTold(t *testing.T) {
	d := privateDaemon(t)
	told := make(chan string, 1)
	c, err := Open(d.URI(), func(reason string) { told <- reason })
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.CPUMap()
	if err != nil || len(m) == 0 {
		t.Errorf("%v, %v", m, err)
	}
	if err := syscall.Kill(d.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if reason := <-told; reason != "the daemon ended" {
		t.Errorf("reason %q", reason)
	}
	if _, err := c.NodeInfo(); err == nil || c.Alive() {
		t.Errorf("a dead connection answers: %v, alive %v", err, c.Alive())
	}
	if err := c.Close(); err != nil {
		t.Errorf("a dead connection leaks: %v", err)
	}
	if _, err := Open(d.URI(), func(string) {}); err == nil {
		t.Error("connected to a dead daemon")
	}
}

// A daemon that is stopped holds a call until keep-alive gives it up.
func TestAStoppedDaemonIsGivenUp(t *testing.T) {
	d := privateDaemon(t)
	told := make(chan string, 1)
	c, err := open(d.URI(), 1, 1, func(reason string) { told <- reason })
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(d.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NodeInfo(); err == nil {
		t.Error("a stopped daemon answers")
	}
	if reason := <-told; reason != "the daemon did not answer any more" {
		t.Errorf("reason %q", reason)
	}
	if err := c.Close(); err != nil {
		t.Errorf("the connection leaks: %v", err)
	}
}
