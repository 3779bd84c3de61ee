// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeReshape = "docs/drivers.md, Reshapes and Layout versions; plugins.Moves, plugins.Distribution"

var reshapeChecks = []Check{
	{
		ID: "reshape/needed", Title: "answers ReshapeNeeded when inventory is to move and it has no allocations",
		Protects: "guests: Placement refuses to remove inventory in use, or their allocations point to nothing",
		Rule:     "Inventory that consumers may have allocations of moves in a reshape only: without allocations the answer is ReshapeNeeded, whatever the hypervisor says of guests.",
		See:      seeReshape, run: checkReshapeNeeded,
	},
	{
		ID: "reshape/needed-again", Title: "says so every time, and says why",
		Protects: "an agent that postpones the reshape to its next start",
		Rule:     "Without allocations a tree of a former shape is always answered with ReshapeNeeded, with a reason for people: what is to move where.",
		See:      "plugins.ReshapeNeeded", run: checkNeededAgain,
	},
	{
		ID: "reshape/done", Title: "makes the reshape when it has the allocations",
		Protects: "a node that would never start again",
		Rule:     "With allocations the answer is the tree and the allocations, or ReshapeFailed that names every consumer that cannot be moved; ReshapeNeeded is none. A driver whose shapes have numbers calls its own steps for that.",
		See:      seeReshape, run: checkReshapeDone,
	},
	{
		ID: "reshape/empty-allocations", Title: "makes the reshape when there are no consumers",
		Protects: "an empty host: no allocations are not the same as none given",
		Rule:     "Allocations that are there and empty mean that nobody has any. They are in the answer too.",
		See:      seeReshape, run: checkEmptyAllocations,
	},
	{
		ID: "reshape/too-full", Title: "refuses what does not fit, and names who is in the way",
		Protects: "an operator with an overfull host, who is to know which guests to move away",
		Rule:     "A ReshapeFailed names the offenders; amounts that there is no room for are not written.",
		See:      "plugins.ReshapeFailed", run: checkTooFull,
	},
	{
		ID: "reshape/repeatable", Title: "makes the same reshape of the same tree",
		Protects: "a plan that an operator looked at: what is applied is computed again",
		Rule:     "The result is the same for the same tree and allocations. (Do not go by the order of a map.)",
		See:      "plugins.Distribution", run: checkRepeatable,
	},
}

// resultChecks look at what came out of one reshape.
var resultChecks = []Check{
	{
		ID: "reshape/consumers", Title: "keeps all consumers and invents none",
		Protects: "guests whose allocations would be gone",
		Rule:     "Every consumer that was given is in the answer, and nobody else.", See: seeReshape,
		run: resultCheck(func(_ *baseline, r *reshaped) []string {
			var out []string
			for _, id := range sortedKeys(r.given) {
				if _, ok := r.allocations[id]; !ok {
					out = append(out, "consumer "+id+" is missing")
				}
			}
			return append(out, inventedConsumers(r.given, r.allocations)...)
		}),
	},
	{
		ID: "reshape/conserves", Title: "leaves every consumer with what it had in all",
		Protects: "guests that would have more or less than they were given",
		Rule:     "For every consumer, the amounts per class (under their present names) are what they were, at their new places.", See: seeReshape,
		run: resultCheck(func(_ *baseline, r *reshaped) []string { return totalChanges(r.given, r.allocations, r.renames) }),
	},
	{
		ID: "reshape/owners", Title: "leaves generation, project, user and type of consumers alone",
		Protects: "quotas, and what others write to the same consumers meanwhile",
		Rule:     "A consumer's generation, project, user and type go back as they came.", See: "proto: ConsumerAllocations",
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
		ID: "reshape/housed", Title: "puts allocations where there is inventory of them",
		Protects: "the whole reshape: Placement refuses it",
		Rule:     "Every allocation is on a provider of the tree that has inventory of its class; nothing that is still allocated is taken away.", See: seeReshape,
		run: resultCheck(func(_ *baseline, r *reshaped) []string { return homeless(r.after, r.allocations) }),
	},
	{
		ID: "reshape/capacity", Title: "puts no more anywhere than there is room",
		Protects: "the whole reshape: Placement refuses it",
		Rule:     "Capacity, min_unit, max_unit and step_size hold on every provider.", See: "plugins.Distribution",
		run: resultCheck(func(_ *baseline, r *reshaped) []string { return crowded(r.after, r.allocations) }),
	},
	{
		ID: "reshape/spread", Title: "spreads consumers that fill the host over all providers",
		Protects: "a full host: Placement refuses the reshape of one whose consumers are all put on the same provider",
		Rule:     "What is allocated goes to where it really is, or else to where enough is free. Consumers that fit are placed, or named in a ReshapeFailed.", See: "plugins.Distribution",
		run: checkSpread,
	},
	{
		ID: "reshape/foreign", Title: "leaves what consumers have of somebody else's providers",
		Protects: "bandwidth and accelerators of the same guests",
		Rule:     "A reshape moves what is the driver's. Allocations on other providers stay, and so do these.", See: seeReshape,
		run: resultCheck(foreignAllocations),
	},
	{
		ID: "reshape/complete", Title: "arrives at the tree of a new node",
		Protects: "a host that differs from one that is installed today",
		Rule:     "After a reshape the tree says what a new node's would. (Of a former tree that the suite made up, that is asked of the classes that the driver moved; with --former or --former-config it is asked of all.)", See: seeReshape,
		run: checkComplete,
	},
	{
		ID: "reshape/renames", Title: "declares the classes that it renamed, and no others",
		Protects: "the agent's sums: it takes an undeclared rename for a loss",
		Rule:     "class_renames maps former names to present ones; no name is on both sides. Somebody's class was renamed so, and an allocation keeps a former name only where its provider still has inventory of that class (VCPU of guests that float, beside those whose VCPU became PCPU).",
		See:      "plugins.Renamer",
		run:      resultCheck(renamesHold),
	},
	{
		ID: "reshape/settled", Title: "needs no other reshape after it",
		Protects: "a host that reshapes at every start",
		Rule:     "Called with its own result, without allocations, it changes nothing and asks for nothing.", See: seeReshape,
		run: checkSettled,
	},
	{
		ID: "reshape/idempotent", Title: "changes nothing in its own result",
		Protects: "a start after which nobody recorded that the reshape was made",
		Rule:     "Called with its own result and its own allocations, it changes neither.", See: seeReshape,
		run: checkReshapeIdempotent,
	},
}

