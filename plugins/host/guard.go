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

// edited is an answer that holds an edited tree: to UpdateProviderTree or to ReshapeStep.
type edited interface {
	GetTree() *driverv1.ProviderTree
	GetAllocations() *driverv1.Allocations
	GetClassRenames() map[string]string
}

// checkReply turns a driver's answer into a tree and allocations, or refuses it with everything that is wrong, up to
// [maxDefects]. What a valid tree is, and what a driver may do to one, is for [providertree.Check] to say; here is what
// the protocol demands of an answer. What takes more than the question and the answer is not checked here:
//
//   - what in the node's own tree belongs to another program (neutron's providers, an administrator's traits) is known by
//     the record of package resourcetracker/ownership, which puts back what the driver took away;
//   - whether a reshape loses, invents or steals anything takes the declared renames and the capacities: the resource
//     tracker looks at every consumer;
//   - whether a standard class or trait exists, and whether a name or uuid is another host's, Placement alone can say.
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
		d.add("it holds allocations, though none were given: a driver that must move inventory in use answers ReshapeNeeded")
	case given != nil && reply.GetAllocations() == nil:
		d.add("the allocations that were given are missing in it: give them back, also those that did not move")
	case errors.As(err, &found):
		d.kind = err
		d.violations(found)
	case given == nil && len(reply.GetClassRenames()) > 0:
		d.add("it renames resource classes, though no allocations were given: renames belong to a reshape")
	}
	d.join("", plugins.ClassRenames(reply.GetClassRenames()).Validate())
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	return after, allocations, nil
}

// checkNodes checks the answer to AvailableNodes, and brings uuids into their canonical form.
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
			d.add("node %d (%q): its name is also that of another node; each is listed once", i, n.Name)
		}
		names[n.Name] = true
		if n.UUID == "" {
			continue
		}
		uuid, err := providertree.CanonicalUUID(n.UUID)
		other, taken := uuids[uuid]
		switch {
		case err != nil:
			d.add("node %d (%q): its uuid %q is none: leave it empty for the agent's own identity", i, clipped(n.Name), clipped(n.UUID))
		case taken:
			d.add("node %d (%q): its uuid %s is also that of %q", i, clipped(n.Name), uuid, clipped(other))
		default:
			n.UUID, uuids[uuid] = uuid, n.Name
		}
	}
	return d.err()
}

// capability is the form of one.
var capability = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// checkInfo checks the answer to Info. Its other words are for people, see [words].
func checkInfo(info *driverv1.InfoResponse) error {
	d := &defects{}
	if !driverName.MatchString(info.GetName()) {
		d.add("the driver calls itself %q: a name is 1 to 63 lower case letters, digits and hyphens", clip(info.GetName(), 100))
	}
	for _, c := range info.GetCapabilities() {
		if !capability.MatchString(c) {
			d.add("capability %q: has not 1 to 64 lower case letters, digits, underscores and hyphens", clip(c, 100))
		}
	}
	return d.err()
}
