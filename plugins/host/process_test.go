// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

func TestFakeDriverReportsItsTree(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(Spec{Name: "fake", Config: []byte(`{"nodes":[{"name":"cn1","uuid":"` + rootUUID + `",
		"inventories":{"VCPU":{"total":8,"allocation_ratio":4}},
		"children":[{"name":"numa_0","traits":["HW_NUMA_ROOT"],"inventories":{"VGPU":{"total":2}}}]}]}`)})

	nodes, err := p.AvailableNodes(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]plugins.Node{{Name: "cn1", UUID: rootUUID}}, nodes); diff != "" {
		t.Error(diff)
	}
	tree, err := r.update(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if inv, _ := tree.Inventory(rootUUID, "VCPU"); inv.Total != 8 || inv.AllocationRatio != 4 {
		t.Errorf("inventory of VCPU: %+v", inv)
	}
	child, ok := tree.ProviderByName("cn1_numa_0")
	if !ok || !child.HasTrait("HW_NUMA_ROOT") || child.ParentUUID != rootUUID {
		t.Errorf("child: %+v", child)
	}

	status := p.Status()
	if status.State != Healthy || status.PID == 0 || len(status.SHA256) != 64 || status.Restarts != 0 {
		t.Errorf("status: %+v", status)
	}
	var states []State
	for _, s := range r.seen() {
		states = append(states, s.State)
	}
	if diff := cmp.Diff([]State{Verified, Starting, Configured, Healthy}, states); diff != "" {
		t.Error(diff)
	}
}

func TestTypedAnswersArrive(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "reshape"}))

	_, err := r.update(p, nil)
	if !errors.Is(err, plugins.ErrReshapeNeeded) || !strings.Contains(err.Error(), "VGPU moves to a child") {
		t.Errorf("without allocations: %v", err)
	}
	_, err = r.update(p, providertree.Allocations{
		"99999999-2222-3333-4444-555555555555": {Resources: map[string]map[string]int64{rootUUID: {"VGPU": 3}}},
	})
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) {
		t.Fatalf("with allocations: %v", err)
	}
	want := &plugins.ReshapeFailed{Reason: "no room", Offenders: []plugins.Offender{
		{Consumer: "99999999-2222-3333-4444-555555555555", Provider: rootUUID, Class: "VGPU", Problem: "3 are too many"},
	}}
	if diff := cmp.Diff(want, failed); diff != "" {
		t.Error(diff)
	}

	if err := p.Reconfigure(context.Background(), chaosSpec("", map[string]string{"update": "not-ready"})); err != nil {
		t.Fatal(err)
	}
	_, err = p.AvailableNodes(context.Background())
	var notReady *plugins.NotReady
	if !errors.Is(err, plugins.ErrNotReady) || !errors.As(err, &notReady) || notReady.Reason != "it sleeps" {
		t.Errorf("not ready: %v", err)
	}

	var config *plugins.ConfigError
	err = p.Reconfigure(context.Background(), chaosSpec("", map[string]string{"update": "refuse"}))
	if !errors.As(err, &config) || config.Key != "update" {
		t.Errorf("refused configuration: %v", err)
	}
	err = p.Reconfigure(context.Background(), chaosSpec("", map[string]string{"updat": "x"}))
	if !errors.As(err, &config) || config.Key != "updat" {
		t.Errorf("unknown key: %v", err)
	}
	if s := p.Status(); s.State != Healthy || s.Restarts != 0 {
		t.Errorf("a refused configuration must leave the process alone: %+v", s)
	}
}

func TestConfigErrorAtStartIsTyped(t *testing.T) {
	r := newRig(t)
	_, err := r.start(chaosSpec("", map[string]string{"update": "refuse"}))
	var config *plugins.ConfigError
	if !errors.Is(err, ErrUnavailable) || !errors.As(err, &config) {
		t.Errorf("start: %v", err)
	}
}

func TestPanicFailsTheCallOnly(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "panic"}))
	pid := p.Status().PID
	for range 2 {
		if _, err := r.update(p, nil); err == nil || !strings.Contains(err.Error(), "panicked") {
			t.Errorf("want the panic as an error, got %v", err)
		}
	}
	if s := p.Status(); s.PID != pid || s.State != Healthy {
		t.Errorf("status: %+v", s)
	}
}

func TestKilledProcessComesBack(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", nil))
	first := p.Status()
	_, n := r.await(0, "the first start", is(Healthy))
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	down, n := r.await(n, "the end to be noticed", is(Backoff))
	if !strings.Contains(down.LastError, "killed") {
		t.Errorf("reason: %q", down.LastError)
	}
	up, _ := r.await(n, "the restart", is(Healthy))
	if up.PID == first.PID || up.Restarts != 1 {
		t.Errorf("status: %+v", up)
	}
	if _, err := r.update(p, nil); err != nil {
		t.Error(err)
	}
}

