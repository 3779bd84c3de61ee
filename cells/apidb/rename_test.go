// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// testRename: a rename that is begun keeps the new name, and one that is done has it wherever the
// host was named, as often as either is repeated; the former name is evicted until it is freed.
func testRename(t *testing.T, e testEngine) {
	stores := e.processes(t)
	s, other := stores[0], stores[len(stores)-1]
	withCells(t, s, 2)
	testproc.Check(t, s.MapNodes(ctx, []apidb.Node{
		{UUID: node(1), Name: "h1", Host: "h1", CellUUID: cellUUID(1)},
		{UUID: node(2), Name: "b", Host: "h1", CellUUID: cellUUID(1)},
		{UUID: node(3), Name: "h2", Host: "h2", CellUUID: cellUUID(1)},
	}))
	a := testproc.Try(s.CreateAggregate(ctx, "rack", nil)).Or(t)
	testproc.Try(s.ChangeAggregate(ctx, a.ID,
		func(a *apidb.Aggregate, _ []apidb.Aggregate) error { a.Hosts = []string{"h2", "h1"}; return nil })).Or(t)
	enrol(t, s, apidb.Enrolment{
		Host: "h1", CellUUID: cellUUID(1), State: apidb.Enrolled, CreatedBy: "root", CreatedAt: start, Issued: start,
		ExpiresAt: start.Add(time.Hour),
		KeyDigest: "key", Nodes: []apidb.EnrolledNode{{UUID: node(1), Name: "h1"}, {UUID: node(2), Name: "b"}},
	})
	r := apidb.HostRename{From: "h1", To: "h9", CellUUID: cellUUID(1),
		Nodes: map[string]string{node(1): "h9"}, By: "root"}
	for name, c := range map[string]struct {
		change func(*apidb.HostRename)
		want   error
	}{
		"no host":                 {func(r *apidb.HostRename) { r.From = "h0" }, apidb.ErrNotFound},
		"another cell":            {func(r *apidb.HostRename) { r.CellUUID = cellUUID(2) }, apidb.ErrExists},
		"another host's name":     {func(r *apidb.HostRename) { r.To = "h2" }, apidb.ErrExists},
		"a name within another's": {func(r *apidb.HostRename) { r.To = "h2_gpu" }, apidb.ErrExists},
		"no name":                 {func(r *apidb.HostRename) { r.To = "h 9" }, apidb.ErrInvalid},
	} {
		wrong := r
		c.change(&wrong)
		if err := s.BeginRename(ctx, wrong); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := s.FinishRename(ctx, r); !errors.Is(err, apidb.ErrNotFound) {
		t.Errorf("finished before it is begun: %v", err)
	}
	for range 2 {
		testproc.Check(t, s.BeginRename(ctx, r))
	}
	second := r
	second.To = "h8"
	if err := other.BeginRename(ctx, second); !errors.Is(err, apidb.ErrInUse) {
		t.Errorf("two new names: %v", err)
	}
	if err := other.BeginRename(ctx, apidb.HostRename{From: "h2", To: "h9", CellUUID: cellUUID(1)}); !errors.Is(err,
		apidb.ErrExists) {
		t.Errorf("a name that is kept: %v", err)
	}
	begun := testproc.Try(other.Enrolment(ctx, "h9")).Or(t)
	if _, denied := begun.Denial(); denied || !begun.Renames("h1") || begun.Renames("h2") {
		t.Errorf("while it is begun: %+v", begun)
	}
	var after apidb.Enrolment
	for i := range 2 {
		finished := testproc.Try(other.FinishRename(ctx, r)).Or(t)
		if i == 0 {
			after = finished
		}
		if finished.State != apidb.Invited || finished.KeyDigest != "" || finished.Host != "h9" ||
			!cmp.Equal(finished.Nodes, []apidb.EnrolledNode{{UUID: node(1), Name: "h9"}, {UUID: node(2), Name: "b"}}) {
			t.Errorf("its enrolment: %+v", finished)
		}
	}
	wants[apidb.Enrolment](t, "the new enrolment")(s.Enrolment(ctx, "h9"))(after)
	former := testproc.Try(s.Enrolment(ctx, "h1")).Or(t)
	if to, renamed := former.RenamedTo(); !renamed || to != "h9" || len(former.Nodes) > 0 ||
		!former.DeniedBefore.After(start) {
		t.Errorf("the former name: %+v", former)
	}
	wants[[]apidb.Node](t, "nodes")(s.Nodes(ctx))([]apidb.Node{
		{UUID: node(3), Name: "h2", Host: "h2", CellUUID: cellUUID(1)},
		{UUID: node(2), Name: "b", Host: "h9", CellUUID: cellUUID(1)},
		{UUID: node(1), Name: "h9", Host: "h9", CellUUID: cellUUID(1)},
	})
	rack := testproc.Try(s.Aggregate(ctx, a.ID)).Or(t)
	testproc.Same(t, cmp.Diff([]string{"h2", "h9"}, rack.Hosts))

	// A host that was never enrolled needs no certificate; a former name can come back.
	testproc.Check(t, s.BeginRename(ctx, apidb.HostRename{From: "h2", To: "h7", CellUUID: cellUUID(1)}))
	none := testproc.Try(s.FinishRename(ctx, apidb.HostRename{From: "h2", To: "h7", CellUUID: cellUUID(1)})).Or(t)
	testproc.Equal(t, none.State, apidb.EnrolmentState(""), "the enrolment of a host that has none")
	wants[apidb.Enrolment](t, "of a host that has none")(s.Enrolment(ctx, "h7"))(apidb.Enrolment{Host: "h7"})
	back := apidb.HostRename{From: "h7", To: "h2", CellUUID: cellUUID(1)}
	testproc.Check(t, s.BeginRename(ctx, back))
	testproc.Try(s.FinishRename(ctx, back)).Or(t)
	wants[apidb.Enrolment](t, "of a name that came back")(s.Enrolment(ctx, "h2"))(apidb.Enrolment{Host: "h2"})

	// An evicted host keeps its name, and so does one that is evicted while it is renamed.
	evict := func(host string) {
		testproc.Try(s.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
			e.CellUUID, e.State, e.Reason, e.EvictedAt = cellUUID(1), apidb.Evicted, "stolen", start
			e.Deny(start)
			return nil
		})).Or(t)
	}
	stolen := apidb.HostRename{From: "h2", To: "h6", CellUUID: cellUUID(1)}
	testproc.Check(t, s.BeginRename(ctx, stolen))
	evict("h2")
	testproc.Try(s.FinishRename(ctx, stolen)).ErrorIs(t, apidb.ErrInUse, "a host that was evicted meanwhile: %v")
	stolen.To = "h5"
	testproc.ErrorIs(t, s.BeginRename(ctx, stolen), apidb.ErrInUse, "an evicted host: %v")

	// Another host gets a former name only when it is freed.
	taken := apidb.HostRename{From: "h9", To: "h7", CellUUID: cellUUID(1)}
	testproc.ErrorIs(t, s.BeginRename(ctx, taken), apidb.ErrExists, "a former name of another host: %v")

	// The certificates of a name that is free stay refused.
	invited := testproc.Try(s.ChangeEnrolment(ctx, "h1", func(e *apidb.Enrolment) error {
		e.InvitedUntil = start
		return nil
	})).Or(t)
	testproc.Check(t, s.DeleteHost(ctx, "h1"))
	freed := testproc.Try(s.Enrolment(ctx, "h1")).Or(t)
	if _, renamed := freed.RenamedTo(); renamed || freed.State != apidb.Evicted ||
		!freed.DeniedBefore.Equal(invited.DeniedBefore) {
		t.Errorf("a name that is free, and had certificates: %+v", freed)
	}
	testproc.Try(s.ChangeEnrolment(ctx, "h1", func(e *apidb.Enrolment) error {
		*e = apidb.Enrolment{Host: "h1", CellUUID: e.CellUUID, State: apidb.Evicted, Reason: "renamed to h9",
			CreatedAt: e.CreatedAt, CreatedBy: e.CreatedBy, EvictedAt: start}
		return nil
	})).Or(t)
	testproc.Check(t, s.DeleteHost(ctx, "h1"))
	wants[apidb.Enrolment](t, "of a name that is free")(s.Enrolment(ctx, "h1"))(apidb.Enrolment{Host: "h1"})
}
