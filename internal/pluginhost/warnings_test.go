// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWarningsAreLoggedWhenTheyBeginAndEnd, whatever becomes of
// the process; in the status while they hold and there is a process.
func TestWarningsAreLoggedWhenTheyBeginAndEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var log bytes.Buffer
	lines := func() []string {
		out := []string{}
		for l := range strings.Lines(log.String()) {
			var f struct{ Level, Driver, Warning, Message string }
			testproc.Check(t, json.Unmarshal([]byte(l), &f))
			if f.Warning != "" {
				out = append(out,
					strings.TrimSpace(f.Level+" "+
						f.Driver+" "+f.Warning+" "+
						map[bool]string{true: "over"}[strings.HasSuffix(f.Message, "has ended.")]))
			}
		}
		log.Reset()
		return out
	}
	held := func(s *stage) string {
		out := []string{}
		for _, w := range s.Status().Warnings {
			out = append(out, fmt.Sprintf("%s %s %v", w.Name, w.Text, w.Since.Sub(s.begun)))
		}
		return strings.Join(out, "; ")
	}
	fan, clock := plugins.Warning{Name: "fan", Text: "it is loud"},
		plugins.Warning{Name: "gpu-clock", Text: "it is slow"}
	play(t, Spec{}, []string{"0s healthy", "1m40s degraded", "1m50s healthy", "2m5s backoff", "2m6s healthy",
		"2m50s backoff", "2m52s healthy"}, func(s *stage) {
		synctest.Wait() // the supervisor reads the logger while it starts
		s.log = zerolog.New(&log).With().Str("driver", "puppet").Logger()
		see := func(what string, state string, want ...string) {
			t.Helper()
			testproc.Samef(t, cmp.Diff(append([]string{}, want...), lines()), "%s: logged", what)
			testproc.Equal(t, held(s), state, "%s: the status has %q", what)
		}
		s.wait(15 * time.Second)
		see("nothing", "")
		s.set(func() { s.warnings = []plugins.Warning{fan} })
		s.wait(30 * time.Second)
		see("it begins", "fan it is loud 20s", "warn puppet fan")
		s.set(func() { s.warnings = []plugins.Warning{{Name: "fan", Text: "it is louder"}, clock} })
		s.wait(30 * time.Second)
		see("other words, and another", "fan it is louder 20s; gpu-clock it is slow 50s", "warn puppet gpu-clock")
		s.set(func() { s.warnings = []plugins.Warning{clock} })
		s.wait(20 * time.Second)
		see("one is over", "gpu-clock it is slow 50s", "info puppet fan over")
		s.set(func() { s.health = func() error { return &driverclient.UnhealthyError{Problem: "tired"} } })
		s.wait(10 * time.Second) // 1m45s
		see("a problem does not hide them", "gpu-clock it is slow 50s")
		s.set(func() { s.health = func() error { return nil } })
		s.wait(20 * time.Second) // 2m5s
		s.process(0).end("crashed")
		s.wait(5 * time.Second)
		see("the process is another one, and has not told", "")
		s.wait(30 * time.Second)
		see("it tells the same", "gpu-clock it is slow 50s")
		s.set(func() { s.warnings = nil })
		s.wait(10 * time.Second)
		see("it is over", "", "info puppet gpu-clock over")
		s.process(1).end("crashed")
		s.wait(20 * time.Second)
		see("and stays so", "")
	})
}

// TestWarningsWithoutAnAnswer: a health check that gets none says nothing of warnings.
func TestWarningsWithoutAnAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "20s degraded", "30s healthy"}, func(s *stage) {
		s.set(func() { s.warnings = []plugins.Warning{{Name: "fan", Text: "it is loud"}} })
		s.wait(15 * time.Second)
		s.set(func() { s.health, s.warnings = func() error { return driverclient.ErrNoAnswer }, nil })
		s.wait(10 * time.Second)
		if got := s.Status().Warnings; len(got) != 1 {
			t.Errorf("without an answer: %v", got)
		}
		s.set(func() { s.health = func() error { return nil } })
		s.wait(10 * time.Second)
		if got := s.Status().Warnings; len(got) != 0 {
			t.Errorf("after it: %v", got)
		}
	})
}

// TestWarningsOfAProcess: from a driver that the SDK serves; what the SDK can fix it does.
func TestWarningsOfAProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"health": "warn"}))
	s := testproc.Try(p.acquire()).Or(t)
	defer s.calls.Done()
	got, err := s.Health(context.Background())
	if diff := cmp.Diff([]plugins.Warning{{Name: "fan-7", Text: "it is loud"}}, got); diff != "" || err != nil {
		t.Errorf("Health: %v, difference %s", err, diff)
	}
	testproc.Check(t, p.Reconfigure(context.Background(), chaosSpec("", map[string]string{"health": "problem"})))
	if got, err := s.Health(context.Background()); len(got) != 0 || !errors.As(err, new(*driverclient.UnhealthyError)) {
		t.Errorf("Health with a problem: got %v, %v, want an UnhealthyError alone", got, err)
	}
}
