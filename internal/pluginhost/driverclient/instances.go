// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// Instances returns the instances of a node.
func (c *Client) Instances(ctx context.Context, node string) ([]plugins.Instance, error) {
	const call = "Instances"
	if err := c.checkRequest(call, protocol.CheckNode(node)); err != nil {
		return nil, err
	}
	reply, err := withDeadline(ctx, c, call, c.timeouts.Load().Update, c.instances.List,
		&driverv1.ListInstancesRequest{Node: node})
	if err != nil {
		return nil, err
	}
	instances, err := checkInstances(reply.GetInstances())
	if err != nil {
		return nil, c.badReply(call, err)
	}
	return instances, nil
}

// Spawn lets the driver create an instance. Cost: O(size of the tree and the spec) to convert.
func (c *Client) Spawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	const call = "Spawn"
	msg, problem := spawnRequest(node, spec, tree)
	if err := c.checkRequest(call, problem); err != nil {
		return plugins.Instance{}, err
	}
	uuid := msg.GetSpec().GetUuid()
	reply, err := manage(ctx, c, call, uuid, c.instances.Spawn, msg)
	if err != nil {
		return plugins.Instance{}, err
	}
	return c.checkedInstance(call, uuid, reply.GetInstance())
}

// CheckSpawn asks the driver whether it could create an instance. Cost: as Spawn.
func (c *Client) CheckSpawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) error {
	const call = "CheckSpawn"
	msg, problem := spawnRequest(node, spec, tree)
	if err := c.checkRequest(call, problem); err != nil {
		return err
	}
	if err := c.checkCapability(call, protocol.CapabilityCheckSpawn); err != nil {
		return err
	}
	_, err := manage(ctx, c, call, msg.GetSpec().GetUuid(), c.instances.CheckSpawn,
		&driverv1.CheckSpawnRequest{Node: msg.GetNode(), Spec: msg.GetSpec(), Tree: msg.GetTree()})
	return err
}

// Restore lets the driver create an instance again over its disks. Cost: as Spawn.
func (c *Client) Restore(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	const call = "Restore"
	msg, problem := spawnRequest(node, spec, tree)
	if err := c.checkRequest(call, problem); err != nil {
		return plugins.Instance{}, err
	}
	if err := c.checkCapability(call, protocol.CapabilityRestore); err != nil {
		return plugins.Instance{}, err
	}
	uuid := msg.GetSpec().GetUuid()
	reply, err := manage(ctx, c, call, uuid, c.instances.Restore,
		&driverv1.RestoreInstanceRequest{Node: msg.GetNode(), Spec: msg.GetSpec(), Tree: msg.GetTree()})
	if err != nil {
		return plugins.Instance{}, err
	}
	return c.checkedInstance(call, uuid, reply.GetInstance())
}

// Destroy lets the driver remove an instance.
func (c *Client) Destroy(ctx context.Context, node, uuid string) error {
	const call = "Destroy"
	uuid, problem := target(node, uuid)
	if err := c.checkRequest(call, problem); err != nil {
		return err
	}
	_, err := manage(ctx, c, call, uuid, c.instances.Destroy, &driverv1.DestroyInstanceRequest{Node: node, Uuid: uuid})
	return err
}

// SetPower has an instance started or stopped.
func (c *Client) SetPower(
	ctx context.Context, node, uuid string, to plugins.PowerState, hard bool,
) (plugins.Instance, error) {
	const call = "SetPower"
	uuid, problem := target(node, uuid)
	state := protocol.FromPower(int(to))
	if problem == nil {
		problem = protocol.CheckTargetPower(state)
	}
	if err := c.checkRequest(call, problem); err != nil {
		return plugins.Instance{}, err
	}
	reply, err := manage(ctx, c, call, uuid, c.instances.SetPower,
		&driverv1.SetInstancePowerRequest{Node: node, Uuid: uuid, PowerState: state, Hard: hard})
	if err != nil {
		return plugins.Instance{}, err
	}
	return c.checkedInstance(call, uuid, reply.GetInstance())
}

