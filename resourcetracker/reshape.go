// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
)

// reshape is what follows when a driver says that inventory in use must move: all allocations are
// gathered, the driver is asked again with copies of them and of the tree (whatever it did to the
// first copy is gone).
//
// Cost: one GET per provider and one per consumer, see
// [reportclient.Client.AllocationsForProviderTree].
//
// Source: the specification "Handling Reshaped Provider Trees", section "Resource Tracker
// _update()".
func (t *Tracker) reshape(ctx context.Context, d draft, needed error, allowed bool) (draft, error) {
	switch {
	case !allowed && d.repeated:
		return d, &passError{step: stepDriver, err: &repeatedReshape{needed}}
	case !allowed:
		return d, &passError{step: stepDriver, err: &lateReshape{needed}}
	}
	t.config.Logger.Info().Str("driver", t.config.Name).
		Str("node", d.node.Name).Str("request_id", plugins.RequestID(ctx)).AnErr("reason", needed).
		Msg("Inventory in use must move to other resource providers. Reading its allocations, which move with it.")
	if err := t.gather(ctx, &d); err != nil {
		return d, err
	}
	return t.askToReshape(ctx, d, d.base.Clone(), d.before.Clone())
}

// gather reads all allocations.
func (t *Tracker) gather(ctx context.Context, d *draft) error {
	err := t.observe(ctx, StepGather, d.node.Name, func(ctx context.Context) (err error) {
		d.before, err = t.config.Placement.AllocationsForProviderTree(ctx, d.node.UUID)
		return err
	})
	if err != nil {
		return &passError{step: "reading the allocations for a reshape", err: err}
	}
	if d.before == nil {
		// to a driver, none given means that it must not reshape
		d.before = providertree.Allocations{}
	}
	return nil
}

// askToReshape calls the driver with allocations. Tree and allocations are the driver's to keep.
func (t *Tracker) askToReshape(
	ctx context.Context, d draft, tree *providertree.Tree, given providertree.Allocations,
) (draft, error) {
	err := t.observe(ctx, StepDriver, d.node.Name, func(ctx context.Context) (err error) {
		d.answer, d.after, err = t.config.Driver.UpdateProviderTree(ctx, tree, d.node.Name, given)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded):
		return d, &ReshapeError{
			Problem: "the driver was given all allocations, but asks for a reshape again", Err: err,
			Hint: "this is a defect of the driver: install its former version, and report it to its author",
		}
	case errors.As(err, &failed):
		return d, cannotMove(failed, err).withNames(d.before, d.base)
	case err != nil:
		return d, &passError{step: "asking the driver for the reshaped provider tree", err: err}
	}
	if d.after == nil {
		d.after = given
	}
	if renamer, ok := t.config.Driver.(plugins.Renamer); ok {
		d.renames = composeRenames(d.renames, renamer.ClassRenames())
	}
	return d, nil
}

// composeRenames joins the renames of one step after another.
func composeRenames(first, second plugins.ClassRenames) plugins.ClassRenames {
	if len(first) == 0 {
		return second
	}
	out := plugins.ClassRenames{}
	for from, to := range first {
		out[from] = second.Present(to)
	}
	for from, to := range second {
		if _, known := out[from]; !known {
			out[from] = to
		}
	}
	maps.DeleteFunc(out, func(from, to string) bool { return from == to })
	return out
}

// check is the guard of a reshape as a whole: the tree, the allocations, and the declared renames.
func (d draft) check() error {
	var violations []plugins.Violation
	for _, v := range providertree.Check(d.base, d.answer, d.node.Name) {
		violations = append(violations, plugins.Violation{Problem: v.Error(), Hint: fixDriver})
	}
	if err := d.renames.Validate(); err != nil {
		violations = append(violations, plugins.Violation{Problem: err.Error(), Hint: fixDriver})
	}
	violations = append(violations, guardReshape(d)...)
	if len(violations) == 0 {
		return nil
	}
	refused := &ReshapeError{
		Problem: "the driver's reshape does not pass the agent's checks", Violations: violations,
		Hint: "`compute-agent plan --reshape` shows what the driver requests. Its former version or configuration " +
			"still works",
	}
	return refused.withNames(nil, d.base, d.answer) // its violations say the amounts themselves
}

