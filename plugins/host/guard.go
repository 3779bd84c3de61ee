// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"regexp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// edited is a response with an edited tree: of UpdateProviderTree or ReshapeStep.
type edited interface {
	GetTree() *driverv1.ProviderTree
	GetAllocations() *driverv1.Allocations
	GetClassRenames() map[string]string
}

// checkReply converts a driver's response to a tree and allocations, or returns all its defects, up
// to [maxDefects]. [providertree.Check] defines what a valid tree is and what a driver can change;
// checkReply adds the rules of the protocol. What needs more than request and response is checked
// elsewhere:
//
//   - what other clients wrote to the node's tree (neutron's providers, an administrator's
//     traits): package resourcetracker/ownership restores it;
//   - whether a reshape keeps the amounts of every consumer: the resource tracker checks it with
//     the declared renames and the capacities;
//   - whether a standard class or trait exists, and whether a name or uuid is another host's:
//     only Placement knows.
//
// Cost: O(size of the reply).
func checkReply(before *providertree.Tree, node string, given providertree.Allocations, reply edited) (*providertree.Tree, providertree.Allocations, error) {
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return nil, nil, err
	}
	d := &defects{}
	d.violations(providertree.Check(before, after, node))
	allocations, err := protocol.ToAllocations(reply.GetAllocations())
	var found providertree.Violations
	switch {
	case given == nil && reply.GetAllocations() != nil:
		d.add("it has allocations, and the request had none: a driver that must move inventory in use returns ReshapeNeeded")
	case given != nil && reply.GetAllocations() == nil:
		d.add("it lacks the allocations of the request: return them, also those that did not move")
	case errors.As(err, &found):
		d.kind = err
		d.violations(found)
	case given == nil && len(reply.GetClassRenames()) > 0:
		d.add("it renames resource classes, and the request had no allocations: renames belong to a reshape")
	}
	d.join("", plugins.ClassRenames(reply.GetClassRenames()).Validate())
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	return after, allocations, nil
}

// checkNodes checks the response of AvailableNodes, and converts uuids to their canonical form.
func checkNodes(nodes []plugins.Node) error {
	d := &defects{}
	names, uuids := map[string]bool{}, map[string]string{}
	for i := range nodes {
		n := &nodes[i]
		switch problem := providertree.Printable(n.Name); {
		case providertree.ValidateProviderName(n.Name) != nil:
			d.add("node %d (%q): its name has %d characters, must have 1 to 200", i, clipped(n.Name), len([]rune(n.Name)))
		case problem != nil:
			d.add("node %d (%q): its name %v", i, n.Name, problem)
		case names[n.Name]:
			d.add("node %d (%q): its name is also that of another node; list each node once", i, n.Name)
		}
		names[n.Name] = true
		if n.UUID == "" {
			continue
		}
		uuid, err := providertree.CanonicalUUID(n.UUID)
		other, taken := uuids[uuid]
		switch {
		case err != nil:
			d.add("node %d (%q): its uuid %q is invalid: leave it empty for the agent's own identity", i, clipped(n.Name), clipped(n.UUID))
		case taken:
			d.add("node %d (%q): its uuid %s is also that of %q", i, clipped(n.Name), uuid, clipped(other))
		default:
			n.UUID, uuids[uuid] = uuid, n.Name
		}
	}
	return d.err()
}

// capability is the syntax of a capability.
var capability = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// checkInfo checks the response of Info. Its other fields are only shown, see [printable].
func checkInfo(info *driverv1.InfoResponse) error {
	d := &defects{}
	if !driverName.MatchString(info.GetName()) {
		d.add("the driver's name is %q: must be 1 to 63 lower case letters, digits and hyphens", clip(info.GetName(), 100))
	}
	for _, c := range info.GetCapabilities() {
		if !capability.MatchString(c) {
			d.add("capability %q: must be 1 to 64 lower case letters, digits, underscores and hyphens", clip(c, 100))
		}
	}
	return d.err()
}
