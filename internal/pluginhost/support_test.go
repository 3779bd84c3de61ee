// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// patience bounds every wait of a test: nothing is expected to take that long, and a test that
// fails by it says what it was waiting for.
const patience = testproc.Patience

// rig is a host under test, with what it did.
type rig struct {
	*Host
	t       *testing.T
	runtime string
	log     *syncBuffer

	mu      sync.Mutex
	states  []Status
	changed chan struct{}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rt")
	testproc.Check(t, err)
	r := &rig{t: t, runtime: dir, log: &syncBuffer{}, changed: make(chan struct{}, 1)}
	r.Host, err = New(Options{
		Dir: binDir, RuntimeDir: dir, Logger: zerolog.New(r.log).Level(zerolog.DebugLevel),
		Environ: []string{"PATH=" + os.Getenv("PATH"),
			"SECRET=x", "NOTIFY_SOCKET=/run/x", "LIBVIRT_DEFAULT_URI=test:///default"},
		Jitter: func(d time.Duration) time.Duration { return d },
		OnTransition: func(s Status) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.states = append(r.states, s)
			select {
			case r.changed <- struct{}{}:
			default:
			}
		},
	})
	testproc.Check(t, err)
	t.Cleanup(r.end)
	return r
}

// end closes the host and checks that nothing is left: no process of any that it ever started, no
// socket.
func (r *rig) end() {
	testproc.NoError(r.t, r.Close())
	for _, s := range r.seen() {
		if s.PID != 0 {
			waitGone(r.t, s.PID)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(r.runtime, "*")); len(left) > 0 {
		r.t.Errorf("left in the runtime directory: %v", left)
	}
	_ = os.RemoveAll(r.runtime)
	if r.t.Failed() {
		r.t.Logf("log:\n%s", r.log.String())
	}
}

func (r *rig) seen() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Status(nil), r.states...)
}

// await returns the first status after the first n that fits, and how many there were with it.
func (r *rig) await(n int, what string, fits func(Status) bool) (Status, int) {
	r.t.Helper()
	limit := time.After(patience)
	for {
		for i, s := range r.seen() {
			if i >= n && fits(s) {
				return s, i + 1
			}
		}
		select {
		case <-r.changed:
		case <-limit:
			r.t.Fatalf("waited for %s; states: %v\nlog:\n%s", what, r.seen(), r.log.String())
		}
	}
}

func is(state State) func(Status) bool { return func(s Status) bool { return s.State == state } }

// answersLate are the limits of a process that answers, on a busy machine: health checks that are
// not answered would end it.
func answersLate() driverclient.Timeouts {
	return driverclient.Timeouts{Health: patience / 2, Info: patience / 2}
}

// chaosSpec is the faulty driver with quick reactions.
func chaosSpec(mode string, config map[string]string) Spec {
	raw, _ := json.Marshal(config)
	if config == nil {
		raw = nil
	}
	return Spec{
		Name: "chaos", Config: raw,
		Env:      map[string]string{partKey: partDriver, modeKey: mode},
		Timeouts: answersLate(),
		Restart: Restart{
			HealthInterval: 50 * time.Millisecond, Misses: 2,
			BackoffBase: time.Millisecond, BackoffMax: time.Millisecond,
			FailureLimit: 1000,
		},
	}
}

// start makes a plugin and waits for its first attempt.
func (r *rig) start(spec Spec) (*Plugin, error) {
	r.t.Helper()
	for _, limit := range []*time.Duration{&spec.Timeouts.Handshake, &spec.Timeouts.Info, &spec.Timeouts.Configure} {
		if *limit == 0 { // the default is not for a machine that is busy with tests
			*limit = patience / 2
		}
	}
	p := testproc.Try(r.Plugin(spec)).Or(r.t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p, p.Start(ctx)
}

func (r *rig) mustStart(spec Spec) *Plugin {
	r.t.Helper()
	return testproc.Try(r.start(spec)).Or(r.t)
}

const rootUUID = "11111111-2222-3333-4444-555555555555"

func oneNode(t testing.TB) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	testproc.Check(t, tree.AddRoot(rootUUID, "cn1"))
	testproc.Check(t, tree.SetGeneration(rootUUID, 7))
	return tree
}

func (r *rig) update(p *Plugin, allocations providertree.Allocations) (*providertree.Tree, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tree, _, err := p.UpdateProviderTree(ctx, oneNode(r.t), "cn1", allocations)
	if err != nil && tree != nil {
		r.t.Errorf("a tree came with an error: %v", err)
	}
	return tree, err
}

// waitStopped waits until every thread of a process that got SIGSTOP has stopped.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	if !poll(func() bool { return threadsStopped(pid) }) {
		t.Fatalf("process %d does not stop", pid)
	}
}

// poll waits until a condition holds, and reports whether it did in time. It is for processes
// without a test; a test has testproc.Eventually.
func poll(holds func() bool) bool {
	for limit := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			return false
		}
	}
	return true
}

// awaitFile waits until a file is there.
func awaitFile(path string) {
	poll(func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// impatient is the context of a caller that gives up soon. No test depends on when.
func impatient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// waitGone returns when no process of that id exists; one that has ended and was not reaped is gone
// too.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	testproc.Check(t, err)
	defer func() { _ = unix.Close(fd) }()
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) { // by a signal of the runtime, or of a child that ended
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	}
	if n != 1 {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

// pidIn reads the process id that a faulty driver answered as an error.
func pidIn(t *testing.T, err error) int {
	t.Helper()
	var call *driverclient.CallError
	if !errors.As(err, &call) {
		t.Fatalf("want a process id as an error, got %v", err)
	}
	pid, convErr := strconv.Atoi(call.Err.Error())
	if convErr != nil {
		t.Fatal(err)
	}
	return pid
}

type syncBuffer struct{ testproc.Buffer }

// records parses the log.
func (b *syncBuffer) records(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range bytes.Lines([]byte(b.String())) {
		var rec map[string]any
		testproc.Checkf(t, json.Unmarshal(line, &rec), "log line %q", line)
		out = append(out, rec)
	}
	return out
}

var _ plugins.Driver = (*chaos)(nil)
