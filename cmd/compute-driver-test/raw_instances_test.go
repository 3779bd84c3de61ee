// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// rawInstances is the service Instances of the fake driver, without the SDK.
type rawInstances struct {
	driverv1.UnimplementedInstancesServer
	*raw
}

func rawInstance(i plugins.Instance) *driverv1.Instance {
	return &driverv1.Instance{Uuid: i.UUID, Name: i.Name,
		PowerState: driverv1.PowerState(i.Power), HypervisorName: i.HypervisorName}
}

func (r *rawInstances) List(
	ctx context.Context, req *driverv1.ListInstancesRequest,
) (*driverv1.ListInstancesResponse, error) {
	list, err := r.fake.Instances(ctx, req.GetNode())
	out := &driverv1.ListInstancesResponse{}
	for _, i := range list {
		out.Instances = append(out.Instances, rawInstance(i))
	}
	return out, err
}

// requested is the instance of a request.
func requested(req interface {
	GetSpec() *driverv1.InstanceSpec
	GetTree() *driverv1.ProviderTree
}) (plugins.InstanceSpec, *providertree.Tree, error) {
	tree, _, err := receivedBy(req.GetTree(), nil)
	if err != nil {
		return plugins.InstanceSpec{}, nil, err
	}
	granted, err := protocol.ToResources(req.GetSpec().GetAllocations())
	if err != nil {
		return plugins.InstanceSpec{}, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return plugins.InstanceSpec{UUID: req.GetSpec().GetUuid(), Name: req.GetSpec().GetName(), Allocations: granted},
		tree, nil
}

func (r *rawInstances) CheckSpawn(
	ctx context.Context, req *driverv1.CheckSpawnRequest,
) (*driverv1.CheckSpawnResponse, error) {
	if r.broken.capabilities != nil && !slices.Contains(r.broken.capabilities, protocol.CapabilityCheckSpawn) {
		return nil, status.Error(codes.Unimplemented, "it checks nothing before it makes it")
	}
	spec, tree, err := requested(req)
	if err != nil {
		return nil, err
	}
	return &driverv1.CheckSpawnResponse{}, r.fake.CheckSpawn(ctx, req.GetNode(), spec, tree)
}

func (r *rawInstances) Restore(
	ctx context.Context, req *driverv1.RestoreInstanceRequest,
) (*driverv1.RestoreInstanceResponse, error) {
	if r.broken.capabilities != nil && !slices.Contains(r.broken.capabilities, protocol.CapabilityRestore) {
		return nil, status.Error(codes.Unimplemented, "it makes nothing again")
	}
	spec, tree, err := requested(req)
	if err != nil {
		return nil, err
	}
	is, err := r.fake.Restore(ctx, req.GetNode(), spec, tree)
	return &driverv1.RestoreInstanceResponse{Instance: rawInstance(is)}, err
}

func (r *rawInstances) Spawn(
	ctx context.Context, req *driverv1.SpawnInstanceRequest,
) (*driverv1.SpawnInstanceResponse, error) {
	spec, tree, err := requested(req)
	if err != nil {
		return nil, err
	}
	is, err := r.fake.Spawn(ctx, req.GetNode(), spec, tree)
	return &driverv1.SpawnInstanceResponse{Instance: rawInstance(is)}, err
}

func (r *rawInstances) Destroy(
	ctx context.Context, req *driverv1.DestroyInstanceRequest,
) (*driverv1.DestroyInstanceResponse, error) {
	return &driverv1.DestroyInstanceResponse{}, r.fake.Destroy(ctx, req.GetNode(), req.GetUuid())
}

func (r *rawInstances) Depart(
	ctx context.Context, req *driverv1.DepartInstanceRequest,
) (*driverv1.DepartInstanceResponse, error) {
	offer, err := r.fake.Depart(ctx, req.GetNode(), req.GetUuid())
	return &driverv1.DepartInstanceResponse{Offer: offer}, err
}

func (r *rawInstances) Leave(
	ctx context.Context, req *driverv1.LeaveInstanceRequest,
) (*driverv1.LeaveInstanceResponse, error) {
	return &driverv1.LeaveInstanceResponse{}, r.fake.Leave(ctx, req.GetNode(), req.GetUuid())
}

// Arrive goes around as the unary calls do, with what begins it.
func (r *rawInstances) Arrive(
	stream grpc.BidiStreamingServer[driverv1.ArriveInstanceRequest, driverv1.ArriveInstanceResponse],
) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	begin := first.GetBegin()
	arrive := func() (any, error) {
		tree, _, err := receivedBy(begin.GetTree(), nil)
		if err != nil {
			return nil, err
		}
		granted, err := protocol.ToResources(begin.GetSpec().GetAllocations())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		is, err := r.fake.Arrive(stream.Context(), begin.GetNode(), plugins.InstanceSpec{
			UUID: begin.GetSpec().GetUuid(), Name: begin.GetSpec().GetName(), Allocations: granted,
		}, tree, plugins.Arrival{Node: begin.GetFromNode(), Evacuation: begin.GetEvacuation(), Offer: begin.GetOffer()})
		return &driverv1.ArriveInstanceResponse{Part: &driverv1.ArriveInstanceResponse_Instance{Instance: rawInstance(
			is)}}, err
	}
	var reply any
	if r.broken.around != nil {
		reply, err = r.broken.around(r.raw, stream.Context(), "Arrive", begin, arrive)
	} else {
		reply, err = arrive()
	}
	if err != nil {
		return answerOf(err)
	}
	return stream.Send(reply.(*driverv1.ArriveInstanceResponse))
}

