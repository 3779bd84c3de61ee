// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// justRun starts a plugin and does nothing with it.
func justRun(h upstreamHost) {
	client, _ := h.start(h.config())
	h.say("address", client.ReattachConfig().Addr)
	h.say("running", true)
}

func stopProcess(h upstreamHost, pid int) {
	h.fail(syscall.Kill(pid, syscall.SIGSTOP))
	poll(func() bool { return threadsStopped(pid) })
}

// threadsStopped reports whether every thread of a process has stopped.
func threadsStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if _, rest, _ := strings.Cut(string(stat), ") "); err != nil || !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return len(threads) > 0
}

func stoppedProcess(h upstreamHost) {
	client, _ := h.start(h.config())
	protocol, err := client.Client()
	h.fail(err)
	pid, err := strconv.Atoi(client.ID())
	h.fail(err)
	stopProcess(h, pid)
	go h.do("ping", func() { _ = protocol.Ping() })
	h.do("kill", client.Kill)
}

func pingAndKillBlocked(_ *testing.T, r *run) (bool, string) {
	r.start()
	ping, kill := r.await("ping"), r.await("kill")
	return ping == "blocked" && kill == "blocked", fmt.Sprintf("Ping %s, Kill %s", ping, kill)
}

func stoppedProcessIsReplaced(t *testing.T) {
	r, mark := newMarkedRig(t)
	spec := plainSpec(t, mark)
	spec.Timeouts.Nodes, spec.Timeouts.Stop = 200*time.Millisecond, 200*time.Millisecond
	spec.Restart.HealthInterval = time.Hour // calls alone find it out
	p := r.mustStart(spec)
	first := p.Status().PID
	_, n := r.await(0, "the start", is(Healthy))
	testproc.Check(t, syscall.Kill(first, syscall.SIGSTOP))
	waitStopped(t, first)
	for range spec.Restart.Misses {
		if _, err := p.AvailableNodes(context.Background()); !errors.Is(err, driverclient.ErrNoAnswer) &&
			!errors.Is(err, driverclient.ErrUnavailable) {
			t.Errorf("want driverclient.ErrNoAnswer, got %v", err)
		}
	}
	_, n = r.await(n, "the end of the stopped process", is(Backoff))
	second, _ := r.await(n, "another one", is(Healthy))
	if second.PID == first {
		t.Fatal("it is the same process")
	}
	spec.Timeouts.Nodes = patience / 2 // this one is to answer
	testproc.Check(t, p.Reconfigure(context.Background(), spec))
	if _, err := p.AvailableNodes(context.Background()); err != nil {
		t.Error(err)
	}

	testproc.Check(t, syscall.Kill(second.PID, syscall.SIGSTOP))
	waitStopped(t, second.PID)
	if err := p.Stop(context.Background()); err != nil { // returns, which is what matters
		t.Error(err)
	}
	waitGone(t, second.PID)
}

func childHoldsOutput(h upstreamHost) {
	client, driver := h.start(h.config("child"))
	_, err := driver.AvailableNodes(context.Background(), &driverv1.AvailableNodesRequest{})
	h.fail(err)
	h.do("kill", client.Kill)
}

func killBlockedByChild(_ *testing.T, r *run) (bool, string) {
	r.start()
	kill, survivors := r.await("kill"), 0
	for _, pid := range marked(r.mark) {
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == "sleep" {
			survivors++
		}
	}
	return kill == "blocked" && survivors == 1,
		fmt.Sprintf("Kill %s, %d children of the plugin survived", kill, survivors)
}

func childrenGoToo(t *testing.T) {
	r, mark := newMarkedRig(t)
	p := r.mustStart(plainSpec(t, mark, "child"))
	for _, end := range []string{"a crash", "an orderly stop"} {
		_, n := r.await(0, "the start", is(Healthy))
		testproc.Try(p.AvailableNodes(context.Background())).Or(t)
		if len(marked(mark)) < 2 {
			t.Fatal("the plugin has no child, so this test tests nothing")
		}
		if end == "a crash" { // is noticed, though the child holds the pipes
			before := marked(mark)
			testproc.Check(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
			_, n = r.await(n, end, is(Backoff))
			r.await(n, "the restart", is(Healthy))
			for _, pid := range before {
				waitGone(t, pid)
			}
			continue
		}
		testproc.Check(t, p.Stop(context.Background()))
		awaitNone(t, mark)
	}
}

func pluginOutlivesHost(t *testing.T, r *run) (bool, string) {
	r.start()
	pid, address := r.pid("pid"), r.await("address")
	r.kill()
	if parentOf(pid) == r.cmd.Process.Pid {
		t.Fatal("the host is gone and still a parent")
	}
	// Whatever was to tell it of the death of its parent has done so: the kernel does before it
	// gives it another one.
	conn, err := net.Dial("unix", address)
	if err != nil {
		return false, "the plugin has gone with its host"
	}
	_ = conn.Close()
	return true, fmt.Sprintf("the plugin now has parent %d, and listens", parentOf(pid))
}

func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	var state string
	var parent int
	_, _ = fmt.Sscan(rest, &state, &parent)
	return parent
}

