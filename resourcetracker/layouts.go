// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// LayoutVersioner is a [Driver] whose trees have had several layouts, with versions from 1, see
// [plugins.LayoutVersioner]. Its methods return [plugins.ErrUnsupported] if they have not.
type LayoutVersioner interface {
	LayoutVersion(ctx context.Context) (int, error)
	ReshapeStep(ctx context.Context, tree *providertree.Tree, node string, from int,
		allocations providertree.Allocations) (*providertree.Tree, providertree.Allocations, error)
}

// CapabilityReporter is a [Driver] that says what a node is capable of, see
// [plugins.CapabilityReporter]. Nil: it does not.
type CapabilityReporter interface {
	Capabilities(node string) map[string]bool
}

// layouts returns the layout version of the node's tree in Placement and that of the driver; 0 and
// 0 if the driver has no versions. An existing tree without a recorded version has version 0.
//
// The version is in the state directory and in a trait on the root. They differ after a crash
// between the two writes, after a restore of Placement's database and after an undone reshape. The
// lower one counts, 0 included: repeating a step changes nothing. The trait is written before the
// reshape (a later write would prevent its undo), so it alone counts only at the first contact, see
// recordOf.
//
// Errors: an [*OlderDriverError] if the driver has a lower version than the tree, or none.
func (t *Tracker) layouts(ctx context.Context, d draft) (from, to int, err error) {
	if layoutVersioner, ok := t.config.Driver.(LayoutVersioner); ok {
		to, err = layoutVersioner.LayoutVersion(ctx)
		if err != nil && !errors.Is(err, plugins.ErrUnsupported) {
			return 0, 0, &passError{step: "asking the driver for its layout version", err: err}
		}
	}
	if isNew(d.known, d.node.UUID) {
		return to, to, nil
	}
	from = d.record.Layout
	switch told := t.layoutInTree(d.known, d.node.UUID); {
	case told != 0:
		from = min(from, told)
	case !d.record.Pending && t.layoutRecorded(d, from):
		from = 0 // the trait was there and is not: nor need what it told be
	}
	if from > to {
		return from, to, t.olderDriver(d, from, to)
	}
	return from, to, nil
}

// hadLayout reports whether the tree shows a layout version, or is known to have shown one. If the
// version is 0 then, the driver must not simply continue with the tree: its reshape was undone, or
// Placement was restored from a backup.
func (t *Tracker) hadLayout(d draft) bool {
	for trait := range d.record.Providers[d.node.UUID].Traits {
		if t.versionIn(trait) != 0 {
			return true
		}
	}
	return t.layoutInTree(d.known, d.node.UUID) != 0
}

// layoutPrefix begins the trait that says which layout version a tree has; the driver's name and
// the version follow. Agents up to release 0.2.0 wrote formerLayoutPrefix, which is read too; the
// trait is replaced when the tree is next written.
const (
	layoutPrefix       = "CUSTOM_COMPUTE_AGENT_LAYOUT_"
	formerLayoutPrefix = "CUSTOM_COMPUTE_AGENT_SHAPE_"
)

// layoutTrait is on the root of a tree that this driver has migrated to a layout version, so that
// another agent knows it when the state directory is lost.
func (t *Tracker) layoutTrait(version int) string {
	return layoutPrefix + t.nameInTrait() + strconv.Itoa(version)
}

// versionIn returns the layout version in a trait of this driver, by either prefix; 0: it is no
// such trait. That of a driver whose name continues this one's has more than a number after the
// name.
func (t *Tracker) versionIn(trait string) int {
	for _, prefix := range []string{layoutPrefix, formerLayoutPrefix} {
		number, ours := strings.CutPrefix(trait, prefix+t.nameInTrait())
		if n, err := strconv.Atoi(number); ours && err == nil {
			return n
		}
	}
	return 0
}

// layoutRecorded reports whether the agent has written the trait of a layout version.
func (t *Tracker) layoutRecorded(d draft, version int) bool {
	for trait := range d.record.Providers[d.node.UUID].Traits {
		if n := t.versionIn(trait); n != 0 && n == version {
			return true
		}
	}
	return false
}

// nameInTrait returns the driver's name as traits have it, with what separates it from the version.
func (t *Tracker) nameInTrait() string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, t.config.Name)
	return name + "_"
}

// layoutInTree returns the layout version that the tree itself has in its traits: the least of
// several, 0 without any.
func (t *Tracker) layoutInTree(tree *providertree.Tree, root string) int {
	p, _ := tree.Provider(root)
	least := 0
	for _, trait := range p.Traits {
		if n := t.versionIn(trait); n != 0 {
			least = min(n, cmp.Or(least, n))
		}
	}
	return least
}

