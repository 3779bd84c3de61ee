// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// migrate has a server moved: mostly by a migration, and by an evacuation, which is refused unless
// its host is down. It goes where it can, which most servers cannot: they are in cells with one
// host. None of this changes whether it is to run.
func (s *storm) migrate(r *rand.Rand) {
	what, how, body, accepted := "migrate", migrated, record{"migrate": nil}, 202
	if r.IntN(3) == 0 {
		what, how, body, accepted = "evacuate", evacuated, record{"evacuate": record{}}, 200
	}
	server := s.model.take(r, func(t *tracked) bool { return t.fate == lives && (t.permanent || r.IntN(2) == 0) })
	if server == nil {
		return
	}
	s.model.move(server, how)
	s.doMove(r, server, what, body, accepted)
}

// endMove confirms or reverts a migration, if there is one.
func (s *storm) endMove(r *rand.Rand) {
	what, body, accepted := "confirm", record{"confirmResize": nil}, 204
	if r.IntN(2) == 0 {
		what, body, accepted = "revert", record{"revertResize": nil}, 202
	}
	server := s.model.take(r, func(t *tracked) bool { return t.fate == lives && t.moved != never })
	if server != nil {
		s.doMove(r, server, what, body, accepted)
	}
}

// doMove asks for an action about a move of a server that was taken, and gives it back.
func (s *storm) doMove(r *rand.Rand, server *tracked, what string, body record, accepted int) {
	got := s.act(r, what, world.AdminOf(server.who.Project), server, body)
	if !slices.Contains([]int{noAnswer, accepted, 400, 409}, got.Code) && got.Code < 500 {
		s.model.violated("%s (%s) lives, and %s was answered with %s", server.uuid, server.name, what, got)
	}
	power := server.power
	if server.moved == evacuated && power == stopped { // a second evacuation starts what was in error after the first
		power = either
	}
	s.model.givePower(server, power)
}

// endMoves confirms all migrations, when no client does anything any more, until nothing moves.
func (s *storm) endMoves(t *testing.T) {
	t.Helper()
	testproc.Eventually(t, settleTime, "all migrations have ended", func() error {
		got, err := try(t.Context(), s.w.APIURL, world.Admin, "GET", "/servers/detail?all_tenants=1", nil)
		if err != nil || got.Code != 200 {
			return fmt.Errorf("listing servers: %s: %w", got, err)
		}
		var body struct{ Servers []shown }
		if err := json.Unmarshal(got.Raw, &body); err != nil {
			return err
		}
		moving := 0
		for _, is := range body.Servers {
			switch is.Status {
			case "VERIFY_RESIZE":
				action := "/servers/" + is.ID + "/action"
				_, err = try(t.Context(), s.w.APIURL, world.Admin, "POST", action, record{"confirmResize": nil})
				fallthrough
			case "RESIZE", "REVERT_RESIZE", "REBUILD", "UNKNOWN":
				moving++
			}
		}
		if moving > 0 {
			return fmt.Errorf("%d servers move: %w", moving, err)
		}
		return nil
	})
}
