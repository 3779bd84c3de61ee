// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestFakeDriverReportsItsTree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(Spec{Name: "fake", Config: []byte(`{"nodes":[{"name":"cn1","uuid":"` + rootUUID + `",
		"inventories":{"VCPU":{"total":8,"allocation_ratio":4}},
		"children":[{"name":"numa_0","traits":["HW_NUMA_ROOT"],"inventories":{"VGPU":{"total":2}}}]}]}`)})

	nodes := testproc.Try(p.AvailableNodes(context.Background())).Or(t)
	testproc.Same(t, cmp.Diff([]plugins.Node{{Name: "cn1", UUID: rootUUID}}, nodes))
	tree := testproc.Try(r.update(p, nil)).Or(t)
	if inv, _ := tree.Inventory(rootUUID, "VCPU"); inv.Total != 8 || inv.AllocationRatio != 4 {
		t.Errorf("inventory of VCPU: %+v", inv)
	}
	child, ok := tree.ProviderByName("cn1_numa_0")
	if !ok || !child.HasTrait("HW_NUMA_ROOT") || child.ParentUUID != rootUUID {
		t.Errorf("child: %+v", child)
	}

	r.await(0, "the plugin to be healthy", is(Healthy)) // it serves calls a moment before its state says so
	status := p.Status()
	if status.State != Healthy || status.PID == 0 || len(status.SHA256) != 64 || status.Restarts != 0 {
		t.Errorf("status: %+v", status)
	}
	var states []State
	for _, s := range r.seen() {
		states = append(states, s.State)
	}
	testproc.Same(t, cmp.Diff([]State{Verified, Starting, Configured, Healthy}, states))
}

func TestTypedAnswersArrive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "reshape"}))

	_, err := r.update(p, nil)
	if !errors.Is(err, plugins.ErrReshapeNeeded) || !strings.Contains(err.Error(), "VGPU moves to a child") {
		t.Errorf("without allocations: %v", err)
	}
	_, err = r.update(p, providertree.Allocations{
		"99999999-2222-3333-4444-555555555555": {Resources: providertree.ProviderResources{rootUUID: {"VGPU": 3}}},
	})
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) {
		t.Fatalf("with allocations: %v", err)
	}
	want := &plugins.ReshapeFailed{Reason: "no capacity", Hint: "free capacity", Violations: []plugins.Violation{
		{Consumer: "99999999-2222-3333-4444-555555555555",
			Provider: rootUUID, Class: "VGPU", Problem: "3 are too many", Hint: "hold less"},
	}}
	testproc.Same(t, cmp.Diff(want, failed))

	testproc.Check(t, p.Reconfigure(context.Background(), chaosSpec("", map[string]string{"update": "not-ready"})))
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
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	_, err := r.start(chaosSpec("", map[string]string{"update": "refuse"}))
	var config *plugins.ConfigError
	if !errors.Is(err, driverclient.ErrUnavailable) || !errors.As(err, &config) {
		t.Errorf("start: %v", err)
	}
	if err == nil {
		return
	}
	if said := Backoff.meaningOf(err); !strings.Contains(said, "rejects its configuration") ||
		strings.Contains(said, "restarted") {
		t.Errorf("message: %s", said)
	}
	testproc.Contains(t, Backoff.meaningOf(errors.New("it crashed")), "restarted", "of a crash: %s")
}

func TestPanicFailsTheCallOnly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "panic"}))
	pid := p.Status().PID
	for range 2 {
		testproc.Try(r.update(p, nil)).ErrorHas(t, "panicked", "want the panic as an error, got %v")
	}
	if s := p.Status(); s.PID != pid || s.State != Healthy {
		t.Errorf("status: %+v", s)
	}
}

func TestKilledProcessComesBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", nil))
	first := p.Status()
	_, n := r.await(0, "the first start", is(Healthy))
	testproc.Check(t, syscall.Kill(first.PID, syscall.SIGKILL))
	down, n := r.await(n, "the end to be noticed", is(Backoff))
	testproc.Contains(t, down.LastError, "killed", "reason: %q")
	up, _ := r.await(n, "the restart", is(Healthy))
	if up.PID == first.PID || up.Restarts != 1 {
		t.Errorf("status: %+v", up)
	}
	if _, err := r.update(p, nil); err != nil {
		t.Error(err)
	}
}

func TestCrashDuringACall(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "crash"}))
	testproc.Try(r.update(p, nil)).ErrorIs(t, driverclient.ErrUnavailable, "want driverclient.ErrUnavailable, got %v")
	down, _ := r.await(0, "the end", is(Backoff))
	if !strings.Contains(down.LastError, "exit status 7") ||
		!strings.Contains(down.LastError, "panic: not a real one") {
		t.Errorf("reason: %q", down.LastError)
	}
}

func TestStoppedProcessIsKilledAndRestarted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	spec := chaosSpec("", nil)
	spec.Timeouts.Health = time.Second
	p := r.mustStart(spec)
	_, n := r.await(0, "the first start", is(Healthy))
	r.eventually("a process that can be stopped", func() error { // a slow one may have been killed before
		pid := p.Status().PID
		if pid == 0 {
			return errors.New("the plugin is down")
		}
		return syscall.Kill(pid, syscall.SIGSTOP)
	})
	_, n = r.await(n, "the first miss", is(Degraded))
	down, n := r.await(n, "the kill", is(Backoff))
	testproc.Contains(t, down.LastError, "consecutive health checks failed", "reason: %q")
	r.await(n, "the restart", is(Healthy))
}

func TestHangingCallsEndAtTheirDeadlineAndThenTheProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	spec := chaosSpec("", map[string]string{"update": "hang"})
	spec.Timeouts.Update = 100 * time.Millisecond
	p := r.mustStart(spec)
	for range spec.Restart.Misses {
		if _, err := r.update(p, nil); !errors.Is(err, driverclient.ErrNoAnswer) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("want driverclient.ErrNoAnswer, got %v", err)
		}
	}
	down, _ := r.await(0, "the kill", is(Backoff))
	testproc.Contains(t, down.LastError, "consecutive calls got no response", "reason: %q")
}

func TestCallerWhoGivesUpEarlyDoesNotCountAgainstThePlugin(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "hang"}))
	for range 5 {
		if _, _, err := p.UpdateProviderTree(impatient(t), oneNode(t), "cn1", nil); err == nil {
			t.Error("no error")
		}
	}
	if s := p.Status(); s.State != Healthy {
		t.Errorf("status: %+v", s)
	}
}

func TestCalmProblemDegradesWithoutARestart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
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
	testproc.Check(t, p.Reconfigure(context.Background(), chaosSpec("", nil)))
	if s, _ = r.await(n, "the recovery", is(Healthy)); s.PID != pid {
		t.Errorf("status: %+v", s)
	}
}

func TestRemovedSocketIsNoticed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	r.mustStart(chaosSpec("", nil))
	_, n := r.await(0, "the start", is(Healthy))
	sockets, err := filepath.Glob(filepath.Join(r.runtime, socketDirName, "*", "*"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets: %v, %v", sockets, err)
	}
	testproc.Check(t, os.Remove(sockets[0]))
	down, n := r.await(n, "the restart", is(Backoff))
	testproc.Contains(t, down.LastError, "was removed", "reason: %q")
	r.await(n, "the recovery", is(Healthy))
}

// TestLargeTreesPassBothWays: gRPC's own limit is 4 MiB.
func TestLargeTreesPassBothWays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", nil))
	tree := oneNode(t)
	unit := providertree.Resource{Identifier: "x", Metadata: strings.Repeat("m", 10<<20)}
	testproc.Try(tree.SetResources(rootUUID, map[string][]providertree.Resource{"CUSTOM_X": {unit}})).Or(t)
	after, _, err := p.UpdateProviderTree(context.Background(), tree, "cn1", nil)
	testproc.Check(t, err)
	if root, _ := after.Provider(rootUUID); len(root.Resources["CUSTOM_X"][0].Metadata) != 10<<20 {
		t.Error("something was lost on the way")
	}
}

func TestTenThousandConsumersPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", nil))
	given := providertree.Allocations{}
	for i := range 10_000 {
		consumer := testproc.Try(providertree.ChildUUID(rootUUID, "consumer"+strconv.Itoa(i))).Or(t)
		given[consumer] =
			providertree.ConsumerAllocations{Resources: providertree.ProviderResources{rootUUID: {"VCPU": 1,
				"MEMORY_MB": 512}}}
	}
	_, back, err := p.UpdateProviderTree(context.Background(), oneNode(t), "cn1", given)
	testproc.Check(t, err)
	testproc.Same(t, cmp.Diff(given, back))
}

// TestRenamesComeWithTheReshape: the plugin has those of the last reshape, and a pass without a
// reshape does not touch them.
func TestRenamesComeWithTheReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "rename"}))
	for _, c := range []struct {
		given providertree.Allocations
		want  map[string]string
	}{{nil, nil}, {providertree.Allocations{}, map[string]string{"CUSTOM_A": "A"}},
		{nil, map[string]string{"CUSTOM_A": "A"}}} {
		testproc.Try(r.update(p, c.given)).Or(t)
		testproc.Samef(t, cmp.Diff(c.want, p.ClassRenames()), "given %v", c.given)
	}
}

func TestHugeReplyIsRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "huge"}))
	if _, err := r.update(p, nil); !errors.Is(err, driverclient.ErrBadReply) ||
		!strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("want driverclient.ErrBadReply, got %v", err)
	}
	if s := p.Status(); s.State != Healthy {
		t.Errorf("status: %+v", s)
	}
}

func TestBadTreesAreRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for mode, want := range map[string]string{"no-root": "is missing from the tree",
		"generation": "only Placement changes generations"} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t)
			p := r.mustStart(chaosSpec("", map[string]string{"update": mode}))
			if _, err := r.update(p, nil); !errors.Is(err, driverclient.ErrBadReply) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		})
	}
}

func TestStopDrainsAndTidiesUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
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
	testproc.Check(t, os.WriteFile(scratch, nil, 0o600))
	testproc.NoErrorf(t, <-result, "the call under way was cut")
	testproc.NoError(t, <-stopped)
	if got, _ := os.ReadFile(scratch); string(got) != "tidied up" {
		t.Errorf("the driver's Shutdown did not run: %q", got)
	}
	testproc.Try(r.update(p, nil)).ErrorIs(t, driverclient.ErrUnavailable, "after the stop: %v")
}

func TestStopOfAStoppedProcessEnds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	spec := chaosSpec("", nil)
	spec.Restart.HealthInterval = time.Hour
	p := r.mustStart(spec)
	testproc.Check(t, syscall.Kill(p.Status().PID, syscall.SIGSTOP))
	waitStopped(t, p.Status().PID)
	testproc.ErrorIs(t, p.Stop(impatient(t)), context.DeadlineExceeded, "want the deadline, got %v")
}

func TestNewExecutableTakesOverWithoutRefusingACall(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	path := filepath.Join(binDir, launch.Prefix+"upgraded")
	t.Cleanup(func() { _ = os.Remove(path) })
	testproc.Check(t, copyFile(chaosPath, path))
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

	// Nothing changed on disk: the process is asked to configure itself again, and is too busy to
	// answer. The limit is also that of the process that takes over.
	same := spec
	same.Timeouts.Handshake, same.Timeouts.Configure = patience/2, 5*time.Second
	testproc.NoErrorf(t, p.Reconfigure(context.Background(), same), "configuring a busy driver")
	second := p.Status()
	if second.PID == old.PID || second.State != Healthy {
		t.Fatalf("no process took over from the busy one: %+v", second)
	}

	testproc.Check(t, os.Remove(path))
	testproc.Check(t, copyFile(chaosPath, path))
	next := spec
	next.Config = nil
	testproc.Check(t, p.Reconfigure(context.Background(), next))
	now := p.Status()
	if now.PID == second.PID || now.State != Healthy || now.Restarts != 0 || now.Replacements != 2 {
		t.Fatalf("status: %+v", now)
	}
	if _, err := r.update(p, nil); err != nil {
		t.Errorf("call of the new process: %v", err)
	}
	testproc.Check(t, os.WriteFile(scratch, nil, 0o600))
	testproc.NoErrorf(t, <-slow, "the old process' call was cut")
	waitGone(t, old.PID)
}

func TestWatchTellsOfChanges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	spec := chaosSpec("", nil)
	told := make(chan string, 100)
	spec.Changed = func(node string) { told <- node }
	p := r.mustStart(spec)
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			testproc.Equal(t, got, want, "told %q")
		case <-time.After(patience):
			t.Fatalf("never told %q", want)
		}
	}
	expect("")    // the process is new
	expect("cn1") // the driver says so
	testproc.Check(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
	expect("")
	expect("cn1")
}

// awaitLog waits for a line of a plugin's output.
func (r *rig) awaitLog(text string) {
	r.t.Helper()
	testproc.Eventually(r.t, patience, "the log has "+text,
		testproc.True(func() bool { return strings.Contains(r.log.String(), text) }))
}

// TestTenThousandProvidersPass: a large tree is sent to the driver, and comes back with a change of
// every provider.
func TestTenThousandProvidersPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", nil))
	tree := oneNode(t)
	for i := 1; i < 10_000; i++ {
		id := testproc.Try(providertree.ChildUUID(rootUUID, strconv.Itoa(i))).Or(t)
		testproc.Check(t, tree.AddChild(rootUUID, id, "cn1_"+strconv.Itoa(i)))
	}
	after, _, err := p.UpdateProviderTree(context.Background(), tree, "cn1", nil)
	testproc.Check(t, err)
	if diff := providertree.Diff(tree, after); len(diff.Added)+len(diff.Removed) > 0 ||
		len(diff.Changed) != 1 || after.Len() != 10_000 {
		t.Errorf("%d added, %d removed, %d changed", len(diff.Added), len(diff.Removed), len(diff.Changed))
	}
}