func TestCrashDuringACall(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "crash"}))
	if _, err := r.update(p, nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("want ErrUnavailable, got %v", err)
	}
	down, _ := r.await(0, "the end", is(Backoff))
	if !strings.Contains(down.LastError, "exit status 7") || !strings.Contains(down.LastError, "panic: not a real one") {
		t.Errorf("reason: %q", down.LastError)
	}
}

func TestStoppedProcessIsKilledAndRestarted(t *testing.T) {
	r := newRig(t)
	spec := chaosSpec("", nil)
	spec.Timeouts.Health = 100 * time.Millisecond
	p := r.mustStart(spec)
	_, n := r.await(0, "the first start", is(Healthy))
	if err := syscall.Kill(p.Status().PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, n = r.await(n, "the first miss", is(Degraded))
	down, n := r.await(n, "the kill", is(Backoff))
	if !strings.Contains(down.LastError, "health checks in a row failed") {
		t.Errorf("reason: %q", down.LastError)
	}
	r.await(n, "the restart", is(Healthy))
}

func TestHangingCallsEndAtTheirDeadlineAndThenTheProcess(t *testing.T) {
	r := newRig(t)
	spec := chaosSpec("", map[string]string{"update": "hang"})
	spec.Timeouts.Update = 100 * time.Millisecond
	p := r.mustStart(spec)
	for range spec.Restart.Misses {
		if _, err := r.update(p, nil); !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("want ErrNoAnswer, got %v", err)
		}
	}
	down, _ := r.await(0, "the kill", is(Backoff))
	if !strings.Contains(down.LastError, "calls in a row got no answer") {
		t.Errorf("reason: %q", down.LastError)
	}
}

func TestCallerWhoGivesUpEarlyDoesNotCountAgainstThePlugin(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "hang"}))
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if _, _, err := p.UpdateProviderTree(ctx, oneNode(t), "cn1", nil); err == nil {
			t.Error("no error")
		}
		cancel()
	}
	if s := p.Status(); s.State != Healthy {
		t.Errorf("status: %+v", s)
	}
}

func TestCalmProblemDegradesWithoutARestart(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"health": "problem"}))
	pid := p.Status().PID
	s, n := r.await(0, "degraded", is(Degraded))
	if s.PID != pid || !strings.Contains(s.LastError, "the daemon does not answer") {
		t.Errorf("status: %+v", s)
	}
	if _, err := r.update(p, nil); err != nil {
		t.Errorf("a degraded plugin serves calls: %v", err)
	}
	if err := p.Reconfigure(context.Background(), chaosSpec("", nil)); err != nil {
		t.Fatal(err)
	}
	if s, _ = r.await(n, "the recovery", is(Healthy)); s.PID != pid {
		t.Errorf("status: %+v", s)
	}
}

