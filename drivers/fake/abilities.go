// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
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

// Bounds of warnings, which are those of the protocol.
const (
	maxWarnings    = 100
	maxWarningText = 2000
)

var warningName = regexp.MustCompile(`^[a-z0-9][a-z0-9._:-]{0,79}$`)

// checkAbilities checks the keys about warnings, capabilities, guests and removed nodes.
func (c *config) checkAbilities() error {
	wrong := func(key, format string, args ...any) error {
		return &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)}
	}
	for _, trait := range slices.Sorted(maps.Keys(c.Capabilities)) {
		if err := providertree.ValidateTrait(trait); err != nil {
			return wrong("capabilities."+trait, "%v", err)
		}
	}
	if len(c.Warnings) > maxWarnings {
		return wrong("warnings", "%d: must be %d or less", len(c.Warnings), maxWarnings)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Warnings)) {
		switch n := len([]rune(c.Warnings[name])); {
		case !warningName.MatchString(name):
			return wrong("warnings."+name,
				"must be 1 to 80 of a-z, 0-9, -, _, . and :, starting with a letter or a digit")
		case n < 1 || n > maxWarningText:
			return wrong("warnings."+name, "has %d characters, must have 1 to %d", n, maxWarningText)
		}
	}
	nodes := map[string]bool{}
	for _, n := range c.Nodes {
		nodes[n.Name] = true
	}
	for i, name := range c.DeletedNodes {
		if nodes[name] {
			return wrong(fmt.Sprintf("deleted_nodes[%d]", i), "%q is one of the nodes", name)
		}
	}
	if c.Instances != nil && c.Instances.Hold != "" && !filepath.IsAbs(c.Instances.Hold) {
		return wrong("instances.hold", "%q: must be the absolute path of a file", c.Instances.Hold)
	}
	if c.Instances != nil && c.Instances.Storage != "" && !filepath.IsAbs(string(c.Instances.Storage)) {
		return wrong("instances.storage", "%q: must be the absolute path of a directory", c.Instances.Storage)
	}
	seen := map[string]int{}
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

// Warnings returns the configured warnings, which can change with the scenario, and one for each
// key that has its former name.
func (d *driver) Warnings() []plugins.Warning {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.follow()
	out := make([]plugins.Warning, 0, len(d.cfg.Warnings))
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Warnings)) {
		out = append(out, plugins.Warning{Name: name, Text: d.cfg.Warnings[name]})
	}
	for _, key := range slices.Sorted(maps.Keys(d.cfg.former)) {
		former := d.cfg.former[key]
		out = append(out, plugins.Warning{Name: "former-key." + former,
			Text: fmt.Sprintf("the key %s is called %s now: rename it in the driver's configuration", former, key)})
	}
	return out
}

// Capabilities returns the configured traits, for every node.
func (d *driver) Capabilities(string) map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.Capabilities
}

// ProductNames returns the configured product names of a node's providers.
func (d *driver) ProductNames(node string) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]string, len(d.cfg.ProductNames))
	for child, product := range d.cfg.ProductNames {
		name := node
		if child != "" {
			name = childName(node, child)
		}
		out[name] = product
	}
	return out
}

// Hypervisor returns what Nova's fake driver reports.
func (d *driver) Hypervisor(string) plugins.Hypervisor {
	return plugins.Hypervisor{Type: "fake", Version: 1000}
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

// NodeDeleted returns true for the configured nodes.
func (d *driver) NodeDeleted(_ context.Context, node plugins.Node) (bool, error) {
	cfg, _, err := d.current()
	if err != nil {
		return false, err
	}
	return slices.Contains(cfg.DeletedNodes, node.Name), nil
}
