// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeUpdate = "plugins.Driver.UpdateProviderTree; proto: Driver.UpdateProviderTree"

var treeChecks = []Check{
	{
		ID: "tree/answers", Title: "makes a tree for every node, from nothing but its root",
		Protects: "a new node",
		Rule:     "UpdateProviderTree gets the tree as Placement has it, for a new node the root alone, and answers with the tree as it should be.",
		See:      seeUpdate, run: checkTreeAnswers,
	},
	{
		ID: "tree/inventory", Title: "reports some inventory",
		Protects: "a node on which nothing could ever be placed",
		Rule:     "The tree says what the node can give. While that is not known, the answer is NotReady, not a tree without inventory.",
		See:      seeUpdate, run: checkTreeInventory,
	},
	{
		ID: "tree/order", Title: "lists every provider after its parent",
		Protects: "an agent that creates providers in the order in which they come",
		Rule:     "ProviderTree holds every provider after its parent.",
		See:      "proto: ProviderTree.providers", run: checkRaw(rawOrder),
	},
	{
		ID: "tree/unique", Title: "has every uuid and every name once",
		Protects: "an answer of Placement that a name is taken",
		Rule:     "uuids are uuids, names have 1 to 200 characters, and both are unique in the tree.",
		See:      "providertree.Provider; proto: ResourceProvider", run: checkRaw(rawFields("uuid", "name")),
	},
	{
		ID: "tree/inventories", Title: "reports inventories that Placement takes",
		Protects: "a whole provider that Placement refuses for one bad number",
		Rule:     "Classes are of A-Z, 0-9 and _; totals 1 to 2147483647; reserved at most the total; units and steps at most 2147483647, min_unit at most max_unit; ratios finite and above 0. What there is none of is left out.",
		See:      "providertree.Inventory; proto: Inventory", run: checkRaw(rawFields("inventories")),
	},
	{
		ID: "tree/traits", Title: "reports well-formed traits and aggregates, each once",
		Protects: "a provider whose traits Placement refuses, all of them",
		Rule:     "Traits have 1 to 255 of A-Z, 0-9 and _; aggregates are uuids; both are there once.",
		See:      "providertree.ValidateTrait; proto: ResourceProvider.traits", run: checkRaw(rawTraits),
	},
	{
		ID: "tree/well-formed", Title: "answers with a tree that can be used",
		Protects: "everything: the agent throws such an answer away",
		Rule:     "What is answered is a tree as Placement would have it.",
		See:      "providertree.Tree", run: checkRaw(rawWhole),
	},
	{
		ID: "tree/generations", Title: "sends generations back as they came",
		Protects: "what somebody else wrote in the meantime: it would be overwritten",
		Rule:     "A generation is Placement's, to be sent back as it came; providers that are new have none.",
		See:      "proto: ResourceProvider.generation", run: checkGenerations,
	},
	{
		ID: "tree/root", Title: "leaves the node's root what it is",
		Protects: "the node's identity",
		Rule:     "The root's name, uuid and place are not the driver's to change.",
		See:      seeUpdate, run: checkRoot,
	},
	{
		ID: "tree/child-names", Title: "names its providers after the node",
		Protects: "the second host of the same kind: names are unique in all of Placement",
		Rule:     "A provider that the driver adds has the node's name in its own, as Nova's have (cn1_numa_0).",
		See:      "docs/drivers.md; the fake driver's childName", run: checkChildNames,
	},
	{
		ID: "tree/same-input", Title: "answers the same tree to the same tree",
		Protects: "Placement from a write with every pass",
		Rule:     "The answer depends on the tree and on the machine.",
		See:      seeUpdate, run: checkSameInput,
	},
	{
		ID: "tree/idempotent", Title: "changes nothing in its own answer",
		Protects: "Placement from a write with every pass",
		Rule:     "Called with its own result, UpdateProviderTree changes nothing.",
		See:      seeUpdate, run: checkIdempotent,
	},
	{
		ID: "tree/restart", Title: "finds its providers again after a restart",
		Protects: "allocations on providers that would be made anew under other uuids",
		Rule:     "New providers get a uuid that stays the same (providertree.ChildUUID), and nothing depends on what the process did before.",
		See:      "providertree.ChildUUID", run: checkTreeRestart,
	},
	{
		ID: "tree/adopts", Title: "takes over providers of the right name, with their uuids",
		Protects: "a node that Nova, or another agent, reported before",
		Rule:     "A child is looked for by its name first: one that is there is taken over as it is, with its uuid.",
		See:      seeUpdate + "; the fake driver's childOf", run: checkAdopts,
	},
	{
		ID: "tree/unknown-node", Title: "makes no tree for a node that it does not have",
		Protects: "the inventory of another driver's node",
		Rule:     "Asked for a node that is not the driver's it answers an error, or leaves the tree alone.",
		See:      seeUpdate, run: checkUnknownNode,
	},
	{
		ID: "tree/no-allocations", Title: "answers no allocations and no renames when given none",
		Protects: "allocations: they are written in a reshape only",
		Rule:     "Allocations are in the answer if and only if they were in the request; class_renames only with them.",
		See:      "proto: UpdateProviderTreeResponse", run: checkNoAllocations,
	},
	{
		ID: "tree/allocations-back", Title: "gives allocations back untouched when nothing moves",
		Protects: "consumers, in a reshape of something else on the same tree",
		Rule:     "With allocations, the answer holds all of them: amounts, generation, project, user and type.",
		See:      seeUpdate, run: checkAllocationsBack,
	},
}

