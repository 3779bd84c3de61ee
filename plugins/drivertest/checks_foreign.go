// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/providertree"
)

const (
	ruleForeign = "A driver touches only what is its own: providers, inventories, traits and aggregates that somebody else wrote stay as they are."
	seeForeign  = "plugins.Driver.UpdateProviderTree; providertree.Tree.SetInventory and AddTraits instead of replacing all"
)

var foreignChecks = []Check{
	{
		ID: "foreign/provider", Title: "leaves a provider of somebody else below its root",
		Protects: "neutron's bandwidth and cyborg's accelerators, with the allocations on them",
		Rule:     ruleForeign, See: seeForeign, run: foreignCheck(func(base *baseline, s stranger) []string { return []string{s.child} }),
	},
	{
		ID: "foreign/nested-provider", Title: "leaves a provider of somebody else below one of its own",
		Protects: "what others nested under a device of the driver's",
		Rule:     ruleForeign, See: seeForeign, run: foreignCheck(func(base *baseline, s stranger) []string { return []string{s.nested} }),
	},
	{
		ID: "foreign/sharing-provider", Title: "leaves a sharing provider beside its root",
		Protects: "the storage that all hosts share",
		Rule:     ruleForeign, See: seeForeign, run: foreignCheck(func(base *baseline, s stranger) []string { return []string{s.sharing} }),
	},
	{
		ID: "foreign/inventory", Title: "leaves inventory of somebody else on its own root",
		Protects: "an admin's custom resource class", Rule: ruleForeign, See: seeForeign,
		run: foreignRoot(func(p providertree.Provider, _ stranger) string {
			if inv, ok := p.Inventories[strangeClass]; !ok || inv.Total != 7 {
				return "the root without " + strangeClass + " as it was"
			}
			return ""
		}),
	},
	{
		ID: "foreign/trait", Title: "leaves traits of somebody else on its own root",
		Protects: "an admin's own traits, by which flavors choose hosts", Rule: ruleForeign, See: seeForeign,
		run: foreignRoot(func(p providertree.Provider, _ stranger) string {
			if !p.HasTrait(strangeTrait) {
				return "the root without the trait " + strangeTrait
			}
			return ""
		}),
	},
	{
		ID: "foreign/aggregate", Title: "leaves its root in the aggregates of somebody else",
		Protects: "host aggregates, and the way to shared storage", Rule: ruleForeign, See: seeForeign,
		run: foreignRoot(func(p providertree.Provider, s stranger) string {
			for _, a := range p.Aggregates {
				if a == s.aggregate {
					return ""
				}
			}
			return "the root outside of the aggregate " + s.aggregate
		}),
	},
	{
		ID: "foreign/agent-traits", Title: "neither sets nor removes the agent's own traits",
		Protects: "an operator's `compute-agent disable`",
		Rule:     "COMPUTE_NODE and COMPUTE_STATUS_DISABLED are the agent's.",
		See:      "plugins.CapabilityReporter", run: checkAgentTraits,
	},
}

// beside asks for the tree of a node in which there are things of somebody else.
func (b *bench) beside(ctx context.Context) (*baseline, stranger, *providertree.Tree, error) {
	base, p, err := b.base(ctx)
	if err != nil {
		return nil, stranger{}, nil, err
	}
	s, err := base.withStranger(base.stored)
	if err != nil {
		return nil, s, nil, err
	}
	after, err := p.tree(ctx, s.tree, base.node)
	return base, s, after, err
}

func sentStranger(base *baseline, s stranger) string {
	return sentUpdate(s.tree, base.node, nil) + ", some of it somebody else's"
}

func foreignCheck(which func(*baseline, stranger) []string) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		base, s, after, err := b.beside(ctx)
		if err != nil {
			return err
		}
		var wrong []string
		for _, id := range which(base, s) {
			if id == "" {
				return notApplicable("the driver's tree has no provider below the root")
			}
			was, _ := s.tree.Provider(id)
			is, ok := after.Provider(id)
			if !ok {
				wrong = append(wrong, fmt.Sprintf("%s (%s) is gone", was.Name, id))
				continue
			}
			wrong = append(wrong, providertree.Change{Before: was, After: is}.Lines()...)
		}
		return several(sentStranger(base, s), wrong)
	}
}

