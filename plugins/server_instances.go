// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// instanceServer implements the instance service with a driver's instance manager. It shares the
// server's drain and interceptors, but not its mutex: a call for an instance waits only for those
// for the same one.
type instanceServer struct {
	driverv1.UnimplementedInstancesServer

	server *server
	locks  protocol.KeyLocks // by uuid
}

// manager returns the driver, if it manages instances and has been configured.
func (s *instanceServer) manager() (InstanceManager, error) {
	m, ok := s.server.driver.(InstanceManager)
	switch {
	case !ok:
		return nil, missingCapability("manage instances")
	case !s.server.configured.Load():
		return nil, &NotReady{Reason: "it has not been configured yet"}
	}
	return m, nil
}

// List returns the instances of a node.
func (s *instanceServer) List(
	ctx context.Context, req *driverv1.ListInstancesRequest,
) (*driverv1.ListInstancesResponse, error) {
	m, err := s.manager()
	if err != nil {
		return nil, err
	}
	if err := protocol.CheckNode(req.GetNode()); err != nil {
		return nil, invalid(err)
	}
	instances, err := m.Instances(ctx, req.GetNode())
	if err != nil {
		return nil, err
	}
	out := &driverv1.ListInstancesResponse{Instances: make([]*driverv1.Instance, 0, len(instances))}
	for _, i := range instances {
		out.Instances = append(out.Instances, fromInstance(i))
	}
	return out, nil
}

