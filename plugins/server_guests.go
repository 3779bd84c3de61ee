// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Guests returns the guests of a node.
func (s *server) Guests(ctx context.Context, req *driverv1.GuestsRequest) (*driverv1.GuestsResponse, error) {
	lister, ok := s.driver.(GuestLister)
	if !ok {
		return nil, missingCapability("list guests")
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
			ResourcesUnknown: utf8(g.ResourcesUnknown),
			Requested:        g.FromFlavor,
		}
		if g.Resources != nil {
			m.Resources = &driverv1.GuestResources{Resources: protocol.FromResources(g.Resources)}
		}
		out.Guests = append(out.Guests, m)
	}
	return out, nil
}
