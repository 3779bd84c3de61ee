// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestProblemsOfNodes: they are in the status until the cell has none, and in the log once; what is
// too much of them is cut.
func TestProblemsOfNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.cell.problems = []cellwire.NodeProblem{{UUID: nodeUUID, Code: cellwire.NodeContested, Host: "h2", Message: "Host h2 reports it too."}}
		s.start()
		s.pass(time.Minute)
		if st := s.w.Status(); len(st.Problems) != 1 || st.Problems[0].Host != "h2" || len(st.Refused) != 0 || strings.Count(s.log.String(), "gets no new servers") != 1 {
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
		s.cell.away = &cellwire.Error{Status: http.StatusTooManyRequests, Code: cellwire.CodeTooMany, RetryAfter: 2 * time.Minute}
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
