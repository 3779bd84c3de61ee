// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// ConsoleLog returns the end of an instance's console log. It waits for no other call: a guest that
// is asked to shut down writes to its console.
func (s *instanceServer) ConsoleLog(
	ctx context.Context, req *driverv1.ConsoleLogRequest,
) (*driverv1.ConsoleLogResponse, error) {
	if _, err := s.manager(); err != nil {
		return nil, err
	}
	logger, ok := s.server.driver.(ConsoleLogger)
	if !ok {
		return nil, missingCapability("keep console logs")
	}
	uuid, err := target(req)
	if err != nil {
		return nil, err
	}
	maxBytes := req.GetMaxBytes()
	if maxBytes < 1 || maxBytes > MaxConsoleLog {
		return nil, invalid(fmt.Errorf("max_bytes is %d: must be 1 to %d", maxBytes, int64(protocol.MaxConsoleLog)))
	}
	log, err := logger.ConsoleLog(ctx, req.GetNode(), uuid, int(maxBytes))
	if err != nil {
		return nil, ofInstance(uuid, err)
	}
	return &driverv1.ConsoleLogResponse{Log: log[max(0, len(log)-int(maxBytes)):]}, nil
}

// Console joins the agent to an instance's serial console.
func (s *instanceServer) Console(
	stream grpc.BidiStreamingServer[driverv1.ConsoleRequest, driverv1.ConsoleResponse],
) error {
	if _, err := s.manager(); err != nil {
		return err
	}
	opener, ok := s.server.driver.(ConsoleOpener)
	if !ok {
		return missingCapability("give access to consoles")
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	open := first.GetOpen()
	if open == nil {
		return invalid(errors.New("the first message does not say whose console it is"))
	}
	uuid, err := target(open)
	if err != nil {
		return err
	}
	ctx, end, err := s.server.untilShutdown(stream.Context())
	if err != nil {
		return err
	}
	defer end()
	console, err := opener.OpenConsole(ctx, open.GetNode(), uuid)
	if err != nil {
		return ofInstance(uuid, err)
	}
	defer func() { _ = console.Close() }() // it may be closed by then
	defer context.AfterFunc(ctx, func() { _ = console.Close() })()
	if err := stream.Send(
		&driverv1.ConsoleResponse{Part: &driverv1.ConsoleResponse_Opened{Opened: &driverv1.ConsoleOpened{}}}); err !=
		nil {
		return err
	}
	var left atomic.Bool
	go func() { // until the stream ends, at the latest when this method has returned
		defer func() { _ = console.Close() }()
		_ = s.server.guarded(ctx, "Console", func(context.Context) error { // what is shown ends then
			err := typeInto(console, stream)
			left.Store(errors.Is(err, io.EOF))
			return err
		})
	}()
	err = show(console, stream)
	if errors.Is(err, io.EOF) || left.Load() {
		return nil
	}
	if stream.Context().Err() == nil && ctx.Err() != nil {
		return refuse(codes.Unavailable, "the plugin is shutting down")
	}
	return err
}

// typeInto passes on what is typed until no more comes.
func typeInto(
	console io.Writer, stream grpc.BidiStreamingServer[driverv1.ConsoleRequest, driverv1.ConsoleResponse],
) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if n := len(m.GetInput()); n == 0 || n > protocol.MaxConsolePart {
			return invalid(fmt.Errorf("%d bytes of input: must be 1 to %d", n, protocol.MaxConsolePart))
		}
		if _, err := console.Write(m.GetInput()); err != nil {
			return err
		}
	}
}

// show passes on what the guest writes until its console ends ([io.EOF]).
func show(console io.Reader, stream grpc.BidiStreamingServer[driverv1.ConsoleRequest, driverv1.ConsoleResponse]) error {
	buffer := make([]byte, 8<<10)
	for {
		n, err := console.Read(buffer)
		if n > 0 {
			if err := stream.Send(
				&driverv1.ConsoleResponse{Part: &driverv1.ConsoleResponse_Output{Output: buffer[:n]}}); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}
