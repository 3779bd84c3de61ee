// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const foreignAggregate = "99999999-0000-4000-8000-000000000000"

// aggregate makes an aggregate with hosts, in the API database only.
func (w *world) aggregate(name string, metadata map[string]string, hosts ...string) apidb.Aggregate {
	w.t.Helper()
	a := testproc.Try(w.store.CreateAggregate(ctx, name, metadata)).Or(w.t)
	return w.hostsOf(a, hosts...)
}

func (w *world) hostsOf(a apidb.Aggregate, hosts ...string) apidb.Aggregate {
	w.t.Helper()
	a = testproc.Try(w.store.ChangeAggregate(ctx, a.ID, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
		a.Hosts = hosts
		return nil
	})).Or(w.t)
	return a
}

// mirrored are the aggregates of an agent's node in Placement.
func (w *world) mirrored(a *agent) []string {
	w.t.Helper()
	var is struct{ Aggregates []string }
	w.ask("GET", "/resource_providers/"+a.node+"/aggregates", nil, &is)
	slices.Sort(is.Aggregates)
	return is.Aggregates
}

func sortedList(values ...string) []string {
	if len(values) == 0 {
		return []string{}
	}
	return slices.Sorted(slices.Values(values))
}

// TestMirror: the nodes of hosts are in the aggregates of the hosts, and those of others stay.
func TestMirror(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2, 1})
	one, two, far := w.sites[1].agents[0], w.sites[1].agents[1], w.sites[2].agents[0]
	w.ask("PUT", "/resource_providers/"+one.node+"/aggregates",
		map[string]any{"resource_provider_generation": 1, "aggregates": []string{foreignAggregate}}, nil)
	a := w.aggregate("a", nil, one.host, far.host)
	b := w.aggregate("b", nil, one.host)
	w.plink.counted()
	w.scheduler.MirrorHost(ctx, one.host)
	diff(t, map[string]int{"GET /resource_providers/{uuid}/aggregates": 1,
		"PUT /resource_providers/{uuid}/aggregates": 1}, w.plink.counted())
	diff(t, sortedList(foreignAggregate, a.UUID, b.UUID), w.mirrored(one))
	diff(t, []string{}, w.mirrored(far))
	w.scheduler.MirrorHost(ctx, one.host)
	diff(t, map[string]int{"GET /resource_providers/{uuid}/aggregates": 1}, w.plink.counted())
	w.scheduler.MirrorHost(ctx, "unknown")
	diff(t, map[string]int{}, w.plink.counted())

	// What is left, and nothing else.
	w.must(w.scheduler.Mirror(ctx))
	diff(t, map[string]int{"GET /resource_providers": 2, "GET /resource_providers/{uuid}/aggregates": 1,
		"PUT /resource_providers/{uuid}/aggregates": 1}, w.plink.counted())
	diff(t, sortedList(a.UUID), w.mirrored(far))
	w.must(w.scheduler.Mirror(ctx))
	diff(t, map[string]int{"GET /resource_providers": 2}, w.plink.counted())

	w.hostsOf(a, two.host)
	w.hostsOf(b)
	w.must(w.store.DeleteAggregate(ctx, b.ID))
	w.must(w.scheduler.Mirror(ctx))
	diff(t, sortedList(foreignAggregate), w.mirrored(one))
	diff(t, sortedList(a.UUID), w.mirrored(two))
	diff(t, []string{}, w.mirrored(far))
	w.must(w.scheduler.Mirror(ctx)) // the deleted one is gone, and is asked for the last time
	w.plink.counted()
	w.must(w.scheduler.Mirror(ctx))
	diff(t, map[string]int{"GET /resource_providers": 1}, w.plink.counted())
}

// TestNothingToMirror: without aggregates Placement is not asked.
func TestNothingToMirror(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	w.plink.counted()
	w.must(w.scheduler.Mirror(ctx))
	diff(t, map[string]int{}, w.plink.counted())
}

