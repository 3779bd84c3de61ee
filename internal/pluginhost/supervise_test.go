// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// puppet is an instance without a process.
type puppet struct {
	plugins.InstanceManager  // none
	plugins.InstanceWatcher  // none
	plugins.InstanceMover    // none
	plugins.ConsoleLogger    // none
	plugins.SpawnChecker     // none
	plugins.InstanceRestorer // none
	plugins.ConsoleOpener    // none

	id     identity
	health func() error
	// warnings come with its health.
	warnings func() []plugins.Warning
	// configure and update answer these calls; nil: well.
	configure func(Spec) error
	update    func(node string) error
	done      chan struct{}
	lingers   chan struct{} // if not nil, Kill returns when it is closed
	asked     chan struct{} // if not nil, it is closed when the process is asked to stop

	mu    sync.Mutex
	ended string // how
}

func (p *puppet) Identity() identity { return p.id }
func (p *puppet) Configure(_ context.Context, spec Spec) error {
	if p.configure != nil {
		return p.configure(spec)
	}
	return nil
}
func (p *puppet) Health(context.Context) ([]plugins.Warning, error) {
	err := p.health()
	return p.warnings(), err
}
func (p *puppet) AvailableNodes(context.Context) ([]plugins.Node, error) {
	return nil, nil
}
func (p *puppet) UpdateProviderTree(
	_ context.Context, tree *providertree.Tree, node string, a providertree.Allocations,
) (driverclient.Answer, error) {
	if p.update != nil {
		if err := p.update(node); err != nil {
			return driverclient.Answer{}, err
		}
	}
	return driverclient.Answer{Tree: tree, Allocations: a}, nil
}
func (p *puppet) LayoutVersion() (int, error) { return 0, plugins.ErrUnsupported }
func (p *puppet) ReshapeStep(
	context.Context, *providertree.Tree, string, int, providertree.Allocations,
) (driverclient.Answer, error) {
	return driverclient.Answer{}, plugins.ErrUnsupported
}
func (p *puppet) Guests(context.Context, *providertree.Tree, string) ([]plugins.Guest, error) {
	return nil, plugins.ErrUnsupported
}
func (p *puppet) NodeDeleted(context.Context, plugins.Node) (bool, error) {
	return false, plugins.ErrUnsupported
}
func (p *puppet) Watch(ctx context.Context, _ func(string)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.asked: // as the SDK does
		return errors.New("the plugin is shutting down")
	}
}
func (p *puppet) Done() <-chan struct{} { return p.done }
func (p *puppet) Exit() error           { return errors.New("the process ended") }
func (p *puppet) Stop(_ time.Duration, idle <-chan struct{}) {
	if p.asked != nil {
		close(p.asked)
		synctest.Wait() // until that is noticed
	}
	<-idle
	p.end("stopped")
}
func (p *puppet) Kill() {
	p.end("killed")
	if p.lingers != nil {
		<-p.lingers
	}
}
func (p *puppet) Abort() { p.end("aborted") }
func (p *puppet) how() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}
func (p *puppet) end(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == "" {
		p.ended = how
		close(p.done)
	}
}

// stage runs a plugin on puppets, in fake time.
type stage struct {
	*Plugin
	t     *testing.T
	begun time.Time

	state    sync.Mutex
	history  []string // "seconds state"
	puppets  []*puppet
	fail     error // what the next launches fail with
	distrust error // what the checks of the executable say
	file     launch.ID
	// installed (not zero) is the file that takes the place of one whose launch fails, at once, and
	// with which the next launch works.
	installed launch.ID
	health    func() error
	warnings  []plugins.Warning
	// configure and update are those of processes to come.
	configure func(Spec) error
	update    func(node string) error
}

func newStage(t *testing.T, spec Spec) *stage {
	spec.Name = "puppet"
	spec = testproc.Try(spec.Complete("/nowhere")).Or(t)
	s := &stage{t: t, begun: time.Now(), health: func() error { return nil }}
	s.Plugin = newPlugin(spec, pluginDeps{
		log: zerolog.Nop(), dir: "/nowhere", jitter: func(d time.Duration) time.Duration { return d },
		identify: func(string) (launch.ID, error) {
			s.state.Lock()
			defer s.state.Unlock()
			return s.file, nil
		},
		verify: func(Spec) error {
			s.state.Lock()
			defer s.state.Unlock()
			return s.distrust
		},
		onTransition: func(st Status) {
			s.state.Lock()
			defer s.state.Unlock()
			if st.State != Discovered && st.State != Starting {
				s.history = append(s.history, fmt.Sprintf("%v %s", time.Since(s.begun), st.State))
			}
		},
		launch: func(_ context.Context, _ Spec, _ zerolog.Logger, reached func(State)) (instance, error) {
			reached(Starting)
			s.state.Lock()
			defer s.state.Unlock()
			if err := s.fail; err != nil {
				if s.installed.Ino != 0 {
					s.fail, s.file = nil, s.installed
				}
				return nil, err
			}
			p := &puppet{done: make(chan struct{}), health: s.howIsIt, warnings: s.ofWhat, configure: s.configure,
				update: s.update, id: identity{PID: 100 + len(s.puppets), File: s.file}}
			s.puppets = append(s.puppets, p)
			return p, nil
		},
	})
	return s
}

