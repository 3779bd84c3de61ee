// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/systemd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var binaries = testproc.Of("cmd/compute-driver-fake")

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// env is an agent in this process, with a bundled Placement.
type env struct {
	t      *testing.T
	dir    string
	driver string // executable
	url    string
	reload chan os.Signal
	ready  chan struct{}
	ended  chan error
	stop   func() // ends the agent; another may be started then

	stopPlacement func()

	notify   *systemd.Notifier // nil: no notifications
	deadline string            // of start-up and reloads; "": a minute
	refresh  string            // how often Placement is asked; "": each five minutes

	mu   sync.Mutex
	log  strings.Builder
	more chan struct{}
	held string        // uuid of a provider about which Placement does not answer
	gate chan struct{} // until this is closed
}

func (e *env) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.more)
	e.more = make(chan struct{})
	return e.log.Write(b)
}

func newEnv(t *testing.T) *env {
	t.Helper()
	dir := testproc.SocketDir(t)
	server, err := placement.New(t.Context(),
		placement.Config{StateDir: filepath.Join(dir, "placement"),
			Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	check(t, err)
	h := &env{
		t: t, dir: dir, driver: filepath.Join(dir, "compute-driver-fake"),
		reload: make(chan os.Signal, 1), ready: make(chan struct{}),
		ended: make(chan error, 1), more: make(chan struct{}),
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		held, gate := h.held, h.gate
		h.mu.Unlock()
		if held != "" && strings.Contains(r.URL.String(), held) {
			<-gate
		}
		server.Handler().ServeHTTP(w, r)
	}))
	h.url = web.URL
	h.stopPlacement = sync.OnceFunc(web.Close)
	t.Cleanup(func() { h.stopPlacement(); _ = server.Close() })
	binaries.Copy(t, "compute-driver-fake", h.driver)
	binaries.Copy(t, "compute-driver-fake", filepath.Join(dir, "compute-driver-chaos"))
	return h
}

// hold keeps Placement from answering about a provider until release is called.
func (e *env) hold(uuid string) (release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held, e.gate = uuid, make(chan struct{})
	release = sync.OnceFunc(func() { close(e.gate) })
	e.t.Cleanup(release)
	return release
}

var check = testproc.Check

// node is the table of a fake driver with one node.
func (e *env) node(driver, node, uuid, more string) string {
	return fmt.Sprintf("[drivers.%s]\npath = %q\n%s\n[drivers.%s.config]\nnodes = [{name = %q, uuid = %q, "+
		"inventories = {VCPU = {total = 8}}}]\n",
		driver, e.driver, more, driver, node, uuid)
}

func (e *env) configure(drivers ...string) {
	e.t.Helper()
	check(e.t, os.WriteFile(filepath.Join(e.dir, "agent.toml"), []byte(fmt.Sprintf(`
[agent]
share_user = true
host = "cn1"
state_dir = "%[1]s/state"
runtime_dir = "%[1]s/run"
[placement_client]
url = %[2]q
[tracker]
update_resources_interval = "100ms"
startup_deadline = %[4]q
association_refresh = %[5]q
retry_backoff_min = "20ms"
retry_backoff_max = "100ms"
[plugins]
dir = %[1]q
handshake_timeout = "1m"
backoff_min = "50ms"
backoff_max = "100ms"
crash_limit = 1000
%[3]s`, e.dir, e.url, strings.Join(drivers, ""), cmp.Or(e.deadline, "1m"), cmp.Or(e.refresh, "5m"))), 0o600))
}

func (e *env) start() {
	e.t.Helper()
	load := func() (*config.Config, error) {
		return config.Load(config.Options{File: filepath.Join(e.dir, "agent.toml")})
	}
	cfg := testproc.Try(load()).Or(e.t)
	a := testproc.Try(agent.New(agent.Options{
		Config: cfg, Load: load, Reload: e.reload, Logger: zerolog.New(e), Notify: e.notify,
		OnReady: func(context.Context, *agent.Agent) { close(e.ready) },
	})).Or(e.t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); e.ended <- a.Run(ctx) }()
	e.t.Cleanup(func() { cancel(); <-over })
	e.stop = func() {
		cancel()
		<-over
		e.ended, e.ready = make(chan error, 1), make(chan struct{})
	}
}

// await waits for a log line with all parts, after so many bytes of the log.
func (e *env) await(after int, parts ...string) {
	e.t.Helper()
	given := time.NewTimer(testproc.Patience)
	defer given.Stop()
	for {
		e.mu.Lock()
		text, more := e.log.String(), e.more
		e.mu.Unlock()
	line:
		for line := range strings.Lines(text[after:]) {
			for _, p := range parts {
				if !strings.Contains(line, p) {
					continue line
				}
			}
			return
		}
		select {
		case <-more:
		case err := <-e.ended:
			e.ended <- err
			e.t.Fatalf("the agent ended with %v before it said %q", err, parts)
		case <-given.C:
			e.t.Fatalf("the agent never said %q:\n%s", parts, text)
		}
	}
}

func (e *env) mark() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.Len()
}

// after is the mark of a text that was written after another mark.
func (e *env) after(mark int, text string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return mark + strings.Index(e.log.String()[mark:], text)
}

const (
	uuidA = "aaaaaaaa-0000-4000-8000-000000000001"
	uuidB = "aaaaaaaa-0000-4000-8000-000000000002"
)

