// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// The layout versions of the tree. Layouts that depend on the configuration have no number.
const (
	// layoutRoot: virtual GPUs and contexts of memory encryption are on the root. Nova wrote such
	// trees before Rocky, and before 2025.2.
	layoutRoot = 1
	// layoutDevices: each GPU and each kind of encryption is a child of its own.
	layoutDevices = 2
)

// LayoutVersion is the newest layout. The configuration decides whether processors and memory are
// on the root or on NUMA cells, and which processors are dedicated; UpdateProviderTree moves these,
// back and forth.
func (d *Driver) LayoutVersion() int { return layoutDevices }

// Reshape migrates a tree from one layout version to the next: the devices' inventory to the
// devices, with its allocations. NUMA cells stay unchanged.
func (d *Driver) Reshape(
	ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	cfg, link, root, err := d.nodeOf(ctx, tree, node)
	if err != nil {
		return nil, err
	}
	d.setRenames(nil)
	if from != layoutRoot || len(tree.Children(root)) == 0 && noInventory(tree, root) {
		return allocations, nil // the first layout needs no migration, and a new node has nothing to move
	}
	f, err := d.discover(ctx, cfg, link, true)
	if err != nil {
		return nil, driverError(err)
	}
	c, err := d.choose(cfg, f, tree, root, node)
	if err != nil {
		return nil, driverError(err)
	}
	after, err := d.updateTree(ctx, cfg, c, tree, root, isNested(tree, root, node), allocations)
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", node, err)
	}
	return after, nil
}

func noInventory(tree *providertree.Tree, root string) bool {
	view, _ := tree.Provider(root)
	return len(view.Inventories) == 0
}

// isNested reports whether a tree has the driver's NUMA cells. An empty one is a leftover: of a
// reshape that failed after it created providers, or because of an unmanaged child.
func isNested(tree *providertree.Tree, root, node string) bool {
	return slices.ContainsFunc(tree.Children(root), func(uuid string) bool {
		view, _ := tree.Provider(uuid)
		return strings.HasPrefix(view.Name, node+"_numa_") &&
			tree.HasTraits(uuid, "HW_NUMA_ROOT") && len(view.Inventories) > 0
	})
}

// updateTree edits the tree to match the host, flat or nested. Without allocations it returns
// [plugins.ReshapeNeeded] if some would have to move. An error leaves the tree unchanged.
func (d *Driver) updateTree(
	ctx context.Context, cfg config, c choice, tree *providertree.Tree, root string, nested bool,
	allocations providertree.Allocations,
) (providertree.Allocations, error) {
	after := tree.Clone()
	moved, err := d.updateCopy(ctx, cfg, c, tree, after, root, nested, allocations)
	if err != nil {
		return nil, err
	}
	*tree = *after
	return moved, nil
}

// updateCopy is updateTree on tree, the copy that an error leaves half edited; before is the tree.
func (d *Driver) updateCopy(
	ctx context.Context, cfg config, c choice, before, tree *providertree.Tree, root string, nested bool,
	allocations providertree.Allocations,
) (providertree.Allocations, error) {
	if err := d.checkCells(c.machine, nested); err != nil {
		return nil, err
	}
	wanted, odd, err := inventory.Want(c.host, cfg.settings(nested))
	if err != nil {
		return nil, err
	}
	d.discrepancies.add(odd)
	moving, err := wanted.Moving(tree, root)
	if err != nil {
		return nil, err
	}
	sites, err := wanted.Sites(tree, root)
	if err != nil {
		return nil, err
	}
	moving = c.mustMove(moving, sites, nested)
	if len(moving) > 0 && allocations == nil {
		return nil, &plugins.ReshapeNeeded{Reason: describeMoves(tree, moving, nested)}
	}
	if err := wanted.Put(tree, root); err != nil {
		return nil, err
	}
	d.setRenames(nil)
	if allocations == nil {
		return nil, nil
	}
	if len(moving) > 0 {
		if allocations, err = d.move(ctx, cfg, c, tree, root, moving, sites, allocations); err != nil {
			return nil, err
		}
	}
	if !nested {
		if err := dropIdlePages(tree, root, allocations); err != nil {
			return nil, err
		}
	}
	if draining := inventory.Draining(before, tree, root, allocations); len(draining) > 0 {
		*tree = *before.Clone()
		if err := wanted.PutDraining(tree, root, draining); err != nil {
			return nil, err
		}
	}
	return allocations, nil
}

