// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// Client makes the calls of one process of a plugin. Each has a deadline, its response is checked,
// and its error is a [*CallError]. Its methods can be called concurrently, after Info.
type Client struct {
	name     string
	socket   string // path, "" if it has none in the file system
	confined bool
	timeouts atomic.Pointer[Timeouts]
	layout   atomic.Int32 // version of the driver's layout, 0: none
	info     Info

	plugin    driverv1.PluginClient
	driver    driverv1.DriverClient
	instances driverv1.InstancesClient
}

// Info is what a plugin reports about itself, in printable text.
type Info struct {
	Name         string
	Version      string
	SDK          string
	Capabilities []string // by their current names
}

// New returns the client of the driver with this name, on a connection with [DialOptions] to a
// socket: its path, or "" if it has none in the file system. confined says that the process is in a
// sandbox, which then may be why it cannot do something.
func New(name string, conn grpc.ClientConnInterface, socket string, timeouts Timeouts, confined bool) *Client {
	c := &Client{name: name, socket: socket, confined: confined, plugin: driverv1.NewPluginClient(conn),
		driver: driverv1.NewDriverClient(conn), instances: driverv1.NewInstancesClient(conn)}
	c.timeouts.Store(&timeouts)
	return c
}

// withDeadline makes a call that ends at a deadline.
func withDeadline[Q, R any](ctx context.Context, c *Client, call string, limit time.Duration,
	method func(context.Context, Q, ...grpc.CallOption) (R, error), request Q, opts ...grpc.CallOption) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := method(ctx, request, opts...)
	if err != nil {
		return reply, c.callError(ctx, call, limit, err)
	}
	return reply, nil
}

// badReply returns the error of an invalid response.
func (c *Client) badReply(call string, err error) error {
	return c.failed(call, fmt.Errorf("%w: %w", ErrBadReply, err))
}

// Info returns what the plugin reports about itself. It is the first call: what a plugin does not
// announce is not called.
func (c *Client) Info(ctx context.Context) (Info, error) {
	reply, err := withDeadline(ctx, c, "Info", c.timeouts.Load().Info, c.plugin.Info, &driverv1.InfoRequest{})
	if err != nil {
		return Info{}, err
	}
	if err := checkInfo(reply); err != nil {
		return Info{}, c.badReply("Info", err)
	}
	c.info = Info{Name: reply.GetName(), Version: printable(reply.GetVersion(), 100),
		SDK: printable(reply.GetSdk(), 100), Capabilities: protocol.CurrentCapabilities(reply.GetCapabilities())}
	return c.info, nil
}

// ConfigSchema returns the JSON schema of the driver's configuration, nil if it takes none.
func (c *Client) ConfigSchema(ctx context.Context) ([]byte, error) {
	reply, err := withDeadline(ctx, c, "ConfigSchema", c.timeouts.Load().Info, c.plugin.ConfigSchema,
		&driverv1.ConfigSchemaRequest{})
	return reply.GetJsonSchema(), err
}

// Shutdown asks the driver to finish its calls and to clean up until ctx ends, within grace.
func (c *Client) Shutdown(ctx context.Context, grace time.Duration) error {
	_, err := c.plugin.Shutdown(ctx, &driverv1.ShutdownRequest{GraceMs: max(1, (grace - grace/10).Milliseconds())})
	return err
}

// Configure passes the driver's configuration, a JSON object, to it, also again. If that succeeds,
// these deadlines hold for all later calls.
func (c *Client) Configure(
	ctx context.Context, config json.RawMessage, host plugins.HostInfo, timeouts Timeouts,
) error {
	reply, err := withDeadline(ctx, c, "Configure", timeouts.Configure, c.plugin.Configure, &driverv1.ConfigureRequest{
		ConfigJson: config,
		Host:       &driverv1.HostInfo{Name: host.Name, StateDir: host.StateDir, FormerNodes: host.FormerNodes},
	})
	if err != nil {
		return err
	}
	if err := checkLayout(reply.GetShapeVersion(), c.info.Capabilities); err != nil {
		return c.badReply("Configure", err)
	}
	c.layout.Store(reply.GetShapeVersion())
	c.timeouts.Store(&timeouts)
	return nil
}

// Health makes a health check. It returns the warnings, and nil, an [*UnhealthyError] or why there
// was no response.
func (c *Client) Health(ctx context.Context) ([]plugins.Warning, error) {
	if err := c.checkSocket(); err != nil {
		return nil, err
	}
	reply, err := withDeadline(ctx, c, "Health", c.timeouts.Load().Health, c.plugin.Health, &driverv1.HealthRequest{})
	if err != nil {
		return nil, err
	}
	warnings := checkWarnings(reply.GetWarnings(), c.info.Capabilities)
	if problem := reply.GetProblem(); problem != "" {
		return warnings, &UnhealthyError{printable(problem, 2000)}
	}
	return warnings, nil
}

