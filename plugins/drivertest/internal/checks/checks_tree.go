// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// unknownNode is the name of a node that no driver has.
const unknownNode = "drivertest-unknown"

const seeUpdate = "plugins.Driver.UpdateProviderTree; proto: Driver.UpdateProviderTree"

var treeChecks = []Check{
	{
		ID: "tree/answers", Title: "makes a tree for every node, also if Placement has only the root",
		Protects: "a new node",
		Rule: "UpdateProviderTree gets the tree as Placement has it, for a new node the root alone, and returns " +
			"the tree as it should be.",
		See: seeUpdate, run: checkTreeAnswers,
	},
	{
		ID: "tree/inventory", Title: "reports some inventory",
		Protects: "a node that could never get an instance",
		Rule: "The tree has the node's inventory. While that is not known, the driver returns NotReady, not a " +
			"tree without inventory.",
		See: seeUpdate, run: checkTreeInventory,
	},
	{
		ID: "tree/order", Title: "lists every provider after its parent",
		Protects: "an agent that creates providers in the order in which they come",
		Rule:     "ProviderTree lists every provider after its parent.",
		See:      "proto: ProviderTree.providers", run: checkRaw(rawOrder),
	},
	{
		ID: "tree/unique", Title: "uses every uuid and every name once",
		Protects: "the pass: Placement rejects a name that is in use",
		Rule:     "uuids are valid, names have 1 to 200 characters, and both are unique in the tree.",
		See:      "providertree.Provider; proto: ResourceProvider", run: checkRaw(rawFields("uuid", "name")),
	},
	{
		ID:       "tree/inventories",
		Title:    "reports inventories that Placement accepts",
		Protects: "a whole provider: Placement rejects all its inventories for one invalid number",
		Rule: "Classes have A-Z, 0-9 and _; totals are 1 to 2147483647; reserved is at most the total; units " +
			"and steps are at most 2147483647, min_unit at most max_unit; ratios are finite and above 0. A class " +
			"with a total of 0 is left out.",
		See: "providertree.Inventory; proto: Inventory",
		run: checkRaw(rawFields("inventories")),
	},
	{
		ID: "tree/traits", Title: "reports well-formed traits and aggregates, each once",
		Protects: "all traits of a provider: Placement rejects them for one invalid trait",
		Rule:     "Traits have 1 to 255 of A-Z, 0-9 and _; aggregates are uuids; each is listed once.",
		See:      "providertree.ValidateTrait; proto: ResourceProvider.traits", run: checkRaw(rawTraits),
	},
	{
		ID: "tree/well-formed", Title: "returns a valid tree",
		Protects: "everything: the agent discards an invalid tree",
		Rule:     "The result is a tree that Placement could hold.",
		See:      "providertree.Tree", run: checkRaw(rawWhole),
	},
	{
		ID: "tree/generations", Title: "returns generations unchanged",
		Protects: "what another client wrote in the meantime: it would be overwritten",
		Rule:     "A generation is Placement's and is returned unchanged; new providers have none.",
		See:      "proto: ResourceProvider.generation", run: checkGenerations,
	},
	{
		ID: "tree/root", Title: "does not change the node's root",
		Protects: "the node's identity",
		Rule:     "A driver does not change the name, uuid or parent of the root.",
		See:      seeUpdate, run: checkRoot,
	},
	{
		ID: "tree/child-names", Title: "names its providers after the node",
		Protects: "the second host of the same kind: provider names are unique in Placement",
		Rule:     "The name of a provider that the driver adds contains the node's, as Nova's do (cn1_numa_0).",
		See:      "docs/drivers.md; the fake driver's childName", run: checkChildNames,
	},
	{
		ID: "tree/same-input", Title: "returns the same tree for the same tree",
		Protects: "Placement from a write in every pass",
		Rule:     "The result depends on the tree and on the machine only.",
		See:      seeUpdate, run: checkSameInput,
	},
	{
		ID: "tree/idempotent", Title: "changes nothing in its own result",
		Protects: "Placement from a write in every pass",
		Rule:     "Called with its own result, UpdateProviderTree changes nothing.",
		See:      seeUpdate, run: checkIdempotent,
	},
	{
		ID: "tree/restart", Title: "reports the same providers after a restart",
		Protects: "allocations on providers that would be created again under other uuids",
		Rule: "A new provider gets a stable uuid (providertree.ChildUUID), and nothing depends on what the " +
			"process did before.",
		See: "providertree.ChildUUID", run: checkTreeRestart,
	},
	{
		ID: "tree/adopts", Title: "adopts existing providers by name, with their uuids",
		Protects: "a node that Nova, or another agent, reported before",
		Rule:     "A child is looked up by its name first: an existing one keeps its uuid.",
		See:      seeUpdate + "; the fake driver's childOf", run: checkAdopts,
	},
	{
		ID: "tree/unknown-node", Title: "makes no tree for a node that is not its own",
		Protects: "the inventory of another driver's node",
		Rule:     "For a node that is not the driver's, it returns an error or leaves the tree unchanged.",
		See:      seeUpdate, run: checkUnknownNode,
	},
	{
		ID: "tree/no-allocations", Title: "returns no allocations and no renames when it gets none",
		Protects: "allocations: they are written in a reshape only",
		Rule: "Allocations are in the response if and only if they were in the request; class_renames " +
			"only with them.",
		See: "proto: UpdateProviderTreeResponse", run: checkNoAllocations,
	},
	{
		ID: "tree/allocations-back", Title: "returns allocations unchanged when nothing moves",
		Protects: "consumers, when another part of the same tree is reshaped",
		Rule:     "With allocations, the response has all of them: amounts, generation, project, user and type.",
		See:      seeUpdate, run: checkAllocationsBack,
	},
}

