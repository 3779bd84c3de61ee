// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

const classDiskGB = "DISK_GB"

// requests finds what guests that Nova made are to hold, and where.
type requests struct {
	cfg  config
	tree *providertree.Tree
	node string
	root string
	// host places guests in NUMA cells; nil where the tree has none.
	host *assignment.Host
}

// guest is a domain with what it is to hold, or why that is not known.
func (r requests) guest(d domain.Domain) plugins.Guest {
	g := plugins.Guest{UUID: d.UUID, Name: d.Name}
	g.ProjectID, g.UserID = d.Owner()
	switch {
	case d.Mark != nil:
		g.ResourcesUnknown = "the compute API created it. " +
			"What to do: openstack resource provider allocation set " + d.UUID
		return g
	case d.Nova == nil:
		g.ResourcesUnknown = "its domain has no Nova metadata. " +
			"What to do: openstack resource provider allocation set " + d.UUID
		return g
	}
	amounts, reason := d.Requested(r.cfg.sets.Shared)
	if reason == "" {
		g.Resources, reason = r.place(d, amounts)
	}
	if reason != "" {
		g.ResourcesUnknown = fmt.Sprintf("%s. What to do: nova-manage placement heal_allocations --instance %s",
			reason, d.UUID)
		return g
	}
	g.FromFlavor = true
	return g
}

// place assigns the amounts to providers.
func (r requests) place(
	d domain.Domain, amounts map[string]int64,
) (resources providertree.ProviderResources, reason string) {
	resources = providertree.ProviderResources{}
	add := func(provider, class string, amount int64) {
		if resources[provider] == nil {
			resources[provider] = map[string]int64{}
		}
		resources[provider][class] += amount
	}
	if disk := amounts[classDiskGB]; disk > 0 {
		provider, found := r.diskProvider()
		if !found {
			return nil, "neither the node nor exactly one provider that shares storage with it has an inventory of " +
				classDiskGB
		}
		add(provider, classDiskGB, disk)
	}
	computing := map[string]int64{}
	for class, amount := range amounts {
		if class != classDiskGB {
			computing[class] = amount
		}
	}
	if r.host == nil {
		for class, amount := range computing {
			add(r.root, class, amount)
		}
		return resources, ""
	}
	fixed := r.host.Facts(d).Guest(computing).Fixed
	classes := slices.Sorted(maps.Keys(computing))
	for _, class := range slices.Backward(classes) { // CPUs before memory, so that the reason stays the same
		amount := computing[class]
		for cell, part := range fixed[class] {
			v, found := r.tree.ProviderByName(fmt.Sprintf("%s_numa_%d", r.node, cell))
			if !found {
				return nil, fmt.Sprintf("the tree has no resource provider of its NUMA cell %d", cell)
			}
			add(v.UUID, class, part)
			amount -= part
		}
		if amount > 0 {
			return nil, "it is not bound to NUMA cells, so it is unknown which cell provides its " + class + " is"
		}
	}
	return resources, ""
}

// diskProvider is the one that disk space is of: the root, or the only one that shares its storage
// with the node.
func (r requests) diskProvider() (uuid string, found bool) {
	if _, has := r.tree.Inventory(r.root, classDiskGB); has {
		return r.root, true
	}
	root, _ := r.tree.Provider(r.root)
	for p := range r.tree.All() {
		_, has := p.Inventories[classDiskGB]
		shares := p.HasTrait(providertree.TraitSharesViaAggregate)
		if !has || !shares || !slices.ContainsFunc(p.Aggregates,
			func(a string) bool { return slices.Contains(root.Aggregates, a) }) {
			continue
		}
		if found {
			return "", false
		}
		uuid, found = p.UUID, true
	}
	return uuid, found
}
