// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// guard refuses a driver's tree that no honest driver gives: one without the node's root, with the root renamed or moved,
// with other roots than before, with more reserved than there is, or with an empty root where there was inventory and none is left
// anywhere in the tree.
// It lists every offence.
func guard(known, desired *providertree.Tree, node plugins.Node) error {
	var errs []error
	root, found := desired.Provider(node.UUID)
	switch {
	case !found:
		errs = append(errs, fmt.Errorf("the root %s (%s) is missing", node.Name, node.UUID))
	case root.ParentUUID != "":
		errs = append(errs, fmt.Errorf("the root %s was put below %s", node.Name, root.ParentUUID))
	case root.Name != node.Name:
		errs = append(errs, fmt.Errorf("the root %s was renamed to %s; a node that changes its name is another node", node.Name, root.Name))
	}
	for _, uuid := range desired.Roots() {
		if uuid != node.UUID && !known.Exists(uuid) {
			p, _ := desired.Provider(uuid)
			errs = append(errs, fmt.Errorf("%s (%s) was added as a root of its own; new providers go below the node's root", p.Name, uuid))
		}
	}
	for p := range desired.All() {
		for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
			inv := p.Inventories[class]
			if was, there := known.Inventory(p.UUID, class); inv.Reserved > inv.Total && (!there || !was.Equal(inv)) {
				errs = append(errs, fmt.Errorf("of %s on %s (%s) more is reserved (%d) than there is (%d), which Placement refuses", class, p.Name, p.UUID, inv.Reserved, inv.Total))
			}
		}
	}
	if hasInventory(known, node.UUID) && !hasInventory(desired, node.UUID) {
		errs = append(errs, errors.New("all inventory of the node is gone; a driver that cannot tell what the machine has must say that it is not ready"))
	}
	return errors.Join(errs...)
}

func hasInventory(tree *providertree.Tree, root string) bool {
	for _, uuid := range tree.Subtree(root) {
		if p, _ := tree.Provider(uuid); len(p.Inventories) > 0 {
			return true
		}
	}
	return false
}
