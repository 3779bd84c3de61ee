// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// guardReshape compares the allocations before and after a reshape and lists everything that no honest reshape does, or that
// Placement would refuse. What it lets pass
//
//   - gives every consumer, of every resource class by its present name, what it held on the node's providers before;
//   - leaves what consumers hold elsewhere (another host, a sharing provider) as it was, and everybody's project, user, type
//     and generation;
//   - has room: each allocation is on a provider that is there afterwards, within its inventory's units; and nothing holds
//     more than the capacity, but for inventories that were over-committed already and hold no more than they did;
//   - touches no provider outside of the node's tree, makes none there, and leaves the node its name.
//
// The offenders come in a fixed order. Cost: O(providers + allocations), no request.
func guardReshape(r draft) []plugins.Offender {
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
	return g.offenders
}

type reshapeGuard struct {
	draft
	own       map[string]bool
	offenders []plugins.Offender
}

// What can be done about a reshape that is refused, by what is wrong with it.
const (
	fixDriver = "this is a defect of the driver: install its former version, and report it to its author with this list"
	makeRoom  = "migrate or delete guests of the node, or raise the inventory or its allocation_ratio in the driver's configuration"
	fitUnits  = "correct min_unit, max_unit and step_size of the inventory in the driver's configuration; or migrate or delete the guest, which an allocation of this size keeps there"
	fixPlaces = "if the guest is gone, delete its allocation (`openstack resource provider allocation delete CONSUMER`); if it runs, the driver must move what it holds: " +
		"install its former version, and report it to its author"
)

func (g *reshapeGuard) blame(consumer, provider, class, format string, args ...any) {
	g.object(fixDriver, consumer, provider, class, format, args...)
}

// object notes a violation with what can be done about it.
func (g *reshapeGuard) object(remedy, consumer, provider, class, format string, args ...any) {
	g.offenders = append(g.offenders, plugins.Offender{Consumer: consumer, Provider: provider, Class: class, Problem: fmt.Sprintf(format, args...), Remedy: remedy})
}

// ownProviders are those of the node's tree, before and after. What is new in the tree and held allocations before is
// somebody else's under whose uuid the driver wants to make one.
func (r draft) ownProviders() map[string]bool {
	own := map[string]bool{}
	for _, uuid := range r.known.Subtree(r.node.UUID) {
		own[uuid] = true
	}
	for _, uuid := range r.desired.Subtree(r.node.UUID) {
		if !r.known.Exists(uuid) {
			own[uuid] = true
		}
	}
	for _, c := range r.before {
		for uuid := range c.Resources {
			if !r.known.Exists(uuid) {
				delete(own, uuid)
			}
		}
	}
	return own
}

// checkTree finds what was done to providers that are not the node's, and to the node's own root.
func (g *reshapeGuard) checkTree() {
	if root, exists := g.desired.Provider(g.node.UUID); exists && root.Name != g.node.Name {
		g.blame("", g.node.UUID, "", "%s would be renamed to %s; a node that changes its name is another node", g.node.Name, root.Name)
	}
	for _, root := range g.desired.Roots() {
		if root == g.node.UUID {
			continue
		}
		for _, uuid := range g.desired.Subtree(root) {
			if !g.known.Exists(uuid) {
				g.blame("", uuid, "", "%s would be added outside of the tree of %s; new providers go below the node's root", g.name(uuid), g.node.Name)
			}
		}
	}
	for p := range g.known.All() {
		after, exists := g.desired.Provider(p.UUID)
		root, _ := g.desired.RootOf(p.UUID)
		switch {
		case g.own[p.UUID] && exists && root != g.node.UUID:
			g.blame("", p.UUID, "", "%s would be taken out of the tree of %s", p.Name, g.node.Name)
		case g.own[p.UUID] || exists && after.Equal(p):
		case !exists:
			g.blame("", p.UUID, "", "%s is not of the tree of %s, and would be removed", p.Name, g.node.Name)
		default:
			g.blame("", p.UUID, "", "%s is not of the tree of %s, and would be changed", p.Name, g.node.Name)
		}
	}
}

// checkConsumer compares what one consumer held with what it is to hold.
func (g *reshapeGuard) checkConsumer(consumer string) {
	before, held := g.before[consumer]
	after, holds := g.after[consumer]
	switch {
	case !holds:
		g.blame(consumer, "", "", "all that it holds would be lost")
		return
	case !held:
		g.blame(consumer, "", "", "it holds nothing here, and would be given something")
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
					g.blame(consumer, provider, class, "the provider is not of the tree of %s, and what is allocated there would change from %d to %d", g.node.Name, was[class], is[class])
				}
			}
		}
	}
	for _, provider := range slices.Sorted(maps.Keys(after.Resources)) {
		g.checkPlaces(consumer, provider, after.Resources[provider], changed)
	}
	g.checkTotals(consumer, before, after)
}

// checkOwner finds what a reshape never changes.
func (g *reshapeGuard) checkOwner(consumer string, before, after providertree.ConsumerAllocations) {
	if before.ProjectID != after.ProjectID || before.UserID != after.UserID {
		g.blame(consumer, "", "", "it belongs to project %q and user %q, and would be given to project %q and user %q", before.ProjectID, before.UserID, after.ProjectID, after.UserID)
	}
	if before.ConsumerType != after.ConsumerType {
		g.blame(consumer, "", "", "its consumer type is %q, and would become %q", before.ConsumerType, after.ConsumerType)
	}
	same := (before.Generation == nil) == (after.Generation == nil)
	if same && before.Generation != nil {
		same = *before.Generation == *after.Generation
	}
	if !same {
		g.blame(consumer, "", "", "its consumer generation was changed; it says which state the reshape was made for and must stay")
	}
}

