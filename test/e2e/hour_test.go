// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	hourAgents  = 200
	hourTree    = 3 // providers of each node
	simulated   = time.Hour
	outageFrom  = 30 * time.Minute
	outageUntil = outageFrom + 5*time.Minute
)

// hour counts the requests of some agents, second by second.
type hour struct {
	service http.RoundTripper
	start   time.Time

	mu       sync.Mutex
	requests [simulated / time.Second]int
	refused  int // tries during the outage
	probes   int // connections without a request
	writes   int
}

func (h *hour) second() int { return int(time.Since(h.start) / time.Second) }

// arrive counts a connection, and fails during the outage.
func (h *hour) arrive(note func(second int)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := time.Since(h.start); at >= outageFrom && at < outageUntil {
		h.refused++
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	note(min(h.second(), len(h.requests)-1))
	return nil
}

// sum and peak are of the seconds from, including, to until.
func (h *hour) sum(from, until time.Duration) (sum, peak int, at time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := from / time.Second; s < until/time.Second; s++ {
		n := h.requests[s]
		sum += n
		if n > peak {
			peak, at = n, s*time.Second
		}
	}
	return sum, peak, at
}

// line is one agent's connection to it.
type line struct {
	*hour
	requests int
	// each, if set, is called with each request.
	each func(*http.Request)
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := l.arrive(func(second int) {
		l.hour.requests[second]++
		l.requests++
		if r.Method != http.MethodGet {
			l.writes++
		}
	}); err != nil {
		return nil, err
	}
	if l.each != nil {
		l.each(r)
	}
	return l.service.RoundTrip(r)
}

func (l *line) dial(context.Context, string, string) (net.Conn, error) {
	if err := l.arrive(func(int) { l.probes++ }); err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	return ours, theirs.Close()
}

// member is one agent of several, without its process and its plugin.
type member struct {
	tracker *resourcetracker.Tracker
	line    *line
}

func newMember(t *testing.T, cfg *config.Config, h *hour, number int) member {
	t.Helper()
	name, uuid := fmt.Sprintf("cn%d", number), fmt.Sprintf("11111111-0000-4000-8000-%012d", number)
	return memberWith(t, cfg, h, uuid, configured(t, `{"layout": "vgpu-children", "nodes": [{"name": "`+name+`", "inventories":
		{"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192}, "VGPU": {"total": 8}}}]}`))
}

// configured is a fake driver.
func configured(t *testing.T, cfg string) *fake.Driver {
	t.Helper()
	driver := fake.New()
	check(t, driver.Configure(t.Context(), json.RawMessage(cfg), plugins.HostInfo{Name: "cn1"}))
	return driver
}

func memberWith(t *testing.T, cfg *config.Config, h *hour, uuid string, driver *fake.Driver) member {
	t.Helper()
	l := &line{hour: h}
	client := testproc.Try(reportclient.New(reportclient.Config{
		Config: placementclient.Config{
			URL: "http://placement", Transport: l, Dial: l.dial, Timeout: cfg.PlacementClient.Timeout,
			Retries: cfg.PlacementClient.Retries, Logger: zerolog.Nop(),
		},
		RefreshInterval: cfg.Tracker.AssociationRefresh,
	})).Or(t)
	return member{line: l, tracker: resourcetracker.New(resourcetracker.Config{
		Name: "fake", Driver: inProcess{driver}, Placement: client, Identity: uuid, Logger: zerolog.Nop(),
		Timings: resourcetracker.Timings{
			Interval: cfg.Tracker.UpdateResourcesInterval, PassDeadline: cfg.Tracker.PassDeadline,
			BackoffMin: cfg.Tracker.RetryBackoffMin, BackoffMax: cfg.Tracker.RetryBackoffMax,
		},
	})}
}

// TestAgentsSpreadTheirRequests is an hour of complete trackers with the default timings. All start
// at the same instant on existing trees, and in the middle Placement is down for five minutes: what
// they ask spreads over time. What a large fleet costs is measured by package test/fleet.
func TestAgentsSpreadTheirRequests(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	const n = hourAgents
	cfg := testproc.Try(config.Load(config.Options{Root: t.TempDir(), Environ: []string{}})).Or(t)
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		service, err := placement.NewDirect(t.Context(), placement.Config{StateDir: state, Logger: zerolog.Nop()})
		check(t, err)
		defer func() { check(t, service.Close()) }()
		runHour(t, cfg, &hour{service: service, start: time.Now()}, n, 0) // the trees
		h := &hour{service: service, start: time.Now()}
		members := runHour(t, cfg, h, n, simulated)
		h.check(t, cfg, members)
	})
}

