// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// checkMove returns an error for a call about a move that is not made.
func (c *Client) checkMove(call string, problem error) error {
	if err := c.checkCapability(call, protocol.CapabilityMigrate); err != nil {
		return err
	}
	return c.checkRequest(call, problem)
}

// Depart has an instance shut down that is to be moved.
func (c *Client) Depart(ctx context.Context, node, uuid string) (string, error) {
	const call = "Depart"
	uuid, problem := target(node, uuid)
	if err := c.checkMove(call, problem); err != nil {
		return "", err
	}
	reply, err := manage(ctx, c, call, uuid, c.instances.Depart,
		&driverv1.DepartInstanceRequest{Node: node, Uuid: uuid})
	if err != nil {
		return "", err
	}
	if err := protocol.CheckOffer(reply.GetOffer()); err != nil {
		return "", c.badReply(call, err)
	}
	return reply.GetOffer(), nil
}

// Leave has an instance removed that is on another host.
func (c *Client) Leave(ctx context.Context, node, uuid string) error {
	const call = "Leave"
	uuid, problem := target(node, uuid)
	if err := c.checkMove(call, problem); err != nil {
		return err
	}
	_, err := manage(ctx, c, call, uuid, c.instances.Leave, &driverv1.LeaveInstanceRequest{Node: node, Uuid: uuid})
	return err
}

// ReadFile reads a file of an instance. Each part may take as long as a call about an instance.
func (c *Client) ReadFile(ctx context.Context, node, uuid, name string, offset int64, each plugins.ChunkFunc) error {
	const call = "ReadFile"
	uuid, problem := target(node, uuid)
	if problem == nil {
		problem = protocol.CheckFile(name, offset)
	}
	if err := c.checkMove(call, problem); err != nil {
		return err
	}
	ctx, watch := c.idleTimeout(ctx)
	defer watch.end()
	watch.begin()
	stream, err := c.instances.ReadFile(ctx,
		&driverv1.ReadInstanceFileRequest{Node: node, Uuid: uuid, Name: name, Offset: offset})
	if err != nil {
		return c.callError(ctx, call, watch.limit, err)
	}
	order := protocol.ChunksFrom(offset)
	for {
		watch.begin()
		chunk, err := stream.Recv()
		watch.pause()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return aboutInstance(uuid, c.callError(ctx, call, watch.limit, err))
		}
		if err := order.Check(chunk); err != nil {
			return c.badReply(call, err)
		}
		if err := each(chunk.GetOffset(), chunk.GetData()); err != nil {
			return err
		}
	}
}

// Arrive has an instance created that comes from another host.
func (c *Client) Arrive(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	const call = "Arrive"
	spawn, problem := spawnRequest(node, spec, tree)
	if problem == nil {
		problem = errors.Join(protocol.CheckNode(from.Node), protocol.CheckOffer(from.Offer))
	}
	if problem == nil && from.Files == nil && !from.Evacuation {
		problem = errors.New("a move that is no evacuation needs the files of its source")
	}
	if err := c.checkMove(call, problem); err != nil {
		return plugins.Instance{}, err
	}
	uuid := spawn.GetSpec().GetUuid()
	ctx, watch := c.idleTimeout(ctx)
	defer watch.end()
	a := arrival{client: c, watch: watch, from: from}
	is, err := a.run(ctx, &driverv1.BeginArrival{
		Node: node, Spec: spawn.GetSpec(), Tree: spawn.GetTree(), FromNode: from.Node,
		Evacuation: from.Evacuation, Offer: from.Offer,
	})
	if err != nil {
		return plugins.Instance{}, aboutInstance(uuid, err)
	}
	return c.checkedInstance(call, uuid, is)
}

// arrival is one Arrive.
type arrival struct {
	client *Client
	watch  *idleTimer
	from   plugins.Arrival
	stream grpc.BidiStreamingClient[driverv1.ArriveInstanceRequest, driverv1.ArriveInstanceResponse]
}

func (a *arrival) run(ctx context.Context, begin *driverv1.BeginArrival) (*driverv1.Instance, error) {
	const call = "Arrive"
	var err error
	a.watch.begin()
	if a.stream, err = a.client.instances.Arrive(ctx); err == nil {
		err = a.send(&driverv1.ArriveInstanceRequest{Part: &driverv1.ArriveInstanceRequest_Begin{Begin: begin}})
	}
	if err != nil && !errors.Is(err, io.EOF) { // the reason for an end is received
		return nil, a.client.callError(ctx, call, a.watch.limit, err)
	}
	for {
		a.watch.begin()
		m, err := a.stream.Recv()
		a.watch.pause()
		switch {
		case errors.Is(err, io.EOF):
			return nil, a.client.badReply(call, errors.New("the stream ended without an instance"))
		case err != nil:
			return nil, a.client.callError(ctx, call, a.watch.limit, err)
		case m.GetInstance() != nil:
			return m.GetInstance(), nil
		}
		file := m.GetRead()
		if file == nil || a.from.Files == nil {
			return nil, a.client.badReply(call,
				errors.New("it asks for nothing, or for a file of a source that is down"))
		}
		if err := protocol.CheckFile(file.GetName(), file.GetOffset()); err != nil {
			return nil, a.client.badReply(call, err)
		}
		if err := a.sendFile(ctx, file); err != nil && !errors.Is(err, io.EOF) {
			return nil, a.client.callError(ctx, call, a.watch.limit, err)
		}
	}
}

// send sends a message, for which the plugin has the time of a call.
func (a *arrival) send(m *driverv1.ArriveInstanceRequest) error {
	a.watch.begin()
	defer a.watch.pause()
	return a.stream.Send(m)
}

// sendFile sends a file of the source. The error is that of the stream to the plugin.
func (a *arrival) sendFile(ctx context.Context, file *driverv1.ReadFile) error {
	var broken error
	err := a.from.Files.ReadFile(ctx, file.GetName(), file.GetOffset(), func(offset int64, data []byte) error {
		broken = a.send(&driverv1.ArriveInstanceRequest{Part: &driverv1.ArriveInstanceRequest_Chunk{
			Chunk: &driverv1.FileChunk{Offset: offset, Data: data},
		}})
		return broken
	})
	if broken != nil {
		return broken
	}
	end := &driverv1.FileEnd{}
	if err != nil {
		end.Problem = clip(fmt.Sprintf("reading the file %s from the source: %v", file.GetName(), err), 2000)
	}
	return a.send(&driverv1.ArriveInstanceRequest{Part: &driverv1.ArriveInstanceRequest_End{End: end}})
}

// idleTimer ends a stream of a plugin that takes longer for one message than for a call about an
// instance. What the other side takes does not count.
type idleTimer struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (c *Client) idleTimeout(ctx context.Context) (context.Context, *idleTimer) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := c.timeouts.Load().Instance
	t := &idleTimer{limit: limit, cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(ErrNoAnswer) })}
	t.pause()
	return ctx, t
}

func (t *idleTimer) begin() { t.timer.Reset(t.limit) }
func (t *idleTimer) pause() { t.timer.Stop() }
func (t *idleTimer) end()   { t.timer.Stop(); t.cancel(nil) }
