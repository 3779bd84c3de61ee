// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func testAggregates(t *testing.T, e testEngine) {
	s := e.fresh(t)
	wants[[]apidb.Aggregate](t, "none")(s.Aggregates(ctx))(nil)
	_, err := s.CreateAggregate(ctx, "", nil)
	wantError(t, "without a name", err, apidb.ErrInvalid)
	one := testproc.Try(s.CreateAggregate(ctx, "one", map[string]string{apidb.ZoneKey: "z1"})).Or(t)
	two := testproc.Try(s.CreateAggregate(ctx, "Zwei ä", nil)).Or(t)
	_, err = s.CreateAggregate(ctx, "one", nil)
	wantError(t, "the same name", err, apidb.ErrExists)
	if one.ID == two.ID || one.UUID == two.UUID || one.Zone() != "z1" || two.Zone() != "" {
		t.Errorf("the two aggregates: got %+v and %+v, want different ids, and the zones z1 and none", one, two)
	}
	wants[[]apidb.Aggregate](t, "both")(s.Aggregates(ctx))([]apidb.Aggregate{one, two})

	refusal := errors.New("it is not to be changed")
	_, err = s.ChangeAggregate(ctx, one.ID, func(a *apidb.Aggregate, others []apidb.Aggregate) error {
		if a.Name != "one" || len(others) != 1 || others[0].Name != two.Name {
			t.Errorf("%+v beside %+v", a, others)
		}
		a.Name, a.Hosts = "other", []string{"h"}
		return refusal
	})
	wantError(t, "a change that is refused", err, refusal)
	wants[apidb.Aggregate](t, "after it")(s.Aggregate(ctx, one.ID))(one)
	_, err = s.ChangeAggregate(ctx, one.ID, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
		a.Name = two.Name
		return nil
	})
	wantError(t, "another's name", err, apidb.ErrExists)
	none := func(*apidb.Aggregate, []apidb.Aggregate) error { return nil }
	_, err = s.ChangeAggregate(ctx, 99, none)
	wantError(t, "one that there is not", err, apidb.ErrNotFound)
	_, err = s.Aggregate(ctx, 99)
	wantError(t, "reading it", err, apidb.ErrNotFound)
	wants[apidb.Aggregate](t, "no change")(s.ChangeAggregate(ctx, one.ID, none))(one)

	add := func(id int64, hosts ...string) apidb.Aggregate {
		t.Helper()
		a := testproc.Try(s.ChangeAggregate(ctx, id, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
			a.Hosts = append(a.Hosts, hosts...)
			return nil
		})).Or(t)
		return a
	}
	one.Hosts, two.Hosts = []string{"h2", "h1"}, []string{"h1"}
	wants[apidb.Aggregate](t, "with hosts")(add(one.ID, "h2", "h1"), nil)(one)
	add(two.ID, "h1")
	wants[[]apidb.Aggregate](t, "both with hosts")(s.Aggregates(ctx))([]apidb.Aggregate{one, two})
	wants[apidb.HostAggregates](t,
		"of h1")(s.HostAggregates(ctx, "h1"))(apidb.HostAggregates{In: []string{one.UUID, two.UUID}})
	wants[apidb.HostAggregates](t,
		"of h2")(s.HostAggregates(ctx, "h2"))(apidb.HostAggregates{In: []string{one.UUID}, Out: []string{two.UUID}})
	if zones := apidb.HostZones([]apidb.Aggregate{one, two}); len(zones) != 2 ||
		zones["h1"] != "z1" || zones["h2"] != "z1" {
		t.Errorf("zones %v", zones)
	}

	changed := testproc.Try(s.ChangeAggregate(ctx, one.ID, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
		a.Name, a.Hosts = "renamed", []string{"h3", "h2"}
		delete(a.Metadata, apidb.ZoneKey)
		a.Metadata["ssd"] = ""
		return nil
	})).Or(t)
	one.Name, one.Hosts, one.Metadata, one.UpdatedAt =
		"renamed", []string{"h2", "h3"}, map[string]string{"ssd": ""}, new(start)
	wants[apidb.Aggregate](t, "changed")(s.Aggregate(ctx, one.ID))(one)
	if changed.Hosts = one.Hosts; changed.UpdatedAt == nil || !changed.UpdatedAt.Equal(start) {
		t.Errorf("changed at %v", changed.UpdatedAt)
	}

	wantError(t, "deleting one with hosts", s.DeleteAggregate(ctx, one.ID), apidb.ErrInUse)
	wantError(t, "deleting none", s.DeleteAggregate(ctx, 99), apidb.ErrNotFound)
	testproc.Try(s.ChangeAggregate(ctx, one.ID, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
		a.Hosts = nil
		return nil
	})).Or(t)
	must(t, s.DeleteAggregate(ctx, one.ID))
	wantError(t, "deleting again", s.DeleteAggregate(ctx, one.ID), apidb.ErrNotFound)
	wants[[]apidb.Aggregate](t, "what is left")(s.Aggregates(ctx))([]apidb.Aggregate{two})
	wants[apidb.HostAggregates](t,
		"of h2, afterwards")(s.HostAggregates(ctx,
		"h2"))(apidb.HostAggregates{Out: slices.Sorted(slices.Values([]string{two.UUID, one.UUID}))})
	wants[[]string](t, "deleted ones")(s.DeletedAggregates(ctx))([]string{one.UUID})
	must(t, s.ForgetAggregate(ctx, one.UUID))
	must(t, s.ForgetAggregate(ctx, one.UUID))
	wants[[]string](t, "none is left")(s.DeletedAggregates(ctx))(nil)
	again, err := s.CreateAggregate(ctx, "renamed", nil)
	if must(t, err); again.ID == one.ID {
		t.Error("the id of a deleted aggregate is used again")
	}

	withCells(t, s, 1)
	must(t, s.MapNodes(ctx, []apidb.Node{{UUID: "n1", Name: "n1", Host: "h1", CellUUID: cellUUID(1)}}))
	must(t, s.DeleteHost(ctx, "h1"))
	wants[apidb.HostAggregates](t,
		"of a host that was unmapped")(s.HostAggregates(
		ctx, "h1"))(apidb.HostAggregates{Out: slices.Sorted(slices.Values([]string{two.UUID, again.UUID}))})
}

// testAggregateChangesAtOnce: of changes at the same time none is lost, and a host is never in two
// zones where each change looks whether it would be.
func testAggregateChangesAtOnce(t *testing.T, e testEngine) {
	stores := e.processes(t)
	ids := make([]int64, 2)
	for i := range ids {
		a, err := stores[0].CreateAggregate(ctx,
			fmt.Sprint("a", i), map[string]string{apidb.ZoneKey: fmt.Sprint("z", i)})
		must(t, err)
		ids[i] = a.ID
	}
	errTaken := errors.New("in another zone")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			host := fmt.Sprint("h", i/2)
			_, err := stores[i%len(stores)].ChangeAggregate(ctx, ids[i%2],
				func(a *apidb.Aggregate, others []apidb.Aggregate) error {
					if slices.Contains(others[0].Hosts, host) {
						return errTaken
					}
					a.Hosts = append(a.Hosts, host)
					return nil
				})
			if err != nil && !errors.Is(err, errTaken) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	found := testproc.Try(stores[0].Aggregates(ctx)).Or(t)
	hosts := slices.Sorted(slices.Values(append(slices.Clone(found[0].Hosts), found[1].Hosts...)))
	if len(hosts) != 10 || len(slices.Compact(hosts)) != 10 {
		t.Errorf("ten hosts were added to one zone each: %v", hosts)
	}
}
