// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
		return nil, missingAbility("have layout versions")
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

// capabilityTraits returns the driver's capability traits of a node.
func (s *server) capabilityTraits(node string) map[string]bool {
	if reporter, ok := s.driver.(CapabilityReporter); ok {
		return reporter.Capabilities(node)
	}
	return nil
}

// productNames returns the driver's product names of the providers of a tree.
func (s *server) productNames(node string, tree *providertree.Tree) map[string]string {
	namer, ok := s.driver.(ProductNamer)
	if !ok {
		return nil
	}
	out := map[string]string{}
	for provider, product := range namer.ProductNames(node) {
		if _, found := tree.ProviderByName(provider); found && product != "" {
			out[provider] = shorten(utf8(product), protocol.MaxProductName)
		}
	}
	return out
}

// hypervisor returns the driver's hypervisor of a node, nil if it is not known.
func (s *server) hypervisor(node string) *driverv1.Hypervisor {
	reporter, ok := s.driver.(HypervisorReporter)
	if !ok {
		return nil
	}
	h := reporter.Hypervisor(node)
	if h.Version < 0 || h.Version > protocol.MaxHypervisorVersion {
		h.Version = 0
	}
	if h == (Hypervisor{}) {
		return nil
	}
	return &driverv1.Hypervisor{Type: shorten(utf8(h.Type), protocol.MaxHypervisorType), Version: h.Version}
}

// Guests returns the guests of a node.
func (s *server) Guests(ctx context.Context, req *driverv1.GuestsRequest) (*driverv1.GuestsResponse, error) {
	lister, ok := s.driver.(GuestLister)
	if !ok {
		return nil, missingAbility("list guests")
	}
	tree, _, err := received(req.GetTree(), nil)
	if err != nil {
		return nil, err
	}
	if err := s.nodes.lock(ctx); err != nil {
		return nil, err
	}
	defer s.nodes.unlock()
	guests, err := lister.Guests(ctx, tree, req.GetNode())
	if err != nil {
		return nil, err
	}
	out := &driverv1.GuestsResponse{Guests: make([]*driverv1.Guest, 0, len(guests))}
	for _, g := range guests {
		m := &driverv1.Guest{
			Uuid:             utf8(g.UUID),
			Name:             utf8(g.Name),
			ProjectId:        utf8(g.ProjectID),
			UserId:           utf8(g.UserID),
			ResourcesUnknown: utf8(g.Unknown),
			Requested:        g.Requested,
		}
		if g.Resources != nil {
			m.Resources = &driverv1.GuestResources{Resources: protocol.FromResources(g.Resources)}
		}
		out.Guests = append(out.Guests, m)
	}
	return out, nil
}

// NodeDeleted reports whether a node was removed for good.
func (s *server) NodeDeleted(
	ctx context.Context, req *driverv1.NodeDeletedRequest,
) (*driverv1.NodeDeletedResponse, error) {
	checker, ok := s.driver.(NodeChecker)
	if !ok {
		return nil, missingAbility("report whether a node was removed for good")
	}
	if err := s.nodes.lock(ctx); err != nil {
		return nil, err
	}
	defer s.nodes.unlock()
	deleted, err := checker.NodeDeleted(ctx, Node{Name: req.GetNode().GetName(), UUID: req.GetNode().GetUuid()})
	if err != nil {
		return nil, err
	}
	return &driverv1.NodeDeletedResponse{Deleted: deleted}, nil
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

func missingAbility(ability string) error {
	return fmt.Errorf("%w: it does not %s", ErrUnsupported, ability)
}

// utf8 makes a text valid for protobuf.
func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
