// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
)

// ground is where lots of one kind of thing can go.
type ground struct {
	*planner
	sites []string // providers
	// at is the place of a site for a class by which lots are counted here; as is that class.
	at func(site int, class string) plugins.Place
	as func(lot) string
}

// amounts are those of lots by the class that they are counted by.
func (g ground) amounts(lots []lot) map[string]int64 {
	out := map[string]int64{}
	for _, l := range lots {
		out[g.as(l)] += l.amount
	}
	return out
}

// place finds a place for guests within what is left of room. lots are theirs, by consumer.
func (g ground) place(guests []Guest, lots map[string][]lot, rule Rule) {
	room := Room{}
	for i, uuid := range g.sites {
		provider, _ := g.Tree.Provider(uuid)
		site := Site{Name: "resource provider " + provider.Name, Classes: map[string]Space{}}
		for _, guest := range guests {
			for class := range guest.Amounts {
				if _, done := site.Classes[class]; done {
					continue
				}
				if inv, there := g.Tree.Inventory(uuid, g.at(i, class).Class); there {
					site.Classes[class] = Space{Free: inv.Capacity() - g.used[g.at(i, class)], Most: inv.Normalize().MaxUnit}
				}
			}
		}
		room[i] = site
	}
	shares, offenders := Place(guests, room, rule)
	for _, o := range offenders {
		g.offend(lots[o.UUID], o.Reason)
	}
	for _, consumer := range slices.Sorted(maps.Keys(shares)) {
		portions := map[string][]plugins.Portion{}
		problem := ""
		for _, site := range slices.Sorted(maps.Keys(shares[consumer])) {
			for _, class := range slices.Sorted(maps.Keys(shares[consumer][site])) {
				portion := plugins.Portion{Place: g.at(site, class), Amount: shares[consumer][site][class]}
				portions[class] = append(portions[class], portion)
				problem = cmp.Or(problem, g.refuses(consumer, portion))
			}
		}
		if problem != "" {
			g.offend(lots[consumer], problem)
		} else {
			g.move(lots[consumer], portions)
		}
	}
}

// refuses says why Placement would not let a consumer have a portion more of a place.
func (g ground) refuses(consumer string, portion plugins.Portion) string {
	inv, _ := g.Tree.Inventory(portion.Place.Provider, portion.Place.Class)
	i, all := inv.Normalize(), portion.Amount+g.held[stake{consumer, portion.Place}]
	if all < i.MinUnit || all > i.MaxUnit || all%i.StepSize != 0 {
		provider, _ := g.Tree.Provider(portion.Place.Provider)
		return fmt.Sprintf("it would hold %d of %s of resource provider %s, where one consumer can have %d to %d in steps of %d",
			all, portion.Place.Class, provider.Name, i.MinUnit, i.MaxUnit, i.StepSize)
	}
	return ""
}

// move gives out portions to lots. What can stay on its provider does, and what can keep its class.
func (g ground) move(lots []lot, portions map[string][]plugins.Portion) {
	left := slices.Clone(lots)
	for _, suits := range []func(lot, plugins.Place) bool{
		func(l lot, to plugins.Place) bool { return l.place.Provider == to.Provider },
		func(l lot, to plugins.Place) bool { return l.class == to.Class },
		func(lot, plugins.Place) bool { return true },
	} {
		for i := range left {
			l := &left[i]
			to := portions[g.as(*l)]
			for j := range to {
				n := min(l.amount, to[j].Amount)
				if n == 0 || !suits(*l, to[j].Place) {
					continue
				}
				l.amount -= n
				to[j].Amount -= n
				g.moves = append(g.moves, plugins.Move{Consumer: l.consumer, From: l.place, To: to[j].Place, Amount: n})
				g.hold(stake{l.consumer, to[j].Place}, n)
			}
		}
	}
}
