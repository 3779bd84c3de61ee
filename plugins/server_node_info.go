// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

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

// NodeDeleted reports whether a node was removed for good.
func (s *server) NodeDeleted(
	ctx context.Context, req *driverv1.NodeDeletedRequest,
) (*driverv1.NodeDeletedResponse, error) {
	checker, ok := s.driver.(NodeChecker)
	if !ok {
		return nil, missingCapability("report whether a node was removed for good")
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
