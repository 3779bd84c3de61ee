// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeShapes = "plugins.Shaper; docs/drivers.md, Layout versions"

var shapeChecks = []Check{
	{
		ID: "shapes/version", Title: "says the number of its shape with every configuration",
		Protects: "the record of which shape a node has",
		Rule:     "Configure answers 1 to 9999, or 0 if shapes are not numbered; without the capability \"shapes\" always 0; the same number each time.", See: seeShapes,
		run: checkShapeVersion,
	},
	{
		ID: "shapes/present", Title: "a step changes nothing in a tree of its own shape", Needs: protocol.CapabilityShapes,
		Protects: "a host whose record of its shape was lost: all steps are made again",
		Rule:     "On a tree that has the step's shape or a later one, ReshapeStep changes nothing.", See: seeShapes, run: checkPresentShape,
	},
	{
		ID: "shapes/empty", Title: "a step changes nothing in the tree of a new node", Needs: protocol.CapabilityShapes,
		Protects: "a new node of a driver with a past",
		Rule:     "On a tree that has nothing of the node yet, ReshapeStep changes nothing.", See: seeShapes, run: checkEmptyShape,
	},
	{
		ID: "shapes/bounds", Title: "refuses steps that there are not", Needs: protocol.CapabilityShapes,
		Protects: "an agent that went back to an older release of the driver",
		Rule:     "Steps are those from 0 to the present shape less one; anything else is an error.", See: seeShapes, run: checkShapeBounds,
	},
	{
		ID: "shapes/steps", Title: "gets from a former shape to its own, and every consumer keeps what it has", Needs: protocol.CapabilityShapes,
		Protects: "hosts that skipped releases of the driver",
		Rule:     "Each step makes the next shape of a tree and moves all allocations along; UpdateProviderTree takes what the last one leaves.", See: seeShapes,
		run: checkSteps,
	},
}

func checkShapeVersion(ctx context.Context, b *bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	first := p.shape
	switch {
	case first < 0 || first > plugins.MaxShape:
		return found("Configure", "shape_version %d", first)
	case first > 0 && !b.announces(protocol.CapabilityShapes):
		return found("Configure", "shape_version %d, without the capability %q", first, protocol.CapabilityShapes)
	}
	if err := p.configure(ctx, b.opts.Config, b.stateDir()); err != nil {
		return notApplicable("the driver refuses its configuration the second time; see config/repeated")
	}
	if p.shape != first {
		return found("Configure, twice with the same configuration", "shape_version %d, then %d", first, p.shape)
	}
	return nil
}

// shaped is base for a driver that numbers its shapes.
func (b *bench) shaped(ctx context.Context) (*baseline, *proc, error) {
	base, p, err := b.base(ctx)
	if err == nil && p.shape == 0 {
		err = notApplicable("with this configuration the driver's shapes are not numbered")
	}
	return base, p, err
}

