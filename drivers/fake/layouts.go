// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// flat is the layout in which everything is where it is configured.
const flat = "flat"

// layouts are the named layouts: which classes of a node's own inventory are split over children.
var layouts = map[string][]kind{
	flat:            nil,
	"vgpu-children": {gpuChildren},
	"numa":          {gpuChildren, numaChildren},
}

// kind is one kind of children.
type kind struct {
	prefix  string
	classes []string
	traits  []string
	count   func(config) int
}

// child is the name of the i-th of them.
func (k kind) child(i int) string { return fmt.Sprint(k.prefix, i) }

var (
	gpuChildren  = kind{prefix: "gpu_", classes: []string{"VGPU"}, count: func(c config) int { return c.GPUs }}
	numaChildren = kind{
		prefix: "numa_", classes: []string{"VCPU", "PCPU", "MEMORY_MB", "SRIOV_NET_VF"},
		traits: []string{"HW_NUMA_ROOT"},
		count:  func(c config) int { return c.NUMACells },
	}
)

// checkReshape checks the keys about layouts, and converts the nodes to the configured one.
func (c *config) checkReshape() error {
	wrong := func(key, format string, args ...any) error {
		return &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)}
	}
	if c.Layout != "" && c.LayoutVersion != 0 {
		return wrong(c.given("layout"), "%s says what the layout is; one of the two only", c.given("layout_version"))
	}
	if c.Layout == "" {
		c.Layout = flat
	}
	kinds, ok := layouts[c.Layout]
	if !ok {
		return wrong(c.given("layout"), "%q: must be one of %s", c.Layout,
			strings.Join(slices.Sorted(maps.Keys(layouts)), ", "))
	}
	const most = 1000
	for key, n := range map[string]*int{"gpus": &c.GPUs, "numa_cells": &c.NUMACells} {
		if *n < 0 || *n > most {
			return wrong(key, "%d: must be 1 to %d", *n, most)
		}
		if *n == 0 {
			*n = 2
		}
	}
	if c.LayoutVersion != 0 && len(c.ClassRenames) == 0 {
		c.ClassRenames = standardNames
	}
	if err := c.ClassRenames.Validate(); err != nil {
		return wrong("class_renames", "%v", err)
	}
	for consumer, child := range c.Guests {
		uuid, err := providertree.CanonicalUUID(consumer)
		if err != nil || uuid != consumer {
			return wrong("guests."+consumer, "must be the uuid of a consumer, in lower case with hyphens")
		}
		if child == "" {
			return wrong("guests."+consumer, "must be the name of a child")
		}
	}
	for i := range c.Nodes {
		key := fmt.Sprintf("nodes[%d]", i)
		if class := c.Nodes[i].former(c.ClassRenames); class != "" {
			return wrong("class_renames."+class, "%s has inventory of %s, which is its former name", key, class)
		}
		for _, k := range kinds {
			if err := c.Nodes[i].split(k, k.count(*c)); err != nil {
				return wrong(key+".children", "layout %s: %v", c.Layout, err)
			}
		}
	}
	return c.checkVersions()
}

// former is a class of the provider or of one below it that is renamed, or "".
func (p *provider) former(renames plugins.ClassRenames) string {
	for class := range p.Inventories {
		if renames.Present(class) != class {
			return class
		}
	}
	for i := range p.Children {
		if class := p.Children[i].former(renames); class != "" {
			return class
		}
	}
	return ""
}

// split moves some of a node's inventory to n children, in equal parts as far as that goes.
func (p *provider) split(k kind, n int) error {
	var moving []string
	for _, class := range k.classes {
		if _, has := p.Inventories[class]; has {
			moving = append(moving, class)
		}
	}
	if len(moving) == 0 {
		return nil
	}
	rest := maps.Clone(p.Inventories)
	children := slices.Clone(p.Children)
	for i := range n {
		child := provider{Name: k.child(i), of: k.prefix, Traits: k.traits, Inventories: map[string]inventory{}}
		if slices.ContainsFunc(p.Children, func(c provider) bool { return c.Name == child.Name }) {
			return fmt.Errorf("%q is the name of a child in this layout", child.Name)
		}
		for _, class := range moving {
			inv := p.Inventories[class]
			inv.Total, inv.Reserved = part(inv.Total, i, n), part(inv.Reserved, i, n)
			if inv.Total > 0 {
				child.Inventories[class] = inv
			}
			delete(rest, class)
		}
		children = append(children, child)
	}
	p.Inventories, p.Children = rest, children
	return nil
}

// part is the i-th of n parts of a total.
func part(total int64, i, n int) int64 {
	size, more := total/int64(n), total%int64(n)
	if int64(i) < more {
		size++
	}
	return size
}
