// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// mover returns the driver, if it moves instances and has been configured.
func (s *instanceServer) mover() (InstanceMover, error) {
	if _, err := s.manager(); err != nil {
		return nil, err
	}
	m, ok := s.server.driver.(InstanceMover)
	if !ok {
		return nil, missingCapability("move instances")
	}
	return m, nil
}

// Depart lets the driver shut down an instance that is to be moved.
func (s *instanceServer) Depart(
	ctx context.Context, req *driverv1.DepartInstanceRequest,
) (*driverv1.DepartInstanceResponse, error) {
	m, err := s.mover()
	if err != nil {
		return nil, err
	}
	uuid, err := target(req)
	if err != nil {
		return nil, err
	}
	var offer string
	err = s.serialize(ctx, uuid, func() (err error) {
		offer, err = m.Depart(ctx, req.GetNode(), uuid)
		return err
	})
	if err == nil {
		err = protocol.CheckOffer(offer)
	}
	if err != nil {
		return nil, err
	}
	return &driverv1.DepartInstanceResponse{Offer: offer}, nil
}

// Leave lets the driver remove an instance that is on another host now.
func (s *instanceServer) Leave(
	ctx context.Context, req *driverv1.LeaveInstanceRequest,
) (*driverv1.LeaveInstanceResponse, error) {
	m, err := s.mover()
	if err != nil {
		return nil, err
	}
	uuid, err := target(req)
	if err != nil {
		return nil, err
	}
	if err := s.serialize(ctx, uuid, func() error { return m.Leave(ctx, req.GetNode(), uuid) }); err != nil {
		return nil, err
	}
	return &driverv1.LeaveInstanceResponse{}, nil
}

// ReadFile sends a file of an instance.
func (s *instanceServer) ReadFile(
	req *driverv1.ReadInstanceFileRequest, stream grpc.ServerStreamingServer[driverv1.FileChunk],
) error {
	m, err := s.mover()
	if err != nil {
		return err
	}
	uuid, err := target(req)
	if err != nil {
		return err
	}
	if err := protocol.CheckFile(req.GetName(), req.GetOffset()); err != nil {
		return invalid(err)
	}
	ctx, end, err := s.server.untilShutdown(stream.Context())
	if err != nil {
		return err
	}
	defer end()
	order := protocol.ChunksFrom(req.GetOffset())
	return m.ReadFile(ctx, req.GetNode(), uuid, req.GetName(), req.GetOffset(), func(offset int64, data []byte) error {
		chunk := &driverv1.FileChunk{Offset: offset, Data: data}
		if err := order.Check(chunk); err != nil {
			return err
		}
		return stream.Send(chunk)
	})
}

// Arrive lets the driver create an instance that comes from another host.
func (s *instanceServer) Arrive(
	stream grpc.BidiStreamingServer[driverv1.ArriveInstanceRequest, driverv1.ArriveInstanceResponse],
) error {
	m, err := s.mover()
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	req := first.GetBegin()
	if req == nil {
		return invalid(errors.New("the first message has no arrival"))
	}
	tree, _, err := received(req.GetTree(), nil)
	if err != nil {
		return err
	}
	uuid, allocations, err := protocol.CheckSpec(req.GetSpec(), tree)
	if err == nil {
		err = errors.Join(protocol.CheckNode(req.GetNode()), protocol.CheckNode(req.GetFromNode()),
			protocol.CheckOffer(req.GetOffer()))
	}
	if err != nil {
		return invalid(err)
	}
	ctx, end, err := s.server.untilShutdown(stream.Context())
	if err != nil {
		return err
	}
	defer end()
	from := Arrival{Node: req.GetFromNode(), Evacuation: req.GetEvacuation(), Offer: req.GetOffer()}
	if !from.Evacuation {
		from.Files = &sourceFiles{stream: stream}
	}
	var made Instance
	err = s.serialize(ctx, uuid, func() (err error) {
		made, err = m.Arrive(ctx, req.GetNode(), toSpec(req.GetSpec(), uuid, allocations), tree, from)
		return err
	})
	if err != nil {
		return err
	}
	return stream.Send(&driverv1.ArriveInstanceResponse{
		Part: &driverv1.ArriveInstanceResponse_Instance{Instance: fromInstance(made)},
	})
}

// untilShutdown counts a stream as a call, and ends its context when the plugin shuts down: what it
// does takes long, and is continued by a repeated call.
func (s *server) untilShutdown(ctx context.Context) (context.Context, func(), error) {
	if !s.calls.begin() {
		return nil, nil, refuse(codes.Unavailable, "the plugin is shutting down")
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.calls.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); s.calls.end() }, nil
}

// sourceFiles are read through the agent, over the stream of an Arrive.
type sourceFiles struct {
	stream grpc.BidiStreamingServer[driverv1.ArriveInstanceRequest, driverv1.ArriveInstanceResponse]

	mu     sync.Mutex
	broken error // what was sent is not read to its end
}

// ReadFile asks the agent for a file.
func (f *sourceFiles) ReadFile(ctx context.Context, name string, offset int64, each ChunkFunc) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return fmt.Errorf("an earlier file of this Arrive was not read to its end: %w", f.broken)
	}
	if err := protocol.CheckFile(name, offset); err != nil {
		return err
	}
	ask := &driverv1.ArriveInstanceResponse{Part: &driverv1.ArriveInstanceResponse_Read{
		Read: &driverv1.ReadFile{Name: name, Offset: offset},
	}}
	if f.broken = f.stream.Send(ask); f.broken != nil {
		return f.broken
	}
	order := protocol.ChunksFrom(offset)
	for {
		m, err := f.stream.Recv()
		switch {
		case err == nil && m.GetEnd() != nil:
			if problem := m.GetEnd().GetProblem(); problem != "" {
				return errors.New(problem)
			}
			return nil
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		case err == nil && m.GetChunk() == nil:
			err = invalid(errors.New("a message has no part of the file"))
		case err == nil:
			if err = order.Check(m.GetChunk()); err == nil {
				err = ctx.Err()
			}
			if err == nil {
				err = each(m.GetChunk().GetOffset(), m.GetChunk().GetData())
			}
		}
		if err != nil {
			f.broken = err
			return err
		}
	}
}
