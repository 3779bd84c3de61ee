// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeLayouts = "plugins.LayoutVersioner; docs/drivers.md, Layouts with versions"

var layoutChecks = []Check{
	{
		ID: "layouts/version", Title: "returns its layout version with every configuration",
		Protects: "the record of which layout a node has",
		Rule: "Configure returns shape_version 1 to 9999, or 0 if layouts have no versions; always 0 without " +
			"the capability \"layouts\"; the same each time.", See: seeLayouts,
		run: checkLayoutVersion,
	},
	{
		ID: "layouts/present", Title: "changes nothing when it migrates a tree of its own layout",
		Needs:    protocol.CapabilityLayouts,
		Protects: "a host whose record of its layout was lost: all migrations run again",
		Rule: "On a tree that already has the layout that it migrates to, or a later one, ReshapeStep " +
			"changes nothing.", See: seeLayouts, run: checkPresentLayout,
	},
	{
		ID: "layouts/empty", Title: "changes nothing when it migrates the tree of a new node",
		Needs:    protocol.CapabilityLayouts,
		Protects: "a new node of a driver with former layouts",
		Rule:     "On a tree with the node's root only, ReshapeStep changes nothing.",
		See:      seeLayouts, run: checkEmptyLayout,
	},
	{
		ID: "layouts/bounds", Title: "rejects unknown layout versions", Needs: protocol.CapabilityLayouts,
		Protects: "an agent that went back to an older release of the driver",
		Rule:     "ReshapeStep migrates from layout versions 0 to the current one less one; any other is an error.",
		See:      seeLayouts, run: checkLayoutBounds,
	},
	{
		ID: "layouts/steps", Title: "migrates a former layout to its own, and every consumer keeps its resources",
		Needs:    protocol.CapabilityLayouts,
		Protects: "hosts that skipped releases of the driver",
		Rule: "Each step migrates a tree to the next layout version and moves all allocations; " +
			"UpdateProviderTree accepts the last one's result.", See: seeLayouts,
		run: checkSteps,
	},
}

func checkLayoutVersion(ctx context.Context, b *Bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	first := p.layout
	switch {
	case first < 0 || first > plugins.MaxLayout:
		return failf("Configure", "shape_version %d", first)
	case first > 0 && !b.announces(protocol.CapabilityLayouts):
		return failf("Configure", "shape_version %d, without the capability %q", first, protocol.CapabilityLayouts)
	}
	if err := p.configure(ctx, b.plugin.Config, b.stateDir()); err != nil {
		return notRun("the driver rejects its configuration the second time; see config/repeated")
	}
	if p.layout != first {
		return failf("Configure, twice with the same configuration", "shape_version %d, then %d", first, p.layout)
	}
	return nil
}

// layoutBase is base for a driver whose layouts have versions.
func (b *Bench) layoutBase(ctx context.Context) (*baseline, *proc, error) {
	base, p, err := b.base(ctx)
	if err == nil && p.layout == 0 {
		err = notRun("with this configuration the driver's layouts have no versions")
	}
	return base, p, err
}

// takeStep calls ReshapeStep and converts its result.
func (p *proc) takeStep(
	ctx context.Context, tree *providertree.Tree, node string, from int32, given providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, plugins.ClassRenames, error) {
	sent := fmt.Sprintf("ReshapeStep from layout version %d for node %q: a tree of %s, allocations of %s",
		from, node, textutil.Count(tree.Len(), "resource provider"), textutil.Count(len(given), "consumer"))
	reply, err := p.step(ctx, tree, node, from, given)
	if err != nil {
		return nil, nil, nil, failf(sent, "%s", describe(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return nil, nil, nil, failf(sent, "an invalid tree: %v", err)
	}
	if reply.GetAllocations() == nil {
		return nil, nil, nil, failf(sent, "no allocations")
	}
	back, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil {
		return nil, nil, nil, failf(sent, "invalid allocations: %v", err)
	}
	return after, back, reply.GetClassRenames(), nil
}

func (b *Bench) stepsChangeNothing(ctx context.Context, pick func(*baseline) *providertree.Tree) error {
	base, p, err := b.layoutBase(ctx)
	if err != nil {
		return err
	}
	tree := pick(base)
	given := allocate(tree, base.own, base.root)
	for from := range p.layout {
		after, back, _, err := p.takeStep(ctx, tree, base.node, from, given)
		if err != nil {
			return err
		}
		if err := failLines(fmt.Sprintf("ReshapeStep from layout version %d", from),
			append(differences(tree, after), allocationChanges(given, back)...)); err != nil {
			return err
		}
	}
	return nil
}

func checkPresentLayout(ctx context.Context, b *Bench) error {
	return b.stepsChangeNothing(ctx, func(base *baseline) *providertree.Tree { return base.stored })
}

func checkEmptyLayout(ctx context.Context, b *Bench) error {
	return b.stepsChangeNothing(ctx, func(base *baseline) *providertree.Tree { return base.bare })
}

func checkLayoutBounds(ctx context.Context, b *Bench) error {
	base, p, err := b.layoutBase(ctx)
	if err != nil {
		return err
	}
	for _, from := range []int32{p.layout, plugins.MaxLayout + 1, -1} {
		sent := fmt.Sprintf("ReshapeStep from layout version %d of a driver with layout version %d", from, p.layout)
		if _, err := p.step(ctx, base.stored, base.node, from, providertree.Allocations{}); err == nil {
			return failf(sent, "a tree")
		}
		if err := p.alive(ctx, sent); err != nil {
			return err
		}
	}
	return nil
}

func checkSteps(ctx context.Context, b *Bench) error {
	if _, _, err := b.layoutBase(ctx); err != nil {
		return err
	}
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	tree, given := r.before, r.given
	for from := range p.layout {
		after, back, renames, err := p.takeStep(ctx, tree, base.node, from, given)
		if err != nil {
			return err
		}
		wrong := append(totalChanges(given, back, renames), withoutInventory(after, back)...)
		wrong = append(wrong, leftWithoutReason(tree, after, base.root, given, back)...)
		for _, id := range sortedKeys(given) {
			if _, ok := back[id]; !ok {
				wrong = append(wrong, "consumer "+id+" is missing")
			}
		}
		if err := failLines(fmt.Sprintf("ReshapeStep from layout version %d (%s)", from, r.source), wrong); err != nil {
			return err
		}
		tree, given = trial.Stored(after), back
	}
	sent := sentUpdate(tree, base.node, given) + ", after all steps"
	reply, err := p.update(ctx, tree, base.node, given)
	if err != nil {
		return failf(sent, "%s", describe(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return failf(sent, "an invalid tree: %v", err)
	}
	return failLines(sent+", compared with the reshape in one call", differences(r.after, after))
}
