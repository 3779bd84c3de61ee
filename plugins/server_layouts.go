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

// layoutVersion returns the driver's layout version, 0 without one.
func (s *server) layoutVersion() (int32, error) {
	layoutVersioner, ok := s.driver.(LayoutVersioner)
	if !ok {
		return 0, nil
	}
	version := layoutVersioner.LayoutVersion()
	if version < 0 || version > MaxLayout {
		return 0, fmt.Errorf("the driver's layout version is %d: must be 1 to %d, or 0 for none", version, MaxLayout)
	}
	return int32(version), nil
}

// ReshapeStep lets the driver migrate a copy of the tree to the next layout.
func (s *server) ReshapeStep(
	ctx context.Context, req *driverv1.ReshapeStepRequest,
) (*driverv1.ReshapeStepResponse, error) {
	layoutVersioner, ok := s.driver.(LayoutVersioner)
	if !ok {
		return nil, missingCapability("have layout versions")
	}
	tree, given, err := received(req.GetTree(), req.GetAllocations())
	if err != nil {
		return nil, err
	}
	if given == nil {
		given = providertree.Allocations{}
	}
	if err := s.nodes.lock(ctx); err != nil {
		return nil, err
	}
	defer s.nodes.unlock()
	version, err := s.layoutVersion()
	if err != nil {
		return nil, err
	}
	from := req.GetFromShape()
	if from < 0 || from >= version {
		return nil, refuse(codes.InvalidArgument, "layout version %d: must be 0 to %d to migrate from", from, version-1)
	}
	edited, err := layoutVersioner.Reshape(ctx, tree, req.GetNode(), int(from), given)
	switch {
	case errors.Is(err, ErrReshapeNeeded):
		return nil, fmt.Errorf(
			"the driver returned ErrReshapeNeeded from the migration of layout version %d: it must migrate, or "+
				"return ReshapeFailed: %s", from, err.Error())
	case err != nil:
		return nil, err
	case edited == nil:
		edited = given
	}
	reply := &driverv1.ReshapeStepResponse{Tree: protocol.FromTree(tree), Allocations: protocol.FromAllocations(edited)}
	reply.ClassRenames, err = s.renames()
	return reply, err
}

// renames returns the driver's renames of its last reshape.
func (s *server) renames() (ClassRenames, error) {
	renamer, ok := s.driver.(Renamer)
	if !ok {
		return nil, nil
	}
	renames := ClassRenames(renamer.ClassRenames())
	if err := renames.Validate(); err != nil {
		return nil, fmt.Errorf("the driver's renames of resource classes: %w", err)
	}
	return renames, nil
}
