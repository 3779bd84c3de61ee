// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// computing places processors and memory.
func (p *planner) computing(claims map[string][]claim) {
	g := siteGroup{planner: p, countedClass: func(l claim) string { return l.class }}
	for _, uuid := range p.own {
		if kind := p.Providers[uuid].Kind; (kind == Cell || kind == Root) && p.Tree.Exists(uuid) {
			g.sites = append(g.sites, uuid)
		}
	}
	slices.SortStableFunc(g.sites, func(a, b string) int {
		return cmp.Or(rank(p.Providers[a].Kind == Cell)-rank(p.Providers[b].Kind == Cell),
			cmp.Compare(p.Providers[a].Cell, p.Providers[b].Cell))
	})
	g.at = func(site int, class string) plugins.Place {
		return plugins.Place{Provider: g.sites[site], Class: class}
	}
	var guests []Guest
	for _, consumer := range slices.Sorted(maps.Keys(claims)) {
		if guest, problem := g.bound(consumer, g.amounts(claims[consumer])); problem != "" {
			p.addViolation(claims[consumer], problem)
		} else {
			guests = append(guests, guest)
		}
	}
	g.place(guests, claims, p.Rule)
}

// bound says what of a consumer's processors and memory is bound to which site.
func (g siteGroup) bound(consumer string, amounts map[string]int64) (Guest, string) {
	guest := Guest{UUID: consumer, Amounts: amounts, Fixed: map[string]map[int]int64{}}
	facts := Guest{}
	if d, known := g.domains[consumer]; known {
		all := maps.Clone(amounts)
		for class := range all {
			for site := range g.sites {
				all[class] += g.held[holding{consumer, g.at(site, class)}]
			}
		}
		facts = g.host.Facts(d).Guest(all)
		guest.Near = g.sitesOfCell(g.host.DeviceCell(d))
	}
	for _, class := range slices.Sorted(maps.Keys(amounts)) {
		sites := g.sitesWith(class)
		if len(sites) == 0 {
			return guest, fmt.Sprintf("it holds %d of %s, but the new layout has no inventory of that class",
				amounts[class], class)
		}
		guest.Fixed[class] = map[int]int64{}
		if len(sites) == 1 {
			guest.Fixed[class][sites[0]] = amounts[class]
			continue
		}
		rest := amounts[class]
		for _, cell := range slices.Sorted(maps.Keys(facts.Fixed[class])) {
			fixed := facts.Fixed[class][cell]
			at := slices.IndexFunc(sites, func(site int) bool { return g.isFor(site, cell) })
			if at < 0 {
				return guest,
					fmt.Sprintf("%d of its %s are bound to NUMA cell %d, which has no inventory of that class in "+
						"the new layout", fixed, class, cell)
			}
			if g.Providers[g.sites[sites[at]]].Kind == Cell {
				fixed -= g.held[holding{consumer, g.at(sites[at], class)}]
			}
			if fixed = min(fixed, rest); fixed > 0 {
				guest.Fixed[class][sites[at]] += fixed
				rest -= fixed
			}
		}
	}
	return guest, ""
}

// sitesOfCell returns the index of the site that is a NUMA cell; nil if no site is.
func (g siteGroup) sitesOfCell(cell int) []int {
	at := slices.IndexFunc(g.sites,
		func(uuid string) bool { return g.Providers[uuid].Kind == Cell && g.Providers[uuid].Cell == cell })
	if at < 0 || cell == machine.NoCell {
		return nil
	}
	return []int{at}
}

// sitesWith returns the indices of the sites that have inventory of a class.
func (g siteGroup) sitesWith(class string) []int {
	var out []int
	for site := range g.sites {
		if g.has(g.at(site, class)) {
			out = append(out, site)
		}
	}
	return out
}

// isFor reports whether a site is a NUMA cell, or the root, which is all of them. Cells come first.
func (g siteGroup) isFor(site, cell int) bool {
	is := g.Providers[g.sites[site]]
	return is.Kind == Root || is.Cell == cell
}

