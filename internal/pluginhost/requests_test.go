// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRequestsAtAnyTime: starts, stops, reloads, crashes and calls at any time all return, and
// nothing runs in the end.
func TestRequestsAtAnyTime(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, Spec{})
			ctx := context.Background()
			var all sync.WaitGroup
			for who := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, who))
				all.Go(func() {
					for range 25 {
						switch rng.IntN(8) {
						case 0:
							_ = s.Start(ctx)
						case 1:
							_ = s.Stop(ctx)
						case 2:
							s.abandon()
						case 3:
							_ = s.Reconfigure(ctx, Spec{Name: "puppet", Disabled: rng.IntN(3) == 0})
						case 4:
							s.set(func() { s.file.Ino++ })
							_ = s.Reconfigure(ctx, Spec{Name: "puppet"})
						case 5:
							if p := s.latest(); p != nil {
								p.end("crashed")
							}
						case 6:
							_, _ = s.AvailableNodes(ctx)
							_ = s.Status()
						default:
							time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
						}
					}
				})
			}
			all.Wait()
			testproc.NoError(t, s.Stop(ctx))
			synctest.Wait()
			for i, p := range s.puppets {
				if p.how() == "" {
					t.Errorf("seed %d: process %d still runs", seed, i)
				}
			}
			if got := s.Status(); got.PID != 0 || got.State.serving() {
				t.Errorf("seed %d: status %+v", seed, got)
			}
		})
	}
}

// latest is the process that was started last, or nil.
func (s *stage) latest() *puppet {
	s.state.Lock()
	defer s.state.Unlock()
	if len(s.puppets) == 0 {
		return nil
	}
	return s.puppets[len(s.puppets)-1]
}