// dropIdlePages removes unallocated huge pages from the root of a flat tree: they are only for
// guests that held some of a cell.
func dropIdlePages(tree *providertree.Tree, root string, allocations providertree.Allocations) error {
	used := allocations.Used(root)
	view, _ := tree.Provider(root)
	for _, class := range view.Inventories.Classes() {
		if _, pages := selection.PagesSize(class); pages && used[class] == 0 {
			if _, err := tree.RemoveInventory(root, class); err != nil {
				return err
			}
		}
	}
	return nil
}

// move moves what is allocated at the moving places, in a tree that has all that is wanted.
func (d *Driver) move(
	ctx context.Context, cfg config, c choice, tree *providertree.Tree, root string, moving []plugins.Place,
	sites map[string]assignment.Provider, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	policy := assignment.Refuse
	if cfg.Unplaced == guess {
		policy = assignment.Guess
	}
	moved, err := assignment.Move(assignment.MoveRequest{
		Tree: tree, Root: root, Moving: moving, Sites: sites, Machine: c.machine, Domains: c.domains, Unread: c.unread,
		Dedicated: c.cpus.PCPU, Rule: assignment.Split, Unplaced: policy, Allocations: allocations,
	})
	if err != nil {
		return nil, err
	}
	d.setRenames(moved.Renames)
	logger := plugins.Logger(ctx)
	for _, note := range moved.Notes {
		if policy == assignment.Guess { // a plan shows warnings, and what was guessed is to be looked at before
			logger.Warn().Msg(note)
		} else {
			logger.Info().Msg(note)
		}
	}
	logger.Info().Int("moves", len(moved.Moves)).Int("places", len(moving)).Msg("Allocations move with the inventory.")
	return moved.Allocations, nil
}

// mustMove leaves out what need not move: VCPU that stays on its provider while no guest has
// dedicated processors.
func (c choice) mustMove(moving []plugins.Place, sites map[string]assignment.Provider, nested bool) []plugins.Place {
	if len(moving) == 0 || c.dedicatedGuests() {
		return moving
	}
	return slices.DeleteFunc(slices.Clone(moving), func(p plugins.Place) bool {
		return p.Class == "VCPU" && c.hasVCPU(sites[p.Provider], nested)
	})
}

// hasVCPU reports whether a site has VCPU.
func (c choice) hasVCPU(site assignment.Provider, nested bool) bool {
	switch site.Kind {
	case assignment.Root:
		return !nested && len(c.cpus.VCPU) > 0
	case assignment.Cell:
		return nested && slices.ContainsFunc(c.cpus.Cells,
			func(cell selection.CPUCell) bool { return cell.ID == site.Cell && len(cell.VCPU) > 0 })
	}
	return false
}

// dedicatedGuests reports whether some guest has, or may have, a virtual processor pinned to a
// dedicated one.
func (c choice) dedicatedGuests() bool {
	for _, d := range c.domains {
		for vcpu := range d.VCPUs {
			if pin := d.CPUs(vcpu); len(pin) == 1 && slices.Contains(c.cpus.PCPU, pin[0]) {
				return true
			}
		}
	}
	return len(c.unread) > 0
}

// describeMoves describes the inventory that moves.
func describeMoves(tree *providertree.Tree, moving []plugins.Place, nested bool) string {
	from := map[string][]string{}
	for _, p := range moving {
		view, _ := tree.Provider(p.Provider)
		from[view.Name] = append(from[view.Name], p.Class)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(from)) {
		parts = append(parts, fmt.Sprintf("%s of %s", strings.Join(from[name], ", "), name))
	}
	const most = 8
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	tree2 := "the flat tree"
	if nested {
		tree2 = "the tree with NUMA cells"
	}
	return fmt.Sprintf("in %s another provider has %s", tree2, strings.Join(parts, "; "))
}

// setRenames stores the result of ClassRenames.
func (d *Driver) setRenames(renames plugins.ClassRenames) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renames = renames
}

// ClassRenames returns the renames of the last reshape: VCPU to PCPU for guests with dedicated
// processors, and classes of devices that the configuration gave another name.
func (d *Driver) ClassRenames() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renames
}
