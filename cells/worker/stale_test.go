// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestStaleBuild: a guest that does not run, of a server that the cell reports as building, may be
// a real one if this process has not begun it. It stays until a client deletes the server.
func TestStaleBuild(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.driver.guests[serverUUID(1)] = plugins.PowerShutdown
		s.cell.boot(1)
		s.start()
		s.pass(time.Hour)
		s.expect(1, "building power 0, guest 4, allocations false")
		if st := s.w.Status(); len(st.Stuck) != 1 || !strings.Contains(st.Stuck[0].Problem, "may hold data") {
			s.Errorf("%+v", st)
		}
		s.cell.delete(1)
		s.pass(time.Minute)
		s.expect(1, deleted)
	})
}
