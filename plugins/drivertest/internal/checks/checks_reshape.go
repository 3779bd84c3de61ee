// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeReshape = "docs/drivers.md, Reshapes and Layouts with versions; plugins.Moves, plugins.Distribution"

var reshapeChecks = []Check{
	{
		ID: "reshape/needed", Title: "returns ReshapeNeeded when inventory must move and it has no allocations",
		Protects: "guests: Placement refuses to remove inventory in use, or their allocations become invalid",
		Rule: "Inventory that can have allocations moves in a reshape only: without allocations the driver " +
			"returns ReshapeNeeded, whatever guests the hypervisor has.",
		See: seeReshape, run: checkReshapeNeeded,
	},
	{
		ID: "reshape/needed-again", Title: "returns ReshapeNeeded every time, with a reason",
		Protects: "an agent that postpones the reshape to its next start",
		Rule: "Without allocations, the result for a tree of a former layout is always ReshapeNeeded, with a " +
			"reason for operators: what moves where.",
		See: "plugins.ReshapeNeeded", run: checkNeededAgain,
	},
	{
		ID:       "reshape/done",
		Title:    "makes the reshape when it has the allocations",
		Protects: "a node that would never start again",
		Rule: "With allocations the driver returns the tree and the allocations, or ReshapeFailed that names " +
			"every consumer that cannot be moved; never ReshapeNeeded. A driver whose layouts have versions runs " +
			"its own migrations.",
		See: seeReshape,
		run: checkReshapeDone,
	},
	{
		ID: "reshape/empty-allocations", Title: "makes the reshape when there are no consumers",
		Protects: "an empty host: empty allocations are not the same as absent ones",
		Rule:     "Empty allocations mean that there are no consumers. The response has empty allocations too.",
		See:      seeReshape, run: checkEmptyAllocations,
	},
	{
		ID: "reshape/too-full", Title: "rejects what does not fit, and names the consumers",
		Protects: "an operator with an overfull host, who must know which guests to move away",
		Rule:     "A ReshapeFailed names the consumers that do not fit; no amount above the capacity is written.",
		See:      "plugins.ReshapeFailed", run: checkTooFull,
	},
	{
		ID: "reshape/repeatable", Title: "makes the same reshape from the same tree",
		Protects: "a plan that an operator reviewed: it is computed again when it is applied",
		Rule:     "The result is the same for the same tree and allocations. (Do not depend on the order of a map.)",
		See:      "plugins.Distribution", run: checkRepeatable,
	},
}