// checkSocket returns an error if the socket was removed: the connection works, but cannot be made
// again.
func (c *Client) checkSocket() error {
	if c.socket == "" {
		return nil
	}
	if _, err := os.Lstat(c.socket); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("its socket %s was removed", c.socket)
	}
	return nil
}

// AvailableNodes returns the driver's nodes.
func (c *Client) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	const call = "AvailableNodes"
	reply, err := withDeadline(ctx, c, call, c.timeouts.Load().Nodes, c.driver.AvailableNodes,
		&driverv1.AvailableNodesRequest{})
	if err != nil {
		return nil, err
	}
	nodes := make([]plugins.Node, 0, len(reply.GetNodes()))
	for _, n := range reply.GetNodes() {
		nodes = append(nodes, plugins.Node{Name: n.GetName(), UUID: n.GetUuid()})
	}
	if err := checkNodes(nodes); err != nil {
		return nil, c.badReply(call, err)
	}
	return nodes, nil
}

// checkCapability returns an error for a call of a capability that the plugin does not announce.
func (c *Client) checkCapability(call, capability string) error {
	if slices.Contains(c.info.Capabilities, capability) {
		return nil
	}
	return c.failed(call, fmt.Errorf("%w: the plugin does not announce the capability %q",
		plugins.ErrUnsupported, capability))
}

// LayoutVersion returns the layout version of the last Configure.
func (c *Client) LayoutVersion() (int, error) {
	const call = "LayoutVersion"
	if err := c.checkCapability(call, protocol.CapabilityLayouts); err != nil {
		return 0, err
	}
	if version := int(c.layout.Load()); version > 0 {
		return version, nil
	}
	return 0, c.failed(call,
		fmt.Errorf("%w: with its current configuration its layouts have no versions", plugins.ErrUnsupported))
}

// Guests returns the guests of a node.
func (c *Client) Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	const call = "Guests"
	if err := c.checkCapability(call, protocol.CapabilityGuests); err != nil {
		return nil, err
	}
	reply, err := withDeadline(ctx, c, call, c.timeouts.Load().Update, c.driver.Guests,
		&driverv1.GuestsRequest{Tree: protocol.FromTree(tree), Node: node})
	if err != nil {
		return nil, err
	}
	guests, err := checkGuests(tree, reply.GetGuests())
	if err != nil {
		return nil, c.badReply(call, err)
	}
	return guests, nil
}

// NodeDeleted reports whether a node was removed for good.
func (c *Client) NodeDeleted(ctx context.Context, node plugins.Node) (bool, error) {
	const call = "NodeDeleted"
	if err := c.checkCapability(call, protocol.CapabilityNodeDeleted); err != nil {
		return false, err
	}
	reply, err := withDeadline(ctx, c, call, c.timeouts.Load().Nodes, c.driver.NodeDeleted,
		&driverv1.NodeDeletedRequest{Node: &driverv1.Node{Name: node.Name, Uuid: node.UUID}})
	return reply.GetDeleted(), err
}

// Watch reads the stream of events. It returns an error when the stream breaks or has no heartbeat.
func (c *Client) Watch(ctx context.Context, changed func(node string)) error {
	return listen(ctx, c, "Watch",
		func(ctx context.Context, heartbeat int64) (grpc.ServerStreamingClient[driverv1.WatchResponse], error) {
			return c.driver.Watch(ctx, &driverv1.WatchRequest{HeartbeatMs: heartbeat})
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
func listen[E any](ctx context.Context, c *Client, call string,
	open func(ctx context.Context, heartbeat int64) (grpc.ServerStreamingClient[E], error), each func(*E)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idleTimeout := 3 * protocol.HeartbeatInterval
	timer := time.AfterFunc(idleTimeout, func() { cancel(ErrNoAnswer) })
	defer timer.Stop()
	stream, err := open(ctx, protocol.HeartbeatInterval.Milliseconds())
	if err != nil {
		return c.callError(ctx, call, idleTimeout, err)
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
			return c.failed(call, errors.New("the plugin ended the stream"))
		case err != nil:
			return c.callError(ctx, call, idleTimeout, err)
		}
		timer.Reset(idleTimeout)
		each(event)
	}
}

// eventNode returns the name, or "" for all nodes if it is invalid.
func eventNode(name string) string {
	if providertree.ValidateProviderName(name) != nil || providertree.ValidateText(name) != nil {
		return ""
	}
	return name
}
