// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// ConsoleLog returns the end of an instance's console log.
func (c *Client) ConsoleLog(ctx context.Context, node, uuid string, maxBytes int) ([]byte, error) {
	const call = "ConsoleLog"
	uuid, problem := target(node, uuid)
	if problem == nil && (maxBytes < 1 || maxBytes > protocol.MaxConsoleLog) {
		problem = fmt.Errorf("%d bytes are asked for: must be 1 to %d", maxBytes, protocol.MaxConsoleLog)
	}
	if err := c.checkRequest(call, problem); err != nil {
		return nil, err
	}
	if err := c.checkCapability(call, protocol.CapabilityConsoleLog); err != nil {
		return nil, err
	}
	reply, err := manage(ctx, c, call, uuid, c.instances.ConsoleLog,
		&driverv1.ConsoleLogRequest{Node: node, Uuid: uuid, MaxBytes: int64(maxBytes)})
	if err != nil {
		return nil, err
	}
	if n := len(reply.GetLog()); n > maxBytes {
		return nil, c.badReply(call, fmt.Errorf("%d bytes of a console log, at most %d were asked for", n, maxBytes))
	}
	return reply.GetLog(), nil
}

// OpenConsole opens the serial console of an instance.
func (c *Client) OpenConsole(ctx context.Context, node, uuid string) (io.ReadWriteCloser, error) {
	const call = "OpenConsole"
	uuid, problem := target(node, uuid)
	if err := c.checkRequest(call, problem); err != nil {
		return nil, err
	}
	if err := c.checkCapability(call, protocol.CapabilityConsole); err != nil {
		return nil, err
	}
	ctx, watch := c.idleTimeout(ctx)
	opened := &console{client: c, ctx: ctx, watch: watch}
	if err := opened.open(node, uuid); err != nil {
		watch.end()
		return nil, aboutInstance(uuid, err)
	}
	return opened, nil
}

// console is the serial console of an instance.
type console struct {
	client *Client
	ctx    context.Context // the stream's, which lasts as long as the console
	watch  *idleTimer
	stream grpc.BidiStreamingClient[driverv1.ConsoleRequest, driverv1.ConsoleResponse]
	rest   []byte // received, but not read
}

func (c *console) open(node, uuid string) (err error) {
	const call = "OpenConsole"
	c.watch.begin()
	defer c.watch.pause()
	c.stream, err = c.client.instances.Console(c.ctx)
	if err == nil {
		err = c.stream.Send(
			&driverv1.ConsoleRequest{Part: &driverv1.ConsoleRequest_Open{Open: &driverv1.OpenConsole{Node: node,
				Uuid: uuid}}})
	}
	if err != nil && !errors.Is(err, io.EOF) { // the reason for an end is received
		return c.client.callError(c.ctx, call, c.watch.limit, err)
	}
	m, err := c.stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return c.client.badReply(call, errors.New("the stream ended without a console"))
	case err != nil:
		return c.client.callError(c.ctx, call, c.watch.limit, err)
	case m.GetOpened() == nil:
		return c.client.badReply(call, errors.New("the first message does not say that the console is open"))
	}
	return nil
}

// Read returns what the guest writes.
func (c *console) Read(b []byte) (int, error) {
	const call = "Console"
	for len(c.rest) == 0 {
		m, err := c.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.EOF
		case err != nil:
			return 0, c.client.callError(c.ctx, call, c.watch.limit, err)
		}
		if c.rest = m.GetOutput(); len(c.rest) == 0 || len(c.rest) > protocol.MaxConsolePart {
			c.watch.end()
			return 0, c.client.badReply(call, fmt.Errorf("a message with %d bytes of a console: must be 1 to %d",
				len(c.rest), protocol.MaxConsolePart))
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write sends what is typed. A guest that takes no input makes it wait.
func (c *console) Write(b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		part := b[sent:min(len(b), sent+protocol.MaxConsolePart)]
		if err := c.stream.Send(
			&driverv1.ConsoleRequest{Part: &driverv1.ConsoleRequest_Input{Input: part}}); err != nil {
			if !errors.Is(err, io.EOF) { // what Read says is why
				err = c.client.callError(c.ctx, "Console", c.watch.limit, err)
			}
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}

// Close gives the console back.
func (c *console) Close() error {
	c.watch.end()
	return nil
}
