// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// introduce asks the process who it is.
func (p *process) introduce(ctx context.Context) error {
	limit := p.timeouts.Load().Info
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	info, err := p.plugin.Info(ctx, &driverv1.InfoRequest{})
	if err != nil {
		return p.callError(ctx, "Info", limit, err)
	}
	if err := checkInfo(info); err != nil {
		return p.failed("Info", fmt.Errorf("%w: %w", ErrBadReply, err))
	}
	p.info = info
	return nil
}

// Configure hands over the configuration.
func (p *process) Configure(ctx context.Context, spec Spec) error {
	ctx, cancel := context.WithTimeout(ctx, spec.Timeouts.Configure)
	defer cancel()
	reply, err := p.plugin.Configure(ctx, &driverv1.ConfigureRequest{
		ConfigJson: spec.Config,
		Host:       &driverv1.HostInfo{Name: spec.HostInfo.Name, StateDir: spec.HostInfo.StateDir},
	})
	if err != nil {
		return p.callError(ctx, "Configure", spec.Timeouts.Configure, err)
	}
	if err := checkShape(reply.GetShapeVersion(), p.info.GetCapabilities()); err != nil {
		return p.failed("Configure", fmt.Errorf("%w: %w", ErrBadReply, err))
	}
	p.shape.Store(reply.GetShapeVersion())
	p.timeouts.Store(&spec.Timeouts)
	return nil
}

// Health asks how the driver is, and of what it warns.
func (p *process) Health(ctx context.Context) ([]plugins.Warning, error) {
	if err := p.checkSocket(); err != nil {
		return nil, err
	}
	limit := p.timeouts.Load().Health
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := p.plugin.Health(ctx, &driverv1.HealthRequest{})
	if err != nil {
		return nil, p.callError(ctx, "Health", limit, err)
	}
	warnings := checkWarnings(reply.GetWarnings(), p.info.GetCapabilities())
	if problem := reply.GetProblem(); problem != "" {
		return warnings, &unwell{words(problem, 2000)}
	}
	return warnings, nil
}

// AvailableNodes asks for the nodes.
func (p *process) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	const call = "AvailableNodes"
	limit := p.timeouts.Load().Nodes
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := p.driver.AvailableNodes(ctx, &driverv1.AvailableNodesRequest{})
	if err != nil {
		return nil, p.callError(ctx, call, limit, err)
	}
	nodes := make([]plugins.Node, 0, len(reply.GetNodes()))
	for _, n := range reply.GetNodes() {
		nodes = append(nodes, plugins.Node{Name: n.GetName(), UUID: n.GetUuid()})
	}
	if err := checkNodes(nodes); err != nil {
		return nil, p.failed(call, fmt.Errorf("%w: %w", ErrBadReply, err))
	}
	return nodes, nil
}

// UpdateProviderTree sends a tree and returns the one that comes back. Cost: O(size of both trees) to convert and check.
func (p *process) UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations) (answer, error) {
	const call = "UpdateProviderTree"
	limit := p.timeouts.Load().Update
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req := &driverv1.UpdateProviderTreeRequest{Node: node, Tree: wire.FromTree(tree), Allocations: wire.FromAllocations(allocations)}
	reply, err := p.driver.UpdateProviderTree(ctx, req)
	if err != nil {
		return answer{}, p.callError(ctx, call, limit, err)
	}
	after, moved, err := checkReply(tree, node, allocations, reply)
	if err != nil {
		return answer{}, p.failed(call, fmt.Errorf("%w: %w", ErrBadReply, err))
	}
	traits, err := checkCapabilities(reply.GetCapabilityTraits(), p.info.GetCapabilities())
	if err != nil {
		return answer{}, p.failed(call, fmt.Errorf("%w: %w", ErrBadReply, err))
	}
	return answer{tree: after, allocations: moved, renames: reply.GetClassRenames(), capabilities: traits}, nil
}

// Watch reads the stream of events. It ends with an error when the stream breaks or falls silent.
func (p *process) Watch(ctx context.Context, changed func(node string)) error {
	return listen(ctx, p, "Watch", func(ctx context.Context, heartbeat int64) (grpc.ServerStreamingClient[driverv1.WatchResponse], error) {
		return p.driver.Watch(ctx, &driverv1.WatchRequest{HeartbeatMs: heartbeat})
	}, func(event *driverv1.WatchResponse) {
		if c := event.GetChanged(); c != nil {
			changed(knownNode(c.GetNode()))
		}
	})
}

