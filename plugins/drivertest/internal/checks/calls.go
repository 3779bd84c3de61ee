// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// proc is a process under test. Its methods are the protocol's calls, each with the agent's
// deadline; they return gRPC's errors.
type proc struct {
	*pluginhost.Session
	limits driverclient.Timeouts
	layout int32 // layout version that Configure returned
}

func withDeadline[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := call(limited)
	if status.Code(err) == codes.DeadlineExceeded && !protocol.Expired(ctx) && protocol.Expired(limited) {
		err = &late{error: err, limit: limit}
	}
	return reply, err
}

// late is the error of a call that was not answered within its limit.
type late struct {
	error
	limit time.Duration
}

func (l *late) Unwrap() error { return l.error }

// gone is the error of a call during which the process ended.
type gone struct {
	error
	exit error
}

func (g *gone) Unwrap() error { return g.error }

// rpc is withDeadline, and reports whether the process ended during the call, for which gRPC
// reports a broken connection.
func rpc[T any](ctx context.Context, p *proc, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	reply, err := withDeadline(ctx, limit, call)
	if status.Code(err) != codes.Unavailable {
		return reply, err
	}
	reaped := time.NewTimer(300 * time.Millisecond) // the connection breaks shortly before the process' exit is known
	defer reaped.Stop()
	select {
	case <-p.Done():
		err = &gone{error: err, exit: p.Exit()}
	case <-reaped.C:
	case <-ctx.Done():
	}
	return reply, err
}

func (p *proc) info(ctx context.Context) (*driverv1.InfoResponse, error) {
	return rpc(ctx, p, p.limits.Info, func(ctx context.Context) (*driverv1.InfoResponse, error) {
		return p.Plugin().Info(ctx, &driverv1.InfoRequest{})
	})
}

func (p *proc) schema(ctx context.Context) ([]byte, error) {
	reply, err := rpc(ctx, p, p.limits.Info, func(ctx context.Context) (*driverv1.ConfigSchemaResponse, error) {
		return p.Plugin().ConfigSchema(ctx, &driverv1.ConfigSchemaRequest{})
	})
	return reply.GetJsonSchema(), err
}

func (p *proc) configure(ctx context.Context, config []byte, stateDir string) error {
	reply, err := rpc(ctx, p, p.limits.Configure, func(ctx context.Context) (*driverv1.ConfigureResponse, error) {
		return p.Plugin().Configure(ctx,
			&driverv1.ConfigureRequest{ConfigJson: config,
				Host: &driverv1.HostInfo{Name: trial.Host, StateDir: stateDir}})
	})
	if err == nil {
		p.layout = reply.GetShapeVersion()
	}
	return err
}

func (p *proc) health(ctx context.Context) (*driverv1.HealthResponse, error) {
	return rpc(ctx, p, p.limits.Health, func(ctx context.Context) (*driverv1.HealthResponse, error) {
		return p.Plugin().Health(ctx, &driverv1.HealthRequest{})
	})
}

func (p *proc) shutdown(ctx context.Context) error {
	_, err := rpc(ctx, p, p.limits.Stop, func(ctx context.Context) (*driverv1.ShutdownResponse, error) {
		return p.Plugin().Shutdown(ctx,
			&driverv1.ShutdownRequest{GraceMs: (p.limits.Stop - p.limits.Stop/10).Milliseconds()})
	})
	return err
}

func (p *proc) nodes(ctx context.Context) ([]plugins.Node, error) {
	reply, err := rpc(ctx, p, p.limits.Nodes, func(ctx context.Context) (*driverv1.AvailableNodesResponse, error) {
		return p.Driver().AvailableNodes(ctx, &driverv1.AvailableNodesRequest{})
	})
	var nodes []plugins.Node
	for _, n := range reply.GetNodes() {
		nodes = append(nodes, plugins.Node{Name: n.GetName(), UUID: n.GetUuid()})
	}
	return nodes, err
}