// announce says that a reshape is about to be written, has the journal know whose it is, and has
// the guests compared with the allocations afterwards.
func (t *Tracker) announce(ctx context.Context, state *nodeState, d draft, plan reportclient.Plan) {
	if d.before == nil {
		return
	}
	if t.config.Journal != nil {
		t.config.Journal.SetLabel(d.node.UUID,
			journal.Label{Node: d.node.Name, FromLayout: d.record.Layout, ToLayout: d.layout, Renames: d.renames})
	}
	for _, op := range plan.Operations {
		if op.Reshape != nil {
			t.compareLater(d.node, state)
			t.config.Logger.Info().
				Str("driver", t.config.Name).
				Str("node", d.node.Name).
				Str("request_id", plugins.RequestID(ctx)).
				Int("providers", len(op.Reshape.Providers)).
				Int("consumers", len(op.Reshape.Consumers)).
				Msg("The driver's reshape passed all checks. Writing it to Placement.")
		}
	}
}

// guardReshape compares the allocations before and after a reshape and lists everything that no
// honest reshape does, or that Placement would refuse. What it lets pass
//
//   - gives every consumer, of every resource class by its present name, what it held on the node's
//     providers before;
//   - leaves what consumers hold elsewhere (another host, a sharing provider) as it was, and
//     everybody's project, user, type and generation;
//   - has a reason for what leaves a provider: the reshape removes or shrinks the inventory there,
//     or changes its units so that the allocation does not fit any more;
//   - puts what it moves of a guest where the driver lists that guest's resources, if it does;
//   - fits: each allocation is on a provider that is there afterwards, within its inventory's
//     units; and nothing holds more than the capacity, but for inventories that were over-committed
//     already and hold no more than they did;
//   - touches no provider outside of the node's tree, makes none there, and leaves the node its
//     name.
//
// The violations come in a fixed order. Cost: O(providers + allocations), no request.
func guardReshape(r draft) []plugins.Violation {
	g := &reshapeGuard{draft: r, own: r.ownProviders()}
	g.checkTree()
	consumers := maps.Clone(r.before)
	if consumers == nil {
		consumers = providertree.Allocations{}
	}
	maps.Copy(consumers, r.after)
	for _, consumer := range slices.Sorted(maps.Keys(consumers)) {
		g.checkConsumer(consumer)
	}
	g.checkCapacity()
	g.checkGuests()
	return g.violations
}

type reshapeGuard struct {
	draft
	own        map[string]bool
	violations []plugins.Violation
}

// What can be done about a reshape that is refused, by what is wrong with it.
const (
	fixDriver = "this is a defect of the driver: install its former version, and report it to its author " +
		"with this list"
	freeCapacity = "migrate or delete guests of the node, or raise the inventory or its allocation_ratio in the " +
		"driver's configuration"
	fitUnits = "correct min_unit, max_unit and step_size of the inventory in the driver's configuration; or " +
		"migrate or delete the guest, whose allocation has a size that does not fit"
	fixPlaces = "if the guest is gone, delete its allocation (`openstack resource provider allocation delete " +
		"CONSUMER`); if it runs, the driver must move what it holds: " +
		"install its former version, and report it to its author"
)

// addDefect adds a violation that only a defect of the driver can cause.
func (g *reshapeGuard) addDefect(consumer, provider, class, format string, args ...any) {
	g.add(fixDriver, consumer, provider, class, format, args...)
}

// add adds a violation with what can be done about it.
func (g *reshapeGuard) add(hint, consumer, provider, class, format string, args ...any) {
	g.violations = append(g.violations, plugins.Violation{Consumer: consumer, Provider: provider, Class: class,
		Problem: fmt.Sprintf(format, args...), Hint: hint})
}

