// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// panicked is what a call ends with in which the driver's code panicked, in words that are never
// the same.
func panicked(call string) error {
	return &driverclient.CallError{Driver: "puppet", Call: call,
		Err: &driverclient.FaultError{Text: fmt.Sprintf("the driver panicked in %s at %v", call, time.Now())}}
}

// TestPanickingAtEveryCallIsDegraded: a healthy process whose driver has panicked in the same call
// as often as a health check may fail becomes degraded, in one transition, until it answers that
// call. Answers to other calls do not count. The process is not restarted.
func TestPanickingAtEveryCallIsDegraded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "2m10s degraded", "10m0s healthy"}, func(s *stage) {
		broken := true
		s.process(0).update = func(node string) error {
			if broken && node == "cn2" {
				return panicked("UpdateProviderTree")
			}
			return nil
		}
		for range 9 {
			s.pass()
			s.wait(time.Minute)
		}
		if got := s.Status(); got.Restarts != 0 ||
			!strings.Contains(got.LastError, "UpdateProviderTree cn2 always ends with a fault") ||
			!strings.Contains(got.LastError, "panicked in UpdateProviderTree") {
			t.Errorf("status: %+v", got)
		}
		broken = false
		s.wait(55 * time.Second)
		s.pass()
		s.wait(10 * time.Second)
	})
}

// TestOnePanicIsForgiven: a rare panic is reported by the call that it fails, not by the state.
func TestOnePanicIsForgiven(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		n := 0
		s.process(0).update = func(string) error {
			if n++; n%6 < 4 { // two of three passes
				return panicked("UpdateProviderTree")
			}
			return &driverclient.CallError{Err: plugins.ErrNotReady} // an answer, too
		}
		for range 20 {
			s.pass()
			s.wait(time.Minute)
		}
	})
}

// TestOldPanicsAreForgotten: a node that is gone is asked about no more, so nothing can make up for
// its panics.
func TestOldPanicsAreForgotten(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "10s degraded", "10m0s healthy"}, func(s *stage) {
		s.process(0).update = func(string) error { return panicked("UpdateProviderTree") }
		for range 3 {
			s.pass()
		}
		s.wait(20 * time.Minute)
	})
}

// replaced is what a call ends with during which another process takes over and the one that was
// asked crashes.
func (s *stage) replaced(call string) error {
	s.set(func() { s.file = launch.ID{Ino: 2} })
	testproc.NoError(s.t, s.Reconfigure(context.Background(), Spec{Name: "puppet"}))
	s.process(0).end("crashed")
	return &driverclient.CallError{Driver: "puppet",
		Call: call, Err: fmt.Errorf("%w: the connection broke", driverclient.ErrUnavailable)}
}

// TestACallOfAReplacedProcessIsMadeAgain, once, if it changes nothing: the plugin is not down.
func TestACallOfAReplacedProcessIsMadeAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		asked := 0
		s.process(0).update = func(string) error { asked++; return s.replaced("UpdateProviderTree") }
		if _, _, err := s.UpdateProviderTree(context.Background(), &providertree.Tree{}, "cn1", nil); err != nil ||
			asked != 1 {
			t.Errorf("the call ended with %v, and the former process was asked %d times", err, asked)
		}
		if got := s.Status(); got.PID != 101 || got.Restarts != 0 || got.Replacements != 1 {
			t.Errorf("status: %+v", got)
		}
	})
}

// careless manages instances by functions.
type careless struct {
	plugins.InstanceManager
	destroy func() error
}

func (c careless) Destroy(context.Context, string, string) error { return c.destroy() }

// TestAChangeIsNotMadeAgain: it is not known how far the former process got. The error says that
// the process was being replaced, not that the plugin is down.
func TestAChangeIsNotMadeAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		s.set(func() {
			s.puppets[0].InstanceManager = careless{destroy: func() error { return s.replaced("Destroy") }}
		})
		err := s.Destroy(context.Background(), "cn1", rootUUID)
		var down *UnavailableError
		if !errors.Is(err, driverclient.ErrUnavailable) ||
			!errors.Is(err, ErrOutcomeUnknown) || errors.As(err, &down) ||
			!strings.Contains(err.Error(), "was being replaced") {
			t.Errorf("got %v", err)
		}
	})
}

// TestAFailedTakeover has an error of its own: the former process goes on.
func TestAFailedTakeover(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		s.set(func() {
			s.file, s.fail = launch.ID{Ino: 2}, &StartError{Path: "/x", Cause: errors.New("exit status 1")}
		})
		err := s.Reconfigure(context.Background(), Spec{Name: "puppet", Path: "/other"})
		var failed *TakeoverError
		if !errors.As(err, &failed) || failed.Path != "/other" || !errors.As(err, new(*StartError)) {
			t.Errorf("got %v", err)
		}
		if got := s.Status(); got.PID != 100 || got.State != Healthy || got.Replacements != 0 || got.Path == "/other" {
			t.Errorf("status: %+v", got)
		}
	})
}
