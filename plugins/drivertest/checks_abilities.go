// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeLayouts = "plugins.LayoutVersioner; docs/drivers.md, Layouts with versions"

var layoutChecks = []check{
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

func checkLayoutVersion(ctx context.Context, b *bench) error {
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
	if err := p.configure(ctx, b.opts.Config, b.stateDir()); err != nil {
		return notRun("the driver rejects its configuration the second time; see config/repeated")
	}
	if p.layout != first {
		return failf("Configure, twice with the same configuration", "shape_version %d, then %d", first, p.layout)
	}
	return nil
}

// layoutBase is base for a driver whose layouts have versions.
func (b *bench) layoutBase(ctx context.Context) (*baseline, *proc, error) {
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

func (b *bench) stepsChangeNothing(ctx context.Context, pick func(*baseline) *providertree.Tree) error {
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

func checkPresentLayout(ctx context.Context, b *bench) error {
	return b.stepsChangeNothing(ctx, func(base *baseline) *providertree.Tree { return base.stored })
}

func checkEmptyLayout(ctx context.Context, b *bench) error {
	return b.stepsChangeNothing(ctx, func(base *baseline) *providertree.Tree { return base.bare })
}

func checkLayoutBounds(ctx context.Context, b *bench) error {
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

func checkSteps(ctx context.Context, b *bench) error {
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

var abilityChecks = []check{
	{
		ID: "abilities/unannounced", Title: "returns Unimplemented for capabilities that it does not announce",
		Protects: "an agent that calls a method by mistake",
		Rule:     "A method of a capability that the plugin does not have returns UNIMPLEMENTED.",
		See:      "head of driver.proto", run: checkUnannounced,
	},
	{
		ID: "abilities/capability-traits", Title: "reports well-formed capability traits, and none of the agent's",
		Needs:    protocol.CapabilityCapabilities,
		Protects: "the traits of the whole node: the agent discards the response",
		Rule:     "Capability traits are valid traits; COMPUTE_NODE and COMPUTE_STATUS_DISABLED are the agent's.",
		See:      "plugins.CapabilityReporter", run: checkCapabilityTraits,
	},
	{
		ID: "abilities/capability-traits-announced", Title: "reports capability traits only if it announced them",
		Protects: "the response: the agent discards it",
		Rule:     "capability_traits need the capability \"capabilities\".",
		See:      "plugins.CapabilityReporter", run: checkTraitsAnnounced,
	},
	{
		ID:       "abilities/guests",
		Title:    "lists its guests, each once, with all resources",
		Needs:    protocol.CapabilityGuests,
		Protects: "allocations: they can be deleted because a guest is missing in the list",
		Rule: "uuids are valid, each listed once; a guest's resources are on providers of the tree, at least 1 " +
			"of each class. If the guests are not known, the driver returns NotReady or Unimplemented, never a part " +
			"of the list.",
		See: "plugins.GuestLister",
		run: checkGuests,
	},
	{
		ID: "abilities/guests-unknown-node", Title: "lists no guests for a node that is not its own",
		Needs:    protocol.CapabilityGuests,
		Protects: "the allocations on another driver's node: an empty list means that there is no guest",
		Rule: "An empty list means that there is no guest. For a node that is not its own, the driver " +
			"returns an error.", See: "plugins.GuestLister",
		run: checkGuestsUnknownNode,
	},
	{
		ID: "abilities/node-deleted", Title: "does not report a node of its own as deleted",
		Needs:    protocol.CapabilityNodeDeleted,
		Protects: "a running node, whose providers would be deleted",
		Rule:     "true needs proof that the node was removed for good.",
		See:      "plugins.NodeChecker", run: checkNodeNotDeleted,
	},
	{
		ID: "abilities/node-unknown", Title: "does not report an unknown node as deleted",
		Needs:    protocol.CapabilityNodeDeleted,
		Protects: "the node of another driver, or one whose machine cannot be reached",
		Rule:     "A machine that is down, cannot be reached or is not known is not deleted.",
		See:      "plugins.NodeChecker", run: checkNodeUnknown,
	},
}

func checkUnannounced(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	called := 0
	for _, ability := range []struct {
		capability, call string
		do               func() error
	}{
		{protocol.CapabilityLayouts, "ReshapeStep", func() error {
			_, err := p.step(ctx, base.stored, base.node, 0, providertree.Allocations{})
			return err
		}},
		{protocol.CapabilityGuests,
			"Guests", func() error { _, err := p.guests(ctx, base.stored, base.node); return err }},
		{protocol.CapabilityNodeDeleted, "NodeDeleted",
			func() error { _, err := p.nodeDeleted(ctx, base.nodes[0]); return err }},
		{protocol.CapabilityWatch, "Watch", func() error { return p.watch(ctx, 1, nil) }},
		{protocol.CapabilityInstances, "List of instances",
			func() error { _, err := p.list(ctx, base.node); return err }},
		{protocol.CapabilityMigrate, "Depart", func() error {
			return p.depart(ctx, &made{node: base.node, spec: &driverv1.InstanceSpec{Uuid: uuid.NewString()}})
		}},
		{protocol.CapabilityInstanceEvents, "Watch of instances", func() error {
			watching, cancel := context.WithTimeout(ctx, b.limits.Health)
			defer cancel()
			events, ended := p.follow(watching, time.Second)
			if _, ok := <-events; ok {
				return nil
			}
			return ended()
		}},
		{protocol.CapabilityCheckSpawn, "CheckSpawn", func() error {
			return p.checkSpawn(ctx,
				&made{node: base.node, spec: &driverv1.InstanceSpec{Uuid: uuid.NewString()}, tree: base.stored})
		}},
		{protocol.CapabilityRestore, "Restore", func() error {
			_, err := p.restore(ctx,
				&made{node: base.node, spec: &driverv1.InstanceSpec{Uuid: uuid.NewString()}, tree: base.stored})
			return err
		}},
		{protocol.CapabilityConsoleLog, "ConsoleLog",
			func() error { _, err := p.consoleLog(ctx, base.node, uuid.NewString(), 1); return err }},
		{protocol.CapabilityConsole, "Console", func() error { return p.console(ctx, base.node, uuid.NewString()) }},
	} {
		if b.announces(ability.capability) {
			continue
		}
		called++
		if err := ability.do(); kind(err) != protocol.KindUnsupported {
			return failf(ability.call+" to a plugin without the capability \""+
				ability.capability+"\"", "%s", verdict(err))
		}
	}
	if called == 0 {
		return notRun("the plugin announces all capabilities")
	}
	return nil
}

func checkCapabilityTraits(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	for _, trait := range sortedKeys(base.reply.GetCapabilityTraits()) {
		if err := providertree.ValidateTrait(trait); err != nil {
			wrong = append(wrong, err.Error())
		}
		if slices.Contains(providertree.AgentTraits, trait) {
			wrong = append(wrong, "the capability trait "+trait)
		}
	}
	return failLines(sentUpdate(base.bare, base.node, nil), wrong)
}

func checkTraitsAnnounced(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	traits := sortedKeys(base.reply.GetCapabilityTraits())
	if len(traits) > 0 && !b.announces(protocol.CapabilityCapabilities) {
		return failf(sentUpdate(base.bare, base.node, nil),
			"capability traits %s, without the capability %q", quoted(traits), protocol.CapabilityCapabilities)
	}
	return nil
}

func checkGuests(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	sent := fmt.Sprintf("Guests of node %q", base.node)
	guests, err := p.guests(ctx, base.stored, base.node)
	switch {
	case kind(err) == protocol.KindUnsupported || kind(err) == protocol.KindNotReady:
		return notRun("the driver cannot list guests now (%s)", describe(err))
	case err != nil:
		return failf(sent, "%s", describe(err))
	}
	var wrong []string
	seen := map[string]bool{}
	for _, g := range guests {
		guest := "guest " + g.GetUuid()
		id, err := providertree.CanonicalUUID(g.GetUuid())
		if err != nil {
			wrong = append(wrong, "a guest "+strings.TrimSpace(g.GetName())+": "+err.Error())
		}
		if seen[id] {
			wrong = append(wrong, guest+" is listed twice")
		}
		seen[id] = true
		resources, err := protocol.ToResources(g.GetResources().GetResources())
		if err != nil {
			wrong = append(wrong, guest+": "+err.Error())
		}
		for _, provider := range sortedKeys(resources) {
			if !base.stored.Exists(provider) {
				wrong = append(wrong, guest+" has resources of provider "+provider+", which is not in the tree")
			}
			if len(resources[provider]) == 0 {
				wrong = append(wrong, guest+" lists provider "+provider+" without any resources")
			}
		}
	}
	return failLines(sent, wrong)
}

func checkGuestsUnknownNode(ctx context.Context, b *bench) error {
	_, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	tree, err := trial.BareTree(uuid.NewString(), unknownNode)
	if err != nil {
		return err
	}
	guests, err := p.guests(ctx, tree, unknownNode)
	if err == nil {
		return failf(fmt.Sprintf("Guests of node %q, which is not the driver's", unknownNode),
			"a list of %s", textutil.Count(len(guests), "guest"))
	}
	return nil
}

func checkNodeNotDeleted(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for _, n := range base.nodes {
		if deleted, err := p.nodeDeleted(ctx, plugins.Node{Name: n.Name, UUID: rootOf(n)}); err == nil && deleted {
			return failf(fmt.Sprintf("NodeDeleted for node %q, which AvailableNodes lists", n.Name), "true")
		}
	}
	return nil
}

func checkNodeUnknown(ctx context.Context, b *bench) error {
	_, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	node := plugins.Node{Name: unknownNode, UUID: uuid.NewString()}
	deleted, err := p.nodeDeleted(ctx, node)
	if err == nil && deleted {
		return failf(fmt.Sprintf("NodeDeleted for the unknown node %q", node.Name), "true")
	}
	return nil
}
