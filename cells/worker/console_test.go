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
	"github.com/compute-agent/compute-agent/test/testproc"
)

// ConsoleLog is of a driver whose guests say where they are.
func (d *fakeDriver) ConsoleLog(_ context.Context, node, uuid string, maxBytes int) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	text := node + " " + uuid
	return []byte(text[max(0, len(text)-maxBytes):]), nil
}

// OpenConsole gives a console that sends back what is typed, until that is an x.
func (d *fakeDriver) OpenConsole(context.Context, string, string) (io.ReadWriteCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	out, in := io.Pipe()
	return &echoes{out, in, d}, nil
}

type echoes struct {
	*io.PipeReader
	in     *io.PipeWriter
	driver *fakeDriver
}

func (e *echoes) Write(b []byte) (int, error) {
	switch string(b) {
	case "x":
		return 1, e.in.Close()
	case "fail":
		return 4, e.in.CloseWithError(errLost)
	}
	return e.in.Write(b)
}

func (e *echoes) Close() error {
	e.driver.set(func() { e.driver.closed++ })
	return e.PipeReader.Close()
}

// TestConsole: both ways, until one of them ends it; the driver gets it back.
func TestConsole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		closed := func() (n int) {
			s.driver.set(func() { n, s.driver.closed = s.driver.closed, 0 })
			return n
		}
		for id, c := range map[string]struct {
			end  func(*cellwire.Stream) error
			want error
		}{
			"the guest ends": {func(end *cellwire.Stream) error { _, err := io.WriteString(end, "x"); return err },
				io.EOF},
			"the user ends":   {func(end *cellwire.Stream) error { return end.CloseWrite() }, io.EOF},
			"the user leaves": {func(end *cellwire.Stream) error { return end.Close() }, cellwire.ErrStreamLost},
			"it breaks": {func(end *cellwire.Stream) error { _, err := io.WriteString(end, "fail"); return err },
				&cellwire.Error{}},
		} {
			end := s.offer(id, cellwire.StreamOffer{Purpose: cellwire.PurposeConsole, UUID: serverUUID(1)})
			s.pass(time.Minute)
			go func() { _, _ = io.WriteString(end, "abc") }()
			got := make([]byte, 3)
			if _, err := io.ReadFull(end, got); err != nil || string(got) != "abc" {
				t.Errorf("%s: %q, %v", id, got, err)
			}
			testproc.NoErrorf(t, c.end(end), "%s", id)
			_, err := end.Read(got)
			var refused *cellwire.Error
			if !errors.Is(err, c.want) &&
				(!errors.As(err, &refused) || refused.Code != cellwire.CodeInternal || !errors.As(c.want, &refused)) {
				t.Errorf("%s: %v, want %v", id, err, c.want)
			}
			_ = end.Close()
			s.pass(time.Minute)
			if closed() == 0 {
				t.Errorf("%s: the driver did not get it back", id)
			}
		}
		s.driver.set(func() { s.driver.err = &plugins.InstanceFault{Reason: "another user has it"} })
		end := s.offer("in use", cellwire.StreamOffer{Purpose: cellwire.PurposeConsole, UUID: serverUUID(1)})
		_, err := io.ReadAll(end)
		var refused *cellwire.Error
		if !errors.As(err, &refused) || refused.Status != 409 {
			t.Errorf("in use: %v", err)
		}
		s.driver.set(func() { s.driver.err = nil })
	})
}

// TestConsoleLog: the driver is asked for as much as the other end asks for, and its errors are
// refusals.
func TestConsoleLog(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		read := func(id string, length int64) (string, error) {
			end := s.offer(id,
				cellwire.StreamOffer{Purpose: cellwire.PurposeConsoleLog, UUID: serverUUID(1), Length: length})
			log, err := io.ReadAll(end)
			_ = end.CloseWrite()
			return string(log), err
		}
		for id, c := range map[string]struct {
			length int64
			want   string
		}{"all": {0, host + " " + serverUUID(1)},
			"three": {3, "001"}, "very many": {1 << 60, host + " " + serverUUID(1)}} {
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
