// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Bounds of warnings, which are those of the protocol.
const (
	maxWarnings    = 100
	maxWarningText = 2000
)

var warningName = regexp.MustCompile(`^[a-z0-9][a-z0-9._:-]{0,79}$`)

// checkCapabilities checks the keys about warnings, capabilities, removed nodes and instances.
func (c *config) checkCapabilities() error {
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
	nodes := c.nodeNames()
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
	return nil
}

// nodeNames returns the names of the configured nodes.
func (c *config) nodeNames() map[string]bool {
	out := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		out[n.Name] = true
	}
	return out
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

// NodeDeleted returns true for the configured nodes.
func (d *driver) NodeDeleted(_ context.Context, node plugins.Node) (bool, error) {
	cfg, _, err := d.current()
	if err != nil {
		return false, err
	}
	return slices.Contains(cfg.DeletedNodes, node.Name), nil
}
