// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// within makes a call with a deadline.
func within[Q, R any](ctx context.Context, p *process, call string, limit time.Duration,
	method func(context.Context, Q, ...grpc.CallOption) (R, error), request Q, opts ...grpc.CallOption) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := method(ctx, request, opts...)
	if err != nil {
		return reply, p.callError(ctx, call, limit, err)
	}
	return reply, nil
}

// badReply returns the error of an invalid response.
func (p *process) badReply(call string, err error) error {
	return p.failed(call, fmt.Errorf("%w: %w", ErrBadReply, err))
}

// introduce calls Info.
func (p *process) introduce(ctx context.Context) error {
	info, err := within(ctx, p, "Info", p.timeouts.Load().Info, p.plugin.Info, &driverv1.InfoRequest{})
	if err != nil {
		return err
	}
	if err := checkInfo(info); err != nil {
		return p.badReply("Info", err)
	}
	info.Capabilities = protocol.CurrentCapabilities(info.GetCapabilities())
	p.info = info
	return nil
}

// Configure passes the configuration to the driver.
func (p *process) Configure(ctx context.Context, spec Spec) error {
	reply, err := within(ctx, p, "Configure", spec.Timeouts.Configure, p.plugin.Configure, &driverv1.ConfigureRequest{
		ConfigJson: spec.Config,
		Host: &driverv1.HostInfo{Name: spec.HostInfo.Name, StateDir: spec.HostInfo.StateDir,
			FormerNodes: spec.HostInfo.FormerNodes},
	})
	if err != nil {
		return err
	}
	if err := checkLayout(reply.GetShapeVersion(), p.info.GetCapabilities()); err != nil {
		return p.badReply("Configure", err)
	}
	p.layout.Store(reply.GetShapeVersion())
	p.timeouts.Store(&spec.Timeouts)
	return nil
}

// Health makes a health check, and returns the warnings.
func (p *process) Health(ctx context.Context) ([]plugins.Warning, error) {
	if err := p.checkSocket(); err != nil {
		return nil, err
	}
	reply, err := within(ctx, p, "Health", p.timeouts.Load().Health, p.plugin.Health, &driverv1.HealthRequest{})
	if err != nil {
		return nil, err
	}
	warnings := checkWarnings(reply.GetWarnings(), p.info.GetCapabilities())
	if problem := reply.GetProblem(); problem != "" {
		return warnings, &unhealthyError{printable(problem, 2000)}
	}
	return warnings, nil
}

// AvailableNodes returns the driver's nodes.
func (p *process) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	const call = "AvailableNodes"
	reply, err := within(ctx, p, call, p.timeouts.Load().Nodes, p.driver.AvailableNodes,
		&driverv1.AvailableNodesRequest{})
	if err != nil {
		return nil, err
	}
	nodes := make([]plugins.Node, 0, len(reply.GetNodes()))
	for _, n := range reply.GetNodes() {
		nodes = append(nodes, plugins.Node{Name: n.GetName(), UUID: n.GetUuid()})
	}
	if err := checkNodes(nodes); err != nil {
		return nil, p.badReply(call, err)
	}
	return nodes, nil
}

// checkCapability returns an error for a call of a capability that the plugin does not announce.
func (p *process) checkCapability(call, capability string) error {
	if slices.Contains(p.info.GetCapabilities(), capability) {
		return nil
	}
	return p.failed(call, fmt.Errorf("%w: the plugin does not announce the capability %q",
		plugins.ErrUnsupported, capability))
}

// LayoutVersion returns the layout version of the last Configure.
func (p *process) LayoutVersion() (int, error) {
	const call = "LayoutVersion"
	if err := p.checkCapability(call, protocol.CapabilityLayouts); err != nil {
		return 0, err
	}
	if version := int(p.layout.Load()); version > 0 {
		return version, nil
	}
	return 0, p.failed(call,
		fmt.Errorf("%w: with its current configuration its layouts have no versions", plugins.ErrUnsupported))
}

// Guests returns the guests of a node.
func (p *process) Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	const call = "Guests"
	if err := p.checkCapability(call, protocol.CapabilityGuests); err != nil {
		return nil, err
	}
	reply, err := within(ctx, p, call, p.timeouts.Load().Update, p.driver.Guests,
		&driverv1.GuestsRequest{Tree: protocol.FromTree(tree), Node: node})
	if err != nil {
		return nil, err
	}
	guests, err := checkGuests(tree, reply.GetGuests())
	if err != nil {
		return nil, p.badReply(call, err)
	}
	return guests, nil
}

// NodeDeleted reports whether a node was removed for good.
func (p *process) NodeDeleted(ctx context.Context, node plugins.Node) (bool, error) {
	const call = "NodeDeleted"
	if err := p.checkCapability(call, protocol.CapabilityNodeDeleted); err != nil {
		return false, err
	}
	reply, err := within(ctx, p, call, p.timeouts.Load().Nodes, p.driver.NodeDeleted,
		&driverv1.NodeDeletedRequest{Node: &driverv1.Node{Name: node.Name, Uuid: node.UUID}})
	return reply.GetDeleted(), err
}

// Watch reads the stream of events. It returns an error when the stream breaks or has no heartbeat.
func (p *process) Watch(ctx context.Context, changed func(node string)) error {
	return listen(ctx, p, "Watch",
		func(ctx context.Context, heartbeat int64) (grpc.ServerStreamingClient[driverv1.WatchResponse], error) {
			return p.driver.Watch(ctx, &driverv1.WatchRequest{HeartbeatMs: heartbeat})
		}, func(event *driverv1.WatchResponse) {
			if c := event.GetChanged(); c != nil {
				changed(eventNode(c.GetNode()))
			}
		})
}

// eventsASecond is how many events are read from a stream; others wait in it, and then in the
// plugin. So a driver that sends events without end does not keep a CPU busy.
const eventsASecond = 1000

// listen reads a stream of events until it breaks or has no heartbeat, which is an error.
func listen[E any](ctx context.Context, p *process, call string,
	open func(ctx context.Context, heartbeat int64) (grpc.ServerStreamingClient[E], error), each func(*E)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idleTimeout := 3 * protocol.HeartbeatInterval
	timer := time.AfterFunc(idleTimeout, func() { cancel(ErrNoAnswer) })
	defer timer.Stop()
	stream, err := open(ctx, protocol.HeartbeatInterval.Milliseconds())
	if err != nil {
		return p.callError(ctx, call, idleTimeout, err)
	}
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-pace.C:
			n = 0
		default:
			if n >= eventsASecond {
				select {
				case <-pace.C:
				case <-ctx.Done():
				}
				n = 0
			}
		}
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return p.failed(call, errors.New("the plugin ended the stream"))
		case err != nil:
			return p.callError(ctx, call, idleTimeout, err)
		}
		timer.Reset(idleTimeout)
		each(event)
	}
}

// eventNode returns the name, or "" for all nodes if it is invalid.
func eventNode(name string) string {
	if providertree.ValidateProviderName(name) != nil || providertree.Printable(name) != nil {
		return ""
	}
	return name
}
