// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// ConsoleLog is of a driver whose guests say where they are.
func (d *fakeDriver) ConsoleLog(_ context.Context, node, uuid string, most int) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	text := node + " " + uuid
	return []byte(text[max(0, len(text)-most):]), nil
}

// TestConsoleLog: the driver is asked for as much as the other end asks for, and its errors are
// refusals.
func TestConsoleLog(t *testing.T) {
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		read := func(id string, length int64) (string, error) {
			end := s.offer(id, cellwire.StreamOffer{Purpose: cellwire.PurposeConsoleLog, UUID: serverUUID(1), Length: length})
			log, err := io.ReadAll(end)
			_ = end.CloseWrite()
			return string(log), err
		}
		for id, c := range map[string]struct {
			length int64
			want   string
		}{"all": {0, host + " " + serverUUID(1)}, "three": {3, "001"}, "very many": {1 << 60, host + " " + serverUUID(1)}} {
			if log, err := read(id, c.length); err != nil || log != c.want {
				t.Errorf("%s: %q, %v", id, log, err)
			}
		}
		for id, c := range map[string]struct {
			err    error
			status int
			code   cellwire.Code
		}{
			"fault":     {&plugins.InstanceFault{Reason: "no log"}, 409, cellwire.CodeConflict},
			"no guest":  {plugins.ErrInstanceNotFound, 409, cellwire.CodeConflict},
			"no driver": {&plugins.NotReady{Reason: "it starts"}, 503, cellwire.CodeUnavailable},
			"cannot":    {plugins.ErrUnsupported, 409, cellwire.CodeUnable},
			"unknown":   {errLost, 500, cellwire.CodeInternal},
		} {
			s.driver.set(func() { s.driver.err = c.err })
			_, err := read(id, 0)
			var refused *cellwire.Error
			if !errors.As(err, &refused) || refused.Status != c.status || refused.Code != c.code {
				t.Errorf("%s: %v", id, err)
			}
		}
		s.driver.set(func() { s.driver.err = nil })
	})
}