// WatchInstances reads the stream of events about instances. It ends with an error when the stream
// breaks or falls silent.
func (c *Client) WatchInstances(ctx context.Context, changed func(node, uuid string)) error {
	return listen(ctx, c, "WatchInstances",
		func(ctx context.Context, heartbeat int64) (grpc.ServerStreamingClient[driverv1.WatchInstancesResponse],
			error) {
			return c.instances.Watch(ctx, &driverv1.WatchInstancesRequest{HeartbeatMs: heartbeat})
		}, func(event *driverv1.WatchInstancesResponse) {
			if about := event.GetInstance(); about != nil {
				changed(changedInstance(about))
			}
		})
}

// checkRequest returns an error for a call that is not made: the plugin does not announce it, or
// there is a problem with what is asked.
func (c *Client) checkRequest(call string, problem error) error {
	if err := c.checkCapability(call, protocol.CapabilityInstances); err != nil {
		return err
	}
	if problem != nil {
		return c.failed(call, fmt.Errorf("%w: %w", ErrBadRequest, problem))
	}
	return nil
}

// manage makes a call about one instance. The driver's typed errors are about that instance,
// whatever they name.
func manage[Q, R any](ctx context.Context, c *Client, call, uuid string,
	method func(context.Context, Q, ...grpc.CallOption) (R, error), request Q) (R, error) {
	reply, err := withDeadline(ctx, c, call, c.timeouts.Load().Instance, method, request)
	if err == nil {
		return reply, nil
	}
	if tooLarge := (*oversizedRequest)(nil); errors.As(err, &tooLarge) { // by our own side: it was not sent
		return reply, c.failed(call, fmt.Errorf("%w: %w", ErrBadRequest, tooLarge))
	}
	return reply, aboutInstance(uuid, err)
}

// aboutInstance returns an error whose typed ones are about an instance.
func aboutInstance(uuid string, err error) error {
	var fault *plugins.InstanceFault
	var notFound *plugins.InstanceNotFound
	if errors.As(err, &fault) {
		fault.UUID = uuid
	}
	if errors.As(err, &notFound) {
		notFound.UUID = uuid
	}
	return err
}

// checkedInstance converts the response of a call for one instance.
func (c *Client) checkedInstance(call, uuid string, m *driverv1.Instance) (plugins.Instance, error) {
	is, err := checkInstance(uuid, m)
	if err != nil {
		return plugins.Instance{}, c.badReply(call, err)
	}
	return is, nil
}

// target checks node and uuid of a request, and returns the canonical uuid.
func target(node, uuid string) (string, error) {
	if err := protocol.CheckNode(node); err != nil {
		return "", err
	}
	canonical, err := providertree.CanonicalUUID(uuid)
	if err != nil {
		return "", fmt.Errorf("instance: %w", err)
	}
	return canonical, nil
}

// spawnRequest returns the message for an instance, or what is wrong with it.
func spawnRequest(
	node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (*driverv1.SpawnInstanceRequest, error) {
	if tree == nil {
		return nil, errors.New("no provider tree is given")
	}
	if err := protocol.CheckNode(node); err != nil {
		return nil, err
	}
	f := spec.Flavor
	m := &driverv1.InstanceSpec{
		Uuid: spec.UUID, Name: spec.Name, ProjectId: spec.ProjectID, UserId: spec.UserID,
		Flavor: &driverv1.Flavor{
			Name: f.Name, Vcpus: f.VCPUs, MemoryMb: f.MemoryMB, RootGb: f.RootGB,
			EphemeralGb: f.EphemeralGB, SwapMb: f.SwapMB, ExtraSpecs: f.ExtraSpecs,
		},
		Allocations: protocol.FromResources(spec.Allocations), Image: spec.Image, ImageProperties: spec.ImageProperties,
		Metadata: spec.Metadata, UserData: spec.UserData,
		KeyName: spec.KeyName, PublicKey: spec.PublicKey, ConfigDrive: spec.ConfigDrive,
	}
	uuid, allocations, err := protocol.CheckSpec(m, tree)
	if err != nil {
		return nil, err
	}
	m.Uuid, m.Allocations = uuid, protocol.FromResources(allocations)
	return &driverv1.SpawnInstanceRequest{Node: node, Spec: m, Tree: protocol.FromTree(tree)}, nil
}
