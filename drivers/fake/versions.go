// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/compute-agent/compute-agent/drivers/fake/internal/faults"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// The versions of this driver's layout. layout_version selects the release that the driver acts as.
const (
	// layoutFlat: everything is where it is configured. Nova writes that too, so there is nothing
	// to do from 0 to 1.
	layoutFlat = 1
	// layoutGPUs: VGPU is on one child per GPU.
	layoutGPUs = 2
	// layoutNUMA: processors and memory are on NUMA cells, and each GPU is below the cell that it
	// is plugged into.
	layoutNUMA = 3
	// layoutNames: classes that were custom ones have their standard names.
	layoutNames = 4

	lastLayout = layoutNames
)

// standardNames are the renames of the last layout if none are configured.
var standardNames = plugins.ClassRenames{"CUSTOM_FPGA": "FPGA"}

// checkVersions checks layout_version, and converts the nodes to that layout and all before it.
func (c *config) checkVersions() error {
	wrong := func(key, format string, args ...any) error {
		return &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)}
	}
	if c.LayoutVersion < 0 || c.LayoutVersion > lastLayout {
		return wrong(c.given("layout_version"), "%d: must be 1 to %d, or 0 for none", c.LayoutVersion, lastLayout)
	}
	if c.LayoutVersion == 0 {
		return nil
	}
	former := map[string]string{} // by present name
	for _, name := range slices.Sorted(maps.Keys(c.ClassRenames)) {
		present := c.ClassRenames[name]
		if other, taken := former[present]; taken {
			return wrong("class_renames."+name,
				"with %s a class has one former name only, and %s is that of %s already",
				c.given("layout_version"), other, present)
		}
		former[present] = name
	}
	c.layouts = make([][]provider, c.LayoutVersion+1)
	for version := layoutFlat; version <= c.LayoutVersion; version++ {
		for i, n := range c.Nodes {
			if err := n.inLayout(version, *c, former); err != nil {
				return wrong(fmt.Sprintf("nodes[%d].children", i), "layout version %d: %v", version, err)
			}
			c.layouts[version] = append(c.layouts[version], n)
		}
	}
	c.Nodes = c.layouts[c.LayoutVersion]
	if c.LayoutVersion < layoutNames { // to this release they are classes like any others
		c.ClassRenames = nil
	}
	return nil
}

// inLayout converts a configured node to a layout. former are the names of classes before
// layoutNames.
func (p *provider) inLayout(version int, c config, former map[string]string) error {
	if version >= layoutGPUs {
		if err := p.split(gpuChildren, c.GPUs); err != nil {
			return err
		}
	}
	if version >= layoutNUMA {
		before := len(p.Children)
		if err := p.split(numaChildren, c.NUMACells); err != nil {
			return err
		}
		p.plugIn(len(p.Children) - before)
	}
	if version < layoutNames {
		*p = p.withClassNames(former)
	}
	return nil
}

// plugIn puts the GPUs below the NUMA cells, which are the last children, in turn. They stay the
// resource providers that they are, name and all.
func (p *provider) plugIn(cells int) {
	if cells == 0 {
		return
	}
	at, to := p.Children[:len(p.Children)-cells], slices.Clone(p.Children[len(p.Children)-cells:])
	var rest []provider
	gpus := 0
	for _, child := range at {
		if child.of != gpuChildren.prefix {
			rest = append(rest, child)
			continue
		}
		child.full = childName(p.Name, child.Name)
		cell := &to[gpus%cells]
		cell.Children = append(slices.Clone(cell.Children), child)
		gpus++
	}
	p.Children = append(rest, to...)
}

// withClassNames is the provider with other names for classes, all the way down.
func (p provider) withClassNames(names map[string]string) provider {
	inventories := make(map[string]inventory, len(p.Inventories))
	for class, inv := range p.Inventories {
		if name, ok := names[class]; ok {
			class = name
		}
		inventories[class] = inv
	}
	p.Inventories, p.Children = inventories, slices.Clone(p.Children)
	for i := range p.Children {
		p.Children[i] = p.Children[i].withClassNames(names)
	}
	return p
}

// LayoutVersion returns the configured one.
func (d *driver) LayoutVersion() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.LayoutVersion
}

