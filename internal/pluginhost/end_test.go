// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCloseIsAbruptOnPurpose: no warning is logged that a process which was killed on purpose did
// not end in an orderly way.
func TestCloseIsAbruptOnPurpose(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", nil))
	pid := p.Status().PID
	testproc.Check(t, r.Close())
	waitGone(t, pid)
	for _, rec := range r.log.records(t) {
		if level := rec["level"]; level == "warn" || level == "error" {
			t.Errorf("complaint: %v", rec)
		}
	}
}

// TestClosedHostStartsNothing, neither a plugin that it had nor a session, and one that was removed
// is not started either.
func TestClosedHostStartsNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r, ctx := newRig(t), context.Background()
	p := testproc.Try(r.Plugin(chaosSpec("", nil))).Or(t)
	removed := testproc.Try(r.Plugin(Spec{Name: "fake"})).Or(t)
	testproc.Check(t, r.Remove(ctx, removed))
	testproc.ErrorIs(t, removed.Start(ctx), errRemoved, "a plugin that was removed: %v")
	testproc.Check(t, r.Close())
	testproc.ErrorIs(t, p.Start(ctx), errHostClosed, "Start: %v")
	testproc.ErrorIs(t, p.Run(ctx), errHostClosed, "Run: %v")
	if _, err := r.Open(ctx, chaosSpec("", nil)); err == nil {
		t.Error("a session was opened")
	}
	if got := r.seen(); len(got) != 0 {
		t.Errorf("states: %v", got)
	}
}

// TestSessionEndsWithTheHost, though its process would live as long as this one.
func TestSessionEndsWithTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	s := testproc.Try(r.Open(context.Background(), chaosSpec("", nil))).Or(t)
	testproc.NoError(t, r.Close())
	select {
	case <-s.Done():
	default:
		t.Errorf("process %d outlives the host", s.PID())
		s.Kill()
	}
}

// TestProcessThatLeftItsGroupIsKilled: a process can leave the group that it was given by itself,
// and then does not die with it.
func TestProcessThatLeftItsGroupIsKilled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "elsewhere"}))
	pid := p.Status().PID
	if _, err := r.update(p, nil); err == nil || !strings.HasSuffix(err.Error(), "moved") {
		t.Fatal(err)
	}
	if group, err := syscall.Getpgid(pid); err != nil || group == pid {
		t.Fatalf("it did not leave: group %d, %v", group, err)
	}
	testproc.Check(t, syscall.Kill(pid, syscall.SIGSTOP))
	ended := make(chan struct{})
	go func() {
		p.abandon()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Errorf("process %d cannot be killed", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-ended
	}
}

// TestWhatADriverStartsIsNoPlugin: another copy of itself, for instance, would take its own
// standard output for that of a plugin.
func TestWhatADriverStartsIsNoPlugin(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	_, err := r.update(r.mustStart(chaosSpec("", map[string]string{"update": "child-environment"})), nil)
	if err == nil || !strings.Contains(err.Error(), partKey+"=") || strings.Contains(err.Error(), protocol.CookieKey) {
		t.Errorf("the environment of a child: %v", err)
	}
}

// TestStateOfAPluginThatEnds: a plugin that is being stopped is neither healthy nor down.
func TestStateOfAPluginThatEnds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for want, end := range map[State]func(*stage){
		Stopped:  func(s *stage) { _ = s.Stop(context.Background()) },
		Disabled: func(s *stage) { _ = s.Reconfigure(context.Background(), Spec{Name: "puppet", Disabled: true}) },
	} {
		t.Run(string(want), func(t *testing.T) {
			history := []string{"0s healthy"}
			if want == Disabled {
				history = append(history, "2s disabled")
			}
			play(t, Spec{}, history, func(s *stage) {
				held := testproc.Try(s.acquire()).Or(t)
				ended := make(chan struct{})
				go func() {
					end(s)
					close(ended)
				}()
				s.wait(time.Second)
				said := func(pid int) {
					t.Helper()
					if got := s.Status(); got.State != want || got.PID != pid {
						t.Errorf("status: %+v", got)
					}
					_, err := s.AvailableNodes(context.Background())
					if down := (*UnavailableError)(nil); !errors.As(err, &down) || down.State != want {
						t.Errorf("a call: %v", err)
					}
				}
				said(100) // it finishes a call
				s.wait(time.Second)
				held.calls.Done()
				<-ended
				s.wait(0)
				said(0)
			})
		})
	}
}

