// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestADeadlineThatTheServerSeesFirst: it counts its time in whole milliseconds, and may say that
// the deadline has passed before we do.
func TestADeadlineThatTheServerSeesFirst(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := &Client{name: "puppet"}
		said := status.Error(codes.DeadlineExceeded, "Deadline Exceeded")
		if err := p.callError(ctx, "AvailableNodes", time.Minute, said); errors.Is(err, ErrNoAnswer) {
			t.Errorf("of something else, since there is a minute left: %v", err)
		}
		time.Sleep(time.Minute - time.Millisecond)
		if err := p.callError(ctx, "AvailableNodes", time.Minute, said); !errors.Is(err, ErrNoAnswer) ||
			ctx.Err() != nil {
			t.Errorf("a millisecond early: %v", err)
		}
	})
}

// TestRefusalOfTheSandboxSaysSo: the kernel says "permission denied" for a file that the driver's
// user owns, too; the error names what opens it.
func TestRefusalOfTheSandboxSaysSo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const hint = "its sandbox refused it: [drivers.mine] write_paths and read_paths open files to it"
	for _, c := range []struct {
		confined bool
		message  string
		want     bool
	}{
		{true, "making the disk: open /var/lib/x: permission denied", true},
		{true, "fchmodat: operation not permitted", true},
		{true, "no space left on device", false},
		{false, "open /var/lib/x: permission denied", false},
	} {
		p := &Client{name: "mine", confined: c.confined}
		cause := errors.New(c.message)
		err := p.failed("Spawn", cause)
		if got := strings.Contains(err.Error(), hint); got != c.want || !errors.Is(err, cause) {
			t.Errorf("a failure in the sandbox (%v): got %v", c.confined, err)
		}
	}
}