// resultChecks check the result of one reshape.
var resultChecks = []Check{
	{
		ID: "reshape/consumers", Title: "keeps all consumers and adds none",
		Protects: "guests whose allocations would be lost",
		Rule:     "The response has every consumer of the request, and no other.", See: seeReshape,
		run: resultCheck(func(_ *baseline, r *reshaped) []string {
			var out []string
			for _, id := range sortedKeys(r.given) {
				if _, ok := r.allocations[id]; !ok {
					out = append(out, "consumer "+id+" is missing")
				}
			}
			return append(out, addedConsumers(r.given, r.allocations)...)
		}),
	},
	{
		ID: "reshape/conserves", Title: "keeps the total amounts of every consumer",
		Protects: "guests that would have more or less than they were given",
		Rule:     "For every consumer, the total amount of each class (under its current name) does not change.",
		See:      seeReshape,
		run: resultCheck(
			func(_ *baseline, r *reshaped) []string { return totalChanges(r.given, r.allocations, r.renames) }),
	},
	{
		ID: "reshape/reason", Title: "moves only what loses its inventory",
		Protects: "capacity that would be given out twice: what leaves a provider is free there, and the guest " +
			"still uses it",
		Rule: "An allocation leaves a provider only where the reshape removes or shrinks the inventory of its " +
			"class, or changes its units so that the " +
			"allocation does not fit.",
		See: "docs/drivers.md, What a reshape may do", run: resultCheck(func(base *baseline, r *reshaped) []string {
			return leftWithoutReason(r.before, r.after, base.root, r.given, r.allocations)
		}),
	},
	{
		ID: "reshape/guests", Title: "moves its guests' allocations to where it lists the guests",
		Needs:    protocol.CapabilityGuests,
		Protects: "guests that would get each other's devices",
		Rule: "What a reshape moves of a guest is where Guests lists the guest's resources on the new tree. The " +
			"driver knows where these guests are, so it can move them.",
		See: "docs/drivers.md, What a reshape may do; plugins.GuestLister", run: checkReshapeGuests,
	},
	{
		ID: "reshape/owners", Title: "keeps generation, project, user and type of consumers",
		Protects: "quotas, and concurrent writes to the same consumers",
		Rule:     "A consumer's generation, project, user and type are returned unchanged.",
		See:      "proto: ConsumerAllocations",
		run: resultCheck(func(_ *baseline, r *reshaped) []string {
			var out []string
			for _, id := range sortedKeys(r.given) {
				if is, ok := r.allocations[id]; ok {
					out = append(out, ownerChanges(id, r.given[id], is)...)
				}
			}
			return out
		}),
	},
	{
		ID: "reshape/housed", Title: "puts allocations on providers with inventory of their class",
		Protects: "the whole reshape: Placement rejects it",
		Rule: "Every allocation is on a provider of the tree that has inventory of its class; no inventory in " +
			"use is removed.", See: seeReshape,
		run: resultCheck(func(_ *baseline, r *reshaped) []string { return withoutInventory(r.after, r.allocations) }),
	},
	{
		ID: "reshape/capacity", Title: "respects the capacity of every inventory",
		Protects: "the whole reshape: Placement rejects it",
		Rule:     "Capacity, min_unit, max_unit and step_size hold on every provider.", See: "plugins.Distribution",
		run: resultCheck(func(_ *baseline, r *reshaped) []string { return overCapacity(r.after, r.allocations) }),
	},
	{
		ID:       "reshape/spread",
		Title:    "distributes consumers that fill the host over all providers",
		Protects: "a full host: Placement rejects a reshape that puts all consumers on the same provider",
		Rule: "An allocation moves to where the guest's resources are, or else to where enough is free. " +
			"Consumers that fit are placed, or named in a ReshapeFailed.",
		See: "plugins.Distribution",
		run: checkSpread,
	},
	{
		ID: "reshape/foreign", Title: "keeps allocations on external providers",
		Protects: "bandwidth and accelerators of the same guests",
		Rule:     "A reshape moves the driver's own inventory. External providers and allocations on them stay.",
		See:      seeReshape,
		run:      resultCheck(externalAllocations),
	},
	{
		ID:       "reshape/complete",
		Title:    "results in the tree of a new node",
		Protects: "a host that would differ from one that is installed today",
		Rule: "After a reshape the tree is that of a new node. (With --former or --former-config all classes " +
			"are compared; from a former tree that the suite made up, only those that the driver moved.)",
		See: seeReshape,
		run: checkComplete,
	},
	{
		ID:       "reshape/renames",
		Title:    "declares the classes that it renamed, and no others",
		Protects: "the agent's totals: it takes an undeclared rename for a loss",
		Rule: "class_renames maps former names to current ones; no name is on both sides. At least one " +
			"consumer's class was renamed so, and an allocation keeps a former name only where its provider still " +
			"has inventory of that class (VCPU of floating guests, beside those whose VCPU became PCPU).",
		See: "plugins.Renamer",
		run: resultCheck(renamesHold),
	},
	{
		ID: "reshape/settled", Title: "needs no reshape after its own",
		Protects: "a host that would reshape at every start",
		Rule:     "Called with its own result and without allocations, it changes nothing and needs no reshape.",
		See:      seeReshape,
		run:      checkSettled,
	},
	{
		ID: "reshape/idempotent", Title: "changes nothing in its own result",
		Protects: "an agent that was stopped before it recorded the reshape",
		Rule:     "Called with its own result and its own allocations, it changes neither.", See: seeReshape,
		run: checkReshapeIdempotent,
	},
}

