// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// checkNodes checks the response of AvailableNodes, and converts uuids to their canonical form.
func checkNodes(nodes []plugins.Node) error {
	d := &defects{}
	names, uuids := map[string]bool{}, map[string]string{}
	for i := range nodes {
		n := &nodes[i]
		switch problem := providertree.ValidateText(n.Name); {
		case providertree.ValidateProviderName(n.Name) != nil:
			d.add("node %d (%q): its name has %d characters, must have 1 to 200",
				i, clipped(n.Name), len([]rune(n.Name)))
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
			d.add("node %d (%q): its uuid %q is invalid: leave it empty for the agent's own identity",
				i, clipped(n.Name), clipped(n.UUID))
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
	if !protocol.IsDriverName(info.GetName()) {
		d.add("the driver's name is %q: must be 1 to 63 lower case letters, digits and hyphens",
			clip(info.GetName(), 100))
	}
	for _, c := range info.GetCapabilities() {
		if !capability.MatchString(c) {
			d.add("capability %q: must be 1 to 64 lower case letters, digits, underscores and hyphens", clip(c, 100))
		}
	}
	return d.err()
}

// checkInstances converts the response of Instances to a list, or rejects it: a missing instance
// counts as removed, so one invalid entry makes the whole list invalid.
//
// Cost: O(instances).
func checkInstances(msgs []*driverv1.Instance) ([]plugins.Instance, error) {
	if n := len(msgs); n > protocol.MaxInstances {
		return nil, fmt.Errorf("%d instances, at most %d are allowed", n, protocol.MaxInstances)
	}
	d := &defects{}
	out := make([]plugins.Instance, 0, len(msgs))
	seen := make(map[string]int, len(msgs))
	for i, m := range msgs {
		is := toInstance(d, fmt.Sprintf("instance %d (uuid %q, name %q): ",
			i, clip(m.GetUuid(), 100), clip(m.GetName(), 100)), m)
		if first, twice := seen[is.UUID]; twice && is.UUID != "" {
			d.add("instances %d and %d are both %s: list each instance once", first, i, is.UUID)
		}
		if d.full() {
			break
		}
		seen[is.UUID] = i
		out = append(out, is)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return out, nil
}

// checkInstance converts the response of a call for one instance.
func checkInstance(requested string, m *driverv1.Instance) (plugins.Instance, error) {
	if m == nil {
		return plugins.Instance{}, errors.New("it has no instance")
	}
	d := &defects{}
	is := toInstance(d, "instance: ", m)
	if is.UUID != "" && is.UUID != requested {
		d.add("it has instance %s, the request was for %s: an instance has the uuid that the agent gives it",
			is.UUID, requested)
	}
	if err := d.err(); err != nil {
		return plugins.Instance{}, err
	}
	return is, nil
}

// toInstance converts one instance, and adds what is wrong with it to the defects. Names are only
// shown, so they are made printable.
func toInstance(d *defects, which string, m *driverv1.Instance) plugins.Instance {
	uuid, err := providertree.CanonicalUUID(m.GetUuid())
	if err != nil {
		d.add("%sits uuid %q is invalid: use the one that Spawn was given", which, clipped(m.GetUuid()))
	}
	if err := protocol.CheckPower(m.GetPowerState()); err != nil {
		d.add("%s%v", which, err)
	}
	return plugins.Instance{
		UUID: uuid, Name: printable(m.GetName(), protocol.MaxName), Power: plugins.PowerState(m.GetPowerState()),
		HypervisorName: printable(m.GetHypervisorName(), protocol.MaxName),
	}
}

// changedInstance returns the instance of an event: all instances of the node if the uuid is
// invalid, all of all nodes if the node's name is invalid.
func changedInstance(event *driverv1.InstanceEvent) (node, uuid string) {
	if node = eventNode(event.GetNode()); node == "" {
		return "", ""
	}
	uuid, err := providertree.CanonicalUUID(event.GetUuid())
	if err != nil {
		return node, ""
	}
	return node, uuid
}