func checkReshapeNeeded(ctx context.Context, b *bench) error {
	base, _, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	sent := r.sent(base, nil)
	switch {
	case kind(r.withoutError) == protocol.KindReshapeNeeded:
		return nil
	case r.withoutError != nil:
		return found(sent, "%s", said(r.withoutError))
	}
	after, err := protocol.ToTree(r.without.GetTree())
	if err != nil {
		return found(sent, "a tree that cannot be used: %v", err)
	}
	if lost := lostInventory(r.before, after, base.root); len(lost) > 0 {
		return found(sent, "a tree, in which\n%s", strings.Join(lost, "\n"))
	}
	return found(sent, "a tree in which nothing moved")
}

func checkNeededAgain(ctx context.Context, b *bench) error {
	base, p, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	if kind(r.withoutError) != protocol.KindReshapeNeeded {
		return notApplicable("the driver does not answer ReshapeNeeded; see reshape/needed")
	}
	if strings.TrimSpace(protocol.FailureOf(r.withoutError).Words) == "" {
		return found(r.sent(base, nil), "ReshapeNeeded without a reason")
	}
	for range 5 { // its result was not applied, so it is still needed
		if _, again := p.update(ctx, r.before, base.node, nil); kind(again) != protocol.KindReshapeNeeded {
			return found(r.sent(base, nil)+", again", "%s; it was ReshapeNeeded before", verdict(again))
		}
	}
	return nil
}

func checkReshapeDone(ctx context.Context, b *bench) error {
	base, _, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	sent := r.sent(base, r.given)
	switch f := protocol.FailureOf(r.replyError); {
	case r.replyError == nil && r.reply.GetAllocations() == nil:
		return found(sent, "no allocations")
	case r.replyError == nil:
		return nil
	case f.Kind == protocol.KindReshapeFailed && len(f.Offenders) > 0:
		return nil
	case f.Kind == protocol.KindReshapeFailed:
		return found(sent, "%s: without an offender", said(r.replyError))
	default:
		return found(sent, "%s", said(r.replyError))
	}
}

func checkEmptyAllocations(ctx context.Context, b *bench) error {
	base, p, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	none := providertree.Allocations{}
	reply, err := p.update(ctx, r.before, base.node, none)
	if err != nil {
		return found(r.sent(base, none), "%s", said(err))
	}
	if reply.GetAllocations() == nil {
		return found(r.sent(base, none), "no allocations at all, not even empty ones")
	}
	if n := len(reply.GetAllocations().GetConsumers()); n > 0 {
		return found(r.sent(base, none), "allocations of %s", counted(n, "consumer"))
	}
	return nil
}