// TestReloadNeverEndsTheAgent: whatever is wrong with a driver that a reload adds, the drivers that
// work go on.
func TestReloadNeverEndsTheAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		added func(*env) string
		said  []string
	}{
		"a configuration that the driver refuses": {func(h *env) string {
			return fmt.Sprintf("[drivers.second]\npath = %q\n[drivers.second.config]\nnonsense = 1\n", h.driver)
		}, []string{`"driver":"second"`, `"error"`}},
		"a node that Placement knows as another": {func(h *env) string { return h.node("second", "cn1", uuidB, "") },
			[]string{`"node-claimed-twice"`, "driver second"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			h.configure(h.node("fake", "cn1", uuidA, ""))
			h.start()
			<-h.ready
			mark := h.mark()
			h.configure(h.node("fake", "cn1", uuidA, ""), c.added(h))
			h.reload <- syscall.SIGHUP
			h.await(mark, c.said...)
			mark = h.mark()
			h.configure(strings.Replace(h.node("fake", "cn1", uuidA, ""), "total = 8", "total = 16", 1))
			h.reload <- syscall.SIGHUP
			h.await(mark, "VCPU total 8→16")
		})
	}
}

// TestReenabledDriverIsReported also if its first start failed: the plugin's supervisor goes on
// trying, so must the tracker.
func TestReenabledDriverIsReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.start()
	<-h.ready
	mark := h.mark()
	h.configure(h.node("fake", "cn1", uuidA, "enabled = false"))
	h.reload <- syscall.SIGHUP
	h.await(mark, "the driver is disabled")
	mark = h.mark()
	check(t, os.Rename(h.driver, h.driver+".away"))
	h.configure(strings.Replace(h.node("fake", "cn1", uuidA, ""), "total = 8", "total = 16", 1))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"state":"not-installed"`)
	check(t, os.Rename(h.driver+".away", h.driver))
	h.await(mark, "VCPU total 8→16")
}

// TestDriverDisabledDuringStartUp: a reload may take a driver away while the agent still waits for
// another's first pass.
func TestDriverDisabledDuringStartUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	release := h.hold(uuidB)
	slow := h.node("aaa", "cn2", uuidB, "")
	h.configure(slow, h.node("bbb", "cn1", uuidA, ""))
	h.start()
	h.await(0, `"operation":"`, "Set the traits of cn1")
	mark := h.mark()
	h.configure(slow, h.node("bbb", "cn1", uuidA, "enabled = false"))
	h.reload <- syscall.SIGHUP
	h.await(mark, "the driver is disabled")
	release()
	<-h.ready
}

// TestNothingToRunIsNeverReady: an agent that must not start does not tell systemd that it has.
func TestNothingToRunIsNeverReady(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure()
	h.start()
	if err := <-h.ended; err == nil {
		t.Error("it ended without an error")
	}
	select {
	case <-h.ready:
		t.Error("it said that it was ready")
	default:
	}
}

// TestTwoDriversOneNode: at the first start no driver has the node, so neither gets it, whichever
// answers first; the agent stays up and the other nodes of both drivers are reported.
func TestTwoDriversOneNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.node("fake", "cn1", uuidA, ""),
		strings.Replace(h.node("second", "cn1", uuidA, ""), "total = 8", "total = 16", 1))
	h.start()
	<-h.ready
	status := h.status()
	if status.State != resourcetracker.Degraded ||
		!strings.Contains(status.Summary, "is named by the drivers fake and second") {
		t.Errorf("%s: %s", status.State, status.Summary)
	}
	for _, d := range status.Drivers {
		if len(d.Report.Nodes) != 0 || len(d.Report.Contested) != 1 || d.Report.Contested[0].Owner != "" {
			t.Errorf("the driver's report: got %+v, want one contested node, without an owner", d.Report)
		}
	}
}

// TestSecondDriverForANode: one that a reload brings is held, the first goes on, and the log says
// why, once.
func TestSecondDriverForANode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.start()
	<-h.ready
	mark := h.mark()
	h.configure(h.node("fake", "cn1", uuidA, ""),
		strings.Replace(h.node("second", "cn1", uuidA, ""), "total = 8", "total = 16", 1))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"node-claimed-twice"`, "belongs to driver fake")
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := strings.Count(h.log.String(), "VCPU total"); n > 0 {
		t.Errorf("the inventory was changed %d times, and no driver changed its mind", n)
	}
}

// TestATreeThatIsBeingWrittenIsNotWell: while a pass writes, the status says how far it is, not
// that all is well.
func TestATreeThatIsBeingWrittenIsNotWell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	table := h.node("fake", "cn1", uuidA, "")
	h.configure(table)
	h.start()
	<-h.ready
	child := testproc.Try(providertree.ChildUUID(uuidA, "cn1_gpu0")).Or(t)
	release := h.hold(child)
	h.configure(strings.Replace(table, "inventories = {VCPU",
		`children = [{name = "gpu0", inventories = {VGPU = {total = 4}}}], inventories = {VCPU`, 1))
	h.reload <- syscall.SIGHUP
	testproc.Eventually(t, testproc.Patience, "the status says that the pass writes", func() error {
		if summary := h.status().Summary; !strings.Contains(summary,
			"writing node cn1 to Placement, 1 of 2 operations done") {
			return fmt.Errorf("it says %q", summary)
		}
		return nil
	})
	mark := h.mark()
	release()
	h.await(mark, `"operation":"`, "cn1_gpu0", "VGPU")
	if s := h.status(); strings.Contains(s.Summary, "writing") {
		t.Errorf("afterwards it says %q", s.Summary)
	}
}
