// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
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
