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

// The shapes of the tree that do not depend on the configuration, by number.
const (
	// shapeRoot: virtual GPUs and contexts of memory encryption are on the root. Nova wrote such trees before Rocky, and before 2025.2.
	shapeRoot = 1
	// shapeDevices: each GPU and each kind of encryption is a child of its own.
	shapeDevices = 2
)

// ShapeVersion is the newest shape. Whether processors and memory are on the root or on NUMA cells, and which processors are dedicated, is for
// the configuration to say, forth and back; that is moved by UpdateProviderTree.
func (d *Driver) ShapeVersion() int { return shapeDevices }

// Reshape takes a tree from one shape to the next: the devices' inventory to the devices, with all that is allocated of it. NUMA cells stay as they
// are.
func (d *Driver) Reshape(ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations) (providertree.Allocations, error) {
	cfg, link, root, err := d.nodeOf(ctx, tree, node)
	if err != nil {
		return nil, err
	}
	d.declare(nil)
	if from != shapeRoot || len(tree.Children(root)) == 0 && noInventory(tree, root) {
		return allocations, nil // nothing moved into the first shape, and a new node has nothing to move
	}
	f, err := d.survey(ctx, cfg, link, true)
	if err != nil {
		return nil, answer(err)
	}
	c, err := d.choose(cfg, f, tree, root, node)
	if err != nil {
		return nil, answer(err)
	}
	after, err := d.shape(ctx, cfg, c, tree, root, isNested(tree, root, node), allocations)
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", node, err)
	}
	return after, nil
}

func noInventory(tree *providertree.Tree, root string) bool {
	view, _ := tree.Provider(root)
	return len(view.Inventories) == 0
}

// isNested tells whether a tree has NUMA cells of the driver's. One with nothing in it is left over: from a reshape that came to nothing when its
// providers were made, or because somebody else has a provider below it.
func isNested(tree *providertree.Tree, root, node string) bool {
	return slices.ContainsFunc(tree.Children(root), func(uuid string) bool {
		view, _ := tree.Provider(uuid)
		return strings.HasPrefix(view.Name, node+"_numa_") && tree.HasTraits(uuid, "HW_NUMA_ROOT") && len(view.Inventories) > 0
	})
}

// shape makes the tree what the host is, flat or nested. Without allocations it answers [plugins.ReshapeNeeded] if some would have to move. An
// error leaves the tree as it was.
func (d *Driver) shape(ctx context.Context, cfg config, c choice, tree *providertree.Tree, root string, nested bool, allocations providertree.Allocations) (providertree.Allocations, error) {
	after := tree.Clone()
	moved, err := d.reshaped(ctx, cfg, c, tree, after, root, nested, allocations)
	if err != nil {
		return nil, err
	}
	*tree = *after
	return moved, nil
}

// reshaped is shape in a copy of the tree before, which may be left half edited.
func (d *Driver) reshaped(ctx context.Context, cfg config, c choice, before, tree *providertree.Tree, root string, nested bool, allocations providertree.Allocations) (providertree.Allocations, error) {
	wanted, odd, err := inventory.Want(c.host, cfg.settings(nested))
	if err != nil {
		return nil, err
	}
	d.doubts.take(odd)
	leaving, err := wanted.Leaving(tree, root)
	if err != nil {
		return nil, err
	}
	sites, err := wanted.Sites(tree, root)
	if err != nil {
		return nil, err
	}
	leaving = c.really(leaving, sites, nested)
	if len(leaving) > 0 && allocations == nil {
		return nil, &plugins.ReshapeNeeded{Reason: inWords(tree, leaving, nested)}
	}
	if err := wanted.Put(tree, root); err != nil {
		return nil, err
	}
	d.declare(nil)
	if allocations == nil {
		return nil, nil
	}
	if len(leaving) > 0 {
		if allocations, err = d.move(ctx, cfg, c, tree, root, leaving, sites, allocations); err != nil {
			return nil, err
		}
	}
	if !nested {
		if err := dropIdlePages(tree, root, allocations); err != nil {
			return nil, err
		}
	}
	if behind := inventory.Behind(before, tree, root, allocations); len(behind) > 0 {
		*tree = *before.Clone()
		if err := wanted.PutBeside(tree, root, behind); err != nil {
			return nil, err
		}
	}
	return allocations, nil
}