// siteGroup is where claims of one resourceKind can go.
type siteGroup struct {
	*planner
	sites []string // providers
	// at returns the place of a site for a class by which claims are counted here; countedClass
	// returns that class of a claim.
	at           func(site int, class string) plugins.Place
	countedClass func(claim) string
}

// amounts sums claims by the class that they are counted by.
func (g siteGroup) amounts(claims []claim) map[string]int64 {
	out := map[string]int64{}
	for _, l := range claims {
		out[g.countedClass(l)] += l.amount
	}
	return out
}

// place finds a place for guests within the free capacity. claims are theirs, by consumer.
func (g siteGroup) place(guests []Guest, claims map[string][]claim, rule Rule) {
	capacity := Capacity{}
	for i, uuid := range g.sites {
		provider, _ := g.Tree.Provider(uuid)
		site := Site{Name: "resource provider " + provider.Name, Classes: map[string]Space{}}
		for _, guest := range guests {
			for class := range guest.Amounts {
				if _, done := site.Classes[class]; done {
					continue
				}
				if inv, there := g.Tree.Inventory(uuid, g.at(i, class).Class); there {
					site.Classes[class] = Space{Free: inv.Capacity() - g.used[g.at(i, class)],
						Most: inv.Normalize().MaxUnit}
				}
			}
		}
		capacity[i] = site
	}
	shares, violations := Place(guests, capacity, rule)
	for _, v := range violations {
		g.addViolation(claims[v.UUID], v.Reason)
	}
	for _, consumer := range slices.Sorted(maps.Keys(shares)) {
		portions := map[string][]plugins.Portion{}
		problem := ""
		for _, site := range slices.Sorted(maps.Keys(shares[consumer])) {
			for _, class := range slices.Sorted(maps.Keys(shares[consumer][site])) {
				portion := plugins.Portion{Place: g.at(site, class), Amount: shares[consumer][site][class]}
				portions[class] = append(portions[class], portion)
				problem = cmp.Or(problem, g.whyRefused(consumer, portion))
			}
		}
		if problem != "" {
			g.addViolation(claims[consumer], problem)
		} else {
			g.move(claims[consumer], portions)
		}
	}
}

// whyRefused says why Placement would not let a consumer have a portion more of a place.
func (g siteGroup) whyRefused(consumer string, portion plugins.Portion) string {
	inv, _ := g.Tree.Inventory(portion.Place.Provider, portion.Place.Class)
	i, all := inv.Limits(), portion.Amount+g.held[holding{consumer, portion.Place}]
	if i.BrokenUnit(all) != providertree.RuleNone {
		provider, _ := g.Tree.Provider(portion.Place.Provider)
		return fmt.Sprintf(
			"it would hold %d of %s of resource provider %s, which allows a consumer %d to %d in steps of %d",
			all, portion.Place.Class, provider.Name, i.MinUnit, i.MaxUnit, i.StepSize)
	}
	return ""
}

// move gives out portions to claims. What can stay on its provider does, and what can keep its
// class.
func (g siteGroup) move(claims []claim, portions map[string][]plugins.Portion) {
	left := slices.Clone(claims)
	for _, suits := range []func(claim, plugins.Place) bool{
		func(l claim, to plugins.Place) bool { return l.place.Provider == to.Provider },
		func(l claim, to plugins.Place) bool { return l.class == to.Class },
		func(claim, plugins.Place) bool { return true },
	} {
		for i := range left {
			l := &left[i]
			to := portions[g.countedClass(*l)]
			for j := range to {
				n := min(l.amount, to[j].Amount)
				if n == 0 || !suits(*l, to[j].Place) {
					continue
				}
				l.amount -= n
				to[j].Amount -= n
				g.moves = append(g.moves, plugins.Move{Consumer: l.consumer, From: l.place, To: to[j].Place, Amount: n})
				g.hold(holding{l.consumer, to[j].Place}, n)
			}
		}
	}
}
