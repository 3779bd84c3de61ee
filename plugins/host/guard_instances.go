// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// checkInstances turns the answer to Instances into a list, or refuses it: an instance that is not in it is taken for gone, so one entry
// that cannot be read makes all of it useless.
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
		is := toInstance(d, fmt.Sprintf("instance %d (uuid %q, name %q): ", i, clip(m.GetUuid(), 100), clip(m.GetName(), 100)), m)
		if first, twice := seen[is.UUID]; twice && is.UUID != "" {
			d.add("instances %d and %d are both %s: each is to be listed once", first, i, is.UUID)
		}
		if d.enough() {
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

// checkInstance turns the answer to a call about one instance into it.
func checkInstance(asked string, m *driverv1.Instance) (plugins.Instance, error) {
	if m == nil {
		return plugins.Instance{}, errors.New("the instance is missing in it")
	}
	d := &defects{}
	is := toInstance(d, "instance: ", m)
	if is.UUID != "" && is.UUID != asked {
		d.add("it is about instance %s, though %s was asked for: an instance has the uuid that the agent gives it", is.UUID, asked)
	}
	if err := d.err(); err != nil {
		return plugins.Instance{}, err
	}
	return is, nil
}

// toInstance is one instance; what is wrong with it is added to the defects. Names are for people: they are made fit to be shown.
func toInstance(d *defects, which string, m *driverv1.Instance) plugins.Instance {
	uuid, err := providertree.CanonicalUUID(m.GetUuid())
	if err != nil {
		d.add("%sits uuid %q is none: it is the one that Spawn was given", which, clipped(m.GetUuid()))
	}
	if err := protocol.CheckPower(m.GetPowerState()); err != nil {
		d.add("%s%v", which, err)
	}
	return plugins.Instance{
		UUID: uuid, Name: words(m.GetName(), protocol.MaxName), Power: plugins.PowerState(m.GetPowerState()),
		HypervisorName: words(m.GetHypervisorName(), protocol.MaxName),
	}
}

// changedInstance is what an event is about: all instances of the node for a uuid that is none, all of all nodes for a name that is none.
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
