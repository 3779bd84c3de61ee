// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBuildWaitsForDeletedGuests: a server was deleted while its host was down, so what it held in
// Placement went to another one, and its guest still is there when that is to be made. The driver
// refuses, and it is tried again when the guest is gone; if that takes too long, the refusal
// counts.
func TestBuildWaitsForDeletedGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const building = "building power 0, guest -1, allocations true"
	for name, c := range map[string]struct {
		goes bool
		want string
	}{"the guest goes": {true, active}, "it does not go": {false, failed}} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.placement.grant(1)
				s.cell.boot(1)
				s.start()
				s.pass(time.Minute)
				s.driver.set(func() {
					s.driver.foreign[serverUUID(1)] = true // it cannot be removed now
					s.driver.faults[serverUUID(2)] = "what it was granted is not free"
				})
				s.cell.delete(1)
				s.placement.grant(2)
				s.cell.boot(2)
				s.pass(time.Minute)
				s.expect(2, building)
				if c.goes {
					s.driver.set(func() {
						delete(s.driver.foreign, serverUUID(1))
						delete(s.driver.faults, serverUUID(2))
					})
					s.w.Changed(host, "")
				}
				s.pass(10 * time.Minute)
				s.expect(2, c.want)
				if c.goes {
					s.expect(1, deleted)
				}
			})
		})
	}
}
