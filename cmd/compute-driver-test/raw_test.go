// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

const brokenKey = "DRIVERTEST_BROKEN"

// rawStderr is the process' standard error: go-plugin puts something else into os.Stderr.
var rawStderr = os.Stderr

// raw is the fake driver served without the SDK, which would keep most defects from the wire. It is
// a good plugin until a breakage makes it a bad one.
type raw struct {
	driverv1.UnimplementedPluginServer
	driverv1.UnimplementedDriverServer
	goplugin.NetRPCUnsupportedPlugin

	broken     breakage
	fake       *fake.Driver
	configured atomic.Bool
	calls      sync.WaitGroup
	mu         sync.Mutex
	closing    bool
}

// breakage is what is wrong with a plugin.
type breakage struct {
	// start runs before the handshake.
	start func()
	// around sees every unary call.
	around func(s *raw, ctx context.Context, call string, req any, next func() (any, error)) (any, error)
	watch  func(s *raw, beat func() error, interval time.Duration) error
	// events sees the stream of events of instances.
	events func(ctx context.Context, beat func() error, interval time.Duration) error
	// capabilities instead of all.
	capabilities                             []string
	smallMessages, serveAfterShutdown, stays bool
}

var allCapabilities = []string{
	protocol.CapabilityWatch, protocol.CapabilityHealth, protocol.CapabilityLayouts, protocol.CapabilityCapabilities,
	protocol.CapabilityGuests, protocol.CapabilityNodeDeleted,
	protocol.CapabilityInstances, protocol.CapabilityInstanceEvents, protocol.CapabilityConsoleLog,
	protocol.CapabilityWarnings, protocol.CapabilityMigrate,
	protocol.CapabilityCheckSpawn, protocol.CapabilityConsole, protocol.CapabilityRestore,
}

// serveBroken is the main function of a broken plugin.
func serveBroken(name string) {
	s := &raw{fake: fake.New()}
	if name != "" {
		s.broken = breakages[name].breakage
		if c, ok := alone[name]; ok {
			s.broken = c.breakage
		}
	}
	if s.broken.start != nil {
		s.broken.start()
	}
	_ = os.Setenv(protocol.CookieKey, protocol.CookieValue) // the script that started us hid it
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  protocol.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{protocol.ProtocolVersion: {protocol.PluginName: s}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			if !s.broken.smallMessages {
				opts = append(opts, grpc.MaxRecvMsgSize(protocol.MaxMessage), grpc.MaxSendMsgSize(protocol.MaxMessage))
			}
			return grpc.NewServer(append(opts, grpc.ChainUnaryInterceptor(s.intercept))...)
		},
		Logger: hclog.NewNullLogger(),
	})
	if s.broken.stays {
		select {}
	}
}

func (r *raw) GRPCServer(_ *goplugin.GRPCBroker, srv *grpc.Server) error {
	driverv1.RegisterPluginServer(srv, r)
	driverv1.RegisterDriverServer(srv, r)
	driverv1.RegisterInstancesServer(srv, &rawInstances{raw: r})
	return nil
}

func (r *raw) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is the plugin's side")
}

func (r *raw) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if _, instances := info.Server.(*rawInstances); info.Server != any(r) && !instances {
		return next(ctx, req)
	}
	call := path.Base(info.FullMethod)
	if call != "Shutdown" {
		r.mu.Lock()
		if r.closing && !r.broken.serveAfterShutdown {
			r.mu.Unlock()
			return nil, status.Error(codes.Unavailable, "shutting down")
		}
		r.calls.Add(1)
		r.mu.Unlock()
		defer r.calls.Done()
	}
	run := func() (any, error) {
		reply, err := next(ctx, req)
		if err != nil {
			return nil, answerOf(err)
		}
		return reply, nil
	}
	if r.broken.around == nil {
		return run()
	}
	return r.broken.around(r, ctx, call, req, run)
}

// answerOf is what the SDK makes of errors.
func answerOf(err error) error {
	f := protocol.Failure{Message: err.Error()}
	var failed *plugins.ReshapeFailed
	var needed *plugins.ReshapeNeeded
	var config *plugins.ConfigError
	var fault *plugins.InstanceFault
	switch {
	case errors.As(err, &fault):
		f.Kind, f.UUID, f.Words = protocol.KindInstanceFault, fault.UUID, fault.Reason
	case errors.Is(err, plugins.ErrInstanceNotFound):
		f.Kind = protocol.KindInstanceNotFound
	case errors.As(err, &failed):
		f.Kind, f.Words = protocol.KindReshapeFailed, failed.Reason
		for _, o := range failed.Violations {
			f.Violations = append(f.Violations, protocol.Violation(o))
		}
	case errors.As(err, &needed):
		f.Kind, f.Words = protocol.KindReshapeNeeded, needed.Reason
	case errors.As(err, &config):
		f.Kind, f.Key, f.Words = protocol.KindConfigError, config.Key, config.Problem
	case errors.Is(err, plugins.ErrUnsupported):
		f.Kind = protocol.KindUnsupported
	default:
		if _, ok := status.FromError(err); ok {
			return err
		}
	}
	return f.Err()
}

func (r *raw) Info(context.Context, *driverv1.InfoRequest) (*driverv1.InfoResponse, error) {
	capabilities := allCapabilities
	if r.broken.capabilities != nil {
		capabilities = r.broken.capabilities
	}
	return &driverv1.InfoResponse{Name: "raw", Version: "1", Sdk: "none", Capabilities: capabilities}, nil
}