// TestMirrorAfterAnOutage: what could not be written is written when Placement is back, and the log
// says both once.
func TestMirrorAfterAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	one := w.sites[1].agents[0]
	a := w.aggregate("a", nil, one.host)
	w.plink.set(refused)
	w.scheduler.MirrorHost(ctx, one.host)
	w.scheduler.MirrorAndLog(ctx)
	w.scheduler.MirrorAndLog(ctx)
	w.plink.set(up)
	w.scheduler.MirrorAndLog(ctx)
	w.scheduler.MirrorAndLog(ctx)
	diff(t, sortedList(a.UUID), w.mirrored(one))
	for _, said := range []string{"Could not write the aggregates of a host",
		"Could not compare the host aggregates", "are in Placement again"} {
		if n := strings.Count(w.logged(), said); n != 1 {
			t.Errorf("%q is logged %d times: %s", said, n, w.logged())
		}
	}
}

// TestMirrorBesideOthers: a provider that others write at the same time is read again, and a change
// of the aggregate in between counts.
func TestMirrorBesideOthers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	one := w.sites[1].agents[0]
	a, b := w.aggregate("a", nil, one.host), w.aggregate("b", nil)
	w.plink.when(func(r *http.Request) fault {
		if r.Method == http.MethodPut {
			w.plink.set(up)
			w.hostsOf(a)
			w.hostsOf(b, one.host)
			w.ask("PUT", "/resource_providers/"+one.node+"/aggregates",
				map[string]any{"resource_provider_generation": 1, "aggregates": []string{foreignAggregate}}, nil)
		}
		return up
	})
	w.scheduler.MirrorHost(ctx, one.host)
	diff(t, sortedList(foreignAggregate, b.UUID), w.mirrored(one))
	if said := w.logged(); strings.Contains(said, "Could not") {
		t.Error(said)
	}
}