// Spawn lets the driver create an instance.
func (s *instanceServer) Spawn(
	ctx context.Context, req *driverv1.SpawnInstanceRequest,
) (*driverv1.SpawnInstanceResponse, error) {
	m, err := s.manager()
	if err != nil {
		return nil, err
	}
	spec, tree, err := requested(req)
	if err != nil {
		return nil, err
	}
	var made Instance
	err = s.serialize(ctx, spec.UUID, func() (err error) {
		made, err = m.Spawn(ctx, req.GetNode(), spec, tree)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &driverv1.SpawnInstanceResponse{Instance: fromInstance(made)}, nil
}

// CheckSpawn reports whether the driver could create an instance.
func (s *instanceServer) CheckSpawn(
	ctx context.Context, req *driverv1.CheckSpawnRequest,
) (*driverv1.CheckSpawnResponse, error) {
	if _, err := s.manager(); err != nil {
		return nil, err
	}
	checker, ok := s.server.driver.(SpawnChecker)
	if !ok {
		return nil, missingCapability("check whether an instance can be created")
	}
	spec, tree, err := requested(req)
	if err != nil {
		return nil, err
	}
	if err := s.serialize(ctx, spec.UUID,
		func() error { return checker.CheckSpawn(ctx, req.GetNode(), spec, tree) }); err != nil {
		return nil, err
	}
	return &driverv1.CheckSpawnResponse{}, nil
}

// Restore lets the driver create an instance again over its disks.
func (s *instanceServer) Restore(
	ctx context.Context, req *driverv1.RestoreInstanceRequest,
) (*driverv1.RestoreInstanceResponse, error) {
	if _, err := s.manager(); err != nil {
		return nil, err
	}
	restorer, ok := s.server.driver.(InstanceRestorer)
	if !ok {
		return nil, missingCapability("create an instance again over its disks")
	}
	spec, tree, err := requested(req)
	if err != nil {
		return nil, err
	}
	var restored Instance
	err = s.serialize(ctx, spec.UUID, func() (err error) {
		restored, err = restorer.Restore(ctx, req.GetNode(), spec, tree)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &driverv1.RestoreInstanceResponse{Instance: fromInstance(restored)}, nil
}

// requested is the instance of a request that describes one, and the node's tree.
func requested(req interface {
	GetNode() string
	GetSpec() *driverv1.InstanceSpec
	GetTree() *driverv1.ProviderTree
}) (InstanceSpec, *providertree.Tree, error) {
	tree, _, err := received(req.GetTree(), nil)
	if err != nil {
		return InstanceSpec{}, nil, err
	}
	uuid, allocations, err := protocol.CheckSpec(req.GetSpec(), tree)
	if err == nil {
		err = protocol.CheckNode(req.GetNode())
	}
	if err != nil {
		return InstanceSpec{}, nil, invalid(err)
	}
	return toSpec(req.GetSpec(), uuid, allocations), tree, nil
}

// Destroy lets the driver remove an instance.
func (s *instanceServer) Destroy(
	ctx context.Context, req *driverv1.DestroyInstanceRequest,
) (*driverv1.DestroyInstanceResponse, error) {
	m, err := s.manager()
	if err != nil {
		return nil, err
	}
	uuid, err := target(req)
	if err != nil {
		return nil, err
	}
	if err := s.serialize(ctx, uuid, func() error { return m.Destroy(ctx, req.GetNode(), uuid) }); err != nil {
		return nil, err
	}
	return &driverv1.DestroyInstanceResponse{}, nil
}

// SetPower lets the driver start or stop an instance.
func (s *instanceServer) SetPower(
	ctx context.Context, req *driverv1.SetInstancePowerRequest,
) (*driverv1.SetInstancePowerResponse, error) {
	m, err := s.manager()
	if err != nil {
		return nil, err
	}
	uuid, err := target(req)
	if err == nil {
		if problem := protocol.CheckTargetPower(req.GetPowerState()); problem != nil {
			err = invalid(problem)
		}
	}
	if err != nil {
		return nil, err
	}
	var is Instance
	err = s.serialize(ctx, uuid, func() (err error) {
		is, err = m.SetPower(ctx, req.GetNode(), uuid, PowerState(req.GetPowerState()), req.GetHard())
		return err
	})
	if err != nil {
		return nil, err
	}
	return &driverv1.SetInstancePowerResponse{Instance: fromInstance(is)}, nil
}

// serialize makes a call for an instance when the one before it has returned. The driver's typed
// errors get the uuid of that instance, which drivers usually leave out.
func (s *instanceServer) serialize(ctx context.Context, uuid string, call func() error) error {
	unlock, err := s.locks.Lock(ctx, uuid)
	if err != nil {
		return fmt.Errorf("an earlier call for instance %s has not returned: %w", uuid, err)
	}
	defer unlock()
	return ofInstance(uuid, call())
}

// ofInstance adds the uuid of an instance to the driver's typed errors.
func ofInstance(uuid string, err error) error {
	var fault *InstanceFault
	switch {
	case errors.As(err, &fault):
		return withMessage(err, &InstanceFault{UUID: uuid, Reason: fault.Reason})
	case errors.Is(err, ErrInstanceNotFound):
		return withMessage(err, &InstanceNotFound{UUID: uuid})
	}
	return err
}

// withMessage returns a typed error with what the driver wrapped around its own.
func withMessage(err, typed error) error {
	if errors.Unwrap(err) == nil {
		return typed
	}
	return &wrappedError{message: err.Error(), error: typed}
}

type wrappedError struct {
	message string
	error
}

func (e *wrappedError) Error() string { return e.message }

// Unwrap returns the typed error.
func (e *wrappedError) Unwrap() error { return e.error }

// target returns the instance of a request.
func target(req interface {
	GetNode() string
	GetUuid() string
}) (string, error) {
	if err := protocol.CheckNode(req.GetNode()); err != nil {
		return "", invalid(err)
	}
	uuid, err := providertree.CanonicalUUID(req.GetUuid())
	if err != nil {
		return "", invalid(fmt.Errorf("instance: %w", err))
	}
	return uuid, nil
}

// invalid returns the error of an invalid request. The driver did not get it.
func invalid(err error) error {
	return refuse(codes.InvalidArgument, "the agent's request: %v", err)
}

// toSpec converts a spec that was checked.
func toSpec(m *driverv1.InstanceSpec, uuid string, allocations providertree.ProviderResources) InstanceSpec {
	f := m.GetFlavor()
	return InstanceSpec{
		UUID: uuid, Name: m.GetName(), ProjectID: m.GetProjectId(), UserID: m.GetUserId(),
		Flavor: Flavor{
			Name: f.GetName(), VCPUs: f.GetVcpus(), MemoryMB: f.GetMemoryMb(), RootGB: f.GetRootGb(),
			EphemeralGB: f.GetEphemeralGb(), SwapMB: f.GetSwapMb(), ExtraSpecs: f.GetExtraSpecs(),
		},
		Allocations: allocations, Image: m.GetImage(), ImageProperties: m.GetImageProperties(),
		Metadata: m.GetMetadata(), UserData: m.GetUserData(),
		KeyName: m.GetKeyName(), PublicKey: m.GetPublicKey(), ConfigDrive: m.GetConfigDrive(),
	}
}

func fromInstance(i Instance) *driverv1.Instance {
	return &driverv1.Instance{
		Uuid: utf8(i.UUID), Name: utf8(i.Name), PowerState: protocol.FromPower(int(i.Power)),
		HypervisorName: utf8(i.HypervisorName),
	}
}