func checkReshapeNeeded(ctx context.Context, b *Bench) error {
	base, _, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	sent := r.sent(base, nil)
	switch {
	case kind(r.withoutError) == protocol.KindReshapeNeeded:
		return nil
	case r.withoutError != nil:
		return failf(sent, "%s", describe(r.withoutError))
	}
	after, err := protocol.ToTree(r.without.GetTree())
	if err != nil {
		return failf(sent, "an invalid tree: %v", err)
	}
	if lost := lostInventory(r.before, after, base.root); len(lost) > 0 {
		return failf(sent, "a tree in which\n%s", strings.Join(lost, "\n"))
	}
	return failf(sent, "a tree in which nothing moved")
}

func checkNeededAgain(ctx context.Context, b *Bench) error {
	base, p, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	if kind(r.withoutError) != protocol.KindReshapeNeeded {
		return notRun("the driver does not return ReshapeNeeded; see reshape/needed")
	}
	if strings.TrimSpace(protocol.FailureOf(r.withoutError).Words) == "" {
		return failf(r.sent(base, nil), "ReshapeNeeded without a reason")
	}
	for range 5 { // the reshape was not applied, so it is still needed
		if _, again := p.update(ctx, r.before, base.node, nil); kind(again) != protocol.KindReshapeNeeded {
			return failf(r.sent(base, nil)+", again", "%s; it was ReshapeNeeded before", verdict(again))
		}
	}
	return nil
}

func checkReshapeDone(ctx context.Context, b *Bench) error {
	base, _, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	sent := r.sent(base, r.given)
	switch f := protocol.FailureOf(r.replyError); {
	case r.replyError == nil && r.reply.GetAllocations() == nil:
		return failf(sent, "no allocations")
	case r.replyError == nil:
		return nil
	case f.Kind == protocol.KindReshapeFailed && len(f.Violations) > 0:
		return r.unmoved()
	case f.Kind == protocol.KindReshapeFailed:
		return failf(sent, "%s, without a violation", describe(r.replyError))
	default:
		return failf(sent, "%s", describe(r.replyError))
	}
}

func checkEmptyAllocations(ctx context.Context, b *Bench) error {
	base, p, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	none := providertree.Allocations{}
	reply, err := p.update(ctx, r.before, base.node, none)
	if err != nil {
		return failf(r.sent(base, none), "%s", describe(err))
	}
	if reply.GetAllocations() == nil {
		return failf(r.sent(base, none), "no allocations at all, not even empty ones")
	}
	if n := len(reply.GetAllocations().GetConsumers()); n > 0 {
		return failf(r.sent(base, none), "allocations of %s", textutil.Count(n, "consumer"))
	}
	return nil
}

func checkTooFull(ctx context.Context, b *Bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	full := r.given.Clone()
	c := full[consumerName(0)]
	moved := 0
	for _, provider := range sortedKeys(c.Resources) {
		for class := range c.Resources[provider] {
			if _, stays := r.after.Inventory(provider, class); !stays {
				c.Resources[provider][class] = providertree.MaxUnit
				moved++
			}
		}
	}
	if moved == 0 {
		return notRun("the reshape moves nothing that a consumer has")
	}
	sent := r.sent(base, full) + "; one consumer has 2147483647 of what must move"
	reply, answer := p.update(ctx, r.before, base.node, full)
	if answer == nil {
		return failf(sent, "a tree of %s and allocations of %s",
			textutil.Count(len(reply.GetTree().GetProviders()), "resource provider"),
			textutil.Count(len(reply.GetAllocations().GetConsumers()), "consumer"))
	}
	f := protocol.FailureOf(answer)
	if f.Kind != protocol.KindReshapeFailed {
		return failf(sent, "%s", describe(answer))
	}
	if !slices.ContainsFunc(f.Violations, func(v protocol.Violation) bool { return v.Consumer == consumerName(0) }) {
		return failf(sent, "%s: the consumer %s is not among the violations", describe(answer), consumerName(0))
	}
	return nil
}

