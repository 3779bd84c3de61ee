// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// flood is a stream that has always another event.
type flood struct {
	grpc.ServerStreamingClient[driverv1.WatchResponse] // none

	ctx   context.Context // as that of a real stream
	taken int
}

var errTooMany = errors.New("too many")

func (f *flood) Recv() (*driverv1.WatchResponse, error) {
	if f.taken++; f.taken > 100*eventsASecond {
		return nil, errTooMany
	}
	return &driverv1.WatchResponse{Event: &driverv1.WatchResponse_Changed{Changed: &driverv1.Changed{Node: "cn1"}}},
		f.ctx.Err()
}

// TestAFloodOfEventsIsTakenSlowly, but it is taken, and the stream ends at once when it is to.
func TestAFloodOfEventsIsTakenSlowly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		begun, told := time.Now(), 0
		err := listen(ctx, &Client{name: "x"},
			"Watch", func(ctx context.Context, _ int64) (grpc.ServerStreamingClient[driverv1.WatchResponse], error) {
				return &flood{ctx: ctx}, nil
			}, func(*driverv1.WatchResponse) { told++ })
		if errors.Is(err, errTooMany) {
			t.Fatal("it is taken as fast as it comes")
		}
		if took := time.Since(begun); err == nil || took != 9500*time.Millisecond {
			t.Errorf("ended after %v with %v", took, err)
		}
		if told != 10*eventsASecond {
			t.Errorf("told of %d events in 9.5 seconds, want %d", told, 10*eventsASecond)
		}
	})
}
