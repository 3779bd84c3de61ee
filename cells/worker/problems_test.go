// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestProblemsOfNodes: they are in the status until the cell has none, and in the log once; what is
// too much of them is cut.
func TestProblemsOfNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.cell.problems = []cellwire.NodeProblem{{UUID: nodeUUID, Code: cellwire.NodeContested, Host: "h2",
			Message: "Host h2 reports it too."}}
		s.start()
		s.pass(time.Minute)
		if st := s.w.Status(); len(st.Problems) != 1 || st.Problems[0].Host != "h2" || len(st.Refused) != 0 ||
			strings.Count(s.log.String(), "gets no new servers") != 1 {
			s.Errorf("%+v\n%s", st, s.log.String())
		}
		s.cell.set(func() {
			s.cell.problems = make([]cellwire.NodeProblem, 10_000)
			s.cell.problems[0].Message = strings.Repeat("x", 1<<20)
		})
		s.pass(time.Minute)
		if st := s.w.Status(); len(st.Problems) > 100 || len(st.Problems[0].Message) > 10_000 {
			s.Errorf("%d problems are kept", len(st.Problems))
		}
		s.cell.set(func() { s.cell.problems = nil })
		s.pass(time.Minute)
		if st := s.w.Status(); len(st.Problems) != 0 {
			s.Errorf("%+v", st)
		}
	})
}

// TestAgentWaitsAsLongAsItIsAsked: after 429 no request is sent before the time is over.
func TestAgentWaitsAsLongAsItIsAsked(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.cell.away = &cellwire.Error{Status: http.StatusTooManyRequests,
			Code: cellwire.CodeTooMany, RetryAfter: 2 * time.Minute}
		s.start()
		s.pass(time.Minute)
		testproc.Equal(s, s.cell.called("report"), 1, "%d heartbeats in the first minute")
		s.cell.set(func() { s.cell.away = nil })
		s.pass(2 * time.Minute)
		if st := s.w.Status(); !st.Up {
			s.Errorf("%+v", st)
		}
	})
}

// TestAHeldNode is not reported to the cell, and its servers wait, and say for what. When the node
// is released, they get what they wait for.
func TestAHeldNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grantOf(1, nodeUUID)
		s.cell.boot(1)
		s.held = "its identity is refused"
		s.start()
		s.pass(5 * time.Minute)
		st := s.w.Status()
		if !st.Up || len(st.Nodes) != 0 || !slices.Equal(st.Held, []string{host}) {
			s.Errorf("%+v", st)
		}
		if len(st.Stuck) != 1 ||
			!strings.Contains(st.Stuck[0].Problem, "node "+host+" is held: its identity is refused") ||
			time.Since(st.Stuck[0].Since) < 4*time.Minute {
			s.Errorf("stuck are %+v", st.Stuck)
		}
		s.mu.Lock()
		s.held = ""
		s.mu.Unlock()
		s.pass(5 * time.Minute)
		if st := s.w.Status(); len(st.Held) != 0 || len(st.Stuck) != 0 || s.driver.power(1) != plugins.PowerRunning {
			s.Errorf("after it was released: %+v", st)
		}
	})
}
