// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// server implements the protocol's services with a Driver.
type server struct {
	driverv1.UnimplementedPluginServer
	driverv1.UnimplementedDriverServer

	driver Driver
	log    zerolog.Logger
	calls  *drain
	panics panics
	nodes  mutex // held during calls about nodes

	configured atomic.Bool // once at least
	instances  *instanceServer
}

func newServer(d Driver, log zerolog.Logger) *server {
	s := &server{driver: d, log: log, calls: newDrain(), nodes: newMutex()}
	s.instances = &instanceServer{server: s}
	return s
}

// Info returns the driver's name, version and capabilities.
func (s *server) Info(context.Context, *driverv1.InfoRequest) (*driverv1.InfoResponse, error) {
	d := describe(s.driver)
	return &driverv1.InfoResponse{Name: d.Name, Version: d.Version, Capabilities: d.Capabilities, Sdk: d.SDK}, nil
}

// ConfigSchema returns the JSON Schema of the configuration.
func (s *server) ConfigSchema(context.Context, *driverv1.ConfigSchemaRequest) (*driverv1.ConfigSchemaResponse, error) {
	return &driverv1.ConfigSchemaResponse{JsonSchema: s.driver.ConfigSchema()}, nil
}

// Configure passes the configuration to the driver.
func (s *server) Configure(ctx context.Context, req *driverv1.ConfigureRequest) (*driverv1.ConfigureResponse, error) {
	if err := s.nodes.lock(ctx); err != nil {
		return nil, err
	}
	defer s.nodes.unlock()
	config := req.GetConfigJson()
	if len(config) == 0 {
		config = []byte("{}")
	}
	host := HostInfo{Name: req.GetHost().GetName(), StateDir: req.GetHost().GetStateDir(),
		FormerNodes: req.GetHost().GetFormerNodes()}
	if err := s.driver.Configure(ctx, config, host); err != nil {
		return nil, err
	}
	layout, err := s.layoutVersion()
	if err != nil {
		return nil, err
	}
	s.configured.Store(true)
	return &driverv1.ConfigureResponse{ShapeVersion: layout}, nil
}

// Health returns the driver's health and warnings.
func (s *server) Health(ctx context.Context, _ *driverv1.HealthRequest) (*driverv1.HealthResponse, error) {
	return &driverv1.HealthResponse{Problem: s.problem(ctx), Warnings: s.warnings()}, nil
}

// problem returns what keeps the driver from working, or "".
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

// Shutdown rejects new calls, waits for the running ones, then lets the driver clean up.
func (s *server) Shutdown(ctx context.Context, req *driverv1.ShutdownRequest) (*driverv1.ShutdownResponse, error) {
	if grace := req.GetGraceMs(); grace > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(grace)*time.Millisecond)
		defer cancel()
	}
	if err := s.calls.close(ctx); err != nil {
		return nil, refuse(codes.DeadlineExceeded, "waiting for running calls: %v", err)
	}
	if d, ok := s.driver.(Shutdowner); ok {
		if err := d.Shutdown(ctx); err != nil {
			return nil, err
		}
	}
	return &driverv1.ShutdownResponse{}, nil
}

// AvailableNodes returns the driver's nodes.
func (s *server) AvailableNodes(
	ctx context.Context, _ *driverv1.AvailableNodesRequest,
) (*driverv1.AvailableNodesResponse, error) {
	if err := s.nodes.lock(ctx); err != nil {
		return nil, err
	}
	defer s.nodes.unlock()
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

// UpdateProviderTree lets the driver edit a copy of the tree. Cost: the driver's, and O(size of
// both trees).
func (s *server) UpdateProviderTree(
	ctx context.Context, req *driverv1.UpdateProviderTreeRequest,
) (*driverv1.UpdateProviderTreeResponse, error) {
	tree, given, err := received(req.GetTree(), req.GetAllocations())
	if err != nil {
		return nil, err
	}
	if err := s.nodes.lock(ctx); err != nil {
		return nil, err
	}
	defer s.nodes.unlock()
	edited, err := s.driver.UpdateProviderTree(ctx, tree, req.GetNode(), given)
	switch {
	case err != nil:
		return nil, err
	case given == nil && edited != nil:
		return nil, errors.New(
			"the driver returned allocations, and the request had none: it must return ErrReshapeNeeded instead")
	case edited == nil:
		edited = given
	}
	reply := &driverv1.UpdateProviderTreeResponse{
		Tree: protocol.FromTree(tree), Allocations: protocol.FromAllocations(edited),
		CapabilityTraits: s.capabilityTraits(req.GetNode()),
		ProductNames:     s.productNames(req.GetNode(), tree), Hypervisor: s.hypervisor(req.GetNode()),
	}
	if given != nil {
		reply.ClassRenames, err = s.renames()
	}
	return reply, err
}

// received converts what the agent sent.
func received(
	tree *driverv1.ProviderTree, allocations *driverv1.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	t, err := protocol.ToTree(tree)
	if err != nil {
		return nil, nil, unreadable("tree", err)
	}
	given, err := protocol.ToAllocations(allocations)
	if err != nil {
		return nil, nil, unreadable("allocations", err)
	}
	return t, given, nil
}

func unreadable(what string, err error) error {
	return refuse(codes.InvalidArgument, "the agent's %s: %v", what, err)
}

func missingCapability(capability string) error {
	return fmt.Errorf("%w: it does not %s", ErrUnsupported, capability)
}

// utf8 makes a text valid for protobuf.
func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// maxPanics is how many places of a driver's code are counted separately. Others are counted
// together.
const maxPanics = 100

// panics logs a driver's panics: the first at each place of the code with its stack, then the count
// whenever it has doubled. A driver that panics in every call would fill the agent's log with the
// same stack.
type panics struct {
	mu    sync.Mutex
	count map[place]uint
}

// place is a stack, at least down to where the SDK called the driver.
type place struct {
	call  string
	stack [40]uintptr
}

// record logs a recovered panic. The deferred function that recovered it calls record, so that the
// stack is still that of the panic.
func (p *panics) record(log zerolog.Logger, call string, value any) {
	at := place{call: call}
	runtime.Callers(3, at.stack[:]) // without Callers, record and the deferred function
	p.mu.Lock()
	if p.count == nil {
		p.count = map[place]uint{}
	}
	if p.count[at] == 0 && len(p.count) >= maxPanics {
		at = place{}
	}
	p.count[at]++
	n := p.count[at]
	p.mu.Unlock()
	switch {
	case n == 1:
		log.Error().Str("panic", fmt.Sprint(value)).Str("stack", string(debug.Stack())).
			Msg("The driver panicked. This call fails, and the plugin keeps running. It is a defect of the driver: " +
				"report it with this stack.")
	case bits.OnesCount(n) == 1:
		log.Error().Str("panic", fmt.Sprint(value)).Uint("times", n).
			Msg("The driver keeps panicking at the same place. The stack was logged the first time since the plugin " +
				"was started.")
	}
}
