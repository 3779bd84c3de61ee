// SPDX-License-Identifier: Apache-2.0

package checks

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

var capabilityChecks = []Check{
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

func checkUnannounced(ctx context.Context, b *Bench) error {
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

func checkCapabilityTraits(ctx context.Context, b *Bench) error {
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

func checkTraitsAnnounced(ctx context.Context, b *Bench) error {
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

func checkGuests(ctx context.Context, b *Bench) error {
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

func checkGuestsUnknownNode(ctx context.Context, b *Bench) error {
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

func checkNodeNotDeleted(ctx context.Context, b *Bench) error {
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

func checkNodeUnknown(ctx context.Context, b *Bench) error {
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