// TestAggregatesSayWhere: in which host a server ends, by zone and by the options about aggregates.
func TestAggregatesSayWhere(t *testing.T) {
	t.Parallel()
	avx := func(r *scheduler.CreateRequest) {
		r.Flavor.ExtraSpecs = map[string]string{"trait:HW_CPU_X86_AVX": "required"}
	}
	inZone := func(zone string) func(*scheduler.CreateRequest) {
		return func(r *scheduler.CreateRequest) { r.Zone = zone }
	}
	of := func(project string) func(*scheduler.CreateRequest) {
		return func(r *scheduler.CreateRequest) { r.ProjectID = project }
	}
	specs := func(names ...string) func(*scheduler.CreateRequest) {
		return func(r *scheduler.CreateRequest) {
			r.Flavor.ExtraSpecs = map[string]string{}
			for _, name := range names {
				r.Flavor.ExtraSpecs[name] = "any"
			}
		}
	}
	both := func(one, other func(*scheduler.CreateRequest)) func(*scheduler.CreateRequest) {
		return func(r *scheduler.CreateRequest) {
			one(r)
			other(r)
		}
	}
	prefix := []string{"reservation:"}
	reserve := placementcalls.AggregateOptions{RequiredMembers: prefix, ForbiddenMembers: prefix}
	type meta = map[string]string
	all := []string{"cell1-host1", "cell1-host2"}
	for name, c := range map[string]struct {
		options placementcalls.AggregateOptions
		first   meta // the metadata of an aggregate with the first host
		change  func(*scheduler.CreateRequest)
		want    []string // where it may end; nil: nowhere
		why     string   // of the log
		fault   string   // its details have it
	}{
		"a zone": {first: meta{"availability_zone": "z"},
			change: inZone("z"), want: all[:1]},
		"a zone, by itself": {options: placementcalls.AggregateOptions{LocalZones: true},
			first: meta{"availability_zone": "z"}, change: inZone("z"), want: all[:1]},
		"the default zone": {first: meta{"availability_zone": "z"},
			change: inZone("nova"), want: all[1:]},
		"the default zone, by itself": {options: placementcalls.AggregateOptions{LocalZones: true},
			first: meta{"availability_zone": "z"}, change: inZone("nova"), want: all[1:]},
		"the default zone by name": {first: meta{"availability_zone": "nova"},
			change: inZone("nova"), want: all},
		"no zone": {first: meta{"availability_zone": "z"}, want: all},
		"a zone without hosts": {first: meta{"availability_zone": "z"},
			change: inZone("y"), why: "other_zone"},
		"a tenant's": {options: placementcalls.AggregateOptions{LimitTenants: true},
			first: meta{"filter_tenant_id": "p"}, want: all[:1]},
		"a tenant's by a longer name": {options: placementcalls.AggregateOptions{LimitTenants: true},
			first: meta{"filter_tenant_id:7": "p"}, want: all[:1]},
		"no tenant's": {options: placementcalls.AggregateOptions{LimitTenants: true},
			first: meta{"filter_tenant_id": "p"}, change: of("q"), want: all},
		"no tenant's, and one required": {options: placementcalls.AggregateOptions{LimitTenants: true,
			RequireTenants: true}, first: meta{"filter_tenant_id": "p"}, change: of("q")},
		"a tenant's, not asked for": {options: placementcalls.AggregateOptions{RequireTenants: true},
			first: meta{"filter_tenant_id": "p"}, change: of("q"), want: all},
		"isolated": {options: placementcalls.AggregateOptions{Isolate: true},
			first: meta{"trait:HW_CPU_X86_AVX": "required"}, want: all[1:]},
		"isolated by several": {options: placementcalls.AggregateOptions{Isolate: true},
			first: meta{"trait:HW_CPU_X86_AVX": "required", "trait:CUSTOM_A": "required"}, change: avx, want: all[1:]},
		"isolated, with the trait": {options: placementcalls.AggregateOptions{Isolate: true},
			first: meta{"trait:HW_CPU_X86_AVX": "required"}, change: avx, want: all},
		"isolated, not asked for": {first: meta{"trait:HW_CPU_X86_AVX": "required"}, want: all},
		"isolated by another value": {options: placementcalls.AggregateOptions{Isolate: true},
			first: meta{"trait:HW_CPU_X86_AVX": "forbidden"}, want: all},
		"reserved, by the reservation": {options: reserve, first: meta{"reservation:r1": "x"},
			change: specs("reservation:r1"), want: all[:1]},
		"reserved, by none": {options: reserve, first: meta{"reservation:r1": "x"}, want: all[1:]},
		"reserved, by another namespace": {options: reserve, first: meta{"reservation:r1": "x"},
			change: specs("acme:r1"), want: all[1:]},
		"reserved, by a typo": {options: reserve, first: meta{"reservation:r1": "x"},
			change: specs("reservation:r"),
			fault:  "The extra spec reservation:r of the flavor requires a host aggregate with metadata of that name"},
		"reserved twice, by both": {options: reserve,
			first:  meta{"reservation:r1": "x", "reservation:r2": "y"},
			change: specs("reservation:r1", "reservation:r2"), want: all[:1]},
		"reserved, by it and another": {options: reserve, first: meta{"reservation:r1": "x"},
			change: specs("reservation:r1", "reservation:r3"), fault: "The extra spec reservation:r3 of the flavor"},
		"reserved, in another zone": {options: reserve,
			first:  meta{"reservation:r1": "x", "availability_zone": "z"},
			change: both(inZone("nova"), specs("reservation:r1")), why: "other_zone"},
		"reserved, in its zone": {options: reserve,
			first:  meta{"reservation:r1": "x", "availability_zone": "z"},
			change: both(inZone("z"), specs("reservation:r1")), want: all[:1]},
		"required alone, by it": {options: placementcalls.AggregateOptions{RequiredMembers: prefix},
			first: meta{"reservation:r1": "x"}, change: specs("reservation:r1"), want: all[:1]},
		"required alone, by none": {options: placementcalls.AggregateOptions{RequiredMembers: prefix},
			first: meta{"reservation:r1": "x"}, want: all},
		"forbidden alone, by any": {options: placementcalls.AggregateOptions{ForbiddenMembers: prefix},
			first: meta{"reservation:r1": "x"}, change: specs("reservation:r9"), want: all},
		"forbidden alone, by none": {options: placementcalls.AggregateOptions{ForbiddenMembers: prefix},
			first: meta{"reservation:r1": "x"}, want: all[1:]},
		"not reserved, for nothing says so": {first: meta{"reservation:r1": "x"},
			change: specs("reservation:r1"), want: all},
		"a zone, and another tenant's there": {options: placementcalls.AggregateOptions{LimitTenants: true},
			first: meta{"availability_zone": "z", "filter_tenant_id": "p"}, change: inZone("nova"), why: "other_zone"},
	} {
		dbservers.Case(t, name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			w := begin(t, []int{2}, func(o *scheduler.Options, _ *quota.Options) { o.Aggregates = c.options })
			for _, a := range w.sites[1].agents {
				w.ask("PUT", "/resource_providers/"+a.node+"/traits",
					map[string]any{"resource_provider_generation": 1, "traits": []string{"HW_CPU_X86_AVX"}}, nil)
			}
			w.aggregate("first", c.first, all[0])
			w.must(w.scheduler.Mirror(ctx))
			if c.change == nil {
				c.change = func(*scheduler.CreateRequest) {}
			}
			uuids := map[string]bool{}
			ended := map[string]bool{}
			for range 2 * slots { // as many as fit on all hosts: each that may be used is
				uuid := w.created(c.change)
				w.schedule()
				uuids[uuid] = true
				if host := w.row(uuid).Host; host != "" {
					ended[host] = true
				}
			}
			wanted := map[string]bool{}
			for _, host := range c.want {
				wanted[host] = true
			}
			diff(t, wanted, ended)
			if c.why != "" && !strings.Contains(w.logged(), `"`+c.why+`":`) {
				t.Errorf("the log does not say %s: %s", c.why, w.logged())
			}
			for uuid := range uuids {
				if c.fault == "" {
					break
				}
				if fault := w.row(uuid).Fault; fault == nil || !strings.Contains(fault.Details, c.fault) {
					t.Errorf("the fault does not say %q: %+v", c.fault, fault)
				}
			}
			w.consistent(uuids)
		})
	}
}

