// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// testOneDecision: several schedulers that do not know of each other and the owner, at the same
// server. However they interleave, at most one cell wins, exactly one of placing and abandoning
// wins, and every caller gets the matching result.
func testOneDecision(t *testing.T, e testEngine) {
	processes := e.processes(t)
	s := processes[0]
	withCells(t, s, 3)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		if round++; !e.sampled(round) {
			return
		}
		uuid := fmt.Sprint("server", round)
		must(t, s.CreateServers(ctx, []apidb.RequestSpec{server(uuid, "p")}, nil))
		// Each scheduler tries cells one after the other, as after a failed insert; it may end the
		// build when it has won.
		type scheduler struct {
			cells  []int
			builds bool
		}
		var schedulers []scheduler
		for range rapid.IntRange(1, 3).Draw(t, "schedulers") {
			schedulers = append(schedulers, scheduler{
				cells:  rapid.SliceOfN(rapid.IntRange(0, 3), 1, 2).Draw(t, "cells"),
				builds: rapid.Bool().Draw(t, "builds"),
			})
		}
		owners := rapid.IntRange(0, 2).Draw(t, "owners")

		var mu sync.Mutex
		wins := map[string]bool{}
		var gone, abandoned, refused int
		var problems []error
		said := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		var wg sync.WaitGroup
		for i, a := range schedulers {
			s := processes[i%len(processes)]
			wg.Go(func() {
				for _, cell := range a.cells {
					claim := s.Claim(ctx, apidb.Claim{InstanceUUID: uuid, NodeUUID: "n", CellUUID: cellUUID(cell)})
					err := s.Place(ctx, uuid, cellUUID(cell))
					said(func() {
						switch {
						case err == nil:
							wins[cellUUID(cell)] = true
						case errors.Is(err, apidb.ErrGone):
							gone++
						case !errors.Is(err, apidb.ErrPlaced):
							problems = append(problems, err)
						}
						if claim != nil && !errors.Is(claim, apidb.ErrGone) && !errors.Is(claim, apidb.ErrPlaced) {
							problems = append(problems, claim)
						}
					})
					if err == nil && a.builds {
						if err := s.FinishBuild(ctx, uuid); err != nil {
							said(func() { problems = append(problems, err) })
						}
					}
				}
			})
		}
		for i := range owners {
			s := processes[(i+1)%len(processes)]
			wg.Go(func() {
				err := s.AbandonBuild(ctx, uuid)
				said(func() {
					switch {
					case err == nil:
						abandoned++
					case errors.Is(err, apidb.ErrPlaced):
						refused++
					case !errors.Is(err, apidb.ErrNotFound):
						problems = append(problems, err)
					}
				})
			})
		}
		wg.Wait()

		for _, err := range problems {
			t.Errorf("unexpected: %v", err)
		}
		if len(wins)+abandoned != 1 {
			t.Fatalf("placed in %v and abandoned %d times: not one decision", wins, abandoned)
		}
		m := testproc.Try(s.Mapping(ctx, uuid)).Or(t)
		if abandoned == 1 {
			if m.CellUUID != "" || !m.Queued() || refused > 0 {
				t.Fatalf("abandoned, and the mapping is %+v; %d owners got ErrPlaced", m, refused)
			}
			if _, err := s.BuildRequest(ctx, uuid); !errors.Is(err, apidb.ErrNotFound) {
				t.Fatalf("abandoned, and the build request: %v", err)
			}
		} else if !wins[m.CellUUID] || m.Queued() || gone > 0 || refused != owners {
			t.Fatalf("placed in %v, and the mapping is %+v; %d schedulers got ErrGone, %d of %d owners ErrPlaced",
				wins, m, gone, refused, owners)
		}
	})
}
