// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBuildTimeout: a server whose driver never says what became of its guest is in error after a
// time, when nothing is left of it, and not before the driver can say that.
func TestBuildTimeout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const limit = time.Hour
	for name, c := range map[string]struct {
		timeout time.Duration
		idle    plugins.PowerState
	}{
		"with a limit": {limit, plugins.PowerShutdown},
		"without":      {0, plugins.PowerShutdown}, "while its guest is starting": {limit, plugins.PowerNoState},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.buildTimeout = c.timeout
				s.driver.set(func() { s.driver.idle = c.idle })
				s.driver.set(func() { s.driver.spawnErrs = slices.Repeat([]error{errors.New("no answer")}, 1000) })
				s.placement.grant(1)
				s.cell.boot(1)
				s.start()
				s.pass(limit - time.Minute)
				if row := s.cell.row(1); row.server.VMState != cellwire.VMBuilding || row.server.Fault != nil {
					s.Errorf("before the limit it is %s: %+v", row.server.VMState, row.server.Fault)
				}
				s.driver.set(func() { s.driver.err = errors.New("libvirtd is stopped") })
				s.pass(limit)
				if row := s.cell.row(1); row.server.VMState != cellwire.VMBuilding {
					s.Errorf("while the driver cannot say whether a guest exists it is %s", row.server.VMState)
				}
				s.driver.set(func() { s.driver.err = nil })
				s.pass(10 * time.Minute)
				if c.timeout == 0 {
					if row := s.cell.row(1); row.server.VMState != cellwire.VMBuilding {
						s.Errorf("without a limit it is %s", row.server.VMState)
					}
					return
				}
				s.expect(1, failed)
				if fault := s.cell.row(1).server.Fault; fault == nil ||
					!strings.Contains(fault.Message, "its host could not create it within 1h0m0s") ||
					fault.Details != "no answer" {
					s.Errorf("the fault is %+v", fault)
				}
			})
		})
	}
}