// TestAPluginThatWasKilledIsNotHealthy, not even for the moment that its process takes to end.
func TestAPluginThatWasKilledIsNotHealthy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "10s backoff", "11s healthy"}, func(s *stage) {
		hold := make(chan struct{})
		s.process(0).lingers = hold
		s.wait(time.Second)
		s.hung <- errors.New("it hangs")
		s.wait(0)
		if got := s.Status(); got.State != Backoff || got.PID != 0 || !strings.Contains(got.LastError, "it hangs") {
			t.Errorf("status: %+v", got)
		}
		s.wait(9 * time.Second)
		close(hold)
		s.wait(5 * time.Second)
	})
}

// TestSilenceOfAFormerProcess is not held against the next one, also if it is noticed in the very
// moment of the change.
func TestSilenceOfAFormerProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	spec := testproc.Try(Spec{Name: "x", Restart: Restart{Misses: 1}}.Complete("/nowhere")).Or(t)
	for range 200 {
		s := &supervisor{Plugin: newPlugin(spec, pluginDeps{})}
		former := s.activate(&puppet{done: make(chan struct{})})
		var over atomic.Bool
		begun := make(chan struct{})
		var callers sync.WaitGroup
		callers.Go(func() {
			_ = s.recordCall(context.Background(), former, "Guests", driverclient.ErrNoAnswer)
			close(begun)
			for !over.Load() {
				_ = s.recordCall(context.Background(), former, "Guests", driverclient.ErrNoAnswer)
			}
		})
		<-begun
		s.activate(&puppet{done: make(chan struct{})})
		over.Store(true)
		callers.Wait()
		select {
		case err := <-s.hung:
			t.Fatalf("the new process is taken for silent: %v", err)
		default:
		}
	}
}

// TestADriverThatGaveUpHasAnswered: that something else did not answer the driver in time is an
// answer of the driver's.
func TestADriverThatGaveUpHasAnswered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "own-deadline"}))
	pid := p.Status().PID
	for range 5 {
		if _, err := r.update(p, nil); err == nil ||
			errors.Is(err, driverclient.ErrNoAnswer) || !strings.Contains(err.Error(), "the hypervisor: ") {
			t.Errorf("got %v", err)
		}
	}
	if err := p.Reconfigure(context.Background(), chaosSpec("", nil)); err != nil { // all that came before is done with
		t.Error(err)
	}
	if got := p.Status(); got.PID != pid || got.Restarts != 0 {
		t.Errorf("it was killed: %+v", got)
	}
}

// TestCallsOfTwoProcessesAreCountedApart: a late word about the former one changes nothing of what
// is known of the one that serves.
func TestCallsOfTwoProcessesAreCountedApart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var c instanceCalls
	former, next := &activeProcess{instance: &puppet{done: make(chan struct{})}},
		&activeProcess{instance: &puppet{done: make(chan struct{})}}
	c.begin(next)
	c.begin(former) // taken before it was replaced
	c.begin(next)
	c.end(next, oneInstance, time.Now(), false, false)
	if !c.busy(next) {
		t.Error("the second call is forgotten")
	}
	c.end(former, otherInstance, time.Now(), false, false)
	c.end(next, oneInstance, time.Now(), false, false)
	if c.busy(next) || c.busy(former) {
		t.Error("still busy")
	}
}