// dropIdlePages takes the huge pages off the root of a flat tree that nobody holds: they are there only for those who held some of a cell.
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

// move moves what is allocated at the leaving places, in a tree that has all that is wanted.
func (d *Driver) move(ctx context.Context, cfg config, c choice, tree *providertree.Tree, root string, leaving []plugins.Place, sites map[string]assignment.Provider, allocations providertree.Allocations) (providertree.Allocations, error) {
	policy := assignment.Refuse
	if cfg.Unplaced == guess {
		policy = assignment.Guess
	}
	moved, err := assignment.Move(assignment.MoveRequest{
		Tree: tree, Root: root, Leaving: leaving, Sites: sites, Machine: c.machine, Domains: c.domains, Unread: c.unread,
		Dedicated: c.cpus.PCPU, Rule: assignment.Split, Unplaced: policy, Allocations: allocations,
	})
	if err != nil {
		return nil, err
	}
	d.declare(moved.Renames)
	logger := plugins.Logger(ctx)
	for _, note := range moved.Notes {
		if policy == assignment.Guess { // a plan shows warnings, and what was guessed is to be looked at before
			logger.Warn().Msg(note)
		} else {
			logger.Info().Msg(note)
		}
	}
	logger.Info().Int("moves", len(moved.Moves)).Int("places", len(leaving)).Msg("What is allocated goes along to where the inventory is now.")
	return moved.Allocations, nil
}

// really leaves out what need not move: VCPU that stays where it is as long as no guest has dedicated processors.
func (c choice) really(leaving []plugins.Place, sites map[string]assignment.Provider, nested bool) []plugins.Place {
	if len(leaving) == 0 || c.dedicatedGuests() {
		return leaving
	}
	return slices.DeleteFunc(slices.Clone(leaving), func(p plugins.Place) bool {
		return p.Class == "VCPU" && c.hasVCPU(sites[p.Provider], nested)
	})
}

// hasVCPU tells whether there is VCPU at a site.
func (c choice) hasVCPU(site assignment.Provider, nested bool) bool {
	switch site.Kind {
	case assignment.Root:
		return !nested && len(c.cpus.VCPU) > 0
	case assignment.Cell:
		return nested && slices.ContainsFunc(c.cpus.Cells, func(cell selection.CPUCell) bool { return cell.ID == site.Cell && len(cell.VCPU) > 0 })
	}
	return false
}

// dedicatedGuests tells whether some guest has, or may have, a virtual processor pinned to a dedicated one.
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

// inWords says what is to move.
func inWords(tree *providertree.Tree, leaving []plugins.Place, nested bool) string {
	from := map[string][]string{}
	for _, p := range leaving {
		view, _ := tree.Provider(p.Provider)
		from[view.Name] = append(from[view.Name], p.Class)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(from)) {
		parts = append(parts, fmt.Sprintf("%s of %s", strings.Join(from[name], ", "), name))
	}
	const most = 8
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("and of %d more", more))
	}
	tree2 := "the flat tree"
	if nested {
		tree2 = "the tree with NUMA cells"
	}
	return fmt.Sprintf("in %s there is another place for %s", tree2, strings.Join(parts, "; "))
}

// declare keeps the renames of the last call, for ClassRenames.
func (d *Driver) declare(renames plugins.ClassRenames) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renames = renames
}

// ClassRenames are those of the last reshape: VCPU to PCPU for guests with dedicated processors, and classes of devices that the configuration
// gave another name.
func (d *Driver) ClassRenames() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renames
}
