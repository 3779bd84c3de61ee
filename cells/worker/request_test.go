// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRequestIsNamed: what is done for a request of a client names it to the driver and in the log,
// also when it is tried again.
func TestRequestIsNamed(t *testing.T) {
	inScene(t, func(s *scene) {
		const request = "req-11111111-2222-4333-8444-555555555555"
		s.driver.spawnErrs = []error{errors.New("the image cannot be reached"), nil}
		s.placement.grant(1)
		s.cell.change(1, func(r *row) { r.request = request })
		s.start()
		s.pass(time.Minute)
		s.expect(1, active)
		if d := cmp.Diff([]string{request, request}, s.driver.requests); d != "" {
			t.Errorf("requests that the driver was given (-want +got):\n%s", d)
		}
		for _, message := range []string{"Retrying", "Created the guest of a server."} {
			if !regexp.MustCompile(`"request_id":"` + request + `".*` + message).MatchString(s.log.String()) {
				t.Errorf("the line %q has no request id:\n%s", message, &s.log)
			}
		}
	})
}
