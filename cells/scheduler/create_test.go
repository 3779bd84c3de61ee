// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCreateMany: as many as the quota allows, with numbers.
func TestCreateMany(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1}, limits(3, -1, -1))
	servers := testproc.Try(w.create(func(r *scheduler.CreateRequest) {
		r.Min, r.Max, r.ForcedHost, r.Hostname, r.Reservation = 2, 5, "cell1-host1", "host", "r-1"
		r.Metadata = map[string]string{"a": "b"}
	})).Or(w.t)
	var got []string
	for _, s := range servers {
		got = append(got, fmt.Sprint(s.Name, s.Hostname,
			s.LaunchIndex, s.VMState, s.TaskState, s.Reservation, s.Metadata, s.ForcedHost))
		spec := testproc.Try(w.store.RequestSpec(ctx, s.UUID)).Or(w.t)
		diff(t, s.Stored(), spec)
		request := testproc.Try(w.store.BuildRequest(ctx, s.UUID)).Or(w.t)
		diff(t, apidb.BuildRequest{RequestSpec: s}, request)
	}
	diff(t, []string{"vm-1host-10buildingschedulingr-1map[a:b]cell1-host1",
		"vm-2host-21buildingschedulingr-1map[a:b]cell1-host1",
		"vm-3host-32buildingschedulingr-1map[a:b]cell1-host1"}, got)
	_, err := w.create()
	if err == nil || err.Error() != "Quota exceeded for instances: Requested 1, but already used 3 of 3 instances" {
		t.Errorf("one more: %v", err)
	}
}

// TestHostnamesOfTheirOwn: servers whose name leaves nothing for a hostname get one of their uuid,
// as in Nova.
func TestHostnamesOfTheirOwn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	servers := testproc.Try(
		w.create(func(r *scheduler.CreateRequest) { r.Min, r.Name, r.Hostname = 2, "日本", "" }),
	).Or(w.t)
	for i, s := range servers {
		if want := fmt.Sprintf("日本-%d", i+1); s.Name != want || s.Hostname != "Server-"+s.UUID {
			t.Errorf("server %d is %q with the hostname %q", i, s.Name, s.Hostname)
		}
	}
}

// TestCreateRefuses: what is refused writes nothing.
func TestCreateRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		before func(*world)
		change func(*scheduler.CreateRequest)
		want   func(error) bool
	}{
		"more than the most": {change: func(r *scheduler.CreateRequest) { r.Min, r.Max = 3, 2 },
			want: containsText("min_count must be <= max_count")},
		"far too many": {change: func(r *scheduler.CreateRequest) { r.Max = scheduler.MaxServers + 1 },
			want: containsText("max_count must be at most 1000")},
		"an unfit flavor": {
			change: func(r *scheduler.CreateRequest) {
				r.Flavor.ExtraSpecs = map[string]string{"resources:VCPU": "x"}
			},
			want: containsText("Validation failed; 'x' is not a valid integer value."),
		},
		"no project": {change: func(r *scheduler.CreateRequest) { r.ProjectID = "" },
			want: containsText("A server needs a project and a flavor.")},
		"a project that no cell takes": {
			change: func(r *scheduler.CreateRequest) { r.ProjectID = strings.Repeat("p", 256) },
			want:   containsText("A project_id and a user_id have at most 255 bytes."),
		},
		"a user that no cell takes": {
			change: func(r *scheduler.CreateRequest) { r.UserID = strings.Repeat("u", 256) },
			want:   containsText("A project_id and a user_id have at most 255 bytes."),
		},
		"over the quota": {change: func(r *scheduler.CreateRequest) { r.Min = 8 },
			want: func(err error) bool { var e *quota.ExceededError; return errors.As(err, &e) }},
		"a cell that is down": {before: func(w *world) { w.sites[1].link.set(refused) },
			want: func(err error) bool { return errors.Is(err, quota.ErrCellDown) }},
	} {
		dbservers.Case(t, name, func(t *testing.T) {
			w := begin(t, []int{1}, limits(8, -1, -1))
			uuid := w.created()
			w.schedule()
			w.work()
			if c.before != nil {
				c.before(w)
			}
			if c.change == nil {
				c.change = func(*scheduler.CreateRequest) {}
			}
			_, err := w.create(c.change)
			if err == nil || !c.want(err) {
				t.Errorf("Create: got %v, want another error", err)
			}
			requests := testproc.Try(w.store.BuildRequests(ctx, "", 0)).Or(w.t)
			counts := testproc.Try(w.store.CountProject(ctx, "p", "", nil)).Or(w.t)
			if len(requests) != 0 || counts.Instances != 1 {
				t.Errorf("there are %d build requests and %d servers", len(requests), counts.Instances)
			}
			w.sites[1].link.set(up)
			w.consistent(map[string]bool{uuid: true})
		})
	}
}

func containsText(text string) func(error) bool {
	return func(err error) bool {
		var invalid *resourcerequest.InvalidError
		return errors.As(err, &invalid) && invalid.Message == text
	}
}

// TestCreateAtOnce: concurrent requests cannot exceed the quota together.
func TestCreateAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2}, limits(5, -1, -1))
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := w.create(); err != nil {
				var e *quota.ExceededError
				if !errors.As(err, &e) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	counts := testproc.Try(w.store.CountProject(ctx, "p", "", nil)).Or(w.t)
	testproc.Equal(t, counts.Instances, 5, "%d servers with a quota of 5")
	w.schedule()
	w.work()
	testproc.Equal(t, len(w.guests()), 5, "%d guests")
}

// TestRecheckQuota: a quota that became too small before the server was placed. As with Nova it is
// an error, and says which.
func TestRecheckQuota(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, recheck := range []bool{true, false} {
		w := begin(t, []int{1}, limits(2, -1, -1),
			func(b *scheduler.Options, _ *quota.Options) { b.RecheckQuota = recheck })
		uuid := w.created()
		w.must(w.store.SetQuotas(ctx, "p", apidb.QuotaSet{quota.Instances: 0}))
		w.schedule()
		row := w.row(uuid)
		switch {
		case recheck && (row.VMState != cellwire.VMError || row.Fault == nil || row.Fault.Code != 413 ||
			row.Fault.Message != "Quota exceeded for instances: Requested 1, but already used 0 of 0 instances"):
			t.Errorf("the row is %+v, with the fault %+v", row, row.Fault)
		case !recheck && row.Host == "":
			t.Errorf("it was looked at once more: %+v", row.Fault)
		}
		w.consistent(map[string]bool{uuid: true})
	}
}

// TestZones: a server in a zone that was asked for, and one that takes that of its host.
func TestZones(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const zone = "here"
	w := begin(t, []int{1}, func(b *scheduler.Options, _ *quota.Options) { b.Zone = zone })
	any, asked := w.created(), w.created(func(r *scheduler.CreateRequest) { r.Zone = zone })
	w.schedule()
	testproc.Same(t, cmp.Diff([]string{zone, zone}, []string{w.row(any).Zone, w.row(asked).Zone}))
}

// TestErrorsHaveNoCellNames: errors for members do not name a cell that is down; the log does.
func TestErrorsHaveNoCellNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	w.created()
	w.schedule()
	w.sites[1].link.set(refused)
	_, err := w.create()
	if err == nil || strings.Contains(err.Error(), "cell1") || !strings.Contains(w.logged(), "cell1") {
		t.Errorf("%v; the log: %s", err, w.logged())
	}
}
