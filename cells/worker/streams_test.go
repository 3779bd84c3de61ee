// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func (c *fakeCell) AcceptStream(_ context.Context, _, id string) (*cellwire.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls["stream "+id]++
	end := c.streams[id]
	if end == nil {
		return nil, &cellwire.Error{Status: http.StatusNotFound, Code: cellwire.CodeNotFound, Message: "no such stream"}
	}
	return end, nil
}

func (c *fakeCell) OpenSource(context.Context, string, string) (*cellwire.Stream, error) {
	return nil, &cellwire.Error{Status: http.StatusNotFound, Code: cellwire.CodeNotFound, Message: "nothing arrives"}
}

// offer offers a stream to the worker, and returns the other end.
func (s *scene) offer(id string, o cellwire.StreamOffer) *cellwire.Stream {
	here, there := net.Pipe()
	o.ID = id
	s.cell.set(func() {
		s.cell.offers = append(s.cell.offers, o)
		s.cell.streams[id] = cellwire.NewStream(there, there)
	})
	return cellwire.NewStream(here, here)
}

// TestStreamsThatCannotBeServed: the other end learns why, and an offer that is repeated is taken
// once.
func TestStreamsThatCannotBeServed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		for id, c := range map[string]struct {
			offer cellwire.StreamOffer
			want  cellwire.Code
		}{
			"unknown-server": {cellwire.StreamOffer{Purpose: cellwire.PurposeConsole, UUID: serverUUID(9)},
				cellwire.CodeNotFound},
			"unknown-purpose": {cellwire.StreamOffer{Purpose: "of-a-later-version", UUID: serverUUID(1)},
				cellwire.CodeUnable},
		} {
			end := s.offer(id, c.offer)
			_, err := io.Copy(io.Discard, end)
			var refused *cellwire.Error
			if !errors.As(err, &refused) || refused.Code != c.want || refused.Status == 0 {
				t.Errorf("%s: %v", id, err)
			}
		}
		s.pass(2 * time.Minute) // each answer to the long poll repeats the offers
		for _, id := range []string{"unknown-server", "unknown-purpose"} {
			testproc.Equal(t, s.cell.called("stream "+id), 1, "%s was opened %d times", id)
		}
	})
}