func (r *raw) ConfigSchema(context.Context, *driverv1.ConfigSchemaRequest) (*driverv1.ConfigSchemaResponse, error) {
	return &driverv1.ConfigSchemaResponse{JsonSchema: r.fake.ConfigSchema()}, nil
}

func (r *raw) Configure(ctx context.Context, req *driverv1.ConfigureRequest) (*driverv1.ConfigureResponse, error) {
	if err := r.fake.Configure(ctx, req.GetConfigJson(),
		plugins.HostInfo{Name: req.GetHost().GetName(), StateDir: req.GetHost().GetStateDir()}); err != nil {
		return nil, err
	}
	r.configured.Store(true)
	return &driverv1.ConfigureResponse{ShapeVersion: int32(r.fake.LayoutVersion())}, nil
}

func (r *raw) Health(context.Context, *driverv1.HealthRequest) (*driverv1.HealthResponse, error) {
	out := &driverv1.HealthResponse{}
	for _, w := range r.fake.Warnings() {
		out.Warnings = append(out.Warnings, &driverv1.Warning{Name: w.Name, Text: w.Text})
	}
	return out, nil
}

func (r *raw) Shutdown(context.Context, *driverv1.ShutdownRequest) (*driverv1.ShutdownResponse, error) {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	r.calls.Wait()
	return &driverv1.ShutdownResponse{}, nil
}

func (r *raw) AvailableNodes(
	ctx context.Context, _ *driverv1.AvailableNodesRequest,
) (*driverv1.AvailableNodesResponse, error) {
	nodes, err := r.fake.AvailableNodes(ctx)
	out := &driverv1.AvailableNodesResponse{}
	for _, n := range nodes {
		out.Nodes = append(out.Nodes, &driverv1.Node{Name: n.Name, Uuid: n.UUID})
	}
	return out, err
}

func (r *raw) UpdateProviderTree(
	ctx context.Context, req *driverv1.UpdateProviderTreeRequest,
) (*driverv1.UpdateProviderTreeResponse, error) {
	tree, given, err := receivedBy(req.GetTree(), req.GetAllocations())
	if err != nil {
		return nil, err
	}
	after, err := r.fake.UpdateProviderTree(ctx, tree, req.GetNode(), given)
	if err != nil {
		return nil, err
	}
	out := &driverv1.UpdateProviderTreeResponse{
		Tree: protocol.FromTree(tree), Allocations: protocol.FromAllocations(after),
		CapabilityTraits: r.fake.Capabilities(req.GetNode()),
	}
	if given != nil {
		out.ClassRenames = r.fake.ClassRenames()
	}
	return out, nil
}

func receivedBy(
	tree *driverv1.ProviderTree, allocations *driverv1.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	t, err := protocol.ToTree(tree)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	given, err := protocol.ToAllocations(allocations)
	return t, given, err
}

func (r *raw) ReshapeStep(
	ctx context.Context, req *driverv1.ReshapeStepRequest,
) (*driverv1.ReshapeStepResponse, error) {
	tree, given, err := receivedBy(req.GetTree(), req.GetAllocations())
	if err != nil {
		return nil, err
	}
	if from := int(req.GetFromShape()); from < 0 || from >= r.fake.LayoutVersion() {
		return nil, status.Error(codes.InvalidArgument, "there is no such step")
	}
	after, err := r.fake.Reshape(ctx, tree, req.GetNode(), int(req.GetFromShape()), given)
	if err != nil {
		return nil, err
	}
	return &driverv1.ReshapeStepResponse{Tree: protocol.FromTree(tree), Allocations: protocol.FromAllocations(after),
		ClassRenames: r.fake.ClassRenames()}, nil
}

func (r *raw) Guests(ctx context.Context, req *driverv1.GuestsRequest) (*driverv1.GuestsResponse, error) {
	tree, _, err := receivedBy(req.GetTree(), nil)
	if err != nil {
		return nil, err
	}
	guests, err := r.fake.Guests(ctx, tree, req.GetNode())
	out := &driverv1.GuestsResponse{}
	for _, g := range guests {
		out.Guests = append(out.Guests,
			&driverv1.Guest{Uuid: g.UUID, Name: g.Name,
				Resources: &driverv1.GuestResources{Resources: protocol.FromResources(g.Resources)}})
	}
	return out, err
}

func (r *raw) NodeDeleted(
	ctx context.Context, req *driverv1.NodeDeletedRequest,
) (*driverv1.NodeDeletedResponse, error) {
	deleted, err := r.fake.NodeDeleted(ctx, plugins.Node{Name: req.GetNode().GetName(), UUID: req.GetNode().GetUuid()})
	return &driverv1.NodeDeletedResponse{Deleted: deleted}, err
}

func (r *raw) Watch(req *driverv1.WatchRequest, stream grpc.ServerStreamingServer[driverv1.WatchResponse]) error {
	if r.broken.capabilities != nil && !slices.Contains(r.broken.capabilities, protocol.CapabilityWatch) {
		return status.Error(codes.Unimplemented, "it does not watch")
	}
	beat := func() error {
		return stream.Send(
			&driverv1.WatchResponse{Event: &driverv1.WatchResponse_Heartbeat{Heartbeat: &driverv1.Heartbeat{}}})
	}
	interval := time.Duration(req.GetHeartbeatMs()) * time.Millisecond
	if r.broken.watch != nil {
		return r.broken.watch(r, beat, interval)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := beat(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-stream.Context().Done():
			return nil
		}
	}
}
