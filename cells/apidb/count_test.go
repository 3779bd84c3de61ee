// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// testCountPending: a server is pending until it is built, and so is its claim.
func testCountPending(t *testing.T, e engine) {
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
