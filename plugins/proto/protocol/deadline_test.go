// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestExpired: what a server says of a deadline is believed a little before our own clock says it,
// and not long before.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if Expired(t.Context()) {
			t.Error("there is no deadline")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Second - DeadlineSkew - time.Microsecond)
		if Expired(ctx) {
			t.Error("long before the deadline")
		}
		time.Sleep(2 * time.Microsecond)
		if !Expired(ctx) || ctx.Err() != nil {
			t.Errorf("just before the deadline: %v", ctx.Err())
		}
		time.Sleep(time.Second)
		if !Expired(ctx) {
			t.Error("after the deadline")
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if !Expired(canceled) {
			t.Error("given up")
		}
	})
}