func (s *stage) howIsIt() error {
	s.state.Lock()
	defer s.state.Unlock()
	return s.health()
}

func (s *stage) ofWhat() []plugins.Warning {
	s.state.Lock()
	defer s.state.Unlock()
	return s.warnings
}

// set changes what comes next.
func (s *stage) set(change func()) {
	s.state.Lock()
	defer s.state.Unlock()
	change()
}

// process returns the nth process.
func (s *stage) process(n int) *puppet {
	s.state.Lock()
	defer s.state.Unlock()
	return s.puppets[n]
}

// play runs a scene and compares the history.
func play(t *testing.T, spec Spec, want []string, scene func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, spec)
		_ = s.Start(context.Background())
		scene(s)
		testproc.NoError(t, s.Stop(context.Background()))
		testproc.Same(t,
			cmp.Diff(append(slices.Clone(want), fmt.Sprintf("%v stopped", time.Since(s.begun))), s.history))
		for i, p := range s.puppets {
			if p.how() == "" {
				t.Errorf("process %d still runs", i)
			}
		}
	})
}

func (s *stage) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestCrashLoopEndsInQuarantine(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{
		"0s healthy",
		"1m0s backoff", "1m1s backoff", "1m3s backoff", "1m7s backoff", "1m15s quarantined",
		"11m15s quarantined",
		"21m15s healthy",
	}, func(s *stage) {
		s.wait(time.Minute)
		s.set(func() { s.fail = errors.New("broken") })
		s.process(0).end("crashed")
		s.wait(20 * time.Minute)
		if err := s.Ready(context.Background()); !errors.Is(err, driverclient.ErrUnavailable) ||
			!strings.Contains(err.Error(), "broken") {
			t.Errorf("in quarantine: %v", err)
		}
		s.set(func() { s.fail = nil })
		s.wait(time.Hour)
	})
}

func TestMissedHealthChecks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "20s degraded", "30s degraded", "40s backoff", "41s healthy"},
		func(s *stage) {
			s.wait(15 * time.Second)
			s.set(func() { s.health = func() error { return driverclient.ErrNoAnswer } })
			s.wait(20 * time.Second)
			testproc.Equal(t, s.Status().LastError, "health check 2 of 3 failed: no response in time", "last error %q")
			s.wait(5500 * time.Millisecond)
			s.set(func() { s.health = func() error { return nil } })
			testproc.Equal(t, s.process(0).how(), "killed", "the silent process was %q")
			s.wait(time.Minute)
		})
}

// TestProcessThatEndsSlowlySaysWhy: the connection of a process that crashes breaks first, and how
// it ended is known later, on a busy machine after several health checks. That is the reason.
func TestProcessThatEndsSlowlySaysWhy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	spec := Spec{Restart: Restart{HealthInterval: 100 * time.Millisecond, Misses: 2}}
	play(t, spec, []string{"0s healthy", "2.5s backoff", "3.5s healthy"}, func(s *stage) {
		s.wait(time.Second)
		s.set(func() {
			s.health = func() error { return fmt.Errorf("%w: connection refused", driverclient.ErrUnavailable) }
		})
		s.wait(1500 * time.Millisecond)
		s.process(0).end("crashed")
		synctest.Wait()
		testproc.Equal(t, s.Status().LastError, "the process ended", "last error %q")
		s.set(func() { s.health = func() error { return nil } })
		s.wait(2 * time.Second)
	})
}

// TestProcessWithoutAConnectionIsKilled: one that broke its connection and goes on is of no use.
func TestProcessWithoutAConnectionIsKilled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "13s degraded", "26s degraded", "39s backoff", "40s healthy"},
		func(s *stage) {
			s.set(func() {
				s.health = func() error { return fmt.Errorf("%w: connection refused", driverclient.ErrUnavailable) }
			})
			s.wait(39500 * time.Millisecond)
			testproc.Equal(t, s.process(0).how(), "killed", "the process was %q")
			s.set(func() { s.health = func() error { return nil } })
			s.wait(5 * time.Second)
		})
}