// Reshape runs one migration.
func (d *driver) Reshape(
	ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	cfg, _, err := d.current()
	if err != nil {
		return nil, err
	}
	root, ok := tree.ProviderByName(node)
	if !ok {
		return nil, fmt.Errorf("the tree has no resource provider %q", node)
	}
	if cfg.machines, err = d.machines(); err != nil {
		return nil, err
	}
	after, err := cfg.step(ctx, tree, root.UUID, node, from, allocations)
	if err == nil {
		d.declare(cfg.stepRenames(from))
	}
	return after, err
}

// stepRenames are the classes that a step renames. Only the last one does.
func (c config) stepRenames(from int) plugins.ClassRenames {
	if from+1 == layoutNames {
		return c.ClassRenames
	}
	return nil
}

// step migrates to the layout after from. It moves inventory that the next layout has elsewhere; a
// tree of a later layout, or an empty one, has none.
func (c config) step(
	ctx context.Context, tree *providertree.Tree, root, node string, from int, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	if from < layoutFlat {
		return allocations, nil
	}
	if from >= c.LayoutVersion {
		return nil, fmt.Errorf("layout version %d cannot be migrated: this release has versions up to %d",
			from, c.LayoutVersion)
	}
	i := slices.IndexFunc(c.layouts[from], func(p provider) bool { return p.Name == node })
	if i < 0 {
		return nil, fmt.Errorf("node %q is not configured", node)
	}
	older, newer := c.layouts[from][i], c.layouts[from+1][i]
	relocations, err := betweenLayouts(tree, root, older, newer, c.stepRenames(from))
	switch {
	case err != nil || len(relocations) == 0:
		return allocations, err
	case c.Faults.Reshape == faults.Again:
		return nil, &plugins.ReshapeNeeded{Reason: describe(tree, relocations)}
	}
	moving := map[string]bool{}
	for _, r := range relocations {
		moving[r.to[0].Class] = true
	}
	if err := put(tree, root, newer.onlyClasses(moving), node, map[string]bool{}); err != nil {
		return nil, err
	}
	c.Layout = strconv.Itoa(from + 1)
	return c.reshape(ctx, tree, relocations, allocations)
}

// steps runs all migrations, for a reshape in one call.
func (c config) steps(
	ctx context.Context, tree *providertree.Tree, root, node string, allocations providertree.Allocations,
) (_ providertree.Allocations, err error) {
	for from := range c.LayoutVersion {
		if allocations, err = c.step(ctx, tree, root, node, from, allocations); err != nil {
			return nil, err
		}
	}
	return allocations, nil
}

// betweenLayouts returns the inventory in the tree that one layout has elsewhere than the one
// before.
func betweenLayouts(
	tree *providertree.Tree, root string, older, newer provider, renames plugins.ClassRenames,
) ([]relocation, error) {
	was, is := map[string][]plugins.Place{}, map[string][]plugins.Place{} // by class
	if err := collect(tree, root, root, older, older.Name, was); err != nil {
		return nil, err
	}
	if err := collect(tree, root, root, newer, newer.Name, is); err != nil {
		return nil, err
	}
	var out []relocation
	for _, class := range slices.Sorted(maps.Keys(was)) {
		to := is[renames.Present(class)]
		for _, from := range was[class] {
			if _, there := tree.Inventory(from.Provider, from.Class); there &&
				!slices.Contains(to, from) && len(to) > 0 {
				out = append(out, relocation{from: from, to: to})
			}
		}
	}
	return out, nil
}

// onlyClasses is the provider and those below it with the inventory of some classes.
func (p provider) onlyClasses(classes map[string]bool) provider {
	inventories := map[string]inventory{}
	for class, inv := range p.Inventories {
		if classes[class] {
			inventories[class] = inv
		}
	}
	p.Inventories, p.Children = inventories, slices.Clone(p.Children)
	for i := range p.Children {
		p.Children[i] = p.Children[i].onlyClasses(classes)
	}
	return p
}

// unknownLayout returns the error for a tree whose inventory is where no layout of this release has
// it.
func unknownLayout(version int, relocations []relocation) error {
	failed := &plugins.ReshapeFailed{Reason: fmt.Sprintf(
		"the tree has none of the layout versions 1 to %d that this release knows", version)}
	for _, r := range relocations {
		failed.Violations = append(failed.Violations,
			plugins.Violation{Provider: r.from.Provider,
				Class: r.from.Class, Problem: "no layout has this inventory here"})
	}
	return failed
}
