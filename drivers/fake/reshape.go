// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// relocation moves inventory of one class: the allocations at from move to the places in to.
type relocation struct {
	from plugins.Place
	to   []plugins.Place
}

// relocations compares a node's current inventory with the configured one, by class under their
// current names. Inventory moves where a place loses a class and another one gets it. A place that
// is only removed (a device was taken out) or only added moves nothing.
//
// The tree can have any former layout.
func (c config) relocations(tree *providertree.Tree, root string, node provider) ([]relocation, error) {
	now, err := c.places(tree, root, node)
	if err != nil {
		return nil, err
	}
	wanted := map[string][]plugins.Place{} // by class
	if err := collect(tree, root, root, node, node.Name, wanted); err != nil {
		return nil, err
	}
	var out []relocation
	for _, class := range slices.Sorted(maps.Keys(wanted)) {
		to := wanted[class]
		if slices.Equal(to, now[class]) {
			continue
		}
		is, will := setOf(now[class]), setOf(to)
		arrives := slices.ContainsFunc(to, func(p plugins.Place) bool { return !is[p] })
		for _, from := range now[class] {
			if arrives && !will[from] {
				out = append(out, relocation{from: from, to: to})
			}
		}
	}
	return out, nil
}

func setOf(places []plugins.Place) map[plugins.Place]bool {
	set := make(map[plugins.Place]bool, len(places))
	for _, p := range places {
		set[p] = true
	}
	return set
}

// places returns where the driver's own providers have inventory, by the current name of the class.
// On the root these are the classes configured for the node; others are external.
func (c config) places(tree *providertree.Tree, root string, node provider) (map[string][]plugins.Place, error) {
	configured := map[string]bool{}
	node.addClasses(configured)
	named := map[string]bool{}
	node.names(node.Name, named)
	out := map[string][]plugins.Place{}
	for _, uuid := range tree.Subtree(root) {
		p, _ := tree.Provider(uuid)
		if uuid != root && !named[p.Name] {
			own, err := providertree.ChildUUID(root, p.Name)
			if err != nil {
				return nil, err
			}
			if uuid != own {
				continue
			}
		}
		for _, class := range p.Inventories.Classes() {
			if present := c.ClassRenames.Present(class); configured[present] {
				out[present] = append(out[present], plugins.Place{Provider: uuid, Class: class})
			}
		}
	}
	return out, nil
}

func (p provider) addClasses(to map[string]bool) {
	for class := range p.Inventories {
		to[class] = true
	}
	for _, child := range p.Children {
		child.addClasses(to)
	}
}

// names adds the full name of the provider, and of all below it, to a set.
func (p provider) names(full string, to map[string]bool) {
	to[full] = true
	for _, child := range p.Children {
		child.names(child.nameBelow(full), to)
	}
}

// collect records where a configuration puts inventory.
func collect(tree *providertree.Tree, root, uuid string, p provider, name string, to map[string][]plugins.Place) error {
	for class := range p.Inventories {
		to[class] = append(to[class], plugins.Place{Provider: uuid, Class: class})
	}
	for _, child := range p.Children {
		full := child.nameBelow(name)
		id, err := childOf(tree, root, full)
		if err != nil {
			return err
		}
		if err := collect(tree, root, id, child, full, to); err != nil {
			return err
		}
	}
	return nil
}

// describe describes relocations. Providers that are not in the tree yet have no name.
func describe(tree *providertree.Tree, relocations []relocation) string {
	var parts []string
	for _, r := range relocations {
		p, _ := tree.Provider(r.from.Provider)
		part := fmt.Sprintf("%s of %s moves to %d places", r.from.Class, p.Name, len(r.to))
		if r.to[0].Class != r.from.Class {
			part += " as " + r.to[0].Class
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// reshape moves allocations to the new places of the inventory, and removes the former inventory.
// The tree already has the new one.
func (c config) reshape(
	ctx context.Context, tree *providertree.Tree, relocations []relocation, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	var moves plugins.Moves
	var violations []plugins.Violation
	after := allocations
	for _, r := range relocations {
		distribution := plugins.Distribution{From: r.from, To: r.to, Where: c.portionsAmong(tree, r)}
		some, err := distribution.Distribute(tree, after)
		if err == nil {
			after, err = some.Apply(after)
		}
		if failed := (*plugins.ReshapeFailed)(nil); errors.As(err, &failed) {
			violations = append(violations, failed.Violations...)
		} else if err != nil {
			return nil, err
		}
		moves = append(moves, some...)
		if _, err := tree.RemoveInventory(r.from.Provider, r.from.Class); err != nil {
			return nil, err
		}
	}
	if len(violations) > 0 {
		return nil, &plugins.ReshapeFailed{Reason: "some allocations do not fit the layout " +
			c.Layout, Violations: violations}
	}
	log := plugins.Logger(ctx)
	log.Info().Str("layout", c.Layout).Int("places", len(relocations)).Int("moves", len(moves)).
		Msg("Reshaped the provider tree.")
	return c.Faults.AfterReshape(after, moves)
}

// portionsAmong is for the instances, and for the guests that are configured.
func (c config) portionsAmong(tree *providertree.Tree, r relocation) func(string, int64) []plugins.Portion {
	return func(consumer string, amount int64) []plugins.Portion {
		if m, ok := c.machines[consumer]; ok {
			return m.movedPortions(tree, r.from, r.to, amount)
		}
		child, known := c.Guests[consumer]
		if !known {
			return nil
		}
		for _, place := range r.to {
			p, _ := tree.Provider(place.Provider)
			if strings.HasSuffix(p.Name, "_"+child) {
				return []plugins.Portion{{Place: place, Amount: amount}}
			}
		}
		return nil // its share of this class is not on that kind of child
	}
}