func TestOneAnswerForgivesMisses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	n := 0
	play(t, Spec{}, []string{"0s healthy", "10s degraded",
		"20s degraded", "30s healthy", "40s degraded", "50s degraded", "1m0s healthy"}, func(s *stage) {
		s.set(func() {
			s.health = func() error {
				if n++; n%3 != 0 {
					return driverclient.ErrNoAnswer
				}
				return nil
			}
		})
		s.wait(65 * time.Second)
	})
}

func TestPersistentHealthProblemIsReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "10s degraded", "5m10s healthy"}, func(s *stage) {
		s.set(func() { s.health = func() error { return &driverclient.UnhealthyError{Problem: "no libvirt"} } })
		s.wait(5*time.Minute + 5*time.Second)
		if s.Status().Restarts != 0 {
			t.Error("it was restarted")
		}
		s.set(func() { s.health = func() error { return nil } })
		s.wait(10 * time.Second)
	})
}

// TestErrorsOfHealthAreAnswers: a process whose health check panics or is not written at all is
// alive.
func TestErrorsOfHealthAreAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "10s degraded", "5m10s healthy"}, func(s *stage) {
		s.set(func() {
			s.health = func() error {
				return &driverclient.CallError{Driver: "puppet", Call: "Health",
					Err: errors.New("the driver panicked in Health")}
			}
		})
		s.wait(5*time.Minute + 5*time.Second)
		if got := s.Status(); got.Restarts != 0 || !strings.Contains(got.LastError, "panicked in Health") {
			t.Errorf("status: %+v", got)
		}
		s.set(func() { s.health = func() error { return nil } })
		s.wait(10 * time.Second)
	})
}

// TestDriverThatIsNotInstalledHasNotCrashed: it is never in quarantine, and is started as soon as
// its executable is there.
func TestDriverThatIsNotInstalledHasNotCrashed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{Disabled: true}, []string{"0s disabled", "1s not-installed", "1h0m2s healthy"}, func(s *stage) {
		s.wait(time.Second)
		s.set(func() {
			s.fail = &launch.NotInstalledError{Driver: "puppet",
				Path: "/nowhere/compute-driver-puppet", Searched: []string{"/nowhere", "/bin"}}
		})
		err := s.Reconfigure(context.Background(), Spec{Name: "puppet"})
		testproc.ErrorIs(t, err, launch.ErrNotInstalled, "want launch.ErrNotInstalled, got %v")
		s.wait(time.Hour)
		const want = "driver puppet is not installed: there is no compute-driver-puppet in /nowhere or /bin. " +
			"Install it: install -D -m 0755 compute-driver-puppet /nowhere/compute-driver-puppet"
		if got := s.Status(); got.LastError != want || !got.NextAttempt.IsZero() {
			t.Errorf("status: %+v", got)
		}
		s.set(func() { s.fail, s.file = nil, launch.ID{Ino: 2} })
		s.wait(time.Minute)
	})
}

// TestFileInstalledDuringTheAttempt: an executable that comes between a failed attempt and the wait
// for another file is another file.
func TestFileInstalledDuringTheAttempt(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		name string
		fail error
		want []string
	}{
		{"absent", &launch.NotInstalledError{Driver: "puppet", Path: "/nowhere/driver"},
			[]string{"0s disabled", "1s not-installed", "2s healthy"}},
		{"incompatible", fmt.Errorf("%w: version 9", ErrIncompatible),
			[]string{"0s disabled", "1s incompatible", "2m1s healthy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, Spec{Disabled: true}, c.want, func(s *stage) {
				s.wait(time.Second)
				s.set(func() { s.fail, s.installed = c.fail, launch.ID{Ino: 2} })
				if err := s.Reconfigure(context.Background(), Spec{Name: "puppet"}); !errors.Is(err, c.fail) {
					t.Errorf("want %v, got %v", c.fail, err)
				}
				s.wait(5 * time.Minute)
			})
		})
	}
}

func TestIncompatibleWaitsForAnotherFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{Disabled: true}, []string{"0s disabled", "1s incompatible", "1h2m1s healthy"}, func(s *stage) {
		s.wait(time.Second)
		s.set(func() { s.fail = fmt.Errorf("%w: version 9", ErrIncompatible) })
		if err := s.Reconfigure(context.Background(), Spec{Name: "puppet"}); !errors.Is(err, ErrIncompatible) {
			t.Errorf("want ErrIncompatible, got %v", err)
		}
		s.wait(time.Hour + time.Minute)
		s.set(func() { s.fail, s.file = nil, launch.ID{Ino: 2} })
		s.wait(time.Minute)
	})
}

