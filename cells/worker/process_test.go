// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"slices"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// turns is what cells know of the processes of agents.
type turns struct {
	turnless bool // it is of before turns
	turn     int64
}

// turnFor is the turn of an answer.
func (c *fakeCell) turnFor(r cellwire.HostReport) (int64, error) {
	switch {
	case !c.old && !c.turnless:
		return c.turn, nil
	case r.Process != nil || r.Turn != 0:
		return 0, &cellwire.Error{Status: http.StatusBadRequest, Code: cellwire.CodeBadRequest,
			Message: "unknown field process"}
	}
	return 0, nil
}

func (c *fakeCell) Report(ctx context.Context, _ string, r cellwire.HostReport) (cellwire.HostState, error) {
	c.mu.Lock()
	late := c.late
	c.mu.Unlock()
	if late == 0 || r.Stopping {
		return c.report(ctx, r)
	}
	arrived := make(chan struct{})
	var state cellwire.HostState
	var err error
	go func() { // a request that was sent arrives, also if the agent waits no more
		defer close(arrived)
		time.Sleep(late)
		state, err = c.report(context.WithoutCancel(ctx), r)
	}()
	select {
	case <-arrived:
		return state, err
	case <-ctx.Done():
		return cellwire.HostState{}, ctx.Err()
	}
}

func (c *fakeCell) report(ctx context.Context, r cellwire.HostReport) (cellwire.HostState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.begin(ctx, "report"); err != nil {
		return cellwire.HostState{}, err
	}
	if c.old && slices.ContainsFunc(r.Nodes, func(n cellwire.ReportedNode) bool { return n.Abilities != nil }) {
		return cellwire.HostState{}, &cellwire.Error{Status: http.StatusBadRequest, Code: cellwire.CodeBadRequest,
			Message: "unknown field abilities"}
	}
	if !c.details && slices.ContainsFunc(r.Nodes, func(n cellwire.ReportedNode) bool { return n.Details != nil }) {
		return cellwire.HostState{}, &cellwire.Error{Status: http.StatusBadRequest, Code: cellwire.CodeBadRequest,
			Message: "unknown field details"}
	}
	turn, err := c.turnFor(r)
	if err != nil {
		return cellwire.HostState{}, err
	}
	if on := httptrace.ContextClientTrace(ctx); on != nil && c.conn != nil {
		on.GotConn(httptrace.GotConnInfo{Conn: c.conn})
	}
	c.beats = append(c.beats, r)
	return cellwire.HostState{
		Service: c.service, Epoch: c.epoch, ReportInterval: 10, Refused: c.refuse, Problems: c.problems,
		Abilities: !c.old, Details: c.details, Turn: turn,
	}, c.lost()
}

// TestReportsHaveTheLastTurn: each heartbeat, and the last word, has the process and the turn of
// the last answer that arrived; the first one has none.
func TestReportsHaveTheLastTurn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.process, s.cell.turn = agentruns.Process{Token: "a"}, 7
		s.start()
		s.pass(15 * time.Second)
		beats := s.cell.heartbeats()
		if len(beats) < 2 || beats[0].Turn != 0 || beats[1].Turn != 7 {
			t.Fatalf("the heartbeats: got %+v, want no turn at first, and then 7", beats)
		}
		s.cell.set(func() { s.cell.away, s.cell.turn = errLost, 8 })
		s.pass(time.Minute)
		testproc.Equal(t, s.cell.last().Turn, 7, "while no answer arrives: turn %d")
		s.cell.set(func() { s.cell.away = nil })
		s.pass(time.Minute)
		s.stop()
		for _, beat := range s.cell.heartbeats() {
			if beat.Process == nil || beat.Process.Token != "a" {
				t.Errorf("the heartbeat: got %+v, want the process a", beat)
			}
		}
		if last := s.cell.last(); !last.Stopping || last.Turn != 8 {
			t.Errorf("the last word: %+v", last)
		}
	})
}

// TestOlderCellGetsNoProcess: a cell of before turns gets the rest, and one of before abilities
// gets neither; what a cell takes again it gets at once.
func TestOlderCellGetsNoProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.process, s.cell.turn, s.cell.old = agentruns.Process{Token: "a"}, 7, true
		s.abilities = []string{plugins.AbilityConsoleLog}
		check := func(when string, process, abilities bool, refused int) {
			t.Helper()
			beats, asked := len(s.cell.heartbeats()), s.cell.called("report")
			s.pass(time.Minute)
			beats, asked = len(s.cell.heartbeats())-beats, s.cell.called("report")-asked
			last := s.cell.last()
			if beats < 6 || asked-beats != refused ||
				(last.Process != nil) != process || (last.Nodes[0].Abilities != nil) != abilities {
				t.Errorf("%s: %d heartbeats with %d requests; %+v", when, beats, asked, last)
			}
		}
		s.start()
		check("before abilities", false, false, 2)
		s.cell.set(func() { s.cell.old, s.cell.turnless = false, true })
		check("before turns", false, true, 0)
		s.cell.set(func() { s.cell.turnless = false })
		check("upgraded", true, true, 0)
		s.cell.set(func() { s.cell.turnless = true })
		check("and back", false, true, 1)
		s.stop()
	})
}
