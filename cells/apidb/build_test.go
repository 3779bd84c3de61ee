// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// rowCounts counts rows in the database itself.
func rowCounts(t testing.TB, s database) string {
	t.Helper()
	return ask(t, s.name,
		"SELECT (SELECT COUNT(*) FROM instance_mappings), (SELECT COUNT(*) FROM request_specs), (SELECT COUNT(*) "+
			"FROM build_requests), (SELECT COUNT(*) FROM claims)")[0]
}

func testCreateServers(t *testing.T, e testEngine) {
	s := e.fresh(t)
	a, b := at(server("a", "p"), start.Add(time.Second)), server("b", "p")
	must(t, s.CreateServers(ctx, nil, func(apidb.Counts) error { return errors.New("never asked") }))
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{a, b}, nil))

	no := false
	wants[apidb.Mapping](t, "mapping")(s.Mapping(ctx, "a"))(apidb.Mapping{
		ID: 1, InstanceUUID: "a", ProjectID: "p", UserID: "user", QueuedForDelete: &no,
		CreatedAt: start.Add(time.Second)})
	kept := apidb.RequestSpec{
		Server: cellwire.Server{UUID: "a", ProjectID: "p", UserID: "user", Flavor: a.Flavor, ImageRef: "image",
			Zone: "zone", CreatedAt: a.CreatedAt},
		ForcedHost: "host", ForcedNode: "node",
	}
	wants[apidb.RequestSpec](t, "specification")(s.RequestSpec(ctx, "a"))(kept)
	buildA, buildB := apidb.BuildRequest{RequestSpec: a}, apidb.BuildRequest{RequestSpec: b}
	wants[apidb.BuildRequest](t, "build request")(s.BuildRequest(ctx, "a"))(buildA)
	wants[[]apidb.BuildRequest](t,
		"build requests, newest first")(s.BuildRequests(ctx, "p", 0))([]apidb.BuildRequest{buildA, buildB})
	wants[[]apidb.BuildRequest](t,
		"build requests of all projects")(s.BuildRequests(ctx, "", 0))([]apidb.BuildRequest{buildA, buildB})
	wants[[]apidb.BuildRequest](t,
		"the newest build request")(s.BuildRequests(ctx, "", 1))([]apidb.BuildRequest{buildA})
	wants[[]apidb.BuildRequest](t, "build requests of another project")(s.BuildRequests(ctx, "q", 0))(nil)
	wants[[]apidb.PendingBuild](t,
		"what is being built, oldest first")(s.PendingBuilds(ctx))([]apidb.PendingBuild{{InstanceUUID: "b"},
		{InstanceUUID: "a"}})
	_, err := s.BuildRequest(ctx, "c")
	wantError(t, "no build request", err, apidb.ErrNotFound)
	_, err = s.RequestSpec(ctx, "c")
	wantError(t, "no specification", err, apidb.ErrNotFound)
	_, err = s.Mapping(ctx, "c")
	wantError(t, "no mapping", err, apidb.ErrNotFound)

	wantError(t, "a uuid that there is", s.CreateServers(
		ctx, []apidb.RequestSpec{server("c", "p"), server("a", "p")}, nil), apidb.ErrExists)
	other := server("d", "p")
	other.UUID = ""
	wantError(t, "a server without a uuid", s.CreateServers(ctx, []apidb.RequestSpec{other}, nil), apidb.ErrInvalid)
	wantError(t, "two projects", s.CreateServers(ctx, []apidb.RequestSpec{server("d", "p"), server("e", "q")}, nil),
		apidb.ErrInvalid)
	testproc.Equal(t, rowCounts(t, s), "2|2|2|0", "after refusals there are %s rows")
}

func testCreateServersCheck(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	placed(t, s, server("a", "p"), cellUUID(1))
	placed(t, s, server("z", "q"), cellUUID(1))
	refusal := errors.New("over quota")
	var saw apidb.Counts
	err := s.CreateServers(ctx, []apidb.RequestSpec{server("b", "p"), server("c", "p")},
		func(c apidb.Counts) error { saw = c; return refusal })
	if err != refusal { //nolint:errorlint // returned as it is
		t.Errorf("got %v, want the very error of check", err)
	}
	testproc.Same(t, cmp.Diff(apidb.Counts{Instances: 1, Cores: 2, RAM: 512, Known: 1}, saw))
	testproc.Equal(t, rowCounts(t, s), "2|2|0|0", "after the refusal there are %s rows")
}

// testQuotaIsExact: of many boots at the same time, as many pass as the quota has capacity for.
func testQuotaIsExact(t *testing.T, e testEngine) {
	processes := e.processes(t)
	s := processes[0]
	const quota, tries = 7, 30
	over := errors.New("over quota")
	var wg sync.WaitGroup
	results := make(chan error, tries)
	for i := range tries {
		wg.Go(func() {
			results <- processes[i%len(processes)].CreateServers(ctx,
				[]apidb.RequestSpec{server(fmt.Sprint("s", i), "p")}, func(c apidb.Counts) error {
					if c.Instances >= quota {
						return over
					}
					return nil
				})
		})
	}
	wg.Wait()
	close(results)
	passed := 0
	for err := range results {
		if err == nil {
			passed++
		} else if !errors.Is(err, over) {
			t.Error(err)
		}
	}
	if got := rowCounts(t, s); passed != quota || got != "7|7|7|0" {
		t.Errorf("%d boots passed, and there are %s rows", passed, got)
	}
}