// TestRefusedExecutableIsNotTriedAgain: an executable that must not or cannot be started did not
// crash. It is started when it has changed, when the checks pass, and at a reload.
func TestRefusedExecutableIsNotTriedAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	untrusted := &launch.UntrustedError{Path: "/nowhere/driver",
		Problem: "has sha256 aa, the configuration demands bb", Hint: "Correct it"}
	moved := &launch.UntrustedError{Path: "/nowhere", Problem: "is a directory with mode 0777", Hint: "Correct it"}
	play(t, Spec{Disabled: true}, []string{
		"0s disabled", "1s refused", "10m1s refused",
		"12m1s healthy", "20m0s disabled", "20m0s refused", "30m0s healthy",
	}, func(s *stage) {
		s.wait(time.Second)
		s.set(func() { s.fail, s.distrust = untrusted, untrusted })
		if err := s.Reconfigure(context.Background(), Spec{Name: "puppet"}); !errors.Is(err, launch.ErrUntrusted) {
			t.Errorf("want launch.ErrUntrusted, got %v", err)
		}
		if got := s.Status(); !got.NextAttempt.IsZero() || got.Restarts != 0 || got.LastError != untrusted.Error() {
			t.Errorf("status: %+v", got)
		}
		s.wait(9 * time.Minute) // the file stays what it is
		s.set(func() { s.fail, s.distrust = moved, moved })
		s.wait(2 * time.Minute)
		s.set(func() { s.fail, s.distrust = nil, nil })
		s.wait(9*time.Minute - time.Second)
		testproc.NoError(t, s.Reconfigure(context.Background(), Spec{Name: "puppet", Disabled: true}))
		s.set(func() { s.fail = fmt.Errorf("executing: %w", ErrNotExecutable) })
		if err := s.Reconfigure(context.Background(), Spec{Name: "puppet"}); !errors.Is(err, ErrNotExecutable) {
			t.Errorf("want ErrNotExecutable, got %v", err)
		}
		s.wait(9 * time.Minute)
		s.set(func() { s.fail, s.file = nil, launch.ID{Ino: 2} })
		s.wait(2 * time.Minute)
	})
}

func TestDisabledAndEnabled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{Disabled: true}, []string{"0s disabled", "1m0s healthy", "2m0s disabled"}, func(s *stage) {
		testproc.ErrorIs(t, s.Ready(context.Background()), driverclient.ErrUnavailable, "disabled: %v")
		s.wait(time.Minute)
		testproc.NoError(t, s.Reconfigure(context.Background(), Spec{Name: "puppet"}))
		s.wait(time.Minute)
		testproc.NoError(t, s.Reconfigure(context.Background(), Spec{Name: "puppet", Disabled: true}))
		s.wait(time.Minute)
		testproc.Equal(t, s.process(0).how(), "stopped", "the process was %q")
	})
}

func TestReconfigureOfADownPluginTriesAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "1m0s backoff", "1m0.5s healthy"}, func(s *stage) {
		s.wait(time.Minute)
		s.set(func() { s.fail = errors.New("broken") })
		s.process(0).end("crashed")
		s.wait(500 * time.Millisecond)
		s.set(func() { s.fail = nil })
		testproc.NoError(t, s.Reconfigure(context.Background(), Spec{Name: "puppet"}))
	})
}

func TestSecondSupervisorIsRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		testproc.ErrorIs(t, s.Run(context.Background()), ErrRunning, "want ErrRunning, got %v")
	})
}

// TestStreamThatEndsWithItsProcessIsNoFault: a process that is to stop ends its streams first.
func TestStreamThatEndsWithItsProcessIsNoFault(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var log bytes.Buffer
		p := newPlugin(Spec{},
			pluginDeps{log: zerolog.New(&log), jitter: func(d time.Duration) time.Duration { return d }})
		s := &supervisor{Plugin: p}
		serving := &activeProcess{instance: &puppet{done: make(chan struct{}), asked: make(chan struct{})}}
		var following sync.WaitGroup
		following.Go(func() {
			s.follow(ctx, serving, func(ctx context.Context) error { return serving.Watch(ctx, nil) }, func() {})
		})
		idle := make(chan struct{})
		close(idle)
		s.forced = t.Context()
		s.end(serving, idle, time.Second)
		cancel()
		following.Wait()
		if log.Len() > 0 {
			t.Errorf("it logs %s", log.String())
		}
	})
}

func TestReplacedProcessFinishesItsCalls(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		held := testproc.Try(s.acquire()).Or(t)
		s.set(func() { s.file = launch.ID{Ino: 2} })
		testproc.Check(t, s.Reconfigure(context.Background(), Spec{Name: "puppet"}))
		s.wait(10 * time.Second)
		if s.process(0).how() != "" {
			t.Error("the old process was ended with a call under way")
		}
		if s.Status().PID != 101 {
			t.Errorf("status: %+v", s.Status())
		}
		held.calls.Done()
		s.wait(0)
		testproc.Equal(t, s.process(0).how(), "stopped", "the old process was %q")
	})
}