func checkTreeAnswers(ctx context.Context, b *bench) error {
	nodes, p, err := b.nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes[:min(len(nodes), 10)] {
		tree, err := host.BareTree(rootOf(n), n.Name)
		if err != nil {
			return notApplicable("the node %q cannot be: %v; see nodes/names and nodes/uuids", n.Name, err)
		}
		if _, err := p.update(ctx, tree, n.Name, nil); err != nil {
			return found(sentUpdate(tree, n.Name, nil), "%s", said(err))
		}
	}
	return nil
}

func checkTreeInventory(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	for _, id := range base.own.Subtree(base.root) {
		if p, _ := base.own.Provider(id); len(p.Inventories) > 0 {
			return nil
		}
	}
	return found(sentUpdate(base.bare, base.node, nil), "a tree of %s without any inventory", counted(base.own.Len(), "resource provider"))
}

// checkRaw looks at the answer to a bare tree as it came.
func checkRaw(wrong func(*driverv1.ProviderTree) []string) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		base, _, err := b.base(ctx)
		if base == nil || base.reply == nil {
			return err
		}
		return several(sentUpdate(base.bare, base.node, nil), wrong(base.reply.GetTree()))
	}
}

func rawOrder(tree *driverv1.ProviderTree) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, p := range tree.GetProviders() {
		if !seen[p.GetParentUuid()] {
			out = append(out, fmt.Sprintf("%s comes before its parent %s, or that is missing", p.GetName(), p.GetParentUuid()))
		}
		seen[p.GetUuid()] = true
	}
	return out
}

// rawFields looks for violations of some fields of providers, of which the tree may be none.
func rawFields(fields ...string) func(*driverv1.ProviderTree) []string {
	return func(msg *driverv1.ProviderTree) []string {
		tree, err := protocol.ToTree(msg)
		var found providertree.Violations
		if err == nil {
			found = providertree.Check(nil, tree, "")
		} else {
			errors.As(err, &found)
		}
		return lines(found.In(fields...))
	}
}

func lines(found providertree.Violations) []string {
	var out []string
	for _, v := range found {
		out = append(out, v.Error())
	}
	return out
}

func rawTraits(tree *driverv1.ProviderTree) []string {
	out := rawFields("traits", "aggregates")(tree)
	for _, p := range tree.GetProviders() {
		for i, trait := range p.GetTraits() {
			if slices.Contains(p.GetTraits()[:i], trait) {
				out = append(out, p.GetName()+" has the trait "+trait+" twice")
			}
		}
		for i, aggregate := range p.GetAggregates() {
			if slices.Contains(p.GetAggregates()[:i], aggregate) {
				out = append(out, p.GetName()+" is in the aggregate "+aggregate+" twice")
			}
		}
	}
	return out
}