func checkTooFull(ctx context.Context, b *bench) error {
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
		return notApplicable("the reshape moves nothing that a consumer has")
	}
	sent := r.sent(base, full) + "; one consumer has 2147483647 of what is to move"
	reply, answer := p.update(ctx, r.before, base.node, full)
	if answer == nil {
		return found(sent, "a tree of %s and allocations of %s", counted(len(reply.GetTree().GetProviders()), "resource provider"), counted(len(reply.GetAllocations().GetConsumers()), "consumer"))
	}
	f := protocol.FailureOf(answer)
	if f.Kind != protocol.KindReshapeFailed {
		return found(sent, "%s", said(answer))
	}
	if !slices.ContainsFunc(f.Offenders, func(o protocol.Offender) bool { return o.Consumer == consumerName(0) }) {
		return found(sent, "%s: the consumer %s is not among the offenders", said(answer), consumerName(0))
	}
	return nil
}

func checkRepeatable(ctx context.Context, b *bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	for i := range 8 {
		sent := fmt.Sprintf("%s, the %dth time", r.sent(base, r.given), i+2)
		again, err := p.update(ctx, r.before, base.node, r.given)
		if err != nil {
			return found(sent, "%s", said(err))
		}
		tree, err := protocol.ToTree(again.GetTree())
		if err != nil {
			return found(sent, "a tree that cannot be used: %v", err)
		}
		if err := several(sent, differences(r.after, tree)); err != nil {
			return err
		}
		if !sameAnswer(r.reply, again) {
			back, err := protocol.ToAllocations(again.GetAllocations())
			if err != nil {
				return found(sent, "allocations that cannot be: %v", err)
			}
			return several(sent, append([]string{"other allocations than the first time:"}, allocationChanges(r.allocations, back)...))
		}
	}
	return nil
}

func resultCheck(wrong func(*baseline, *reshaped) []string) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		base, _, r, err := b.done(ctx)
		if err != nil {
			return err
		}
		return several(r.sent(base, r.given), wrong(base, r))
	}
}

func foreignAllocations(base *baseline, r *reshaped) []string {
	other, _ := r.before.ProviderByName(base.node + ":somebody-else")
	is, ok := r.after.Provider(other.UUID)
	if !ok {
		return []string{other.Name + " is gone"}
	}
	out := providertree.Change{Before: other, After: is}.Lines()
	for _, id := range sortedKeys(r.given) {
		c, ok := r.allocations[id]
		if n := c.Resources[other.UUID][strangeClass]; ok && n != 5 {
			out = append(out, fmt.Sprintf("consumer %s has %d %s on %s, had 5", id, n, strangeClass, other.Name))
		}
	}
	return out
}

func renamesHold(_ *baseline, r *reshaped) []string {
	var out []string
	if err := r.renames.Validate(); err != nil {
		out = append(out, err.Error())
	}
	held, renamed := map[string]bool{}, map[string]bool{} // by former name: of somebody before, of somebody less now
	for _, id := range sortedKeys(r.given) {
		was, is := r.given[id].Totals(), r.allocations[id].Totals()
		for former := range r.renames {
			held[former] = held[former] || was[former] > 0
			renamed[former] = renamed[former] || is[former] < was[former]
		}
	}
	for _, former := range sortedKeys(r.renames) {
		if held[former] && !renamed[former] {
			out = append(out, fmt.Sprintf("%s is declared to be called %s, and everybody has as much %s as before", former, r.renames[former], former))
		}
	}
	for _, id := range sortedKeys(r.allocations) {
		for _, provider := range sortedKeys(r.allocations[id].Resources) {
			for _, class := range sortedKeys(r.allocations[id].Resources[provider]) {
				_, stocked := r.after.Inventory(provider, class)
				if to, former := r.renames[class]; former && !stocked {
					out = append(out, fmt.Sprintf("consumer %s still has %s of %s, which has none, and %s is declared to be called %s", id, class, provider, class, to))
				}
			}
		}
	}
	return out
}

func checkSettled(ctx context.Context, b *bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	tree := host.Stored(r.after)
	after, err := p.tree(ctx, tree, base.node)
	if err != nil {
		return err
	}
	return several(sentUpdate(tree, base.node, nil)+": the result of the reshape", differences(tree, after))
}

func checkReshapeIdempotent(ctx context.Context, b *bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	tree := host.Stored(r.after)
	sent := sentUpdate(tree, base.node, r.allocations) + ": the result of the reshape"
	reply, err := p.update(ctx, tree, base.node, r.allocations)
	if err != nil {
		return found(sent, "%s", said(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return found(sent, "a tree that cannot be used: %v", err)
	}
	back, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil {
		return found(sent, "allocations that cannot be: %v", err)
	}
	return several(sent, append(differences(tree, after), allocationChanges(r.allocations, back)...))
}