func TestStartFailuresSayWhy(t *testing.T) {
	script := func(name, text string) string {
		path := filepath.Join(binDir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		path string
		mode string
		want []string
		is   error
	}{
		{name: "exits", mode: "exit-at-start", want: []string{"exit status 3", "cannot find the library that I need"}},
		{name: "slow", mode: "slow-start", want: []string{"did not complete the handshake within 1s"}, is: ErrNoAnswer},
		{name: "no plugin", path: script("hello", "#!/bin/sh\necho to stderr >&2\necho hello\nsleep 300\n"), want: []string{`"hello"`, "is this a driver", "to stderr"}},
		{name: "floods stdout", path: script("flood", "#!/bin/sh\nexec yes abcdefgh\n"), want: []string{"abcdefgh", "is this a driver"}},
		{name: "one endless line", path: script("endless", "#!/bin/sh\nexec tr '\\0' x </dev/zero\n"), want: []string{"xxxx"}},
		{name: "other version", path: script("other", "#!/bin/sh\necho '1|99|unix|/nowhere|grpc|'\nsleep 300\n"), is: ErrIncompatible, want: []string{`version "99"`}},
		{name: "no socket", path: script("nosock", "#!/bin/sh\necho '1|1|unix|/nowhere|grpc|'\nsleep 300\n")},
		{name: "not executable", path: script("noexec", "this is no program"), want: []string{"exec format error"}},
		{name: "missing", path: "/nonexistent/driver", want: []string{"install the package"}, is: os.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			spec := chaosSpec(c.mode, nil)
			spec.Path = c.path
			spec.Timeouts.Handshake, spec.Timeouts.Info = time.Second, time.Second
			spec.Restart.BackoffBase = time.Hour
			_, err := r.start(spec)
			if !errors.Is(err, ErrUnavailable) {
				t.Fatalf("want ErrUnavailable, got %v", err)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("want %v, got %v", c.is, err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
		})
	}
}

func TestHangingConfigureEndsTheStart(t *testing.T) {
	r := newRig(t)
	spec := chaosSpec("", map[string]string{"update": "hang-configure"})
	spec.Timeouts.Configure = 100 * time.Millisecond
	spec.Restart.BackoffBase, spec.Restart.BackoffMax = time.Hour, time.Hour
	if _, err := r.start(spec); !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrNoAnswer) {
		t.Errorf("want ErrNoAnswer, got %v", err)
	}
}

func TestRemovedSocketIsNoticed(t *testing.T) {
	r := newRig(t)
	r.mustStart(chaosSpec("", nil))
	_, n := r.await(0, "the start", is(Healthy))
	sockets, err := filepath.Glob(filepath.Join(r.runtime, socketDirName, "*", "*"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets: %v, %v", sockets, err)
	}
	if err := os.Remove(sockets[0]); err != nil {
		t.Fatal(err)
	}
	down, n := r.await(n, "the restart", is(Backoff))
	if !strings.Contains(down.LastError, "was removed by somebody") {
		t.Errorf("reason: %q", down.LastError)
	}
	r.await(n, "the recovery", is(Healthy))
}

func TestNoiseDoesNotHurt(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("noisy-start", map[string]string{"update": "print"}))
	if _, err := r.update(p, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	for _, rec := range r.log.records(t) {
		if msg, ok := rec["message"].(string); ok {
			found[clip(msg, 60)] = rec
		}
	}
	for _, want := range []string{
		"a line on standard output before the handshake", `{"@message":1}`, strings.Repeat("z", 60) + "...",
		"printed on standard output", "printed on standard error",
	} {
		if rec := found[want]; rec == nil || rec["output"] != "raw" || rec["level"] != "warn" || rec["pid"] == nil {
			t.Errorf("log record of %q: %v", want, rec)
		}
	}
	rec := found["configuring"]
	if rec == nil || rec["level"] != "info" || rec["driver"] != "chaos" || rec["plugin_driver"] != "somebody else" || rec["answer"] != 42.0 || rec["call"] != "Configure" {
		t.Errorf("log record of the driver's own: %v", rec)
	}
}

func TestGrandchildrenGoWithTheProcess(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "grandchild"}))
	_, err := r.update(p, nil)
	grandchild := pidIn(t, err)
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	waitGone(t, grandchild)
}

func TestRunawayGrandchildDoesNotHoldUpTheStop(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "runaway"}))
	_, err := r.update(p, nil)
	runaway := pidIn(t, err)
	if err := p.Stop(context.Background()); err != nil { // it sleeps for 300 s and holds our pipes: this would too
		t.Fatal(err)
	}
	if err := syscall.Kill(runaway, syscall.SIGKILL); err != nil {
		t.Errorf("the runaway is gone; then this test tests nothing: %v", err)
	}
}

func TestEnvironmentIsAnAllowList(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "environment"}))
	_, err := r.update(p, nil)
	if err == nil {
		t.Fatal("no environment came")
	}
	for _, leak := range []string{"SECRET", "NOTIFY_SOCKET"} {
		if strings.Contains(err.Error(), leak) {
			t.Errorf("%s leaked", leak)
		}
	}
	for _, want := range []string{"LIBVIRT_DEFAULT_URI=test:///default", "PATH=", partKey + "=" + partDriver} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestDescriptorsAndName(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "descriptors"}))
	_, err := r.update(p, nil)
	if err == nil || !strings.Contains(err.Error(), "comm=driver-chaos ") {
		t.Errorf("process name: %v", err)
	}
	for _, want := range []string{"0=/dev/null", "3=" + chaosPath} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("descriptor %s is missing: %v", want, err)
		}
	}
}

func TestHugeReplyIsRefused(t *testing.T) {
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "huge"}))
	if _, err := r.update(p, nil); !errors.Is(err, ErrBadReply) || !strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("want ErrBadReply, got %v", err)
	}
	if s := p.Status(); s.State != Healthy {
		t.Errorf("status: %+v", s)
	}
}

func TestBadTreesAreRefused(t *testing.T) {
	for mode, want := range map[string]string{"no-root": "is missing in the tree", "generation": "generations are Placement's to change"} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t)
			p := r.mustStart(chaosSpec("", map[string]string{"update": mode}))
			if _, err := r.update(p, nil); !errors.Is(err, ErrBadReply) || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		})
	}
}

