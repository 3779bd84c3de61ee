// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// CheckNewNode returns an error unless the agent may create a node in a Placement that does not
// have it. It does not check nodes that Placement has. known is the tree in Placement; guests lists
// the driver's guests, nil if the driver cannot.
//
// Errors: an [*Error] if Placement did know the node once, or if the driver finds guests of a cloud
// on it: the URL leads to a wrong Placement, or that one has lost its database. Others if the
// driver cannot list the guests. A guest without an owner was created by hand and was never in
// Placement: it does not count.
//
// Cost: nothing if Placement knows the node; else one call of the driver.
func (s *State) CheckNewNode(
	ctx context.Context, node plugins.Node, known *providertree.Tree, guests plugins.GuestLister,
) error {
	root, ok := known.Provider(node.UUID)
	if !ok || root.Generation != providertree.NoGeneration {
		return nil
	}
	s.mu.Lock()
	granted, before, reported := s.lookupNode(node)
	s.mu.Unlock()
	if granted {
		return nil
	}
	if reported != "" {
		return &Error{
			Problem: fmt.Sprintf(
				"this Placement does not have node %s (%s), which has been reported as %s since %s: either the URL "+
					"leads to the wrong "+
					"Placement, or Placement lost its database, or the node was deleted there", node.Name, node.UUID,
				reported, before.Since.UTC().Format("2006-01-02")),
			Hint: fmt.Sprintf(
				"check [placement_client] url and region, or restore Placement's database; to create the node again, "+
					"without the allocations of the guests that run on it: `compute-agent adopt --as-new --node %s` "+
					"(then `compute-agent allocations heal`)", node.Name),
		}
	}
	if guests == nil {
		return nil
	}
	list, err := guests.Guests(ctx, known.Clone(), node.Name)
	switch {
	case errors.Is(err, plugins.ErrUnsupported):
		return nil
	case err != nil:
		return fmt.Errorf("node %s is new to Placement, and it is unknown whether guests run on it: %w", node.Name, err)
	}
	ofCloud := slices.DeleteFunc(slices.Clone(list),
		func(g plugins.Guest) bool { return g.ProjectID == "" && g.UserID == "" })
	if len(ofCloud) == 0 {
		return nil
	}
	return &Error{
		Problem: fmt.Sprintf(
			"node %s (%s) is new to this Placement, but the driver finds %d guests of a "+
				"cloud on it, such as %s: what they use would be reported as free; either "+
				"the URL leads to the wrong Placement, or Placement lost its database",
			node.Name, node.UUID, len(ofCloud), describe(ofCloud[0])),
		Hint: fmt.Sprintf(
			"check [placement_client] url and region, or restore Placement's database; if these guests have no "+
				"allocations in Placement, or they "+
				"are created afterwards: `compute-agent adopt --as-new --node %s`", node.Name),
	}
}

// lookupNode returns what is known of a node: that it may be created again; or as what it was
// reported. s.mu is held.
func (s *State) lookupNode(node plugins.Node) (granted bool, before Node, reported string) {
	if s.record == nil {
		return false, Node{}, ""
	}
	if slices.Contains(s.record.AsNew, node.Name) {
		return true, Node{}, ""
	}
	if before, ok := s.record.Nodes[node.UUID]; ok {
		return false, before, before.Name
	}
	for id, before := range s.record.Nodes {
		if before.Name == node.Name {
			return false, before, id
		}
	}
	return false, Node{}, ""
}

func describe(g plugins.Guest) string {
	if g.Name == "" {
		return g.UUID
	}
	return fmt.Sprintf("%.80s (%s)", g.Name, g.UUID)
}