func (p *proc) update(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (*driverv1.UpdateProviderTreeResponse, error) {
	return rpc(ctx, p, p.limits.Update, func(ctx context.Context) (*driverv1.UpdateProviderTreeResponse, error) {
		return p.Driver().UpdateProviderTree(ctx, &driverv1.UpdateProviderTreeRequest{
			Tree: protocol.FromTree(tree), Node: node, Allocations: protocol.FromAllocations(allocations),
		})
	})
}

func (p *proc) step(
	ctx context.Context, tree *providertree.Tree, node string, from int32, allocations providertree.Allocations,
) (*driverv1.ReshapeStepResponse, error) {
	return rpc(ctx, p, p.limits.Update, func(ctx context.Context) (*driverv1.ReshapeStepResponse, error) {
		return p.Driver().ReshapeStep(ctx, &driverv1.ReshapeStepRequest{
			Tree: protocol.FromTree(tree), Node: node,
			FromShape: from, Allocations: protocol.FromAllocations(allocations),
		})
	})
}

func (p *proc) guests(ctx context.Context, tree *providertree.Tree, node string) ([]*driverv1.Guest, error) {
	reply, err := rpc(ctx, p, p.limits.Update, func(ctx context.Context) (*driverv1.GuestsResponse, error) {
		return p.Driver().Guests(ctx, &driverv1.GuestsRequest{Tree: protocol.FromTree(tree), Node: node})
	})
	return reply.GetGuests(), err
}

func (p *proc) nodeDeleted(ctx context.Context, node plugins.Node) (bool, error) {
	reply, err := rpc(ctx, p, p.limits.Nodes, func(ctx context.Context) (*driverv1.NodeDeletedResponse, error) {
		return p.Driver().NodeDeleted(ctx,
			&driverv1.NodeDeletedRequest{Node: &driverv1.Node{Name: node.Name, Uuid: node.UUID}})
	})
	return reply.GetDeleted(), err
}

// tree calls UpdateProviderTree without allocations, which must return a valid tree.
func (p *proc) tree(ctx context.Context, tree *providertree.Tree, node string) (*providertree.Tree, error) {
	sent := sentUpdate(tree, node, nil)
	reply, err := p.update(ctx, tree, node, nil)
	if err != nil {
		return nil, failf(sent, "%s", describe(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return nil, failf(sent, "an invalid tree: %v", err)
	}
	return after, nil
}

// sentUpdate describes an UpdateProviderTree.
func sentUpdate(tree *providertree.Tree, node string, allocations providertree.Allocations) string {
	with := "no allocations"
	if allocations != nil {
		with = "allocations of " + textutil.Count(len(allocations), "consumer")
	}
	return fmt.Sprintf("UpdateProviderTree for node %q: a tree of %s, %s",
		node, textutil.Count(tree.Len(), "resource provider"), with)
}

// describe returns an error of a call as text: the typed error if it is one.
func describe(err error) string {
	var dead *gone
	if errors.As(err, &dead) {
		return dead.exit.Error()
	}
	f := protocol.FailureOf(err)
	name := map[protocol.Kind]string{
		protocol.KindReshapeNeeded: "ReshapeNeeded", protocol.KindReshapeFailed: "ReshapeFailed",
		protocol.KindNotReady:    "NotReady",
		protocol.KindConfigError: "ConfigError", protocol.KindUnsupported: "Unimplemented",
		protocol.KindInstanceNotFound: "InstanceNotFound", protocol.KindInstanceFault: "InstanceFault",
	}[f.Kind]
	if name == "" {
		switch code := status.Code(err); code {
		case codes.DeadlineExceeded:
			var l *late
			if errors.As(err, &l) {
				return fmt.Sprintf("no response within %v, the agent's deadline", l.limit)
			}
			return "no response within the deadline"
		case codes.Unknown:
			name = "an error"
		default:
			name = "an error (" + code.String() + ")"
		}
	}
	text := f.Message
	switch f.Kind {
	case protocol.KindConfigError:
		text = strings.TrimPrefix(f.Key+": "+f.Words, ": ")
	case protocol.KindReshapeNeeded, protocol.KindReshapeFailed, protocol.KindNotReady,
		protocol.KindInstanceNotFound, protocol.KindInstanceFault:
		text = f.Words
	case protocol.KindOther, protocol.KindUnsupported:
	}
	for i, v := range f.Violations {
		if i == 3 {
			text += fmt.Sprintf("; and %d more violations", len(f.Violations)-i)
			break
		}
		text += "; " + plugins.Violation(v).String()
	}
	text = strings.TrimPrefix(text, "; ")
	const most = 600
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	if text == "" {
		return name
	}
	return name + ": " + text
}

// kind returns which typed error an error is.
func kind(err error) protocol.Kind {
	if err == nil {
		return protocol.KindOther
	}
	return protocol.FailureOf(err).Kind
}
