// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// cutOff is a ledger that has lost its database. Its state in memory has an age, if reads may show
// it.
type cutOff struct {
	*transactor.Ledger
	lost bool
	age  time.Duration
}

func (c *cutOff) Snapshot(ctx context.Context) (*ledger.Snapshot, error) {
	if c.lost {
		return nil, ledger.ErrUnavailable
	}
	return c.Ledger.Snapshot(ctx)
}

func (c *cutOff) Read(ctx context.Context) (*ledger.Snapshot, time.Duration, error) {
	if !c.lost || c.age == 0 {
		s, err := c.Snapshot(ctx)
		return s, 0, err
	}
	return c.Current(), c.age, nil
}

func (c *cutOff) Update(ctx context.Context, fn func(*ledger.Tx) error) (*ledger.Snapshot, error) {
	if c.lost {
		return nil, ledger.ErrUnavailable
	}
	return c.Ledger.Update(ctx, fn)
}

// staleSeen keeps the ages of stale reads.
type staleSeen struct{ ages []time.Duration }

func (*staleSeen) Answered(osapi.Answer)       {}
func (*staleSeen) Searched(api.Search)         {}
func (s *staleSeen) ReadStale(a time.Duration) { s.ages = append(s.ages, a) }

// HostLimited counts nothing.
func (*staleSeen) HostLimited() {}

// TestStaleAnswers: every GET may be stale and says so; nothing else is answered without the
// database, /readyz neither. The log has one line when it begins and one when it ends.
func TestStaleAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var log strings.Builder
	var seen staleSeen
	l := &cutOff{Ledger: openLedger(t)}
	h := newAPI(t, func(c *api.Config) {
		c.Ledger, c.Logger, c.Observer = l, zerolog.New(&log).Level(zerolog.InfoLevel), &seen
	})
	rp := "/resource_providers/" + inst1
	calls(t, h, call{method: "POST", path: "/resource_providers", version: "1.39",
		body: `{"name":"n","uuid":"` + inst1 + `"}`, status: 200})
	reads := []string{
		"/resource_providers", rp, rp + "/inventories",
		rp + "/usages", rp + "/allocations", rp + "/aggregates", rp + "/traits",
		"/resource_classes", "/resource_classes/VCPU", "/traits", "/traits/HW_CPU_X86_AVX", "/allocations/" + inst1,
		"/usages?project_id=p", "/allocation_candidates?resources=VCPU:1",
		"/allocation_candidates/explain?resources=VCPU:1",
	}
	get := func(path string, status int) string {
		t.Helper()
		want := status
		if status == 200 && strings.HasPrefix(path, "/traits/") {
			want = 204
		}
		return call{method: "GET", path: path, version: "1.39", status: want}.do(t, h).Header().
			Get("Placement-Stale-Seconds")
	}
	for _, path := range reads {
		testproc.Equal(t, get(path, 200), "", "%s: stale %s with a database", path)
	}
	l.lost, l.age = true, 1200*time.Millisecond
	for _, path := range reads {
		testproc.Equal(t, get(path, 200), "2", "%s: stale %q", path)
	}
	if want := slices.Repeat([]time.Duration{l.age}, len(reads)); !slices.Equal(seen.ages, want) {
		t.Errorf("observed %v, want %v", seen.ages, want)
	}
	for _, c := range []call{
		{method: "GET", path: "/readyz"},
		{method: "PUT", path: "/traits/CUSTOM_A"},
		{method: "PUT", path: "/resource_classes/CUSTOM_A"},
		{method: "DELETE", path: "/allocations/" + inst1},
		{method: "PUT", path: rp + "/inventories", body: `{"resource_provider_generation":0,"inventories":{}}`},
		{method: "POST", path: "/resource_providers", body: `{"name":"other"}`},
	} {
		c.version, c.status = "1.39", 503
		if w := c.do(t, h); w.Header().Get("Placement-Stale-Seconds") != "" || c.path != "/readyz" &&
			w.Header().Get("Retry-After") == "" {
			t.Errorf("%s %s: headers %v", c.method, c.path, w.Header())
		}
	}
	l.age = 0 // too old
	testproc.Equal(t, get("/traits", 503), "", "refused, and stale %s")
	l.lost = false
	for range 2 {
		testproc.Equal(t, get("/traits", 200), "", "stale %s with a database that answers again")
	}
	began, ended := strings.Count(log.String(), "cannot be asked for its version"),
		strings.Count(log.String(), "answers again")
	if got := fmt.Sprint(began, ended); got != "1 1" {
		t.Errorf("lines when it begins and ends: %s\n%s", got, log.String())
	}
}