// TestReservedHosts: the flow of a reservation in the specification of forbidden aggregates. A pool
// keeps its host from all others, a reservation takes the host from the pool, and what the metadata
// of aggregates says counts from the next server on, whatever Placement has of it.
func TestReservedHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	prefix := []string{"reservation:"}
	w := begin(t, []int{2}, func(o *scheduler.Options, _ *quota.Options) {
		o.Aggregates = placementcalls.AggregateOptions{RequiredMembers: prefix, ForbiddenMembers: prefix}
	})
	one, two := w.sites[1].agents[0].host, w.sites[1].agents[1].host
	boot := func(reservation string) string {
		t.Helper()
		uuid := w.created(func(r *scheduler.CreateRequest) {
			if reservation != "" {
				r.Flavor.ExtraSpecs = map[string]string{reservation: "true"}
			}
		})
		w.schedule()
		return w.row(uuid).Host
	}
	pool := w.aggregate("pool", map[string]string{"reservation:pool": "blazar"}, one)
	testproc.Equal(t, boot(""), two, "while its host is in the pool, a server without a reservation is on %q")

	reservation := w.aggregate("r1", map[string]string{"reservation:r1": "p"}, one)
	w.hostsOf(pool)
	w.must(w.scheduler.Mirror(ctx))
	testproc.Equal(t, boot("reservation:r1"), one, "with the reservation a server is on %q")
	testproc.Equal(t, boot("reservation:pool"), "", "with the name of the pool, which has no host, a server is on %q")
	testproc.Equal(t, boot(""), two, "without a reservation a server is on %q")

	testproc.Try(w.store.ChangeAggregate(ctx, reservation.ID, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
		a.Metadata = map[string]string{"reservation:r2": "p"}
		return nil
	})).Or(t)
	testproc.Equal(t, boot("reservation:r1"), "", "with the former reservation a server is on %q")
	testproc.Equal(t, boot("reservation:r2"), one, "with the new reservation a server is on %q")
	testproc.Equal(t, boot(""), two, "without a reservation a server is on %q")

	w.hostsOf(reservation)
	testproc.Equal(t, boot("reservation:r2"), "", "when the reservation has no host, a server of it is on %q")
	w.must(w.store.DeleteAggregate(ctx, reservation.ID))
	testproc.Equal(t, boot(""), one, "when the host is free again, a server without a reservation is on %q")
}

