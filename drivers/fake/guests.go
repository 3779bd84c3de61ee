// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// guest is an entry of guest_list.
type guest struct {
	UUID      string `json:"uuid" toml:"uuid"`
	Name      string `json:"name" toml:"name"`
	ProjectID string `json:"project_id" toml:"project_id"`
	UserID    string `json:"user_id" toml:"user_id"`
	// Node may be "" if there is one only.
	Node string `json:"node" toml:"node"`
	// Resources are what the guest has, by the name of the child ("" is the node itself) and
	// resource class; none: not known.
	Resources providertree.ProviderResources `json:"resources" toml:"resources"`
}

// checkGuestList checks the key guest_list, and fills in the node of each guest.
func (c *config) checkGuestList() error {
	wrong := func(key, format string, args ...any) error {
		return &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)}
	}
	nodes, seen := c.nodeNames(), map[string]int{}
	for i := range c.GuestList {
		key := fmt.Sprintf("guest_list[%d]", i)
		g := &c.GuestList[i]
		uuid, err := providertree.CanonicalUUID(g.UUID)
		if err != nil {
			return wrong(key+".uuid", "%v", err)
		}
		if first, twice := seen[uuid]; twice {
			return wrong(key+".uuid", "is that of guest_list[%d] already", first)
		}
		g.UUID, seen[uuid] = uuid, i
		switch {
		case g.Node == "" && len(c.Nodes) != 1:
			return wrong(key+".node", "must be given, since there are %d nodes", len(c.Nodes))
		case g.Node == "":
			g.Node = c.Nodes[0].Name
		case !nodes[g.Node]:
			return wrong(key+".node", "there is no node %q", g.Node)
		}
		for _, child := range slices.Sorted(maps.Keys(g.Resources)) {
			for _, class := range slices.Sorted(maps.Keys(g.Resources[child])) {
				if err := providertree.ValidateClass(class); err != nil {
					return wrong(key+".resources."+child, "%v", err)
				}
				if n := g.Resources[child][class]; n < 1 || n > providertree.MaxUnit {
					return wrong(key+".resources."+
						child+"."+class, "%d: must be 1 to %d", n, int64(providertree.MaxUnit))
				}
			}
		}
	}
	return nil
}

// Guests lists the configured guests, and the instances. Without either key it is not supported,
// which is not the same as an empty list.
func (d *driver) Guests(_ context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	cfg, _, err := d.current()
	switch {
	case err != nil:
		return nil, err
	case cfg.GuestsError != "":
		return nil, errors.New(cfg.GuestsError)
	case cfg.GuestList == nil && cfg.Instances == nil:
		return nil, fmt.Errorf("%w: neither guest_list nor instances is configured", plugins.ErrUnsupported)
	case !cfg.has(node):
		return nil, fmt.Errorf("node %q is not configured", node)
	}
	guests := []plugins.Guest{}
	for _, g := range cfg.GuestList {
		if g.Node != node {
			continue
		}
		out := plugins.Guest{UUID: g.UUID, Name: g.Name, ProjectID: g.ProjectID, UserID: g.UserID}
		if g.Resources != nil {
			out.Resources = providertree.ProviderResources{}
		}
		for child, amounts := range g.Resources {
			name := node
			if child != "" {
				name = childName(node, child)
			}
			p, ok := tree.ProviderByName(name)
			if !ok { // resources must be complete
				return nil, fmt.Errorf("guest %s has resources of %q, and the tree has no such resource provider",
					g.UUID, name)
			}
			out.Resources[p.UUID] = maps.Clone(amounts)
		}
		guests = append(guests, out)
	}
	machines, err := d.hypervisor().list()
	if err != nil {
		return nil, err
	}
	root, ok := tree.ProviderByName(node)
	for _, m := range machines {
		if m.Node != node || cfg.isForeign(m.UUID) {
			continue
		}
		out := plugins.Guest{UUID: m.UUID, Name: m.Name, ProjectID: m.ProjectID, UserID: m.UserID}
		if ok {
			if out.Resources, err = cfg.resources(tree, root.UUID, cfg.node(node), m); err != nil {
				return nil, err
			}
		}
		guests = append(guests, out)
	}
	return guests, nil
}
