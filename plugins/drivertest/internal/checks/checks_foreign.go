// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/providertree"
)

const (
	ruleExternal = "A driver changes only what is its own: providers, inventories, traits and aggregates that other " +
		"clients wrote stay as they are."
	seeExternal = "plugins.Driver.UpdateProviderTree; providertree.Tree.SetInventory and AddTraits instead of " +
		"replacing all"
)

var externalChecks = []Check{
	{
		ID: "foreign/provider", Title: "keeps an external provider below its root",
		Protects: "neutron's bandwidth and cyborg's accelerators, with their allocations",
		Rule:     ruleExternal, See: seeExternal,
		run: externalCheck(func(base *baseline, s external) []string { return []string{s.child} }),
	},
	{
		ID: "foreign/nested-provider", Title: "keeps an external provider below one of its own",
		Protects: "what other services nested under a device of the driver",
		Rule:     ruleExternal, See: seeExternal,
		run: externalCheck(func(base *baseline, s external) []string { return []string{s.nested} }),
	},
	{
		ID: "foreign/sharing-provider", Title: "keeps a sharing provider beside its root",
		Protects: "the storage that all hosts share",
		Rule:     ruleExternal, See: seeExternal,
		run: externalCheck(func(base *baseline, s external) []string { return []string{s.sharing} }),
	},
	{
		ID: "foreign/inventory", Title: "keeps external inventory on its own root",
		Protects: "an admin's custom resource class", Rule: ruleExternal, See: seeExternal,
		run: externalRoot(func(p providertree.Provider, _ external) string {
			if inv, ok := p.Inventories[externalClass]; !ok || inv.Total != 7 {
				return "the root without its former " + externalClass
			}
			return ""
		}),
	},
	{
		ID: "foreign/trait", Title: "keeps external traits on its own root",
		Protects: "an admin's own traits, by which flavors select hosts", Rule: ruleExternal, See: seeExternal,
		run: externalRoot(func(p providertree.Provider, _ external) string {
			if !p.HasTrait(externalTrait) {
				return "the root without the trait " + externalTrait
			}
			return ""
		}),
	},
	{
		ID: "foreign/aggregate", Title: "keeps its root in external aggregates",
		Protects: "host aggregates, and the connection to shared storage", Rule: ruleExternal, See: seeExternal,
		run: externalRoot(func(p providertree.Provider, s external) string {
			for _, a := range p.Aggregates {
				if a == s.aggregate {
					return ""
				}
			}
			return "the root is not in the aggregate " + s.aggregate
		}),
	},
	{
		ID: "foreign/agent-traits", Title: "neither sets nor removes the agent's traits",
		Protects: "an operator's `compute-agent disable`",
		Rule:     "COMPUTE_NODE and COMPUTE_STATUS_DISABLED are the agent's.",
		See:      "plugins.CapabilityReporter", run: checkAgentTraits,
	},
}

// withExternals returns the driver's result for a tree with external providers, inventory and
// traits.
func (b *Bench) withExternals(ctx context.Context) (*baseline, external, *providertree.Tree, error) {
	base, p, err := b.base(ctx)
	if err != nil {
		return nil, external{}, nil, err
	}
	s, err := base.withExternal(base.stored)
	if err != nil {
		return nil, s, nil, err
	}
	after, err := p.tree(ctx, s.tree, base.node)
	return base, s, after, err
}

func sentExternal(base *baseline, s external) string {
	return sentUpdate(s.tree, base.node, nil) + ", with external providers, inventory and traits"
}

func externalCheck(which func(*baseline, external) []string) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		base, s, after, err := b.withExternals(ctx)
		if err != nil {
			return err
		}
		var wrong []string
		for _, id := range which(base, s) {
			if id == "" {
				return notRun("the driver's tree has no provider below the root")
			}
			was, _ := s.tree.Provider(id)
			is, ok := after.Provider(id)
			if !ok {
				wrong = append(wrong, fmt.Sprintf("%s (%s) was removed", was.Name, id))
				continue
			}
			wrong = append(wrong, providertree.Change{Before: was, After: is}.Lines()...)
		}
		return failLines(sentExternal(base, s), wrong)
	}
}

func externalRoot(missing func(providertree.Provider, external) string) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		base, s, after, err := b.withExternals(ctx)
		if err != nil {
			return err
		}
		root, _ := after.Provider(base.root)
		if words := missing(root, s); words != "" {
			return failf(sentExternal(base, s), "%s", words)
		}
		return nil
	}
}

func checkAgentTraits(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	if err := failLines(sentUpdate(base.bare, base.node, nil), lines(base.violations().In("traits"))); err != nil {
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
	return failLines(sentUpdate(tree, base.node, nil)+", with the agent's traits on the root", differences(tree, after))
}

const (
	ruleRepair = "The result has the node's actual inventory, whatever the tree had before."
	seeRepair  = "plugins.Driver.UpdateProviderTree"
)

var repairChecks = []Check{
	{
		ID: "repair/amount", Title: "corrects a wrong amount",
		Protects: "a node whose inventory was changed by hand, or whose hardware changed",
		Rule:     ruleRepair, See: seeRepair,
		run: repairCheck("with a total of the driver's changed",
			func(base *baseline, tree *providertree.Tree) (bool, error) {
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
		ID: "repair/inventory", Title: "restores missing inventory",
		Protects: "a node that lost some of its inventory",
		Rule:     ruleRepair, See: seeRepair,
		run: repairCheck("with an inventory of the driver's removed",
			func(base *baseline, tree *providertree.Tree) (bool, error) {
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
		ID: "repair/trait", Title: "restores a missing trait",
		Protects: "a node that lost a trait",
		Rule:     ruleRepair, See: seeRepair,
		run: repairCheck("with a trait of the driver's removed",
			func(base *baseline, tree *providertree.Tree) (bool, error) {
				for _, id := range tree.Subtree(base.root) {
					if p, _ := tree.Provider(id); len(p.Traits) > 0 {
						return tree.RemoveTraits(id, p.Traits[0])
					}
				}
				return false, nil
			}),
	},
	{
		ID: "repair/provider", Title: "restores a missing provider, with its uuid",
		Protects: "a node of which a provider was deleted",
		Rule:     "The uuid of a new provider is derived from the root's and from a stable property of the device.",
		See:      "providertree.ChildUUID",
		run: repairCheck("with a provider of the driver's removed",
			func(base *baseline, tree *providertree.Tree) (bool, error) {
				all := tree.Subtree(base.root)
				if len(all) < 2 {
					return false, nil
				}
				_, err := tree.Remove(all[len(all)-1])
				return true, err
			}),
	},
}

// repairCheck damages the driver's tree and expects the driver to restore it.
func repairCheck(
	how string, damage func(*baseline, *providertree.Tree) (bool, error),
) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		base, p, err := b.base(ctx)
		if err != nil {
			return err
		}
		tree := base.stored.Clone()
		done, err := damage(base, tree)
		switch {
		case err != nil:
			return fmt.Errorf("preparing a tree: %w", err)
		case !done:
			return notRun("the driver's tree has nothing of that kind")
		}
		after, err := p.tree(ctx, tree, base.node)
		if err != nil {
			return err
		}
		return failLines(sentUpdate(tree, base.node, nil)+": its own result "+how, differences(base.own, after))
	}
}
