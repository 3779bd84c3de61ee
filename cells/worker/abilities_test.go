// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// heartbeats are all that the cell took.
func (c *fakeCell) heartbeats() []cellwire.HostReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.beats)
}

// last is the last heartbeat.
func (c *fakeCell) last() cellwire.HostReport {
	all := c.heartbeats()
	return all[len(all)-1]
}

func (c *fakeCell) called(call string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[call]
}

// TestAbilitiesAreReported: with the first heartbeat that names the node, and at once when they
// change; the last word has them, too.
func TestAbilitiesAreReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.abilities = []string{plugins.AbilityConsoleLog}
		s.start()
		s.pass(time.Minute)
		for i, beat := range s.cell.heartbeats() {
			if len(beat.Nodes) != 1 || !slices.Equal(beat.Nodes[0].Abilities, withRebuild(s.abilities)) {
				t.Fatalf("heartbeat %d: %+v", i, beat)
			}
		}
		s.mu.Lock()
		s.abilities = []string{plugins.AbilityConsole, plugins.AbilityConsoleLog}
		s.mu.Unlock()
		s.pass(2 * time.Second) // nodes are looked at each second, and heartbeats come every ten
		if beat := s.cell.last(); !slices.Equal(beat.Nodes[0].Abilities, withRebuild(s.abilities)) {
			t.Errorf("after a change: %+v", beat)
		}
		s.stop()
		if beat := s.cell.last(); !beat.Stopping || !slices.Equal(beat.Nodes[0].Abilities, withRebuild(s.abilities)) {
			t.Errorf("the last word: %+v", beat)
		}
	})
}

// TestStartingAgent: reports say that there may be more nodes until all drivers have said which
// they have, or for a while, and never again afterwards.
func TestStartingAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	starting := func(s *scene) (of []bool) {
		for _, beat := range s.cell.heartbeats() {
			of = append(of, beat.Starting)
		}
		return of
	}
	begun := func(f func(s *scene)) {
		inScene(t, func(s *scene) {
			s.process, s.cell.turn, s.away, s.mute = agentruns.Process{Token: "a"}, 7, true, true
			s.start()
			s.pass(30 * time.Second)
			if of := starting(s); len(of) < 2 || slices.Contains(of, false) {
				t.Errorf("while a driver is silent: %v", of)
			}
			f(s)
			s.stop()
			if last := s.cell.last(); !last.Stopping || last.Starting {
				t.Errorf("the last word: %+v", last)
			}
		})
	}
	begun(func(s *scene) {
		s.mu.Lock()
		s.away, s.mute = false, false
		s.mu.Unlock()
		s.pass(5 * time.Second)
		if last := s.cell.last(); last.Starting || len(last.Nodes) != 1 {
			t.Errorf("when the driver has answered: %+v", last)
		}
		s.mu.Lock()
		s.away, s.mute = true, true
		s.mu.Unlock()
		s.pass(time.Minute)
		if last := s.cell.last(); last.Starting || len(last.Nodes) != 0 {
			t.Errorf("when it has no node any more: %+v", last)
		}
	})
	begun(func(s *scene) {
		s.pass(2 * time.Minute)
		if s.cell.last().Starting {
			t.Error("a driver that never answers keeps the nodes of before forever")
		}
	})
	inScene(t, func(s *scene) {
		s.process, s.cell.turn, s.away = agentruns.Process{Token: "a"}, 7, true
		s.start()
		s.pass(30 * time.Second)
		if of := starting(s); len(of) < 2 || slices.Contains(of, true) {
			t.Errorf("with drivers that have no node: %v", of)
		}
	})
	inScene(t, func(s *scene) {
		s.process, s.cell.turn, s.mute = agentruns.Process{Token: "a"}, 7, true
		s.start()
		s.pass(2500 * time.Millisecond)
		s.mu.Lock()
		s.mute = false
		s.mu.Unlock()
		s.pass(time.Second)
		if of := starting(s); len(of) == 0 || of[0] {
			t.Errorf("as soon as the last driver has answered: %v", of)
		}
	})
}

// TestOlderCellGetsNoAbilities: it refuses a report with what it does not know, and would count the
// host as down.
func TestOlderCellGetsNoAbilities(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.abilities = []string{plugins.AbilityConsoleLog}
		s.cell.old = true
		s.start()
		s.pass(time.Minute)
		beats, asked := len(s.cell.heartbeats()), s.cell.called("report")
		if beats < 6 || asked != beats+1 {
			t.Errorf("%d heartbeats with %d requests: one is refused", beats, asked)
		}
		if beat := s.cell.last(); len(beat.Nodes) != 1 || beat.Nodes[0].Abilities != nil {
			t.Errorf("to an older cell: %+v", beat)
		}
		s.cell.set(func() { s.cell.old = false })
		s.pass(10 * time.Second) // one heartbeat learns that it is upgraded, and another one follows at once
		if beat := s.cell.last(); !slices.Equal(beat.Nodes[0].Abilities, withRebuild(s.abilities)) {
			t.Errorf("after its upgrade: %+v", beat)
		}
		s.cell.set(func() { s.cell.old = true })
		s.stop()
	})
}

// withRebuild are the abilities of a node: those of its driver, and the worker's own.
func withRebuild(ofDriver []string) []string {
	return append(slices.Clone(ofDriver), plugins.AbilityRebuild)
}
