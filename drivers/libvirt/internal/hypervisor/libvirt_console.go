// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"libvirt.org/go/libvirt"
)

// wouldBlock is libvirt's result of a read or write that would have to wait.
const wouldBlock = -2

// OpenConsole connects once more: a stream lasts longer than calls, and ends with its connection.
func (c *libvirtConn) OpenConsole(uuid string) (io.ReadWriteCloser, error) {
	if !c.write {
		return nil, ErrReadOnly
	}
	own, err := dial(c.uri, true, keepAliveInterval, keepAliveCount)
	if err != nil {
		return nil, err
	}
	conn := &libvirtConn{c: own, uri: c.uri, write: true}
	var console *libvirtConsole
	err = conn.domain("opening the console of", uuid, func(d *libvirt.Domain) (err error) {
		console, err = openConsole(own, d)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, hangUp(own))
	}
	return console, nil
}

func openConsole(own *libvirt.Connect, d *libvirt.Domain) (*libvirtConsole, error) {
	stream, err := own.NewStream(libvirt.STREAM_NONBLOCK)
	if err != nil {
		return nil, translate(err)
	}
	err = d.OpenConsole("", stream, libvirt.DOMAIN_CONSOLE_SAFE)
	if isCode(err, libvirt.ERR_ARGUMENT_UNSUPPORTED) { // by drivers without locks of consoles
		err = d.OpenConsole("", stream, 0)
	}
	c := &libvirtConsole{own: own, stream: stream, readable: make(chan struct{}, 1),
		writable: make(chan struct{}, 1), closed: make(chan struct{})}
	if err == nil {
		if err = stream.EventAddCallback(libvirt.STREAM_EVENT_READABLE, c.onEvent); err != nil {
			err = errors.Join(err, stream.Abort())
		}
	}
	switch {
	case isCode(err, libvirt.ERR_OPERATION_FAILED): // "Active console session exists for this domain"
		err = fmt.Errorf("%w: %w", ErrInUse, err)
	case err == nil:
		c.close = sync.OnceValue(c.end)
		return c, nil
	}
	_ = stream.Free() // the other error is why
	return nil, translate(err)
}

// libvirtConsole is a console. Its stream never blocks: a call that blocks cannot be ended.
type libvirtConsole struct {
	own      *libvirt.Connect
	readable chan struct{} // has an element if it may be readable
	writable chan struct{}
	closed   chan struct{}
	close    func() error

	mu     sync.Mutex // held during calls of the stream
	stream *libvirt.Stream
	waits  libvirt.StreamEventType // which events are waited for; more are not reported
	ended  bool
}

// onEvent is called by the event loop.
func (c *libvirtConsole) onEvent(_ *libvirt.Stream, events libvirt.StreamEventType) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const ends = libvirt.STREAM_EVENT_ERROR | libvirt.STREAM_EVENT_HANGUP
	for of, waiting := range map[libvirt.StreamEventType]chan struct{}{
		libvirt.STREAM_EVENT_READABLE: c.readable, libvirt.STREAM_EVENT_WRITABLE: c.writable,
	} {
		if events&(of|ends) != 0 {
			c.waits &^= of
			select {
			case waiting <- struct{}{}:
			default:
			}
		}
	}
	if !c.ended {
		_ = c.stream.EventUpdateCallback(c.waits) // otherwise it is called again at once
	}
}

// Read returns what the guest writes.
func (c *libvirtConsole) Read(b []byte) (int, error) {
	return c.callUntilReady("reading", libvirt.STREAM_EVENT_READABLE, c.readable,
		func() (int, error) { return c.stream.Recv(b) })
}

// Write types something.
func (c *libvirtConsole) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		n, err := c.callUntilReady("writing to", libvirt.STREAM_EVENT_WRITABLE, c.writable,
			func() (int, error) { return c.stream.Send(b[written:]) })
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// callUntilReady makes a call of the stream until it does not block, or the console is closed.
func (c *libvirtConsole) callUntilReady(
	what string, event libvirt.StreamEventType, ready <-chan struct{}, call func() (int, error),
) (int, error) {
	for {
		n, err := c.call(event, call)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
			return 0, err
		case err != nil:
			return 0, fmt.Errorf("%s a console: %w", what, translate(err))
		case n != wouldBlock:
			return n, nil
		}
		select {
		case <-ready:
		case <-c.closed:
			return 0, io.ErrClosedPipe
		}
	}
}

func (c *libvirtConsole) call(event libvirt.StreamEventType, call func() (int, error)) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, io.ErrClosedPipe
	}
	n, err := call()
	if err == nil && n == wouldBlock && c.waits&event == 0 {
		c.waits |= event
		err = c.stream.EventUpdateCallback(c.waits)
	}
	return n, err
}

// Close gives the console and its connection back.
func (c *libvirtConsole) Close() error { return c.close() }

func (c *libvirtConsole) end() error {
	close(c.closed)
	c.mu.Lock()
	c.ended = true
	_ = c.stream.EventRemoveCallback() // it is removed already when the stream has ended
	_ = c.stream.Abort()               // so it is then
	c.mu.Unlock()
	turnLoop()
	return errors.Join(c.stream.Free(), hangUp(c.own))
}
