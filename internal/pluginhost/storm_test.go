// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// What happens in the storm. runaway is not among it: what leaves the process group is out of the
// host's reach, by intent.
var (
	stormCalls  = []string{"update", "update", "nodes", "health", "watch", "shutdown", "configure"}
	stormStarts = []string{"", "", "", "noise", "garbage",
		"long-line", "grandchild", "exit", "crash", "hang", "raw-stdout"}
	stormFaults = []string{
		"hang", "late", "error", "not-ready", "panic", "panic-elsewhere", "crash", "exit", "abort",
		"stop", "grandchild", "print",
		"raw-stdout", "garbage", "long-line", "storm", "leak", "tidy-socket", "garbage grandchild hang",
	}
	stormTrees = []string{"no-root", "generation", "foreign", "huge", "reshape", "uninvited", "lose"} // in update alone
)

// TestStorm: drivers do whatever comes to their minds, and are killed by others meanwhile. Every
// call returns by itself, and when the host is closed, in the middle of it, nothing is left: no
// process, no socket, and, as after every test of this package, no goroutine and no descriptor.
func TestStorm(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	storm(t, 4, 4)
}

// TestNightlyStorm: the same for longer, with many drivers.
func TestNightlyStorm(t *testing.T) {
	testproc.OnlyNightly(t)
	testproc.Parallel(t, testproc.Heavy)
	storm(t, 20, 40)
}

func storm(t *testing.T, drivers, calls int) {
	t.Helper()
	seed := testproc.Seed(t)
	r, mark := newMarkedRig(t)
	var raging, hanging sync.WaitGroup
	closing := make(chan struct{})
	begin := sync.OnceFunc(func() { close(closing) })
	defer begin()
	for i := range drivers {
		d := stormy{t: t, r: r, mark: mark, name: fmt.Sprint("chaos-", i), rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		raging.Go(func() {
			if p := d.rage(calls); p != nil {
				hanging.Go(func() { d.hang(p, closing) })
			}
		})
	}
	raging.Wait()
	testproc.Eventually(t, patience, "every driver hangs",
		testproc.True(func() bool { return strings.Count(r.log.String(), stormWord) >= drivers }))
	started := map[int]bool{}
	for _, s := range r.seen() {
		started[s.PID] = true
	}
	t.Logf("%d processes were started, %d are running", len(started), len(marked(mark)))
	begin()
	testproc.NoError(t, r.Close())
	hanging.Wait()
}

// stormWord is logged by the fault "wait", which is used only at the end.
const stormWord = `"message":"waiting"`

// stormy is one of the drivers.
type stormy struct {
	t          *testing.T
	r          *rig
	mark, name string
	rng        *rand.Rand
}

func (st stormy) pick(from []string) string { return from[st.rng.IntN(len(from))] }

func (st stormy) spec(start string, config map[string]string) Spec {
	s := orders(st.t, start, config)
	s.Name, s.Env = st.name, map[string]string{markKey: st.mark}
	s.Timeouts.Handshake, s.Timeouts.Configure = 3*time.Second, time.Second
	return s
}

// anything is a random start, and a random fault in a call.
func (st stormy) anything() Spec {
	call, faults := st.pick(stormCalls), stormFaults
	if call == "update" {
		faults = append(slices.Clone(faults), stormTrees...)
	}
	return st.spec(st.pick(stormStarts), map[string]string{call: st.pick(faults)})
}

// rage is what happens to the driver. In the end there is a call in which it hangs.
func (st stormy) rage(calls int) *Plugin {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	returned := func(what string, err error) {
		if ctx.Err() != nil || (errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driverclient.ErrNoAnswer)) {
			st.t.Errorf("%s: %s did not return by itself: %v", st.name, what, err)
		}
	}
	p, err := st.r.Plugin(st.anything())
	if err != nil {
		st.t.Error(err)
		return nil
	}
	returned("Start", p.Start(ctx))
	for range calls {
		returned("Reconfigure", p.Reconfigure(ctx, st.anything()))
		if pid := p.Status().PID; st.rng.IntN(4) == 0 && slices.Contains(marked(st.mark), pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_, _, err := p.UpdateProviderTree(ctx, oneNode(st.t), "cn1", nil)
		returned("UpdateProviderTree", err)
		_, err = p.AvailableNodes(ctx)
		returned("AvailableNodes", err)
	}
	last := st.spec("grandchild", map[string]string{"nodes": "wait hang", "shutdown": "hang", "file": chaosPath})
	last.Timeouts.Nodes, last.Timeouts.Health = 2*patience, 2*patience
	for err := p.Reconfigure(ctx, last); err != nil; err = p.Reconfigure(ctx, last) {
		if ctx.Err() != nil {
			st.t.Errorf("%s: the last Reconfigure: %v", st.name, err)
			break
		}
	}
	return p
}

// hang makes a call that hangs until the host is closed. A process may end by what it did before;
// then another one serves.
func (st stormy) hang(p *Plugin, closing <-chan struct{}) {
	testproc.Eventually(st.t, patience, "the host is closed", func() error {
		_, err := p.AvailableNodes(context.Background())
		if !errors.Is(err, driverclient.ErrUnavailable) {
			st.t.Errorf("%s: a call that hangs ended with %v", st.name, err)
			return nil
		}
		select {
		case <-closing:
			return nil
		default:
			return err
		}
	})
}
