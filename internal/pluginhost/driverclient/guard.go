// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
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
		switch problem := providertree.Printable(n.Name); {
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