func rawWhole(tree *driverv1.ProviderTree) []string {
	if _, err := protocol.ToTree(tree); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func checkGenerations(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	after, err := p.tree(ctx, base.stored, base.node)
	if err != nil {
		return err
	}
	found := append(base.violations(), providertree.Check(base.stored, after, base.node)...)
	return several(sentUpdate(base.stored, base.node, nil), lines(found.In("generation")))
}

// violations are those of the tree that the driver makes of a bare one.
func (base *baseline) violations() providertree.Violations {
	return providertree.Check(base.bare, base.own, base.node)
}

func checkRoot(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	found := base.violations().In("", "parent")
	for _, v := range base.violations().In("name") {
		if v.UUID == base.root {
			found = append(found, v)
		}
	}
	return several(sentUpdate(base.bare, base.node, nil), lines(found))
}

func checkChildNames(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(base.violations().In("name"), func(v providertree.Violation) bool { return v.UUID == base.root })
	return several(sentUpdate(base.bare, base.node, nil), lines(found))
}

func checkSameInput(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for i := range 10 {
		after, err := p.tree(ctx, base.bare, base.node)
		if err != nil {
			return err
		}
		if err := several(fmt.Sprintf("%s, the %dth time", sentUpdate(base.bare, base.node, nil), i+2), differences(base.own, after)); err != nil {
			return err
		}
	}
	return nil
}

func checkIdempotent(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	tree := base.stored
	for i := range 5 {
		after, err := p.tree(ctx, tree, base.node)
		if err != nil {
			return err
		}
		if err := several(fmt.Sprintf("%s: its own answer (round %d)", sentUpdate(tree, base.node, nil), i+1), differences(tree, after)); err != nil {
			return err
		}
		tree = host.Stored(after)
	}
	return nil
}

func checkTreeRestart(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	for _, tree := range []*providertree.Tree{base.bare, base.stored} {
		p, err := b.configured(ctx)
		if err != nil {
			return err
		}
		after, err := p.tree(ctx, tree, base.node)
		if err != nil {
			return err
		}
		if err := several("after a restart, "+sentUpdate(tree, base.node, nil), differences(base.own, after)); err != nil {
			return err
		}
	}
	return nil
}

func checkAdopts(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	if base.own.Len() < 2 {
		return notApplicable("the driver's tree has no provider below the root")
	}
	tree, err := base.adopted()
	if err != nil {
		return fmt.Errorf("preparing a tree: %w", err)
	}
	after, err := p.tree(ctx, tree, base.node)
	if err != nil {
		return err
	}
	return several(sentUpdate(tree, base.node, nil)+", which somebody else made with other uuids", differences(tree, after))
}

func checkUnknownNode(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	const name = "drivertest-nobody"
	tree, err := host.BareTree(uuid.NewString(), name)
	if err != nil {
		return err
	}
	reply, err := p.update(ctx, tree, name, nil)
	if err == nil {
		after, err := protocol.ToTree(reply.GetTree())
		if err != nil {
			return found(sentUpdate(tree, name, nil), "a tree that cannot be used: %v", err)
		}
		if err := several(sentUpdate(tree, name, nil)+", which is none of the driver's", differences(tree, after)); err != nil {
			return err
		}
	}
	return p.alive(ctx, sentUpdate(tree, base.node, nil))
}

func checkNoAllocations(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	sent := sentUpdate(base.bare, base.node, nil)
	if base.reply.GetAllocations() != nil {
		return found(sent, "allocations of %s", counted(len(base.reply.GetAllocations().GetConsumers()), "consumer"))
	}
	if len(base.reply.GetClassRenames()) > 0 {
		return found(sent, "class_renames of %s", quoted(sortedKeys(base.reply.GetClassRenames())))
	}
	return nil
}

func checkAllocationsBack(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for _, given := range []providertree.Allocations{allocate(base.stored, base.own, base.root), {}} {
		reply, err := p.update(ctx, base.stored, base.node, given)
		sent := sentUpdate(base.stored, base.node, given) + ": its own answer, nothing moves"
		if err != nil {
			return found(sent, "%s", said(err))
		}
		if reply.GetAllocations() == nil {
			return found(sent, "no allocations")
		}
		back, err := protocol.ToAllocations(reply.GetAllocations())
		if err != nil {
			return found(sent, "allocations that cannot be: %v", err)
		}
		if err := several(sent, allocationChanges(given, back)); err != nil {
			return err
		}
	}
	return nil
}
