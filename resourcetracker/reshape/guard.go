// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Check is the guard of a reshape as a whole: the tree, the allocations, and the declared renames.
//
// Errors: an [*Error] with all violations.
func (d Draft) Check() error {
	var violations []plugins.Violation
	for _, v := range providertree.Check(d.Base, d.Answer, d.Node.Name) {
		violations = append(violations, plugins.Violation{Problem: v.Error(), Hint: fixDriver})
	}
	if err := d.Renames.Validate(); err != nil {
		violations = append(violations, plugins.Violation{Problem: err.Error(), Hint: fixDriver})
	}
	violations = append(violations, violationsOf(d)...)
	if len(violations) == 0 {
		return nil
	}
	return &Error{
		Problem: "the driver's reshape does not pass the agent's checks", Violations: violations,
		// held stays nil: the texts of the violations have the amounts.
		trees: []*providertree.Tree{d.Base, d.Answer},
		Hint: "`compute-agent plan --reshape` shows what the driver requests. Its former version or configuration " +
			"still works",
	}
}

// violationsOf compares the allocations before and after a reshape and lists everything that no
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
func violationsOf(d Draft) []plugins.Violation {
	g := &guard{Draft: d, own: d.ownProviders()}
	g.checkTree()
	consumers := maps.Clone(d.Before)
	if consumers == nil {
		consumers = providertree.Allocations{}
	}
	maps.Copy(consumers, d.After)
	for _, consumer := range slices.Sorted(maps.Keys(consumers)) {
		g.checkConsumer(consumer)
	}
	g.checkCapacity()
	g.checkGuests()
	return g.violations
}

// guard collects the violations of a draft.
type guard struct {
	Draft
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
func (g *guard) addDefect(consumer, provider, class, format string, args ...any) {
	g.add(fixDriver, consumer, provider, class, format, args...)
}

// add adds a violation with what can be done about it.
func (g *guard) add(hint, consumer, provider, class, format string, args ...any) {
	g.violations = append(g.violations, plugins.Violation{Consumer: consumer, Provider: provider, Class: class,
		Problem: fmt.Sprintf(format, args...), Hint: hint})
}

// checkTree finds providers outside of the node's tree that would be changed. Where providers are,
// and what they are called, was checked of the driver's answer, see [providertree.Check].
func (g *guard) checkTree() {
	for p := range g.Known.All() {
		after, exists := g.Desired.Provider(p.UUID)
		if exists && !g.own[p.UUID] && !after.Equal(p) {
			g.addDefect("", p.UUID, "", "%s is outside of the tree of %s, and would be changed", p.Name, g.Node.Name)
		}
	}
}

// checkConsumer compares what one consumer held with what it is to hold.
func (g *guard) checkConsumer(consumer string) {
	before, held := g.Before[consumer]
	after, holds := g.After[consumer]
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
					g.addDefect(consumer, provider, class,
						"the provider is outside of the tree of %s, and what is allocated there would change "+
							"from %d to %d", g.Node.Name, was[class], is[class])
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
func (g *guard) checkOwner(consumer string, before, after providertree.ConsumerAllocations) {
	if before.ProjectID != after.ProjectID || before.UserID != after.UserID {
		g.addDefect(
			consumer, "", "", "it belongs to project %q and user %q, and would be given to project %q and user %q",
			before.ProjectID, before.UserID, after.ProjectID, after.UserID)
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
func (g *guard) checkPlaces(consumer, provider string, resources providertree.Resources, changed bool) {
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
		inv, found := g.Desired.Inventory(provider, class)
		i := inv.Limits()
		broken := i.BrokenUnit(n)
		switch {
		case !g.Desired.Exists(provider):
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
func (g *guard) checkTotals(consumer string, before, after providertree.ConsumerAllocations) {
	was, is := g.ownTotals(before), g.ownTotals(after)
	byName, byNameAfter := g.Renames.Totals(was), g.Renames.Totals(is)
	// the difference of two int64, the larger one first, always fits into an uint64
	for _, class := range unionKeys(byName, byNameAfter) {
		switch had, has := byName[class], byNameAfter[class]; {
		case has < had:
			g.addDefect(consumer, "", class,
				"it holds %d on the providers of %s and would hold %d: %d would be lost", had,
				g.Node.Name, has, uint64(had-has))
		case has > had:
			g.addDefect(consumer, "", class, "it holds %d on the providers of %s and would hold %d: %d would be added",
				had, g.Node.Name, has, uint64(has-had))
		}
	}
	for _, class := range unionKeys(was, is) {
		if g.Renames.Present(class) != class && is[class] > was[class] {
			g.addDefect(consumer, "", class,
				"it would hold %d of a class that is renamed to %s, more than the %d before",
				is[class], g.Renames.Present(class), was[class])
		}
	}
}

func (g *guard) ownTotals(c providertree.ConsumerAllocations) providertree.Resources {
	sum := providertree.Resources{}
	for provider, amounts := range c.Resources {
		if g.own[provider] {
			sum.Add(amounts)
		}
	}
	return sum
}

// checkCapacity compares what all consumers together hold with what there is to hold.
func (g *guard) checkCapacity() {
	was, is := g.Before.Usages(), g.After.Usages()
	for _, provider := range slices.Sorted(maps.Keys(is)) {
		if !g.own[provider] {
			continue
		}
		for _, class := range slices.Sorted(maps.Keys(is[provider])) {
			inv, found := g.Desired.Inventory(provider, class)
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
func (g *guard) name(uuid string) string {
	if p, found := g.Desired.Provider(uuid); found {
		return p.Name
	}
	if p, found := g.Known.Provider(uuid); found {
		return p.Name
	}
	return uuid
}

// checkLeaving finds what leaves a place that keeps its inventory. It would be free there and given
// out again, while the guest still uses it.
func (g *guard) checkLeaving(consumer string, before, after providertree.ConsumerAllocations) {
	if g.Given != nil {
		before = g.Held[consumer]
	}
	for _, provider := range before.Resources.Providers() {
		if !g.own[provider] {
			continue
		}
		for _, class := range before.Resources[provider].Classes() {
			was, is := before.Resources[provider][class], after.Resources[provider][class]
			if is < was && !g.mayLeave(provider, class, was) {
				g.addDefect(consumer, provider, class,
					"it holds %d there and would hold %d, but the inventory stays as it is: "+
						"allocations leave only what the reshape removes or shrinks", was, is)
			}
		}
	}
}

// checkGuests compares what the reshape moves of each guest with where the driver lists it.
func (g *guard) checkGuests() {
	classes := map[string]bool{} // of which the driver lists something
	known := slices.DeleteFunc(slices.Clone(g.Guests),
		func(guest plugins.Guest) bool { return guest.Resources == nil || guest.FromFlavor })
	for _, guest := range known {
		for _, amounts := range guest.Resources {
			for class := range amounts {
				classes[class] = true
			}
		}
	}
	slices.SortFunc(known, func(a, b plugins.Guest) int { return cmp.Compare(a.UUID, b.UUID) })
	for _, guest := range known {
		before, after := g.Before[guest.UUID], g.After[guest.UUID]
		if before.Resources == nil || after.Resources == nil {
			continue // it holds nothing here, or that it is lost is a violation already
		}
		own := func(provider string) bool { return g.own[provider] }
		for _, m := range providertree.Misplaced(before.Resources, after.Resources, guest.Resources, own, classes) {
			g.addDefect(guest.UUID, m.Provider, m.Class,
				"it would hold %d there, but the driver lists the guest with %d", m.Holds, m.Has)
		}
	}
}
