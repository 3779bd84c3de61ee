// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// server puts a Driver behind the protocol.
type server struct {
	driverv1.UnimplementedPluginServer
	driverv1.UnimplementedDriverServer

	driver Driver
	log    zerolog.Logger
	gate   *gate
	panics panics
	turn   turn // one call at a time of those that are about nodes

	configured atomic.Bool // once at least
	instances  *instanceServer
}

func newServer(d Driver, log zerolog.Logger) *server {
	s := &server{driver: d, log: log, gate: newGate(), turn: newTurn()}
	s.instances = &instanceServer{server: s}
	return s
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
	s.configured.Store(true)
	return &driverv1.ConfigureResponse{ShapeVersion: shape}, nil
}

// Health answers how the driver is.
func (s *server) Health(ctx context.Context, _ *driverv1.HealthRequest) (*driverv1.HealthResponse, error) {
	return &driverv1.HealthResponse{Problem: s.problem(ctx), Warnings: s.warnings()}, nil
}

// problem is what keeps the driver from working, "" if nothing does.
func (s *server) problem(ctx context.Context) string {
	checker, ok := s.driver.(HealthChecker)
	if !ok {
		return ""
	}
	err := checker.Health(ctx)
	switch {
	case err == nil:
		return ""
	case err.Error() == "":
		return "the driver reports a problem without saying which"
	}
	return utf8(err.Error())
}

// Shutdown drains: new calls are refused, those under way are awaited, then the driver may tidy up.
func (s *server) Shutdown(ctx context.Context, req *driverv1.ShutdownRequest) (*driverv1.ShutdownResponse, error) {
	if grace := req.GetGraceMs(); grace > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(grace)*time.Millisecond)
		defer cancel()
	}
	if err := s.gate.close(ctx); err != nil {
		return nil, refuse(codes.DeadlineExceeded, "waiting for the calls under way: %v", err)
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

// UpdateProviderTree lets the driver edit a copy of the tree. Cost: what the driver does, and O(size of both trees).
func (s *server) UpdateProviderTree(ctx context.Context, req *driverv1.UpdateProviderTreeRequest) (*driverv1.UpdateProviderTreeResponse, error) {
	tree, err := protocol.ToTree(req.GetTree())
	if err != nil {
		return nil, unreadable("tree", err)
	}
	given, err := protocol.ToAllocations(req.GetAllocations())
	if err != nil {
		return nil, unreadable("allocations", err)
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
		Tree: protocol.FromTree(tree), Allocations: protocol.FromAllocations(edited), CapabilityTraits: s.capabilityTraits(req.GetNode()),
	}
	if given != nil {
		reply.ClassRenames, err = s.renames()
	}
	return reply, err
}
