// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// orders is a spec of the fake driver with faults.
func orders(t *testing.T, start string, faults map[string]string) Spec {
	t.Helper()
	if faults == nil {
		faults = map[string]string{}
	}
	raw := testproc.Try(json.Marshal(map[string]any{
		"nodes": []any{map[string]any{"name": "cn1",
			"inventories": map[string]any{"VCPU": map[string]int{"total": 8}}}},
		"instances": struct{}{}, "faults": faults,
	})).Or(t)
	spec := Spec{
		Name: "chaos", Path: fakePath, Config: raw,
		Timeouts: driverclient.Timeouts{Nodes: 300 * time.Millisecond,
			Update: 300 * time.Millisecond, Configure: 2 * time.Second,
			Stop:      300 * time.Millisecond,
			Handshake: patience / 2, Info: patience / 2}, // on a busy machine
		Restart: Restart{
			HealthInterval: 20 * time.Millisecond, Misses: 2, BackoffBase: time.Millisecond,
			BackoffMax: time.Millisecond, FailureLimit: 1000,
		},
	}
	// Only a driver whose health checks give no answer is to be ended by them: another one, on a
	// busy machine, is not.
	spec.Timeouts.Health = patience / 2
	for call, fault := range faults {
		if call == "health" || fault == "stop" {
			spec.Timeouts.Health = 300 * time.Millisecond
		}
	}
	if start != "" {
		spec.Args = []string{"--start=" + start}
	}
	return spec
}

// slowStart is a spec whose first process has time to take its configuration.
func slowStart(spec Spec) Spec {
	spec.Timeouts.Configure = patience / 2
	return spec
}

var startedProcess = regexp.MustCompile(`started process (\d+)`)

// endRunaways ends what left the process group: that is beyond the host's reach.
func (r *rig) endRunaways() {
	for _, m := range startedProcess.FindAllStringSubmatch(r.log.String(), -1) {
		if pid, err := strconv.Atoi(m[1]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestHostSurvivesDriverFaults: whatever a driver does in a call, the call ends by its deadline,
// another driver is served meanwhile, and the first one works again once its faults are configured
// away.
func TestHostSurvivesDriverFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{
		"hang", "late", "error", "not-ready", "refuse", "panic", "panic-elsewhere", "crash", "exit", "abort",
		"stop", "grandchild", "runaway",
		"print", "raw-stdout", "garbage", "long-line", "storm", "leak", "tidy-socket",
		"no-root", "generation", "foreign", "flicker",
		"huge", "reshape", "again", "uninvited", "lose", "invent", "rename",
		"garbage storm long-line leak grandchild hang",
	} {
		t.Run(strings.ReplaceAll(fault, " ", "+"), func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			r := newRig(t)
			defer r.endRunaways()
			other := r.mustStart(Spec{Name: "fake",
				Timeouts: answersLate(),
				Config:   []byte(`{"nodes":[{"name":"cn1","inventories":{"VCPU":{"total":1}}}]}`)})
			p := r.mustStart(slowStart(orders(t, "", map[string]string{"update": fault})))
			for _, given := range []providertree.Allocations{nil, {}, nil} {
				// Any outcome is fine, as long as it is not for our giving up that there is one.
				if _, err := r.update(p, given); errors.Is(err, context.DeadlineExceeded) &&
					!errors.Is(err, driverclient.ErrNoAnswer) {
					t.Errorf("the call did not end by itself: %v", err)
				}
				if _, err := r.update(other, nil); err != nil {
					t.Errorf("another driver: %v", err)
				}
			}
			r.eventually("an update of the driver that behaves now", func() error {
				if err := p.Reconfigure(context.Background(), orders(t, "", nil)); err != nil {
					return err
				}
				_, err := r.update(p, nil)
				return err
			})
			if s := other.Status(); s.Restarts != 0 || s.State != Healthy {
				t.Errorf("another driver: %+v", s)
			}
			r.log.records(t) // whatever it wrote, our log is one record a line
			for line := range strings.Lines(r.log.String()) {
				if len(line) > 2*maxLogLine {
					t.Errorf("a log record has %d bytes", len(line))
				}
			}
		})
	}
}

// TestHostSurvivesDriverFaultsInOtherCalls: the same for the calls around the one that matters.
func TestHostSurvivesDriverFaultsInOtherCalls(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"nodes", "health", "watch", "shutdown"} {
		for _, fault := range []string{"hang", "panic", "crash", "storm", "error"} {
			t.Run(call+"/"+fault, func(t *testing.T) {
				testproc.Parallel(t, testproc.Light)
				r := newRig(t)
				p := r.mustStart(slowStart(orders(t, "", map[string]string{call: fault})))
				for range 2 { // without an answer that many times, it is given up
					_, _ = p.AvailableNodes(context.Background())
				}
				if call == "shutdown" {
					testproc.NoError(t, p.Stop(context.Background()))
					return
				}
				r.eventually("an update", func() error {
					if err := p.Reconfigure(context.Background(), orders(t, "", nil)); err != nil {
						return err
					}
					_, err := r.update(p, nil)
					return err
				})
			})
		}
	}
}

// TestStartsThatGoWrong: each ends in words, or in a driver that works.
func TestStartsThatGoWrong(t *testing.T) {
	t.Parallel()
	for start, want := range map[string]string{
		"exit":                             "cannot find a library",
		"crash":                            "a defect of the driver at its start",
		"hang":                             "the handshake was not complete",
		"raw-stdout":                       "is this a driver for compute-agent?",
		"handshake=1|2|unix|/nowhere|grpc": `version "2"`,
		"dance":                            "unknown fault",
		"noise,garbage,long-line":          "",
		"sleep=200ms,runaway":              "",
	} {
		t.Run(start, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			r := newRig(t)
			defer r.endRunaways()
			spec := orders(t, start, nil)
			spec.Timeouts = driverclient.Timeouts{Handshake: patience / 2, Info: patience / 2, Configure: patience / 2,
				Update: patience / 2, Health: patience / 2, Stop: spec.Timeouts.Stop}
			if start == "hang" {
				spec.Timeouts.Handshake = 300 * time.Millisecond
			}
			spec.Restart.BackoffBase, spec.Restart.BackoffMax = time.Hour, time.Hour
			p, err := r.start(spec)
			switch {
			case want != "":
				if !errors.Is(err, driverclient.ErrUnavailable) || !strings.Contains(err.Error(), want) {
					t.Errorf("want %q, got %v", want, err)
				}
			case err != nil:
				t.Error(err)
			default:
				if _, err := r.update(p, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// eventually tries until it works.
func (r *rig) eventually(what string, try func() error) {
	r.t.Helper()
	testproc.Eventually(r.t, patience, what, try)
}
