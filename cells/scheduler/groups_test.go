// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// needsPolicy is the refusal of [grouped] where group_policy is required.
const needsPolicy = "The flavor has 2 groups of 'resources' extra specs, and needs the extra spec 'group_policy' " +
	"then: isolate or none."

// grouped gives a server a flavor with two request groups and no group_policy.
func grouped(r *scheduler.CreateRequest) {
	r.Flavor.ExtraSpecs = map[string]string{"resources1:VCPU": "1", "resources2:MEMORY_MB": "512"}
}

// candidateRequests counts the requests for candidates since the last time.
func (w *world) candidateRequests() int { return w.plink.counted()["GET /allocation_candidates"] }

// TestBootWithoutGroupPolicy: the bundled Placement serves several groups without group_policy. The
// client asks once whether it does.
func TestBootWithoutGroupPolicy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	for i, want := range []int{2, 1} {
		w.candidateRequests()
		uuid := w.created(grouped)
		w.schedule()
		w.work()
		if row := w.row(uuid); row.VMState != cellwire.VMActive || row.Host != "cell1-host1" {
			t.Fatalf("server %d: %+v, fault %+v", i, row, row.Fault)
		}
		if got := w.candidateRequests(); got != want {
			t.Errorf("server %d: %d requests for candidates, want %d", i, got, want)
		}
	}
}

// plain is a Placement without extensions.
type plain struct{ http.Handler }

func (p plain) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	r = r.Clone(r.Context())
	r.Header.Del("Placement-Extensions")
	p.Handler.ServeHTTP(rw, r)
}

// TestBootWithoutGroupPolicyIsRefused: a Placement that requires group_policy. Nothing is written,
// and each request asks again, so that a Placement that can do it from now on is noticed.
func TestBootWithoutGroupPolicyIsRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	w.plink.to = plain{w.asked}
	refusedForPolicy(t, w)
	w.plink.to = w.asked
	uuid := w.created(grouped)
	w.schedule()
	w.work()
	if row := w.row(uuid); row.VMState != cellwire.VMActive {
		t.Errorf("%+v, fault %+v", row, row.Fault)
	}
}

func refusedForPolicy(t *testing.T, w *world) {
	t.Helper()
	for range 2 {
		w.candidateRequests()
		if _, err := w.create(grouped); err == nil || !containsText(needsPolicy)(err) {
			t.Errorf("Create with groups and no policy: got %v", err)
		}
		testproc.Equal(t, w.candidateRequests(), 1, "%d requests for candidates")
	}
	requests := testproc.Try(w.store.BuildRequests(ctx, "", 0)).Or(w.t)
	testproc.Equal(t, len(requests), 0, "there are %d build requests")
	// With the policy it is served.
	uuid := w.created(grouped, func(r *scheduler.CreateRequest) { r.Flavor.ExtraSpecs["group_policy"] = "none" })
	w.schedule()
	w.work()
	if row := w.row(uuid); row.VMState != cellwire.VMActive {
		t.Errorf("with group_policy: %+v, fault %+v", row, row.Fault)
	}
}

// TestRealPlacementNeedsGroupPolicy: OpenStack's Placement requires group_policy.
func TestRealPlacementNeedsGroupPolicy(t *testing.T) {
	at := testproc.Try(url.Parse(testproc.StartPlacement(t).URL)).Or(t)
	w := newWorldOn(t, databases(t), httputil.NewSingleHostReverseProxy(at), []int{1}, nil)
	t.Cleanup(w.close)
	refusedForPolicy(t, w)
}

// TestGroupPolicyIsDecidedLater: while Placement cannot be asked, a server is accepted, and refused
// or placed when Placement is back. The same happens when Placement loses its extensions.
func TestGroupPolicyIsDecidedLater(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		before, after func(*world)
		active        bool
	}{
		"down, then with extensions": {
			before: func(w *world) { w.plink.set(refused) },
			after:  func(w *world) { w.plink.set(up) }, active: true,
		},
		"down, then without extensions": {
			before: func(w *world) { w.plink.set(refused) },
			after:  func(w *world) { w.plink.set(up); w.plink.to = plain{w.asked} },
		},
		"extensions that are gone": {
			before: func(w *world) { w.created(grouped); w.schedule(); w.work() },
			after:  func(w *world) { w.plink.to = plain{w.asked} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{1})
			c.before(w)
			uuid := w.created(grouped)
			c.after(w)
			w.schedule()
			w.work()
			row := w.row(uuid)
			if c.active {
				if row.VMState != cellwire.VMActive {
					t.Errorf("%+v, fault %+v", row, row.Fault)
				}
				return
			}
			if row.VMState != cellwire.VMError || row.Fault == nil || row.Fault.Code != http.StatusBadRequest ||
				row.Fault.Message != needsPolicy {
				t.Errorf("%+v, fault %+v", row, row.Fault)
			}
			testproc.Contains(t, w.logged(), "needs the extra spec 'group_policy'", "logged is %s")
			if _, err := w.create(grouped); err == nil || !containsText(needsPolicy)(err) {
				t.Errorf("the next one: %v", err)
			}
		})
	}
}