func nothingOutlivesTheAgent(t *testing.T) {
	plain := testproc.Try(plainPlugin()).Or(t)
	for name, c := range map[string]struct {
		path, args string
		processes  int  // besides the agent
		stopped    bool // all of them, when the agent is killed
	}{
		"without the SDK":               {path: plain, processes: 1},
		"without the SDK, stopped":      {path: plain, processes: 1, stopped: true},
		"with the SDK":                  {path: fakePath, processes: 1},
		"with the SDK and its children": {path: fakePath, args: "--start=grandchild,grandchild", processes: 3},
		"with the SDK, all stopped":     {path: fakePath, args: "--start=grandchild", processes: 2, stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			r := newOurs(t, c.path, c.args).start()
			pid := r.pid("pid")
			if got := len(marked(r.mark)); got != c.processes+1 {
				t.Fatalf("%d processes, so this test tests nothing", got)
			}
			if c.stopped {
				testproc.Check(t, syscall.Kill(-pid, syscall.SIGSTOP))
				waitStopped(t, pid)
			}
			r.kill()
			awaitNone(t, r.mark)
			waitGone(t, pid)
			h := testproc.Try(New(Options{RuntimeDir: r.dir, Logger: zerolog.Nop()})).Or(t)
			if left, _ := filepath.Glob(filepath.Join(r.dir, socketDirName, "*")); len(left) > 0 {
				t.Errorf("the next agent did not clear away %v", left)
			}
			testproc.NoError(t, h.Close())
		})
	}
}

// hostSecrets are variables that no plugin should see: a secret, and the way to speak to systemd
// for the agent.
var hostSecrets = []string{"OS_PASSWORD=swordfish", "NOTIFY_SOCKET=/run/nowhere"}

func secretsIn(t *testing.T, pid int) (found []string) {
	t.Helper()
	raw := testproc.Try(os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))).Or(t)
	for entry := range strings.SplitSeq(string(raw), "\x00") {
		for _, secret := range hostSecrets {
			if entry == secret {
				found = append(found, entry)
			}
		}
	}
	return found
}

func environmentLeaks(t *testing.T, r *run) (bool, string) {
	r.cmd.Env = append(r.cmd.Env, hostSecrets...)
	r.start()
	found := secretsIn(t, r.pid("pid"))
	return len(found) == len(hostSecrets), fmt.Sprintf("the plugin has %v", found)
}

func environmentIsKept(t *testing.T) {
	plain := testproc.Try(plainPlugin()).Or(t)
	pid := newOurs(t, plain, "", hostSecrets...).start().pid("pid")
	if found := secretsIn(t, pid); len(found) > 0 {
		t.Errorf("the plugin has %v", found)
	}
}

func startAgain(h upstreamHost) {
	cfg := h.config()
	client, _ := h.start(cfg)
	pid, err := strconv.Atoi(client.ID())
	h.fail(err)
	h.fail(syscall.Kill(pid, syscall.SIGKILL))
	client.Kill()
	_, err = goplugin.NewClient(cfg).Start()
	h.say("again", err)
}

func secondStartFails(_ *testing.T, r *run) (bool, string) {
	again := r.start().await("again")
	return strings.Contains(again, "already set"), "the second start: " + again
}

func restartsGoOn(t *testing.T) {
	r, mark := newMarkedRig(t)
	p := r.mustStart(plainSpec(t, mark))
	_, n := r.await(0, "the start", is(Healthy))
	for again := range 4 {
		pid := p.Status().PID
		testproc.Check(t, syscall.Kill(pid, syscall.SIGKILL))
		var s Status
		_, n = r.await(n, "the end", is(Backoff))
		s, n = r.await(n, "the restart", is(Healthy))
		if s.PID == pid || s.Restarts != again+1 {
			t.Errorf("after crash %d: %+v", again+1, s)
		}
		if _, err := p.AvailableNodes(context.Background()); err != nil {
			t.Errorf("after crash %d: %v", again+1, err)
		}
	}
}

// stdinOf starts a run with a pipe as standard input, and returns what that is and what the
// plugin's is.
func stdinOf(t *testing.T, r *run) (host, plugin string) {
	t.Helper()
	in, out, err := os.Pipe()
	testproc.Check(t, err)
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	r.cmd.Stdin = in
	r.start()
	if host, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", in.Fd())); err != nil {
		t.Fatal(err)
	}
	if plugin, err = os.Readlink(fmt.Sprintf("/proc/%d/fd/0", r.pid("pid"))); err != nil {
		t.Fatal(err)
	}
	return host, plugin
}

func stdinIsShared(t *testing.T, r *run) (bool, string) {
	host, plugin := stdinOf(t, r)
	return plugin == host, fmt.Sprintf("standard input of the host is %s, of the plugin %s", host, plugin)
}

func stdinIsNull(t *testing.T) {
	plain := testproc.Try(plainPlugin()).Or(t)
	if _, plugin := stdinOf(t, newOurs(t, plain, "")); plugin != os.DevNull {
		t.Errorf("standard input of the plugin is %s", plugin)
	}
}