func foreignRoot(missing func(providertree.Provider, stranger) string) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		base, s, after, err := b.beside(ctx)
		if err != nil {
			return err
		}
		root, _ := after.Provider(base.root)
		if words := missing(root, s); words != "" {
			return found(sentStranger(base, s), "%s", words)
		}
		return nil
	}
}

func checkAgentTraits(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	if err := several(sentUpdate(base.bare, base.node, nil), lines(base.violations().In("traits"))); err != nil {
		return err
	}
	tree := base.stored.Clone()
	if _, err := tree.AddTraits(base.root, providertree.AgentTraits...); err != nil {
		return fmt.Errorf("preparing a tree: %w", err)
	}
	after, err := p.tree(ctx, tree, base.node)
	if err != nil {
		return err
	}
	return several(sentUpdate(tree, base.node, nil)+", with the agent's traits on the root", differences(tree, after))
}

const seeRepair = "plugins.Driver.UpdateProviderTree"

var repairChecks = []Check{
	{
		ID: "repair/amount", Title: "puts a wrong amount right",
		Protects: "a node whose inventory somebody changed by hand, or whose hardware changed",
		Rule:     "The answer says what the node can give, whatever the tree said before.", See: seeRepair,
		run: repairCheck("with a total of the driver's changed", func(base *baseline, tree *providertree.Tree) (bool, error) {
			for _, id := range tree.Subtree(base.root) {
				p, _ := tree.Provider(id)
				for _, class := range sortedKeys(p.Inventories) {
					inv := p.Inventories[class]
					if inv.Total == providertree.MaxUnit {
						continue
					}
					inv.Total++
					_, err := tree.SetInventory(id, class, inv)
					return true, err
				}
			}
			return false, nil
		}),
	},
	{
		ID: "repair/inventory", Title: "brings back inventory that is missing",
		Protects: "a node that lost some of its inventory",
		Rule:     "The answer says what the node can give, whatever the tree said before.", See: seeRepair,
		run: repairCheck("with an inventory of the driver's removed", func(base *baseline, tree *providertree.Tree) (bool, error) {
			for _, id := range tree.Subtree(base.root) {
				p, _ := tree.Provider(id)
				for _, class := range sortedKeys(p.Inventories) {
					return tree.RemoveInventory(id, class)
				}
			}
			return false, nil
		}),
	},
	{
		ID: "repair/trait", Title: "brings back a trait that is missing",
		Protects: "a node that lost a trait",
		Rule:     "The answer says what the node can give, whatever the tree said before.", See: seeRepair,
		run: repairCheck("with a trait of the driver's removed", func(base *baseline, tree *providertree.Tree) (bool, error) {
			for _, id := range tree.Subtree(base.root) {
				if p, _ := tree.Provider(id); len(p.Traits) > 0 {
					return tree.RemoveTraits(id, p.Traits[0])
				}
			}
			return false, nil
		}),
	},
	{
		ID: "repair/provider", Title: "brings back a provider that is missing, under its uuid",
		Protects: "a node of which a provider was deleted",
		Rule:     "A new provider gets a uuid that follows from the root's and from what stays with the device.", See: "providertree.ChildUUID",
		run: repairCheck("with a provider of the driver's removed", func(base *baseline, tree *providertree.Tree) (bool, error) {
			all := tree.Subtree(base.root)
			if len(all) < 2 {
				return false, nil
			}
			_, err := tree.Remove(all[len(all)-1])
			return true, err
		}),
	},
}

// repairCheck spoils the driver's tree and expects it back.
func repairCheck(how string, spoil func(*baseline, *providertree.Tree) (bool, error)) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		base, p, err := b.base(ctx)
		if err != nil {
			return err
		}
		tree := base.stored.Clone()
		done, err := spoil(base, tree)
		switch {
		case err != nil:
			return fmt.Errorf("preparing a tree: %w", err)
		case !done:
			return notApplicable("the driver's tree has nothing of that kind")
		}
		after, err := p.tree(ctx, tree, base.node)
		if err != nil {
			return err
		}
		return several(sentUpdate(tree, base.node, nil)+": its own answer "+how, differences(base.own, after))
	}
}