// checkPlaces looks at what one consumer is to hold on one provider. Placement looks at the units of everything that it is
// sent, so they count for all that a changed consumer holds.
func (g *reshapeGuard) checkPlaces(consumer, provider string, resources map[string]int64, changed bool) {
	if len(resources) == 0 {
		g.blame(consumer, provider, "", "it would hold an empty set of resources there, which Placement refuses; a provider of which nothing is held is left out")
	}
	for _, class := range slices.Sorted(maps.Keys(resources)) {
		n := resources[class]
		if n < 1 || n > providertree.MaxUnit {
			g.blame(consumer, provider, class, "it would hold %d, and an allocation is at least 1 and at most %d", n, int64(providertree.MaxUnit))
			continue
		}
		if !g.own[provider] {
			continue
		}
		inv, found := g.desired.Inventory(provider, class)
		i := inv.Normalize()
		switch {
		case !g.desired.Exists(provider):
			g.object(fixPlaces, consumer, provider, class, "it would still hold %d, and the provider (%s) would be gone", n, g.name(provider))
		case !found:
			g.object(fixPlaces, consumer, provider, class, "it would hold %d, and %s would have no inventory of it", n, g.name(provider))
		case !changed:
		case n < i.MinUnit:
			g.object(fitUnits, consumer, provider, class, "it would hold %d, less than the min_unit %d of %s", n, i.MinUnit, g.name(provider))
		case n > i.MaxUnit:
			g.object(fitUnits, consumer, provider, class, "it would hold %d, more than the max_unit %d of %s", n, i.MaxUnit, g.name(provider))
		case n%i.StepSize != 0:
			g.object(fitUnits, consumer, provider, class, "it would hold %d, not a multiple of the step_size %d of %s", n, i.StepSize, g.name(provider))
		}
	}
}

// checkTotals finds what was lost or invented on the node's own providers. Classes count by their present names, and one
// that is renamed can only give.
func (g *reshapeGuard) checkTotals(consumer string, before, after providertree.ConsumerAllocations) {
	was, is := g.ownTotals(before), g.ownTotals(after)
	byName, byNameAfter := g.present(was), g.present(is)
	for _, class := range unionKeys(byName, byNameAfter) {
		switch had, has := byName[class], byNameAfter[class]; {
		case has < had:
			g.blame(consumer, "", class, "it holds %d on the providers of %s and would hold %d: %d would be lost", had, g.node.Name, has, minus(had, has))
		case has > had:
			g.blame(consumer, "", class, "it holds %d on the providers of %s and would hold %d: %d would be invented", had, g.node.Name, has, minus(has, had))
		}
	}
	for _, class := range unionKeys(was, is) {
		if g.renames.Present(class) != class && is[class] > was[class] {
			g.blame(consumer, "", class, "it would hold %d, more than the %d of before, of a class that is renamed to %s", is[class], was[class], g.renames.Present(class))
		}
	}
}

func (g *reshapeGuard) ownTotals(c providertree.ConsumerAllocations) map[string]int64 {
	sum := map[string]int64{}
	for provider, amounts := range c.Resources {
		if g.own[provider] {
			for class, n := range amounts {
				sum[class] = plus(sum[class], n)
			}
		}
	}
	return sum
}

func (g *reshapeGuard) present(totals map[string]int64) map[string]int64 {
	out := make(map[string]int64, len(totals))
	for class, n := range totals {
		out[g.renames.Present(class)] = plus(out[g.renames.Present(class)], n)
	}
	return out
}

// checkCapacity compares what all consumers together hold with what there is to hold.
func (g *reshapeGuard) checkCapacity() {
	was, is := usage(g.before), usage(g.after)
	for _, provider := range slices.Sorted(maps.Keys(is)) {
		if !g.own[provider] {
			continue
		}
		for _, class := range slices.Sorted(maps.Keys(is[provider])) {
			inv, found := g.desired.Inventory(provider, class)
			if !found {
				continue // said of each consumer
			}
			i, used := inv.Normalize(), is[provider][class]
			capacity := float64(i.Total-i.Reserved) * i.AllocationRatio
			if float64(used) > capacity && used > was[provider][class] {
				g.object(makeRoom, "", provider, class, "%d would be allocated on %s, and its capacity is %.0f", used, g.name(provider), math.Floor(capacity))
			}
		}
	}
}

// usage sums the allocations by provider and class.
func usage(allocations providertree.Allocations) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	for _, c := range allocations {
		for provider, amounts := range c.Resources {
			if out[provider] == nil {
				out[provider] = map[string]int64{}
			}
			for class, n := range amounts {
				out[provider][class] = plus(out[provider][class], n)
			}
		}
	}
	return out
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
	all := make(map[string]bool, len(a)+len(b))
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// plus adds without wrapping: a driver's numbers may be anything.
func plus(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// minus is a - b for a >= b, without wrapping.
func minus(a, b int64) int64 {
	if b < 0 && a > math.MaxInt64+b {
		return math.MaxInt64
	}
	return a - b
}