// layoutTraits returns the trait of the layout version that the tree gets: for a new tree, a
// reshaped one, and one that has or had such a trait. An adopted tree without a reshape gets no
// trait, which saves the write; its version is in the state directory. former are traits with the
// former prefix, which the new trait replaces.
//
// An agent of release 0.2.0 that is installed again removes the trait. A later agent then knows by
// its record that the tree was created with a layout version.
func (t *Tracker) layoutTraits(d draft) (traits, former []string) {
	created := isNew(d.known, d.node.UUID) || d.record.Created && d.record.Layout != 0
	if d.layout == 0 || !created && !d.reshaped() && !t.hadLayout(d) {
		return nil, nil
	}
	p, _ := d.known.Provider(d.node.UUID)
	for _, trait := range p.Traits {
		if strings.HasPrefix(trait, formerLayoutPrefix) && t.versionIn(trait) != 0 {
			former = append(former, trait)
		}
	}
	return []string{t.layoutTrait(d.layout)}, former
}

// reshaped tells whether the driver made another tree than the one it was given, but for traits and
// aggregates, when it was given allocations.
func (d draft) reshaped() bool {
	if d.before == nil {
		return false
	}
	changes := providertree.Diff(d.base, d.answer)
	return len(changes.Added)+len(changes.Removed) > 0 || !reflect.DeepEqual(d.before, d.after) ||
		slices.ContainsFunc(changes.Changed,
			func(c providertree.Change) bool { return c.Inventories() || c.Moved() || c.Renamed() })
}

// migrateLayouts migrates a tree from one layout to another, step by step, all in memory: each step
// is checked by itself, so that it is known which one is wrong, and the last one's tree is the
// driver's to complete. What comes out is written as one reshape, so that Placement never has a
// layout between.
//
// Cost: one GET per provider and one per consumer, and a call of the driver for each step and one
// more.
func (t *Tracker) migrateLayouts(ctx context.Context, d draft, from, to int, allowed bool) (draft, error) {
	if !allowed {
		needed := &plugins.ReshapeNeeded{Reason: fmt.Sprintf(
			"the provider tree has layout version %d, but the driver has layout version %d", from, to)}
		return d, &passError{step: stepDriver, err: &lateReshape{needed}}
	}
	t.config.Logger.Info().Str("driver", t.config.Name).
		Str("node", d.node.Name).Int("from_layout", from).Int("to_layout", to).
		Msg("The driver has another layout version than the provider tree in Placement. Reading the allocations, " +
			"some of which may have to move.")
	if err := t.gather(ctx, &d); err != nil {
		return d, err
	}
	tree, allocations := d.base, d.before
	for step := from; step < to; step++ {
		next, err := t.migrateStep(ctx, d, tree, step, allocations)
		if err != nil {
			return d, err
		}
		tree, allocations, d.renames = next.desired, next.after, composeRenames(d.renames, next.renames)
	}
	d.given, d.held = withOperators(d, tree), allocations
	return t.askToReshape(ctx, d, tree.Clone(), allocations.Clone())
}

// migrateStep has the driver make one step, and checks it as the reshape that it once was.
func (t *Tracker) migrateStep(
	ctx context.Context, d draft, tree *providertree.Tree, from int, allocations providertree.Allocations,
) (draft, error) {
	out := draft{node: d.node, before: allocations}
	given := allocations.Clone()
	err := t.observe(ctx, StepDriver, d.node.Name, func(ctx context.Context) (err error) {
		out.answer, out.after, err = t.config.Driver.(LayoutVersioner).
			ReshapeStep(ctx, tree.Clone(), d.node.Name, from, given)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded):
		return out, &ReshapeError{
			Problem: fmt.Sprintf(
				"the driver was given all allocations for the step from layout version %d to %d, but asks "+
					"for a reshape", from, from+1), Err: err,
			Hint: "this is a defect of the driver: install its former version, and report it to its author",
		}
	case errors.As(err, &failed):
		refused := cannotMove(failed, err).withNames(allocations, tree)
		refused.Problem = fmt.Sprintf("step from layout version %d to %d: %s", from, from+1, refused.Problem)
		return out, refused
	case err != nil:
		return out, &passError{step: fmt.Sprintf("asking the driver for the step from layout version %d to %d",
			from, from+1), err: err}
	}
	if out.after == nil {
		out.after = given
	}
	if renamer, ok := t.config.Driver.(plugins.Renamer); ok {
		out.renames = renamer.ClassRenames()
	}
	// The driver does not see what the operator added; guests may use it, and the guard must find
	// it.
	out.base = tree
	out.known, out.desired = withOperators(d, tree), withOperators(d, out.answer)
	if err := out.check(); err != nil {
		var refused *ReshapeError
		if errors.As(err, &refused) {
			refused.Problem = fmt.Sprintf("step from layout version %d to %d: %s", from, from+1, refused.Problem)
		}
		return out, err
	}
	out.desired = out.answer
	return out, nil
}

// withOperators is a tree with the inventories that the operator added to it.
func withOperators(d draft, tree *providertree.Tree) *providertree.Tree {
	out := tree.Clone()
	for uuid, p := range d.record.Providers {
		for class, stock := range p.Inventories {
			inv, there := d.known.Inventory(uuid, class)
			if stock.Owner == ownership.Operator && there && out.Exists(uuid) {
				_, _ = out.SetInventory(uuid, class, inv) // it was valid where it comes from
			}
		}
	}
	return out
}