// eventsASecond are taken from a stream; more have to wait in it, and then in the plugin: nobody needs to know so often, and a driver
// that tells without end would keep a processor of ours busy.
const eventsASecond = 1000

// listen reads a stream of events with heartbeats until it breaks or falls silent, which is an error.
func listen[E any](ctx context.Context, p *process, call string,
	open func(ctx context.Context, heartbeat int64) (grpc.ServerStreamingClient[E], error), each func(*E)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := 3 * wire.HeartbeatInterval
	timer := time.AfterFunc(silence, func() { cancel(ErrNoAnswer) })
	defer timer.Stop()
	stream, err := open(ctx, wire.HeartbeatInterval.Milliseconds())
	if err != nil {
		return p.callError(ctx, call, silence, err)
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
			return p.callError(ctx, call, silence, err)
		}
		timer.Reset(silence)
		each(event)
	}
}

// knownNode is the name, or all nodes for one that can be no name.
func knownNode(name string) string {
	if providertree.ValidateProviderName(name) != nil || providertree.Printable(name) != nil {
		return ""
	}
	return name
}

func (p *process) failed(call string, err error) error {
	return &CallError{Driver: p.name, Call: call, Err: err}
}

// callError turns a gRPC error into one of ours.
func (p *process) callError(ctx context.Context, call string, limit time.Duration, err error) error {
	if tooLarge := (*oversized)(nil); errors.As(err, &tooLarge) {
		return p.failed(call, tooLarge)
	}
	f := tame(wire.FailureOf(err))
	if f.Kind != wire.KindOther {
		return p.failed(call, driverError(f))
	}
	switch code := status.Code(err); {
	case code == codes.Canceled && ctx.Err() != nil:
		return p.failed(call, context.Cause(ctx))
	case code == codes.DeadlineExceeded && wire.Expired(ctx): // else the driver says so, of something else
		deadline, _ := ctx.Deadline()
		return p.failed(call, &tooLate{limit: limit, deadline: deadline, words: clip(f.Message, 2000)})
	case code == codes.Unavailable, code == codes.Canceled: // the latter when the connection is being closed on our side
		return p.failed(call, fmt.Errorf("%w: the connection broke: %s", ErrUnavailable, clip(f.Message, 2000)))
	case code == codes.ResourceExhausted:
		return p.failed(call, fmt.Errorf("%w: %s (a message may have %d MiB in both directions, and a plugin must allow it)", ErrBadReply, clip(f.Message, 2000), wire.MaxMessage>>20))
	case code == codes.Unknown:
		return p.failed(call, errors.New(clip(f.Message, 20000)))
	case code == codes.Internal:
		return p.failed(call, &defective{fmt.Sprintf("%s (%s)", clip(f.Message, 20000), code)})
	default:
		return p.failed(call, fmt.Errorf("%s (%s)", clip(f.Message, 20000), code))
	}
}

// driverError is the typed answer as the driver gave it, with what it wrapped around it.
func driverError(f wire.Failure) error {
	var err error
	switch f.Kind {
	case wire.KindReshapeNeeded:
		err = &plugins.ReshapeNeeded{Reason: f.Words}
	case wire.KindReshapeFailed:
		failed := &plugins.ReshapeFailed{Reason: f.Words, Remedy: f.Remedy}
		for _, o := range f.Offenders {
			failed.Offenders = append(failed.Offenders, plugins.Offender(o))
		}
		err = failed
	case wire.KindNotReady:
		err = &plugins.NotReady{Reason: f.Words}
	case wire.KindConfigError:
		refused := &plugins.ConfigError{Key: f.Key, Problem: f.Words}
		for _, p := range f.More {
			refused.More = append(refused.More, plugins.ConfigError{Key: p.Key, Problem: p.Problem})
		}
		err = refused
	case wire.KindUnsupported:
		err = plugins.ErrUnsupported
	case wire.KindInstanceNotFound:
		err = &plugins.InstanceNotFound{UUID: f.UUID}
	case wire.KindInstanceFault:
		err = &plugins.InstanceFault{UUID: f.UUID, Reason: f.Words}
	default:
		return errors.New(f.Message)
	}
	if f.Message == "" || f.Message == err.Error() {
		return err
	}
	return &answered{words: f.Message, err: err}
}

// answered is a typed answer with other words around it.
type answered struct {
	words string
	err   error
}

func (e *answered) Error() string { return e.words }

// Unwrap returns the typed answer.
func (e *answered) Unwrap() error { return e.err }