// took is one step, with what came of it.
func (p *proc) took(ctx context.Context, tree *providertree.Tree, node string, from int32, given providertree.Allocations) (*providertree.Tree, providertree.Allocations, plugins.ClassRenames, error) {
	sent := fmt.Sprintf("ReshapeStep from shape %d for node %q: a tree of %s, allocations of %s", from, node, counted(tree.Len(), "resource provider"), counted(len(given), "consumer"))
	reply, err := p.step(ctx, tree, node, from, given)
	if err != nil {
		return nil, nil, nil, found(sent, "%s", said(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return nil, nil, nil, found(sent, "a tree that cannot be used: %v", err)
	}
	if reply.GetAllocations() == nil {
		return nil, nil, nil, found(sent, "no allocations")
	}
	back, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil {
		return nil, nil, nil, found(sent, "allocations that cannot be: %v", err)
	}
	return after, back, reply.GetClassRenames(), nil
}

func (b *bench) steady(ctx context.Context, pick func(*baseline) *providertree.Tree) error {
	base, p, err := b.shaped(ctx)
	if err != nil {
		return err
	}
	tree := pick(base)
	given := allocate(tree, base.own, base.root)
	for from := range p.shape {
		after, back, _, err := p.took(ctx, tree, base.node, from, given)
		if err != nil {
			return err
		}
		if err := several(fmt.Sprintf("ReshapeStep from shape %d", from), append(differences(tree, after), allocationChanges(given, back)...)); err != nil {
			return err
		}
	}
	return nil
}

func checkPresentShape(ctx context.Context, b *bench) error {
	return b.steady(ctx, func(base *baseline) *providertree.Tree { return base.stored })
}

func checkEmptyShape(ctx context.Context, b *bench) error {
	return b.steady(ctx, func(base *baseline) *providertree.Tree { return base.bare })
}

func checkShapeBounds(ctx context.Context, b *bench) error {
	base, p, err := b.shaped(ctx)
	if err != nil {
		return err
	}
	for _, from := range []int32{p.shape, plugins.MaxShape + 1, -1} {
		sent := fmt.Sprintf("ReshapeStep from shape %d of a driver of shape %d", from, p.shape)
		if _, err := p.step(ctx, base.stored, base.node, from, providertree.Allocations{}); err == nil {
			return found(sent, "a tree")
		}
		if err := p.alive(ctx, sent); err != nil {
			return err
		}
	}
	return nil
}

func checkSteps(ctx context.Context, b *bench) error {
	if _, _, err := b.shaped(ctx); err != nil {
		return err
	}
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	tree, given := r.before, r.given
	for from := range p.shape {
		after, back, renames, err := p.took(ctx, tree, base.node, from, given)
		if err != nil {
			return err
		}
		wrong := append(totalChanges(given, back, renames), homeless(after, back)...)
		for _, id := range sortedKeys(given) {
			if _, ok := back[id]; !ok {
				wrong = append(wrong, "consumer "+id+" is missing")
			}
		}
		if err := several(fmt.Sprintf("ReshapeStep from shape %d (%s)", from, r.source), wrong); err != nil {
			return err
		}
		tree, given = host.Stored(after), back
	}
	sent := sentUpdate(tree, base.node, given) + ", after all steps"
	reply, err := p.update(ctx, tree, base.node, given)
	if err != nil {
		return found(sent, "%s", said(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return found(sent, "a tree that cannot be used: %v", err)
	}
	return several(sent+", compared with the reshape in one go", differences(r.after, after))
}

var abilityChecks = []Check{
	{
		ID: "abilities/unannounced", Title: "answers Unimplemented to what it did not announce",
		Protects: "an agent that asks what it should not have",
		Rule:     "A method of a capability that the plugin does not have answers UNIMPLEMENTED.", See: "head of driver.proto", run: checkUnannounced,
	},
	{
		ID: "abilities/capability-traits", Title: "reports well-formed capability traits, and none of the agent's", Needs: protocol.CapabilityCapabilities,
		Protects: "the traits of the whole node: the agent throws the answer away",
		Rule:     "Capability traits are traits; COMPUTE_NODE and COMPUTE_STATUS_DISABLED are the agent's.", See: "plugins.CapabilityReporter", run: checkCapabilityTraits,
	},
	{
		ID: "abilities/capability-traits-announced", Title: "reports capability traits only if it announced them",
		Protects: "an answer that the agent throws away",
		Rule:     "capability_traits come with the capability \"capabilities\" only.", See: "plugins.CapabilityReporter", run: checkTraitsAnnounced,
	},
	{
		ID: "abilities/guests", Title: "lists its guests, each once and whole", Needs: protocol.CapabilityGuests,
		Protects: "allocations: they can be deleted because a guest is missing in the list",
		Rule:     "uuids are uuids, each there once; what a guest has is on providers of the tree, at least 1 of each class. Whoever cannot tell answers NotReady or Unimplemented, never a part.", See: "plugins.GuestLister",
		run: checkGuests,
	},
	{
		ID: "abilities/guests-unknown-node", Title: "lists no guests of a node that it does not have", Needs: protocol.CapabilityGuests,
		Protects: "the allocations on another driver's node: an empty list says that there is no guest",
		Rule:     "An empty list says that there is no guest. Of a node that the driver does not know it cannot say that: it answers an error.", See: "plugins.GuestLister",
		run: checkGuestsUnknownNode,
	},
	{
		ID: "abilities/node-deleted", Title: "calls no node deleted that it has", Needs: protocol.CapabilityNodeDeleted,
		Protects: "a running node, whose providers would be deleted",
		Rule:     "true needs proof that the node is gone for good.", See: "plugins.NodeChecker", run: checkNodeNotDeleted,
	},
	{
		ID: "abilities/node-unknown", Title: "calls no node deleted that it does not know", Needs: protocol.CapabilityNodeDeleted,
		Protects: "the node of another driver, or one whose machine cannot be reached",
		Rule:     "A machine that is down, cannot be reached or is not known is not deleted.", See: "plugins.NodeChecker", run: checkNodeUnknown,
	},
}

func checkUnannounced(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	asked := 0
	for _, ability := range []struct {
		capability, call string
		ask              func() error
	}{
		{protocol.CapabilityShapes, "ReshapeStep", func() error {
			_, err := p.step(ctx, base.stored, base.node, 0, providertree.Allocations{})
			return err
		}},
		{protocol.CapabilityGuests, "Guests", func() error { _, err := p.guests(ctx, base.stored, base.node); return err }},
		{protocol.CapabilityNodeDeleted, "NodeDeleted", func() error { _, err := p.nodeDeleted(ctx, base.nodes[0]); return err }},
		{protocol.CapabilityWatch, "Watch", func() error { return p.watch(ctx, 1, nil) }},
		{protocol.CapabilityInstances, "List of instances", func() error { _, err := p.list(ctx, base.node); return err }},
		{protocol.CapabilityInstanceEvents, "Watch of instances", func() error {
			watching, cancel := context.WithTimeout(ctx, b.limits.Health)
			defer cancel()
			events, ended := p.follow(watching, time.Second)
			if _, ok := <-events; ok {
				return nil
			}
			return ended()
		}},
	} {
		if b.announces(ability.capability) {
			continue
		}
		asked++
		if err := ability.ask(); kind(err) != protocol.KindUnsupported {
			return found(ability.call+" to a plugin without the capability \""+ability.capability+"\"", "%s", verdict(err))
		}
	}
	if asked == 0 {
		return notApplicable("the plugin announces everything")
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
	return several(sentUpdate(base.bare, base.node, nil), wrong)
}

func checkTraitsAnnounced(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	traits := sortedKeys(base.reply.GetCapabilityTraits())
	if len(traits) > 0 && !b.announces(protocol.CapabilityCapabilities) {
		return found(sentUpdate(base.bare, base.node, nil), "capability traits %s, without the capability %q", quoted(traits), protocol.CapabilityCapabilities)
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
		return notApplicable("the driver cannot list guests now (%s)", said(err))
	case err != nil:
		return found(sent, "%s", said(err))
	}
	var wrong []string
	seen := map[string]bool{}
	for _, g := range guests {
		who := "guest " + g.GetUuid()
		id, err := providertree.CanonicalUUID(g.GetUuid())
		if err != nil {
			wrong = append(wrong, "a guest "+strings.TrimSpace(g.GetName())+": "+err.Error())
		}
		if seen[id] {
			wrong = append(wrong, who+" is there twice")
		}
		seen[id] = true
		resources, err := protocol.ToResources(g.GetResources().GetResources())
		if err != nil {
			wrong = append(wrong, who+": "+err.Error())
		}
		for _, provider := range sortedKeys(resources) {
			if !base.stored.Exists(provider) {
				wrong = append(wrong, who+" has something of provider "+provider+", which is not in the tree")
			}
			if len(resources[provider]) == 0 {
				wrong = append(wrong, who+" has nothing of provider "+provider+", which is listed all the same")
			}
		}
	}
	return several(sent, wrong)
}

func checkGuestsUnknownNode(ctx context.Context, b *bench) error {
	_, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	const name = "drivertest-nobody"
	tree, err := host.BareTree(uuid.NewString(), name)
	if err != nil {
		return err
	}
	guests, err := p.guests(ctx, tree, name)
	if err == nil {
		return found(fmt.Sprintf("Guests of node %q, which is none of the driver's", name), "a list of %s", counted(len(guests), "guest"))
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
			return found(fmt.Sprintf("NodeDeleted for node %q, which AvailableNodes names", n.Name), "true")
		}
	}
	return nil
}

func checkNodeUnknown(ctx context.Context, b *bench) error {
	_, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	node := plugins.Node{Name: "drivertest-nobody", UUID: uuid.NewString()}
	deleted, err := p.nodeDeleted(ctx, node)
	if err == nil && deleted {
		return found(fmt.Sprintf("NodeDeleted for node %q, of which nobody has ever heard", node.Name), "true")
	}
	return nil
}