// runHour runs agents for so long, and at least until each has made a pass.
func runHour(t *testing.T, cfg *config.Config, h *hour, n int, long time.Duration) []member {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	members := make([]member, 0, n)
	for i := range n {
		members = append(members, newMember(t, cfg, h, i))
	}
	for _, m := range members {
		running.Go(func() {
			testproc.NoErrorf(t, m.tracker.Run(ctx), "%s", m.tracker.Status().Driver)
		})
	}
	for _, m := range members {
		<-m.tracker.Ready()
	}
	time.Sleep(long)
	for i, m := range members {
		if st := m.tracker.Status(); st.State != resourcetracker.Reporting {
			t.Errorf("agent %d: %+v", i, st)
		}
	}
	stop()
	running.Wait()
	return members
}

func (h *hour) check(t *testing.T, cfg *config.Config, members []member) {
	t.Helper()
	n := len(members)
	const cold = 1 + 1 + 3*hourTree // the version document, the tree, and its providers
	interval, refresh := cfg.Tracker.UpdateResourcesInterval, cfg.Tracker.AssociationRefresh
	// The tree is looked at again in the first pass that comes when it is nine to ten tenths of the
	// refresh interval old; passes are an interval apart, and up to a twentieth more.
	soonest, latest := refresh*9/10, refresh+interval*21/20
	most, least := int(simulated/soonest), int((simulated-(outageUntil-outageFrom)-2*interval)/latest)
	for i, m := range members {
		if m.line.requests < cold+least || m.line.requests > cold+most {
			t.Errorf("agent %d made %d requests, want %d and then %d to %d looks",
				i, m.line.requests, cold, least, most)
		}
	}
	testproc.Equal(t, h.writes, 0, "%d writes in an hour without a change")
	first, _, _ := h.sum(0, time.Second)
	if first != n*cold {
		t.Errorf("%d requests at the start, want %d", first, n*cold)
	}
	if idle, _, at := h.sum(time.Second, soonest); idle != 0 {
		t.Errorf("%d requests before the first look at the trees was due, the most after %v", idle, at)
	}
	// All started in one second; the looks are spread more from time to time. Of few agents a few
	// more may meet by chance.
	const few = 5
	for _, phase := range []struct {
		name        string
		from, until time.Duration
		peak        int // at most, of n agents
	}{
		{"the first looks", soonest, 2 * soonest, n/3 + few},
		{"the looks before the outage", outageFrom - refresh, outageFrom, n/6 + few},
		{"after the outage", outageUntil, outageUntil + 2*interval, n/6 + few},
		{"the last looks", simulated - refresh, simulated, n/10 + few},
	} {
		sum, peak, at := h.sum(phase.from, phase.until)
		t.Logf("%s: %d requests, at most %d in a second (after %v)", phase.name, sum, peak, at)
		if sum == 0 || peak > phase.peak {
			t.Errorf("%s: %d requests of %d agents, %d of them in one second, want at most %d",
				phase.name, sum, n, peak, phase.peak)
		}
	}
	all, _, _ := h.sum(0, simulated)
	t.Logf("%d agents with %d providers each: %d requests at the start, %d in the hour after it; %d connections "+
		"without a request, %d refused during the outage",
		n, hourTree, first, all-first, h.probes, h.refused)
}