func checkRepeatable(ctx context.Context, b *Bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	for i := range 8 {
		sent := fmt.Sprintf("%s, the %dth time", r.sent(base, r.given), i+2)
		again, err := p.update(ctx, r.before, base.node, r.given)
		if err != nil {
			return failf(sent, "%s", describe(err))
		}
		tree, err := protocol.ToTree(again.GetTree())
		if err != nil {
			return failf(sent, "an invalid tree: %v", err)
		}
		if err := failLines(sent, differences(r.after, tree)); err != nil {
			return err
		}
		if !sameAnswer(r.reply, again) {
			back, err := protocol.ToAllocations(again.GetAllocations())
			if err != nil {
				return failf(sent, "invalid allocations: %v", err)
			}
			return failLines(sent, append([]string{"allocations that differ from the first time:"},
				allocationChanges(r.allocations, back)...))
		}
	}
	return nil
}

func resultCheck(wrong func(*baseline, *reshaped) []string) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		base, _, r, err := b.done(ctx)
		if err != nil {
			return err
		}
		return failLines(r.sent(base, r.given), wrong(base, r))
	}
}

func externalAllocations(base *baseline, r *reshaped) []string {
	other, _ := r.before.ProviderByName(base.node + externalName)
	is, ok := r.after.Provider(other.UUID)
	if !ok {
		return []string{other.Name + " is gone"}
	}
	out := providertree.Change{Before: other, After: is}.Lines()
	for _, id := range sortedKeys(r.given) {
		c, ok := r.allocations[id]
		if n := c.Resources[other.UUID][externalClass]; ok && n != 5 {
			out = append(out, fmt.Sprintf("consumer %s has %d %s on %s, had 5", id, n, externalClass, other.Name))
		}
	}
	return out
}

func renamesHold(_ *baseline, r *reshaped) []string {
	var out []string
	if err := r.renames.Validate(); err != nil {
		out = append(out, err.Error())
	}
	held, renamed := map[string]bool{}, map[string]bool{} // by former name: had it before, has less of it now
	for _, id := range sortedKeys(r.given) {
		was, is := r.given[id].Totals(), r.allocations[id].Totals()
		for former := range r.renames {
			held[former] = held[former] || was[former] > 0
			renamed[former] = renamed[former] || is[former] < was[former]
		}
	}
	for _, former := range sortedKeys(r.renames) {
		if held[former] && !renamed[former] {
			out = append(out,
				fmt.Sprintf("%s is declared as renamed to %s, and every consumer has as much %s as before",
					former, r.renames[former], former))
		}
	}
	for _, id := range sortedKeys(r.allocations) {
		for _, provider := range sortedKeys(r.allocations[id].Resources) {
			for _, class := range sortedKeys(r.allocations[id].Resources[provider]) {
				_, exists := r.after.Inventory(provider, class)
				if to, former := r.renames[class]; former && !exists {
					out = append(
						out,
						fmt.Sprintf(
							"consumer %s still has %s of %s, which has no inventory of it, and %s is declared as "+
								"renamed to %s", id, class, provider, class, to),
					)
				}
			}
		}
	}
	return out
}

func checkSettled(ctx context.Context, b *Bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	tree := trial.Stored(r.after)
	after, err := p.tree(ctx, tree, base.node)
	if err != nil {
		return err
	}
	return failLines(sentUpdate(tree, base.node, nil)+": the result of the reshape", differences(tree, after))
}

func checkReshapeIdempotent(ctx context.Context, b *Bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	tree := trial.Stored(r.after)
	sent := sentUpdate(tree, base.node, r.allocations) + ": the result of the reshape"
	reply, err := p.update(ctx, tree, base.node, r.allocations)
	if err != nil {
		return failf(sent, "%s", describe(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return failf(sent, "an invalid tree: %v", err)
	}
	back, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil {
		return failf(sent, "invalid allocations: %v", err)
	}
	return failLines(sent, append(differences(tree, after), allocationChanges(r.allocations, back)...))
}