func testLifeOfABuild(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 2)
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{server("a", "p")}, nil))
	must(t, s.Claim(ctx, apidb.Claim{InstanceUUID: "a", NodeUUID: "n1", CellUUID: cellUUID(1)}))
	must(t, s.Claim(ctx, apidb.Claim{InstanceUUID: "a",
		NodeUUID: "n2", CellUUID: cellUUID(2), CreatedAt: start.Add(time.Minute)}))
	claim := apidb.Claim{InstanceUUID: "a", NodeUUID: "n2", CellUUID: cellUUID(2), CreatedAt: start.Add(time.Minute)}
	wants[[]apidb.Claim](t, "claims")(s.Claims(ctx, start.Add(time.Hour)))([]apidb.Claim{claim})
	wants[[]apidb.Claim](t, "claims of before the claim")(s.Claims(ctx, start.Add(time.Minute)))(nil)

	wantError(t, "Built while it is placed nowhere", s.FinishBuild(ctx, "a"), apidb.ErrInvalid)
	wantError(t, "a cell that is not there", s.Place(ctx, "a", "nowhere"), apidb.ErrNotFound)
	must(t, s.Place(ctx, "a", cellUUID(2)))
	must(t, s.Place(ctx, "a", cellUUID(2)))
	b, err := s.BuildRequest(ctx, "a")
	if must(t, err); b.CellUUID != cellUUID(2) {
		t.Errorf("the build request is in cell %q", b.CellUUID)
	}
	m, err := s.Mapping(ctx, "a")
	if must(t, err); m.CellUUID != cellUUID(2) || m.UpdatedAt == nil {
		t.Errorf("the mapping is %+v", m)
	}
	wantError(t, "placing in another cell", s.Place(ctx, "a", cellUUID(1)), apidb.ErrPlaced)
	wantError(t, "claiming when it is placed", s.Claim(ctx, claim), apidb.ErrPlaced)
	wantError(t, "abandoning when it is placed", s.AbandonBuild(ctx, "a"), apidb.ErrPlaced)

	must(t, s.FinishBuild(ctx, "a"))
	must(t, s.FinishBuild(ctx, "a"))
	testproc.Equal(t, rowCounts(t, s), "1|1|0|0", "there are %s rows")
	// A late caller gets ErrPlaced and not ErrGone: the allocations are the cell's.
	must(t, s.Place(ctx, "a", cellUUID(2)))
	wantError(t, "placing in another cell, late", s.Place(ctx, "a", cellUUID(1)), apidb.ErrPlaced)
	wantError(t, "claiming, late", s.Claim(ctx, claim), apidb.ErrPlaced)
	wantError(t, "abandoning, late", s.AbandonBuild(ctx, "a"), apidb.ErrPlaced)
}

// testBuiltInCell0: the claim outlives the build, and late repetitions of its end.
func testBuiltInCell0(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{server("a", "p")}, nil))
	claim := apidb.Claim{InstanceUUID: "a", NodeUUID: "n1", CellUUID: cellUUID(1), CreatedAt: start}
	must(t, s.Claim(ctx, claim))
	must(t, s.Place(ctx, "a", apidb.Cell0UUID))
	must(t, s.FinishBuild(ctx, "a"))
	must(t, s.FinishBuild(ctx, "a"))
	testproc.Equal(t, rowCounts(t, s), "1|1|0|1", "there are %s rows")
	wants[[]apidb.Claim](t, "claims")(s.Claims(ctx, start.Add(time.Millisecond)))([]apidb.Claim{claim})
}

func testAbandonBuild(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{server("a", "p")}, nil))
	claim := apidb.Claim{InstanceUUID: "a", NodeUUID: "n1", CellUUID: cellUUID(1), CreatedAt: start}
	must(t, s.Claim(ctx, claim))
	must(t, s.AbandonBuild(ctx, "a"))
	wantError(t, "abandoning again", s.AbandonBuild(ctx, "a"), apidb.ErrNotFound)
	wantError(t, "abandoning what never was", s.AbandonBuild(ctx, "b"), apidb.ErrNotFound)
	wantError(t, "placing", s.Place(ctx, "a", cellUUID(1)), apidb.ErrGone)
	wantError(t, "claiming", s.Claim(ctx, claim), apidb.ErrGone)
	m, err := s.Mapping(ctx, "a")
	if must(t, err); !m.Queued() || m.CellUUID != "" {
		t.Errorf("the mapping is %+v, want it queued for delete and nowhere", m)
	}
	must(t, s.FinishBuild(ctx, "a")) // of a scheduler that is late: the claim stays until its allocations are removed
	wants[[]apidb.Claim](t, "claims")(s.Claims(ctx, start.Add(time.Millisecond)))([]apidb.Claim{claim})
	must(t, s.Unclaim(ctx, "a"))
	must(t, s.Unclaim(ctx, "a"))
	wants[[]apidb.Claim](t, "claims")(s.Claims(ctx, start.Add(time.Millisecond)))(nil)
	wantError(t, "placing what never was", s.Place(ctx, "b", cellUUID(1)), apidb.ErrGone)
}

// testCountPending: a server is pending until it is built, and so is its claim.
func testCountPending(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	count := func(builds, claims int64) {
		t.Helper()
		if b, c, err := s.CountPending(ctx); err != nil || b != builds || c != claims {
			t.Errorf("%d build requests, %d claims, %v; want %d and %d", b, c, err, builds, claims)
		}
	}
	count(0, 0)
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{server("a", "p"), server("b", "p")}, nil))
	must(t, s.Claim(ctx, apidb.Claim{InstanceUUID: "a", NodeUUID: "n", CellUUID: cellUUID(1), CreatedAt: start}))
	count(2, 1)
	must(t, s.AbandonBuild(ctx, "a"))
	count(1, 1)
	must(t, s.Unclaim(ctx, "a"))
	count(1, 0)
}
