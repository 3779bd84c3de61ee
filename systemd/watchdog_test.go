// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// watched is a Notifier with an interval of 30 s whose pings are counted on the
// fake clock of a synctest bubble.
func watched(pings *[]time.Duration, fail *error) *Notifier {
	start := time.Now()
	return &Notifier{socket: "@unused", watchdog: 30 * time.Second, send: func(string) error {
		*pings = append(*pings, time.Since(start))
		return *fail
	}}
}

func seconds(n ...int) []time.Duration {
	out := make([]time.Duration, len(n))
	for i := range n {
		out[i] = time.Duration(n[i]) * time.Second
	}
	return out
}

func levels(t *testing.T, log string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(log) {
		var entry struct{ Level string }
		testproc.Check(t, json.Unmarshal([]byte(line), &entry))
		out = append(out, entry.Level)
	}
	return out
}

func TestWatchdogPingsWhileLoopRuns(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var pings []time.Duration
		var fail error
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
		defer cancel()
		watched(&pings, &fail).Watchdog(ctx, time.Now, zerolog.New(&log))
		testproc.Samef(t, cmp.Diff(seconds(0, 10, 20, 30, 40), pings), "pings")
		if log.Len() != 0 {
			t.Errorf("log: %s", log.String())
		}
	})
}

// TestWatchdogStopsWithHeartbeat: the heartbeat stops at 0 s: the last ping is at 30 s, the warning
// at 40 s, and systemd would kill at 60 s. It resumes at 55 s, which is noticed at 60 s.
func TestWatchdogStopsWithHeartbeat(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var pings []time.Duration
		var fail error
		var log bytes.Buffer
		start := time.Now()
		beat := func() time.Time {
			if time.Since(start) >= 55*time.Second {
				return start.Add(55 * time.Second)
			}
			return start
		}
		ctx, cancel := context.WithTimeout(context.Background(), 75*time.Second)
		defer cancel()
		watched(&pings, &fail).Watchdog(ctx, beat, zerolog.New(&log))
		testproc.Samef(t, cmp.Diff(seconds(0, 10, 20, 30, 60, 70), pings), "pings")
		testproc.Samef(t, cmp.Diff([]string{"error", "info"}, levels(t, log.String())), "levels")
		var first struct {
			Killed float64 `json:"until_killed"`
		}
		line, _, _ := strings.Cut(log.String(), "\n")
		testproc.Check(t, json.Unmarshal([]byte(line), &first))
		if got := time.Duration(first.Killed) * time.Millisecond; got != 20*time.Second {
			t.Errorf("the log announces the kill in %v, want 20s", got)
		}
	})
}

func TestWatchdogLogsLostPings(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var pings []time.Duration
		fail := errors.New("connection refused")
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		watched(&pings, &fail).Watchdog(ctx, time.Now, zerolog.New(&log))
		testproc.Samef(t, cmp.Diff([]string{"warn", "warn"}, levels(t, log.String())), "levels")
	})
}

func TestWatchdogWithoutInterval(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var n *Notifier
	n.Watchdog(context.Background(),
		func() time.Time { t.Error("lastBeat was called"); return time.Time{} }, zerolog.Nop())
}
