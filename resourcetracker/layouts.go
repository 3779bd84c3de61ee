// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// LayoutMigrator is a [Driver] whose trees have had several layouts, with versions from 1, see
// [plugins.LayoutVersioner]. Its methods return [plugins.ErrUnsupported] if they have not.
type LayoutMigrator interface {
	LayoutVersion(ctx context.Context) (int, error)
	ReshapeStep(ctx context.Context, tree *providertree.Tree, node string, from int,
		allocations providertree.Allocations) (*providertree.Tree, providertree.Allocations, error)
}

// CapabilityReporter is implemented by a [Driver] that reports capabilities of nodes, see
// [plugins.CapabilityReporter]. A nil map is that of a plugin that does not.
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
// Errors: a [*reshape.OlderDriverError] if the driver has a lower version than the tree, or none.
func (t *Tracker) layouts(ctx context.Context, d draft) (from, to int, err error) {
	if migrator, ok := t.config.Driver.(LayoutMigrator); ok {
		to, err = migrator.LayoutVersion(ctx)
		if err != nil && !errors.Is(err, plugins.ErrUnsupported) {
			return 0, 0, &passError{step: "asking the driver for its layout version", err: err}
		}
	}
	if isNew(d.Known, d.Node.UUID) {
		return to, to, nil
	}
	from = d.record.Layout
	switch inTree := t.traits().InTree(d.Known, d.Node.UUID); {
	case inTree != 0:
		from = min(from, inTree)
	case !d.record.Pending && t.layoutRecorded(d, from):
		from = 0 // the trait was there and is not: nor need the version that it said be
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
	for trait := range d.record.Providers[d.Node.UUID].Traits {
		if t.traits().Version(trait) != 0 {
			return true
		}
	}
	return t.traits().InTree(d.Known, d.Node.UUID) != 0
}

// traits returns the traits that hold the layout version of this driver's trees.
func (t *Tracker) traits() reshape.LayoutTraits { return reshape.LayoutTraits(t.config.Name) }

// layoutRecorded reports whether the agent has written the trait of a layout version.
func (t *Tracker) layoutRecorded(d draft, version int) bool {
	for trait := range d.record.Providers[d.Node.UUID].Traits {
		if n := t.traits().Version(trait); n != 0 && n == version {
			return true
		}
	}
	return false
}

// layoutTraits returns the trait of the layout version that the tree gets: for a new tree, a
// reshaped one, and one that has or had such a trait. An adopted tree without a reshape gets no
// trait, which saves the write; its version is in the state directory. former are traits with the
// former prefix, which the new trait replaces.
//
// An agent of release 0.2.0 that is installed again removes the trait. A later agent then knows by
// its record that the tree was created with a layout version.
func (t *Tracker) layoutTraits(d draft) (traits, former []string) {
	created := isNew(d.Known, d.Node.UUID) || d.record.Created && d.record.Layout != 0
	if d.layout == 0 || !created && !d.Changed() && !t.hadLayout(d) {
		return nil, nil
	}
	p, _ := d.Known.Provider(d.Node.UUID)
	return []string{t.traits().Trait(d.layout)}, t.traits().Former(p.Traits)
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
		Str("node", d.Node.Name).Int("from_layout", from).Int("to_layout", to).
		Msg("The driver has another layout version than the provider tree in Placement. Reading the allocations, " +
			"some of which may have to move.")
	if err := t.gather(ctx, &d); err != nil {
		return d, err
	}
	tree, allocations := d.Base, d.Before
	for step := from; step < to; step++ {
		next, err := t.migrateStep(ctx, d, tree, step, allocations)
		if err != nil {
			return d, err
		}
		tree, allocations, d.Renames = next.Desired, next.After, reshape.ComposeRenames(d.Renames, next.Renames)
	}
	d.Given, d.Held = withOperators(d, tree), allocations
	return t.askToReshape(ctx, d, tree.Clone(), allocations.Clone())
}

// migrateStep has the driver make one step, and checks it as the reshape that it once was.
func (t *Tracker) migrateStep(
	ctx context.Context, d draft, tree *providertree.Tree, from int, allocations providertree.Allocations,
) (reshape.Draft, error) {
	out := reshape.Draft{Node: d.Node, Before: allocations}
	given := allocations.Clone()
	err := t.observe(ctx, StepDriver, d.Node.Name, func(ctx context.Context) (err error) {
		out.Answer, out.After, err = t.config.Driver.(LayoutMigrator).
			ReshapeStep(ctx, tree.Clone(), d.Node.Name, from, given)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded):
		return out, &reshape.Error{
			Problem: fmt.Sprintf(
				"the driver was given all allocations for the step from layout version %d to %d, but asks "+
					"for a reshape", from, from+1), Err: err,
			Hint: "this is a defect of the driver: install its former version, and report it to its author",
		}
	case errors.As(err, &failed):
		refused := reshape.CannotMove(failed, err, allocations, tree)
		refused.Problem = fmt.Sprintf("step from layout version %d to %d: %s", from, from+1, refused.Problem)
		return out, refused
	case err != nil:
		return out, &passError{step: fmt.Sprintf("asking the driver for the step from layout version %d to %d",
			from, from+1), err: err}
	}
	if out.After == nil {
		out.After = given
	}
	if renamer, ok := t.config.Driver.(plugins.Renamer); ok {
		out.Renames = renamer.ClassRenames()
	}
	// The driver does not see what the operator added; guests may use it, and the guard must find
	// it.
	out.Base = tree
	out.Known, out.Desired = withOperators(d, tree), withOperators(d, out.Answer)
	if err := out.Check(); err != nil {
		var refused *reshape.Error
		if errors.As(err, &refused) {
			refused.Problem = fmt.Sprintf("step from layout version %d to %d: %s", from, from+1, refused.Problem)
		}
		return out, err
	}
	out.Desired = out.Answer
	return out, nil
}

// withOperators is a tree with the inventories that the operator added to it.
func withOperators(d draft, tree *providertree.Tree) *providertree.Tree {
	out := tree.Clone()
	for uuid, p := range d.record.Providers {
		for class, owned := range p.Inventories {
			inv, there := d.Known.Inventory(uuid, class)
			if owned.Owner == ownership.Operator && there && out.Exists(uuid) {
				_, _ = out.SetInventory(uuid, class, inv) // it was valid where it comes from
			}
		}
	}
	return out
}