// ownProviders are those of the node's tree, before and after. What is new in the tree and held
// allocations before belongs to another client, and the driver reuses its uuid.
func (d draft) ownProviders() map[string]bool {
	own := map[string]bool{}
	for _, uuid := range d.known.Subtree(d.node.UUID) {
		own[uuid] = true
	}
	for _, uuid := range d.desired.Subtree(d.node.UUID) {
		if !d.known.Exists(uuid) {
			own[uuid] = true
		}
	}
	for _, c := range d.before {
		for uuid := range c.Resources {
			if !d.known.Exists(uuid) {
				delete(own, uuid)
			}
		}
	}
	return own
}

// checkTree finds providers outside of the node's tree that would be changed. Where providers are,
// and what they are called, was checked of the driver's answer, see [providertree.Check].
func (g *reshapeGuard) checkTree() {
	for p := range g.known.All() {
		after, exists := g.desired.Provider(p.UUID)
		if exists && !g.own[p.UUID] && !after.Equal(p) {
			g.addDefect("", p.UUID, "", "%s is outside of the tree of %s, and would be changed", p.Name, g.node.Name)
		}
	}
}

// checkConsumer compares what one consumer held with what it is to hold.
func (g *reshapeGuard) checkConsumer(consumer string) {
	before, held := g.before[consumer]
	after, holds := g.after[consumer]
	switch {
	case !holds:
		g.addDefect(consumer, "", "", "all its allocations would be lost")
		return
	case !held:
		g.addDefect(consumer, "", "", "it has no allocations here, and would get some")
		return
	}
	g.checkOwner(consumer, before, after)
	changed := false
	for _, provider := range unionKeys(before.Resources, after.Resources) {
		was, is := before.Resources[provider], after.Resources[provider]
		if maps.Equal(was, is) {
			continue
		}
		changed = true
		if !g.own[provider] {
			for _, class := range unionKeys(was, is) {
				if was[class] != is[class] {
					g.addDefect(
						consumer,
						provider,
						class,
						"the provider is outside of the tree of %s, and what is allocated there would change "+
							"from %d to %d",
						g.node.Name,
						was[class],
						is[class],
					)
				}
			}
		}
	}
	for _, provider := range slices.Sorted(maps.Keys(after.Resources)) {
		g.checkPlaces(consumer, provider, after.Resources[provider], changed)
	}
	g.checkLeaving(consumer, before, after)
	g.checkTotals(consumer, before, after)
}

// checkOwner finds what a reshape never changes.
func (g *reshapeGuard) checkOwner(consumer string, before, after providertree.ConsumerAllocations) {
	if before.ProjectID != after.ProjectID || before.UserID != after.UserID {
		g.addDefect(
			consumer,
			"",
			"",
			"it belongs to project %q and user %q, and would be given to project %q and user %q",
			before.ProjectID,
			before.UserID,
			after.ProjectID,
			after.UserID,
		)
	}
	if before.ConsumerType != after.ConsumerType {
		g.addDefect(consumer, "", "", "its consumer type is %q, and would become %q",
			before.ConsumerType, after.ConsumerType)
	}
	same := (before.Generation == nil) == (after.Generation == nil)
	if same && before.Generation != nil {
		same = *before.Generation == *after.Generation
	}
	if !same {
		g.addDefect(consumer, "", "",
			"its consumer generation was changed; it says which state the reshape was made for and must stay")
	}
}

