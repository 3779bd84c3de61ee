// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// server puts a Driver behind the protocol.
type server struct {
	driverv1.UnimplementedPluginServer
	driverv1.UnimplementedDriverServer

	driver Driver
	log    zerolog.Logger
	gate   *gate
	turn   turn // one call at a time of those that are about nodes
}

func newServer(d Driver, log zerolog.Logger) *server {
	return &server{driver: d, log: log, gate: newGate(), turn: newTurn()}
}

// Info answers who the driver is.
func (s *server) Info(context.Context, *driverv1.InfoRequest) (*driverv1.InfoResponse, error) {
	d := describe(s.driver)
	return &driverv1.InfoResponse{Name: d.Name, Version: d.Version, Capabilities: d.Capabilities, Sdk: d.SDK}, nil
}

// ConfigSchema answers with the JSON Schema of the configuration.
func (s *server) ConfigSchema(context.Context, *driverv1.ConfigSchemaRequest) (*driverv1.ConfigSchemaResponse, error) {
	return &driverv1.ConfigSchemaResponse{JsonSchema: s.driver.ConfigSchema()}, nil
}

// Configure hands the driver its configuration.
func (s *server) Configure(ctx context.Context, req *driverv1.ConfigureRequest) (*driverv1.ConfigureResponse, error) {
	if err := s.turn.take(ctx); err != nil {
		return nil, err
	}
	defer s.turn.give()
	config := req.GetConfigJson()
	if len(config) == 0 {
		config = []byte("{}")
	}
	host := HostInfo{Name: req.GetHost().GetName(), StateDir: req.GetHost().GetStateDir()}
	if err := s.driver.Configure(ctx, config, host); err != nil {
		return nil, err
	}
	shape, err := s.shapeVersion()
	if err != nil {
		return nil, err
	}
	return &driverv1.ConfigureResponse{ShapeVersion: shape}, nil
}

// Health answers how the driver is.
func (s *server) Health(ctx context.Context, _ *driverv1.HealthRequest) (*driverv1.HealthResponse, error) {
	checker, ok := s.driver.(HealthChecker)
	if !ok {
		return &driverv1.HealthResponse{}, nil
	}
	err := checker.Health(ctx)
	switch {
	case err == nil:
		return &driverv1.HealthResponse{}, nil
	case err.Error() == "":
		return &driverv1.HealthResponse{Problem: "the driver reports a problem without saying which"}, nil
	}
	return &driverv1.HealthResponse{Problem: err.Error()}, nil
}

// Shutdown drains: new calls are refused, those under way are awaited, then the driver may tidy up.
func (s *server) Shutdown(ctx context.Context, req *driverv1.ShutdownRequest) (*driverv1.ShutdownResponse, error) {
	if grace := req.GetGraceMs(); grace > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(grace)*time.Millisecond)
		defer cancel()
	}
	if err := s.gate.close(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the calls under way: %w", err)
	}
	if d, ok := s.driver.(Shutdowner); ok {
		if err := d.Shutdown(ctx); err != nil {
			return nil, err
		}
	}
	return &driverv1.ShutdownResponse{}, nil
}

// AvailableNodes asks the driver for its nodes.
func (s *server) AvailableNodes(ctx context.Context, _ *driverv1.AvailableNodesRequest) (*driverv1.AvailableNodesResponse, error) {
	if err := s.turn.take(ctx); err != nil {
		return nil, err
	}
	defer s.turn.give()
	nodes, err := s.driver.AvailableNodes(ctx)
	if err != nil {
		return nil, err
	}
	out := &driverv1.AvailableNodesResponse{}
	for _, n := range nodes {
		out.Nodes = append(out.Nodes, &driverv1.Node{Name: n.Name, Uuid: n.UUID})
	}
	return out, nil
}

// UpdateProviderTree lets the driver edit a copy of the tree.
func (s *server) UpdateProviderTree(ctx context.Context, req *driverv1.UpdateProviderTreeRequest) (*driverv1.UpdateProviderTreeResponse, error) {
	tree, given, err := received(req.GetTree(), req.GetAllocations())
	if err != nil {
		return nil, err
	}
	if err := s.turn.take(ctx); err != nil {
		return nil, err
	}
	defer s.turn.give()
	edited, err := s.driver.UpdateProviderTree(ctx, tree, req.GetNode(), given)
	switch {
	case err != nil:
		return nil, err
	case given == nil && edited != nil:
		return nil, errors.New("the driver returned allocations though it was given none: it must answer ErrReshapeNeeded instead")
	case edited == nil:
		edited = given
	}
	reply := &driverv1.UpdateProviderTreeResponse{
		Tree: wire.FromTree(tree), Allocations: wire.FromAllocations(edited), CapabilityTraits: s.capabilityTraits(req.GetNode()),
	}
	if given != nil {
		reply.ClassRenames, err = s.renames()
	}
	return reply, err
}

// Watch passes on what the driver notices, and a heartbeat when it notices nothing.
func (s *server) Watch(req *driverv1.WatchRequest, stream grpc.ServerStreamingServer[driverv1.WatchResponse]) error {
	watcher, ok := s.driver.(Watcher)
	if !ok {
		return status.Error(codes.Unimplemented, "this driver does not watch")
	}
	interval := time.Duration(req.GetHeartbeatMs()) * time.Millisecond
	if interval <= 0 || interval > time.Minute {
		interval = wire.HeartbeatInterval
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	events := make(chan string)
	ended := make(chan error, 1)
	go func() {
		ended <- s.guarded(ctx, "Watch", func(ctx context.Context) error {
			return watcher.Watch(ctx, func(node string) {
				select {
				case events <- node:
				case <-ctx.Done():
				}
			})
		})
	}()
	beat := time.NewTicker(interval)
	defer beat.Stop()
	if err := stream.Send(heartbeat()); err != nil { // at once: the client knows that it is being heard
		return err
	}
	for {
		var event *driverv1.WatchResponse
		select {
		case node := <-events:
			event = &driverv1.WatchResponse{Event: &driverv1.WatchResponse_Changed{Changed: &driverv1.Changed{Node: node}}}
		case <-beat.C:
			event = heartbeat()
		case err := <-ended:
			if err == nil {
				err = errors.New("the driver stopped watching")
			}
			return err
		case <-s.gate.closing:
			return status.Error(codes.Unavailable, "the plugin is shutting down")
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		if err := stream.Send(event); err != nil {
			return err
		}
	}
}

func heartbeat() *driverv1.WatchResponse {
	return &driverv1.WatchResponse{Event: &driverv1.WatchResponse_Heartbeat{Heartbeat: &driverv1.Heartbeat{}}}
}