func TestStopDrainsAndTidiesUp(t *testing.T) {
	r := newRig(t)
	scratch := filepath.Join(t.TempDir(), "go")
	spec := chaosSpec("", map[string]string{"update": "slow"})
	spec.Env[scratchKey] = scratch
	p := r.mustStart(spec)
	result := make(chan error, 1)
	go func() {
		_, err := r.update(p, nil)
		result <- err
	}()
	r.awaitLog("slow call begins")
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop(context.Background()) }()
	if err := os.WriteFile(scratch, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Errorf("the call under way was cut: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(scratch); string(got) != "tidied up" {
		t.Errorf("the driver's Shutdown did not run: %q", got)
	}
	if _, err := r.update(p, nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("after the stop: %v", err)
	}
}

func TestStopOfAStoppedProcessEnds(t *testing.T) {
	r := newRig(t)
	spec := chaosSpec("", nil)
	spec.Restart.HealthInterval = time.Hour
	p := r.mustStart(spec)
	if err := syscall.Kill(p.Status().PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want the deadline, got %v", err)
	}
}

func TestNewExecutableTakesOverWithoutRefusingACall(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(binDir, ExecutablePrefix+"upgraded")
	t.Cleanup(func() { _ = os.Remove(path) })
	if err := copyFile(chaosPath, path); err != nil {
		t.Fatal(err)
	}
	scratch := filepath.Join(t.TempDir(), "go")
	spec := chaosSpec("", map[string]string{"update": "slow"})
	spec.Path, spec.Env[scratchKey] = path, scratch
	p := r.mustStart(spec)
	old := p.Status()

	slow := make(chan error, 1)
	go func() {
		_, err := r.update(p, nil)
		slow <- err
	}()
	r.awaitLog("slow call begins")

	same := spec // nothing changed on disk: the process is asked to configure itself anew, and is busy
	same.Timeouts.Configure = 50 * time.Millisecond
	if err := p.Reconfigure(context.Background(), same); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("configuring a busy driver: %v", err)
	}
	if now := p.Status(); now.PID != old.PID {
		t.Fatal("the same executable was started again")
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(chaosPath, path); err != nil {
		t.Fatal(err)
	}
	next := spec
	next.Config = nil
	if err := p.Reconfigure(context.Background(), next); err != nil {
		t.Fatal(err)
	}
	now := p.Status()
	if now.PID == old.PID || now.State != Healthy || now.Restarts != 1 {
		t.Fatalf("status: %+v", now)
	}
	if _, err := r.update(p, nil); err != nil {
		t.Errorf("call of the new process: %v", err)
	}
	if err := os.WriteFile(scratch, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-slow; err != nil {
		t.Errorf("the old process' call was cut: %v", err)
	}
	waitGone(t, old.PID)
}

func TestWatchTellsOfChanges(t *testing.T) {
	r := newRig(t)
	spec := chaosSpec("", nil)
	told := make(chan string, 100)
	spec.Changed = func(node string) { told <- node }
	p := r.mustStart(spec)
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			if got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("never told %q", want)
		}
	}
	expect("")    // the process is new
	expect("cn1") // the driver says so
	if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	expect("")
	expect("cn1")
}

func TestNothingSurvivesAKilledAgent(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "rt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.Command(chaosPath)
	cmd.Env = append(os.Environ(), partKey+"="+partAgent, "AGENT_RUNTIME="+dir, "AGENT_BIN="+binDir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitGone(t, pid)

	left, err := filepath.Glob(filepath.Join(dir, socketDirName, "*", "*"))
	if err != nil || len(left) == 0 {
		t.Fatalf("the killed agent left no socket, so this test tests nothing: %v, %v", left, err)
	}
	h, err := New(Options{RuntimeDir: dir, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	if left, _ := filepath.Glob(filepath.Join(dir, socketDirName, "*")); len(left) > 0 {
		t.Errorf("the next agent did not clear away %v", left)
	}
}

// agentMain is the agent of the test above: it starts a driver, says its process id, and waits to be killed.
func agentMain() {
	h, err := New(Options{Dir: os.Getenv("AGENT_BIN"), RuntimeDir: os.Getenv("AGENT_RUNTIME"), Logger: zerolog.Nop()})
	if err != nil {
		panic(err)
	}
	p, err := h.Plugin(chaosSpec("", nil))
	if err != nil {
		panic(err)
	}
	if err := p.Start(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(p.Status().PID)
	select {}
}

// awaitLog waits for a line of a plugin's output.
func (r *rig) awaitLog(text string) {
	r.t.Helper()
	limit := time.Now().Add(patience)
	for !strings.Contains(r.log.String(), text) {
		if time.Now().After(limit) {
			r.t.Fatalf("%q was never logged", text)
		}
		time.Sleep(time.Millisecond)
	}
}