func (r *rawInstances) SetPower(
	ctx context.Context, req *driverv1.SetInstancePowerRequest,
) (*driverv1.SetInstancePowerResponse, error) {
	is, err := r.fake.SetPower(ctx, req.GetNode(),
		req.GetUuid(), plugins.PowerState(req.GetPowerState()), req.GetHard())
	return &driverv1.SetInstancePowerResponse{Instance: rawInstance(is)}, err
}

func (r *rawInstances) ConsoleLog(
	ctx context.Context, req *driverv1.ConsoleLogRequest,
) (*driverv1.ConsoleLogResponse, error) {
	if r.broken.capabilities != nil && !slices.Contains(r.broken.capabilities, protocol.CapabilityConsoleLog) {
		return nil, status.Error(codes.Unimplemented, "it keeps no console logs")
	}
	log, err := r.fake.ConsoleLog(ctx, req.GetNode(), req.GetUuid(), int(req.GetMaxBytes()))
	return &driverv1.ConsoleLogResponse{Log: log}, err
}

// Console goes around as the unary calls do, with what opens it, until it is open.
func (r *rawInstances) Console(
	stream grpc.BidiStreamingServer[driverv1.ConsoleRequest, driverv1.ConsoleResponse],
) error {
	if r.broken.capabilities != nil && !slices.Contains(r.broken.capabilities, protocol.CapabilityConsole) {
		return status.Error(codes.Unimplemented, "it has no consoles")
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	open := func() (any, error) {
		return r.fake.OpenConsole(stream.Context(), first.GetOpen().GetNode(), first.GetOpen().GetUuid())
	}
	var console any
	if r.broken.around != nil {
		console, err = r.broken.around(r.raw, stream.Context(), "Console", first.GetOpen(), open)
	} else {
		console, err = open()
	}
	if err != nil {
		return answerOf(err)
	}
	if err := stream.Send(
		&driverv1.ConsoleResponse{Part: &driverv1.ConsoleResponse_Opened{Opened: &driverv1.ConsoleOpened{}}}); err !=
		nil {
		return err
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if c, ok := console.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Watch is one more of the name: it is of another service than that of raw.
func (r *rawInstances) Watch(
	req *driverv1.WatchInstancesRequest, stream grpc.ServerStreamingServer[driverv1.WatchInstancesResponse],
) error {
	if r.broken.capabilities != nil && !slices.Contains(r.broken.capabilities, protocol.CapabilityInstanceEvents) {
		return status.Error(codes.Unimplemented, "it does not watch instances")
	}
	beat := func() error {
		return stream.Send(&driverv1.WatchInstancesResponse{
			Event: &driverv1.WatchInstancesResponse_Heartbeat{Heartbeat: &driverv1.Heartbeat{}},
		})
	}
	send := func(node, uuid string) error {
		return stream.Send(&driverv1.WatchInstancesResponse{
			Event: &driverv1.WatchInstancesResponse_Instance{
				Instance: &driverv1.InstanceEvent{Node: node, Uuid: uuid},
			},
		})
	}
	interval := time.Duration(req.GetHeartbeatMs()) * time.Millisecond
	if r.broken.events != nil {
		return r.broken.events(stream.Context(), beat, interval)
	}
	type event struct{ node, uuid string }
	events := make(chan event)
	go func() {
		_ = r.fake.WatchInstances(stream.Context(), func(node, uuid string) {
			select {
			case events <- event{node, uuid}:
			case <-stream.Context().Done():
			}
		})
	}()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	err := beat()
	for err == nil {
		select {
		case e := <-events:
			err = send(e.node, e.uuid)
		case <-ticker.C:
			err = beat()
		case <-stream.Context().Done():
			return nil
		}
	}
	return err
}
