// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

var (
	_ plugins.ConsoleLogger = (*Plugin)(nil)
	_ plugins.ConsoleOpener = (*Plugin)(nil)
)

// ConsoleLog returns the end of what an instance wrote to its console; see [plugins.ConsoleLogger]
// for the contract. It waits for no other call. Errors: as [Plugin.Instances];
// [plugins.ErrInstanceNotFound]; a [*plugins.InstanceFault].
func (p *Plugin) ConsoleLog(ctx context.Context, node, uuid string, most int) ([]byte, error) {
	return ask(ctx, p, "ConsoleLog "+uuid,
		func(s *activeProcess) ([]byte, error) { return s.ConsoleLog(ctx, node, uuid, most) })
}

// ConsoleLog returns the end of an instance's console log.
func (p *process) ConsoleLog(ctx context.Context, node, uuid string, most int) ([]byte, error) {
	const call = "ConsoleLog"
	uuid, problem := target(node, uuid)
	if problem == nil && (most < 1 || most > protocol.MaxConsoleLog) {
		problem = fmt.Errorf("%d bytes are asked for: must be 1 to %d", most, protocol.MaxConsoleLog)
	}
	if err := p.checkRequest(call, problem); err != nil {
		return nil, err
	}
	if err := p.checkCapability(call, protocol.CapabilityConsoleLog); err != nil {
		return nil, err
	}
	reply, err := manage(ctx, p, call, uuid, p.instances.ConsoleLog,
		&driverv1.ConsoleLogRequest{Node: node, Uuid: uuid, MaxBytes: int64(most)})
	if err != nil {
		return nil, err
	}
	if n := len(reply.GetLog()); n > most {
		return nil, p.badReply(call, fmt.Errorf("%d bytes of a console log, at most %d were asked for", n, most))
	}
	return reply.GetLog(), nil
}

// OpenConsole opens the serial console of an instance; see [plugins.ConsoleOpener] for the
// contract. It ends with the process of the plugin ([ErrUnavailable]), which does not wait for it
// when it is stopped or replaced. Errors: as [Plugin.ConsoleLog].
func (p *Plugin) OpenConsole(ctx context.Context, node, uuid string) (io.ReadWriteCloser, error) {
	return ask(ctx, p, "OpenConsole "+uuid,
		func(s *activeProcess) (io.ReadWriteCloser, error) { return s.OpenConsole(ctx, node, uuid) })
}

// OpenConsole opens the serial console of an instance.
func (p *process) OpenConsole(ctx context.Context, node, uuid string) (io.ReadWriteCloser, error) {
	const call = "OpenConsole"
	uuid, problem := target(node, uuid)
	if err := p.checkRequest(call, problem); err != nil {
		return nil, err
	}
	if err := p.checkCapability(call, protocol.CapabilityConsole); err != nil {
		return nil, err
	}
	ctx, watch := p.idle(ctx)
	c := &console{p: p, ctx: ctx, watch: watch}
	if err := c.open(node, uuid); err != nil {
		watch.end()
		return nil, aboutInstance(uuid, err)
	}
	return c, nil
}

// console is the serial console of an instance.
type console struct {
	p      *process
	ctx    context.Context //nolint:containedctx // the stream's, which lasts as long as the console
	watch  *idleTimer
	stream grpc.BidiStreamingClient[driverv1.ConsoleRequest, driverv1.ConsoleResponse]
	rest   []byte // received, but not read
}

func (c *console) open(node, uuid string) (err error) {
	const call = "OpenConsole"
	c.watch.begin()
	defer c.watch.pause()
	c.stream, err = c.p.instances.Console(c.ctx)
	if err == nil {
		err = c.stream.Send(
			&driverv1.ConsoleRequest{Part: &driverv1.ConsoleRequest_Open{Open: &driverv1.OpenConsole{Node: node,
				Uuid: uuid}}})
	}
	if err != nil && !errors.Is(err, io.EOF) { // the reason for an end is received
		return c.p.callError(c.ctx, call, c.watch.limit, err)
	}
	m, err := c.stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return c.p.badReply(call, errors.New("the stream ended without a console"))
	case err != nil:
		return c.p.callError(c.ctx, call, c.watch.limit, err)
	case m.GetOpened() == nil:
		return c.p.badReply(call, errors.New("the first message does not say that the console is open"))
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
			return 0, c.p.callError(c.ctx, call, c.watch.limit, err)
		}
		if c.rest = m.GetOutput(); len(c.rest) == 0 || len(c.rest) > protocol.MaxConsolePart {
			c.watch.end()
			return 0, c.p.badReply(call, fmt.Errorf("a message with %d bytes of a console: must be 1 to %d",
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
		if err := c.stream.Send(&driverv1.ConsoleRequest{Part: &driverv1.ConsoleRequest_Input{Input: part}}); err !=
			nil {
			if !errors.Is(err, io.EOF) { // what Read says is why
				err = c.p.callError(c.ctx, "Console", c.watch.limit, err)
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