func checkTreeAnswers(ctx context.Context, b *Bench) error {
	nodes, p, err := b.nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes[:min(len(nodes), 10)] {
		tree, err := trial.BareTree(rootOf(n), n.Name)
		if err != nil {
			return notRun("the node %q is invalid: %v; see nodes/names and nodes/uuids", n.Name, err)
		}
		if _, err := p.update(ctx, tree, n.Name, nil); err != nil {
			return failf(sentUpdate(tree, n.Name, nil), "%s", describe(err))
		}
	}
	return nil
}

func checkTreeInventory(ctx context.Context, b *Bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	for _, id := range base.own.Subtree(base.root) {
		if p, _ := base.own.Provider(id); len(p.Inventories) > 0 {
			return nil
		}
	}
	return failf(sentUpdate(base.bare, base.node, nil),
		"a tree of %s without any inventory", textutil.Count(base.own.Len(), "resource provider"))
}

// checkRaw checks the message that answers a bare tree.
func checkRaw(wrong func(*driverv1.ProviderTree) []string) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		base, _, err := b.base(ctx)
		if base == nil || base.reply == nil {
			return err
		}
		return failLines(sentUpdate(base.bare, base.node, nil), wrong(base.reply.GetTree()))
	}
}

func rawOrder(tree *driverv1.ProviderTree) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, p := range tree.GetProviders() {
		if !seen[p.GetParentUuid()] {
			out = append(out, fmt.Sprintf("%s is listed before its parent %s, or the parent is missing",
				p.GetName(), p.GetParentUuid()))
		}
		seen[p.GetUuid()] = true
	}
	return out
}

// rawFields returns the violations of some fields of providers, also in a message that is not a
// valid tree.
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

func checkGenerations(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	after, err := p.tree(ctx, base.stored, base.node)
	if err != nil {
		return err
	}
	found := append(base.violations(), providertree.Check(base.stored, after, base.node)...)
	return failLines(sentUpdate(base.stored, base.node, nil), lines(found.In("generation")))
}

// violations returns those of the tree that the driver makes from a bare one.
func (base *baseline) violations() providertree.Violations {
	return providertree.Check(base.bare, base.own, base.node)
}

func checkRoot(ctx context.Context, b *Bench) error {
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
	return failLines(sentUpdate(base.bare, base.node, nil), lines(found))
}

func checkChildNames(ctx context.Context, b *Bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(base.violations().In("name"),
		func(v providertree.Violation) bool { return v.UUID == base.root })
	return failLines(sentUpdate(base.bare, base.node, nil), lines(found))
}

func checkSameInput(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for i := range 10 {
		after, err := p.tree(ctx, base.bare, base.node)
		if err != nil {
			return err
		}
		if err := failLines(fmt.Sprintf("%s, the %dth time", sentUpdate(base.bare, base.node, nil), i+2),
			differences(base.own, after)); err != nil {
			return err
		}
	}
	return nil
}

func checkIdempotent(ctx context.Context, b *Bench) error {
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
		if err := failLines(fmt.Sprintf("%s: its own result (round %d)", sentUpdate(tree, base.node, nil), i+1),
			differences(tree, after)); err != nil {
			return err
		}
		tree = trial.Stored(after)
	}
	return nil
}

func checkTreeRestart(ctx context.Context, b *Bench) error {
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
		if err := failLines("after a restart, "+sentUpdate(tree, base.node, nil),
			differences(base.own, after)); err != nil {
			return err
		}
	}
	return nil
}

func checkAdopts(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	if base.own.Len() < 2 {
		return notRun("the driver's tree has no provider below the root")
	}
	tree, err := base.adopted()
	if err != nil {
		return fmt.Errorf("preparing a tree: %w", err)
	}
	after, err := p.tree(ctx, tree, base.node)
	if err != nil {
		return err
	}
	return failLines(sentUpdate(tree, base.node, nil)+", created by another client with other uuids",
		differences(tree, after))
}

func checkUnknownNode(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	const name = unknownNode
	tree, err := trial.BareTree(uuid.NewString(), name)
	if err != nil {
		return err
	}
	reply, err := p.update(ctx, tree, name, nil)
	if err == nil {
		after, err := protocol.ToTree(reply.GetTree())
		if err != nil {
			return failf(sentUpdate(tree, name, nil), "an invalid tree: %v", err)
		}
		if err := failLines(sentUpdate(tree, name, nil)+", which is not the driver's",
			differences(tree, after)); err != nil {
			return err
		}
	}
	return p.alive(ctx, sentUpdate(tree, base.node, nil))
}

func checkNoAllocations(ctx context.Context, b *Bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	sent := sentUpdate(base.bare, base.node, nil)
	if base.reply.GetAllocations() != nil {
		return failf(sent,
			"allocations of %s", textutil.Count(len(base.reply.GetAllocations().GetConsumers()), "consumer"))
	}
	if len(base.reply.GetClassRenames()) > 0 {
		return failf(sent, "class_renames of %s", quoted(sortedKeys(base.reply.GetClassRenames())))
	}
	return nil
}

func checkAllocationsBack(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for _, given := range []providertree.Allocations{allocate(base.stored, base.own, base.root), {}} {
		reply, err := p.update(ctx, base.stored, base.node, given)
		sent := sentUpdate(base.stored, base.node, given) + ": its own result, nothing moves"
		if err != nil {
			return failf(sent, "%s", describe(err))
		}
		if reply.GetAllocations() == nil {
			return failf(sent, "no allocations")
		}
		back, err := protocol.ToAllocations(reply.GetAllocations())
		if err != nil {
			return failf(sent, "invalid allocations: %v", err)
		}
		if err := failLines(sent, allocationChanges(given, back)); err != nil {
			return err
		}
	}
	return nil
}
