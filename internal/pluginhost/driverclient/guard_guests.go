// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// maxOwner bounds the ids of projects and users, and names of guests, in bytes: Placement stores as
// many characters.
const maxOwner = 255

// maxUnknown bounds the reason why the resources of a guest are not known, in bytes.
const maxUnknown = 1024

// checkGuests converts the response of Guests to a list, or rejects it: allocations can be deleted
// because a guest is missing, so one invalid entry makes the whole list invalid.
//
// Cost: O(guests and what they have).
func checkGuests(tree *providertree.Tree, msgs []*driverv1.Guest) ([]plugins.Guest, error) {
	if n := len(msgs); n > protocol.MaxGuests {
		return nil, fmt.Errorf("%d guests, at most %d are allowed", n, protocol.MaxGuests)
	}
	d := &defects{}
	out := make([]plugins.Guest, 0, len(msgs))
	seen := make(map[string]int, len(msgs))
	for i, m := range msgs {
		g := toGuest(d, tree, i, m)
		if first, twice := seen[g.UUID]; twice && g.UUID != "" {
			d.add("guests %d and %d are both %s: list each guest once", first, i, g.UUID)
		}
		if d.full() {
			break
		}
		seen[g.UUID] = i
		out = append(out, g)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return out, nil
}

// toGuest converts one guest, and adds what is wrong with it to the defects.
func toGuest(d *defects, tree *providertree.Tree, i int, m *driverv1.Guest) plugins.Guest {
	wrong := func(format string, args ...any) {
		d.add("guest %d (uuid %q, name %q): "+format,
			append([]any{i, clip(m.GetUuid(), 100), clip(m.GetName(), 100)}, args...)...)
	}
	g := plugins.Guest{
		Name:             printable(m.GetName(), maxOwner),
		ProjectID:        m.GetProjectId(),
		UserID:           m.GetUserId(),
		ResourcesUnknown: printable(m.GetResourcesUnknown(), maxUnknown),
		FromFlavor:       m.GetRequested(),
	}
	var err error
	if g.UUID, err = providertree.CanonicalUUID(m.GetUuid()); err != nil {
		wrong("its uuid is invalid")
	}
	if len(g.ProjectID) > maxOwner || len(g.UserID) > maxOwner || providertree.ValidateText(g.ProjectID) != nil ||
		providertree.ValidateText(g.UserID) != nil {
		wrong("the id of its project or user must have at most %d bytes, all printable", maxOwner)
	}
	if m.GetResources() == nil {
		return g
	}
	if g.Resources, err = protocol.ToResources(m.GetResources().GetResources()); err != nil {
		var found providertree.Violations
		errors.As(err, &found)
		for _, v := range found {
			wrong("%s", v.Problem)
		}
		return g
	}
	for _, provider := range slices.Sorted(maps.Keys(g.Resources)) {
		switch {
		case !tree.Exists(provider):
			wrong("it has resources of provider %s, which is not in the tree", provider)
		case len(g.Resources[provider]) == 0:
			wrong("it lists provider %s without any resources", provider)
		}
	}
	return g
}
