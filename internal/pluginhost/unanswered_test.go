// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// silentAt is what a call that ran into its deadline ends with.
func silentAt(call string) error {
	return &driverclient.CallError{Driver: "puppet", Call: call, Err: &driverclient.TimeoutError{Limit: time.Minute}}
}

// pass is what a tracker asks for at every pass over two nodes.
func (s *stage) pass() {
	ctx := context.Background()
	_, _ = s.AvailableNodes(ctx)
	for _, node := range []string{"cn1", "cn2"} {
		_, _, _ = s.UpdateProviderTree(ctx, &providertree.Tree{}, node, nil)
	}
}

// TestOneHangingCallAmongAnswers: a driver that names its nodes, and answers for one of them, and
// hangs in the tree of another is killed after as many passes as misses are allowed.
func TestOneHangingCallAmongAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "2m0s backoff", "2m1s healthy"}, func(s *stage) {
		s.process(0).update = func(node string) error {
			if node == "cn2" {
				return silentAt("UpdateProviderTree")
			}
			return nil
		}
		for range 3 {
			s.pass()
			s.wait(time.Minute)
		}
		if s.process(0).how() != "killed" ||
			!strings.Contains(s.Status().LastError, "3 consecutive calls got no response") {
			t.Errorf("the process was %q, last error %q", s.process(0).how(), s.Status().LastError)
		}
	})
}

// TestAnAnswerOfTheSameCallForgives what was missed before.
func TestAnAnswerOfTheSameCallForgives(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		n := 0
		s.process(0).update = func(string) error {
			if n++; n%4 == 0 { // of each node two of three
				return nil
			}
			if n%4 == 1 {
				return silentAt("UpdateProviderTree")
			}
			return &driverclient.CallError{Err: plugins.ErrNotReady} // an answer, too
		}
		for range 20 {
			s.pass()
			s.wait(time.Minute)
		}
	})
}

// TestACallerWhoGaveUpIsNoMiss, nor an answer: also when the answer that the deadline has passed,
// which was the caller's, comes a moment before the caller's own clock says so.
func TestACallerWhoGaveUpIsNoMiss(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "0s backoff", "1s healthy"}, func(s *stage) {
		var of func() time.Time
		s.process(0).update = func(string) error {
			return &driverclient.CallError{Driver: "puppet", Call: "UpdateProviderTree",
				Err: &driverclient.TimeoutError{Limit: time.Minute, Deadline: of()}}
		}
		ask := func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			_, _, _ = s.UpdateProviderTree(ctx, &providertree.Tree{}, "cn1", nil)
		}
		theirs := func() time.Time { return time.Now().Add(time.Hour) }
		ours := func() time.Time { return time.Now().Add(time.Minute) }
		for _, of = range []func() time.Time{ours, ours, theirs, theirs, theirs, theirs} {
			ask()
		}
		s.wait(0)
		testproc.Equal(t, s.process(0).how(), "", "callers gave up, and the process was %q")
		of = ours
		ask()
		s.wait(time.Second)
		testproc.Equal(t, s.process(0).how(), "killed", "the third miss in a row, and the process was %q")
	})
}

// TestSilentConfigureIsReplaced: a process that does not answer to its new configuration has not
// refused it. Another one is started with it, and takes over.
func TestSilentConfigureIsReplaced(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		s.process(0).configure = func(Spec) error { return silentAt("Configure") }
		testproc.NoError(t, s.Reconfigure(context.Background(), Spec{Name: "puppet", Config: []byte(`{"a":1}`)}))
		s.wait(time.Second)
		if s.process(0).how() != "stopped" || s.Status().PID != 101 || string(s.currentSpec().Config) != `{"a":1}` {
			t.Errorf("the old process was %q, the new one is %d with %s",
				s.process(0).how(), s.Status().PID, s.currentSpec().Config)
		}
	})
}

// TestSilentConfigureCounts like any other call without an answer, when nothing can take over: then
// the process is killed.
func TestSilentConfigureCounts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "0s backoff", "1s backoff", "3s healthy"}, func(s *stage) {
		s.process(0).configure = func(Spec) error { return silentAt("Configure") }
		s.set(func() { s.fail = errors.New("no memory") })
		for range 3 {
			err := s.Reconfigure(context.Background(), Spec{Name: "puppet"})
			if !errors.Is(err, driverclient.ErrNoAnswer) || !strings.Contains(err.Error(), "no memory") {
				t.Errorf("told as %v", err)
			}
		}
		s.wait(2 * time.Second)
		testproc.Equal(t, s.process(0).how(), "killed", "the process was %q")
		s.set(func() { s.fail = nil })
		s.wait(time.Second)
	})
}

// TestRefusedConfigureIsAnAnswer: the driver has spoken, nothing is replaced and nothing counted.
func TestRefusedConfigureIsAnAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy"}, func(s *stage) {
		s.process(0).configure = func(Spec) error {
			return &driverclient.CallError{Err: &plugins.ConfigError{Key: "uri",
				Problem: "is no URI"}}
		}
		for range 5 {
			var refused *plugins.ConfigError
			if err := s.Reconfigure(context.Background(), Spec{Name: "puppet"}); !errors.As(err, &refused) ||
				errors.Is(err, driverclient.ErrNoAnswer) {
				t.Errorf("told as %v", err)
			}
		}
		s.wait(time.Minute)
		testproc.Equal(t, len(s.puppets), 1, "%d processes were started")
	})
}
