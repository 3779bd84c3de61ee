// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestNestedData: the nested data set is that of Placement's performance job: 7 providers and 18
// requests a tree, and two candidates, each with all providers of its tree in the summaries.
func TestNestedData(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, _ := inProcess(t, 0)
	const trees = 3
	random := rand.New(rand.NewPCG(3, 4))
	before := c.Requests()
	for range trees {
		testproc.Check(t, NewTree(random, 2).Load(t.Context(), c))
	}
	if sent := c.Requests() - before; sent != trees*RequestsPerTree {
		t.Errorf("%d requests for %d trees, not %d each", sent, trees, RequestsPerTree)
	}
	count := testproc.Try(CountCandidates(t.Context(), c, NestedQuery)).Or(t)
	count.Bytes = 0
	testproc.Samef(t, cmp.Diff(Count{Candidates: 2 * trees, Summaries: 7 * trees}, count), "candidates")
}

// TestFlatData: each flat host is one candidate.
func TestFlatData(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, _ := inProcess(t, 0)
	random := rand.New(rand.NewPCG(3, 4))
	for range 4 {
		testproc.Check(t, LoadFlat(t.Context(), c, NewUUID(random)))
	}
	count, err := CountCandidates(t.Context(), c, FlatQuery)
	if err != nil || count.Candidates != 4 || count.Summaries != 4 {
		t.Errorf("%+v, %v", count, err)
	}
}

// TestOperations: each operation can be done again and again, by several workers, and leaves the
// service fit for the next.
func TestOperations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, data := inProcess(t, several)
	for _, op := range append(data.operations(), data.databaseOperations()...) {
		for worker := range max(op.workers, 1) {
			st, err := op.begin(t.Context(), c, worker)
			testproc.Checkf(t, err, "%s", op.name)
			for range 2 { // a reshape goes there and back
				if st.prepare != nil {
					testproc.Checkf(t, st.prepare(t.Context()), "%s", op.name)
				}
				if _, err := st.do(context.Background()); err != nil {
					t.Errorf("%s: %v", op.name, err)
				}
			}
		}
	}
}

// TestContention: clients that claim the first candidate at the same time are rarely refused, and
// leave nothing behind.
func TestContention(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, _ := inProcess(t, 0)
	const hosts = 32
	random := rand.New(rand.NewPCG(3, 4))
	for range hosts {
		testproc.Check(t, LoadFlat(t.Context(), c, NewUUID(random)))
	}
	for range 2 {
		for _, limit := range contendedLimits {
			out, err := contention(t.Context(), c, 4, limit, hosts*3/4)
			if err != nil || out.claimed != hosts*3/4 || out.refused > hosts/4 {
				t.Errorf("limit %d: %+v, %v", limit, out, err)
			}
		}
	}
}