// checkPlaces looks at what one consumer is to hold on one provider. Placement looks at the units
// of everything that it is sent, so they count for all that a changed consumer holds. What an
// amount is by itself was checked when the driver's answer arrived, see
// [providertree.Allocations.Canonical].
func (g *reshapeGuard) checkPlaces(consumer, provider string, resources providertree.Resources, changed bool) {
	if len(resources) == 0 {
		g.addDefect(consumer, provider, "",
			"it would hold an empty set of resources there, which Placement refuses; leave out a provider "+
				"without resources")
	}
	if !g.own[provider] {
		return
	}
	for _, class := range slices.Sorted(maps.Keys(resources)) {
		n := resources[class]
		inv, found := g.desired.Inventory(provider, class)
		i := inv.Limits()
		broken := i.Units(n)
		switch {
		case !g.desired.Exists(provider):
			g.add(fixPlaces, consumer, provider, class,
				"it would still hold %d, but the provider (%s) would be removed", n, g.name(provider))
		case !found:
			g.add(fixPlaces, consumer, provider, class,
				"it would hold %d, but %s would have no inventory of it", n, g.name(provider))
		case !changed:
		case broken == providertree.RuleMinUnit:
			g.add(fitUnits, consumer, provider, class, "it would hold %d, less than the min_unit %d of %s",
				n, i.MinUnit, g.name(provider))
		case broken == providertree.RuleMaxUnit:
			g.add(fitUnits, consumer, provider, class, "it would hold %d, more than the max_unit %d of %s",
				n, i.MaxUnit, g.name(provider))
		case broken == providertree.RuleStepSize:
			g.add(fitUnits, consumer, provider, class, "it would hold %d, not a multiple of the step_size %d of %s",
				n, i.StepSize, g.name(provider))
		}
	}
}

// checkTotals finds what was lost or invented on the node's own providers. Classes count by their
// present names, and one that is renamed can only give.
func (g *reshapeGuard) checkTotals(consumer string, before, after providertree.ConsumerAllocations) {
	was, is := g.ownTotals(before), g.ownTotals(after)
	byName, byNameAfter := g.renames.Totals(was), g.renames.Totals(is)
	// the difference of two int64, the larger one first, always fits into an uint64
	for _, class := range unionKeys(byName, byNameAfter) {
		switch had, has := byName[class], byNameAfter[class]; {
		case has < had:
			g.addDefect(consumer, "", class,
				"it holds %d on the providers of %s and would hold %d: %d would be lost", had,
				g.node.Name, has, uint64(had-has))
		case has > had:
			g.addDefect(consumer, "", class, "it holds %d on the providers of %s and would hold %d: %d would be added",
				had, g.node.Name, has, uint64(has-had))
		}
	}
	for _, class := range unionKeys(was, is) {
		if g.renames.Present(class) != class && is[class] > was[class] {
			g.addDefect(consumer, "", class,
				"it would hold %d of a class that is renamed to %s, more than the %d before",
				is[class], g.renames.Present(class), was[class])
		}
	}
}

func (g *reshapeGuard) ownTotals(c providertree.ConsumerAllocations) providertree.Resources {
	sum := providertree.Resources{}
	for provider, amounts := range c.Resources {
		if g.own[provider] {
			sum.Add(amounts)
		}
	}
	return sum
}

// checkCapacity compares what all consumers together hold with what there is to hold.
func (g *reshapeGuard) checkCapacity() {
	was, is := g.before.Usages(), g.after.Usages()
	for _, provider := range slices.Sorted(maps.Keys(is)) {
		if !g.own[provider] {
			continue
		}
		for _, class := range slices.Sorted(maps.Keys(is[provider])) {
			inv, found := g.desired.Inventory(provider, class)
			if !found {
				continue // reported for each consumer
			}
			if capacity, used := inv.Capacity(), is[provider][class]; used > capacity && used > was[provider][class] {
				g.add(freeCapacity, "", provider, class,
					"%d would be allocated on %s, but its capacity is %d", used, g.name(provider), capacity)
			}
		}
	}
}

// name of a provider of the node.
func (g *reshapeGuard) name(uuid string) string {
	if p, found := g.desired.Provider(uuid); found {
		return p.Name
	}
	if p, found := g.known.Provider(uuid); found {
		return p.Name
	}
	return uuid
}

func unionKeys[V any](a, b map[string]V) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