// TestAggregatesBeforeTheMirror: what Placement does not have yet, the scheduler knows.
func TestAggregatesBeforeTheMirror(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2}, func(o *scheduler.Options, _ *quota.Options) { o.Aggregates.Isolate = true })
	one, two := w.sites[1].agents[0], w.sites[1].agents[1]
	isolated := w.aggregate("isolated", map[string]string{"trait:CUSTOM_A": "required"}, two.host)
	zone := w.aggregate("zone", map[string]string{"availability_zone": "z"}, one.host)
	first, second := w.created(), w.created(func(r *scheduler.CreateRequest) { r.Zone = "nova" })
	w.schedule()
	if row := w.row(first); row.Host != one.host || row.Zone != "z" {
		t.Errorf("it is on %q in %q: %+v", row.Host, row.Zone, row.Fault)
	}
	if row := w.row(second); row.Host != "" || row.Fault == nil ||
		!strings.Contains(row.Fault.Details, "not in the host aggregates for this project and flavor") {
		t.Errorf("it is on %q: %+v", row.Host, row.Fault)
	}
	// Nor what Placement still has.
	w.must(w.scheduler.Mirror(ctx))
	w.hostsOf(zone)
	w.hostsOf(isolated, one.host)
	third := w.created(func(r *scheduler.CreateRequest) { r.Zone = "z" })
	w.schedule()
	testproc.Equal(t, w.row(third).Host, "", "it is on %q")
}

// TestMirrorOfUnmappedHosts: the node of a host that is unmapped leaves the aggregates of the
// compute API, those that are deleted meanwhile among them, and stays in others; after an outage,
// too. One that is mapped again is in those of its host.
func TestMirrorOfUnmappedHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2})
	one, two := w.sites[1].agents[0], w.sites[1].agents[1]
	w.ask("PUT", "/resource_providers/"+one.node+"/aggregates",
		map[string]any{"resource_provider_generation": 1, "aggregates": []string{foreignAggregate}}, nil)
	a, b := w.aggregate("a", nil, one.host, two.host), w.aggregate("b", nil, one.host)
	w.must(w.scheduler.Mirror(ctx))
	diff(t, sortedList(foreignAggregate, a.UUID, b.UUID), w.mirrored(one))

	w.must(w.store.DeleteHost(ctx, one.host))
	w.must(w.store.DeleteAggregate(ctx, b.ID))
	w.plink.set(refused)
	if err := w.scheduler.Mirror(ctx); err == nil {
		t.Error("a round without Placement succeeded")
	}
	w.plink.set(up)
	w.must(w.scheduler.Mirror(ctx))
	diff(t, sortedList(foreignAggregate), w.mirrored(one))
	diff(t, sortedList(a.UUID), w.mirrored(two))
	w.plink.counted()
	w.must(w.scheduler.Mirror(ctx))
	diff(t, map[string]int{"GET /resource_providers": 1}, w.plink.counted())

	// Unmapped and mapped again before a round.
	w.must(w.store.DeleteHost(ctx, two.host))
	w.must(w.store.MapNodes(ctx,
		[]apidb.Node{{UUID: two.node, Name: two.host, Host: two.host, CellUUID: w.sites[1].cell.UUID}}))
	w.hostsOf(a, two.host)
	if left, err := w.store.UnmappedNodes(ctx); err != nil || len(left) != 0 {
		t.Errorf("UnmappedNodes of a node that is mapped again: got %+v, %v, want nothing", left, err)
	}
	w.must(w.scheduler.Mirror(ctx))
	diff(t, sortedList(a.UUID), w.mirrored(two))

	// One whose provider is gone, without any aggregate.
	w.must(w.store.DeleteHost(ctx, two.host))
	w.must(w.store.DeleteAggregate(ctx, a.ID))
	w.ask("DELETE", "/resource_providers/"+two.node, nil, nil)
	w.must(w.scheduler.Mirror(ctx))
	if left, err := w.store.UnmappedNodes(ctx); err != nil || len(left) != 0 {
		t.Errorf("UnmappedNodes after the mirror: got %+v, %v, want nothing", left, err)
	}
}
