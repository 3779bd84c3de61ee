// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRequestsThatPlacementNeverAnswers: a request for one server that Placement refuses, or always
// fails, delays no other server, and puts that one in error.
func TestRequestsThatPlacementNeverAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		how   fault
		tries bool // it is tried again
		why   string
	}{
		"too long":  {how: tooLong, why: "placement rejects the request as invalid"},
		"a failure": {how: rubbish, tries: true, why: "Placement failed a request for this server 10 times, while it answered others."},
		"no answer": {how: hangs, tries: true, why: "Placement failed a request for this server 10 times, while it answered others."},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{1})
			w.plink.when(func(r *http.Request) fault {
				if r.URL.Path == "/allocation_candidates" && strings.Contains(r.URL.RawQuery, "VCPU%3A2") {
					return c.how
				}
				return up
			})
			bad := w.created(func(r *scheduler.CreateRequest) { r.Flavor.VCPUs = 2 })
			w.schedule()
			good := w.created()
			w.schedule()
			if row := w.row(good); row.Host == "" {
				t.Errorf("another server is %s: %+v", row.VMState, row.Fault)
			}
			if m := testproc.Try(w.store.Mapping(ctx, bad)).Or(t); (m.CellUUID == "") != c.tries {
				t.Errorf("after one try it is in cell %q", m.CellUUID)
			}
			for range 10 {
				w.pass(time.Minute)
				w.beat()
				w.schedule()
			}
			if row := w.row(bad); row.VMState != cellwire.VMError || row.Fault == nil ||
				!strings.Contains(row.Fault.Details, c.why) {
				t.Errorf("it is %s: %+v", row.VMState, row.Fault)
			}
			w.consistent(map[string]bool{bad: true, good: true})
		})
	}
}

// TestZoneOfManyAggregates: however many aggregates a zone has, the query stays short, and servers
// go to hosts of the zone.
func TestZoneOfManyAggregates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const many, longest = 200, 4000
	w := begin(t, []int{2})
	for i := range many {
		a, err := w.store.CreateAggregate(ctx, fmt.Sprint("a", i), map[string]string{apidb.ZoneKey: "east"})
		w.must(err)
		if i == many-1 {
			_, err = w.store.ChangeAggregate(ctx, a.ID, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
				a.Hosts = []string{"cell1-host2"}
				return nil
			})
			w.must(err)
		}
	}
	w.must(w.scheduler.Reconcile(ctx))
	query := 0
	w.plink.when(func(r *http.Request) fault {
		query = max(query, len(r.URL.RawQuery))
		return up
	})
	for range 2 {
		uuid := w.created(func(r *scheduler.CreateRequest) { r.Zone = "east" })
		w.schedule()
		if row := w.row(uuid); row.Host != "cell1-host2" {
			t.Errorf("it is on %q: %+v", row.Host, row.Fault)
		}
	}
	elsewhere := w.created(func(r *scheduler.CreateRequest) { r.Zone = "nova" })
	w.schedule()
	if row := w.row(elsewhere); row.Host != "cell1-host1" {
		t.Errorf("one of the default zone is on %q: %+v", row.Host, row.Fault)
	}
	if query > longest {
		t.Errorf("a query has %d bytes, more than %d", query, longest)
	}
}
