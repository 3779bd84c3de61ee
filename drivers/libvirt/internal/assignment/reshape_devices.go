// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/plugins"
)

// devices places devices of a kind: first those whose place is known.
func (p *planner) devices(kind Kind, claims map[string][]claim) {
	g := siteGroup{planner: p}
	for _, uuid := range p.own {
		if is := p.Providers[uuid]; is.Kind == kind && p.has(plugins.Place{Provider: uuid, Class: is.Class}) {
			g.sites = append(g.sites, uuid)
		}
	}
	label := "" // devices take the same capacity whatever their class
	for _, l := range slices.Concat(slices.Collect(maps.Values(claims))...) {
		if label == "" || l.class < label {
			label = l.class
		}
	}
	g.countedClass = func(claim) string { return label }
	g.at = func(site int, _ string) plugins.Place { return p.placeOf(g.sites[site]) }
	var placed []Guest
	unlocated, problems := map[string]map[string][]claim{}, map[string]string{} // by class and consumer; by consumer
	for _, consumer := range slices.Sorted(maps.Keys(claims)) {
		fixed, problem, known := g.locate(kind, claims[consumer])
		switch {
		case problem == "":
			placed = append(placed,
				Guest{UUID: consumer, Amounts: g.amounts(claims[consumer]),
					Fixed: map[string]map[int]int64{label: fixed}})
		case known:
			p.addViolation(claims[consumer], problem)
		default:
			problems[consumer] = problem
			for _, l := range claims[consumer] {
				if unlocated[l.class] == nil {
					unlocated[l.class] = map[string][]claim{}
				}
				unlocated[l.class][consumer] = append(unlocated[l.class][consumer], l)
			}
		}
	}
	g.place(placed, claims, Split)
	for _, class := range slices.Sorted(maps.Keys(unlocated)) {
		same := slices.DeleteFunc(slices.Clone(g.sites),
			func(uuid string) bool { return p.Providers[uuid].Class != class })
		switch {
		case len(same) > 0: // a guess never changes a class
			p.placeUnlocated(unlocated[class], same, p.placeOf, problems)
		case len(g.sites) > 0:
			p.placeUnlocated(unlocated[class], g.sites, p.placeOf, problems)
		default:
			p.placeOthers(class, unlocated[class])
		}
	}
}

// placeOf is the place of the devices of a provider.
func (p *planner) placeOf(provider string) plugins.Place {
	return plugins.Place{Provider: provider, Class: p.Providers[provider].Class}
}

// placeOthers places what the driver knows nothing about.
func (p *planner) placeOthers(class string, claims map[string][]claim) {
	at := func(uuid string) plugins.Place { return plugins.Place{Provider: uuid, Class: class} }
	sites := slices.DeleteFunc(slices.Clone(p.own), func(uuid string) bool { return !p.has(at(uuid)) })
	p.placeUnlocated(claims, sites, at, nil)
}

// placeUnlocated places claims of unknown place, or reports the problem of each consumer.
func (p *planner) placeUnlocated(
	claims map[string][]claim, sites []string, at func(provider string) plugins.Place, problems map[string]string,
) {
	g := siteGroup{planner: p, sites: sites, countedClass: func(l claim) string { return l.class }}
	g.at = func(site int, _ string) plugins.Place { return at(sites[site]) }
	var guests []Guest
	for _, consumer := range slices.Sorted(maps.Keys(claims)) {
		guest := Guest{UUID: consumer, Amounts: g.amounts(claims[consumer])}
		class := claims[consumer][0].class
		switch problem, known := problems[consumer]; {
		case len(sites) == 0:
			p.addViolation(claims[consumer],
				fmt.Sprintf("it holds %d of %s, but the new layout has no inventory of that class",
					guest.Amounts[class], class))
			continue
		case len(sites) == 1:
			guest.Fixed = map[string]map[int]int64{class: {0: guest.Amounts[class]}}
		case !p.Guess && known:
			p.addViolation(claims[consumer], problem)
			continue
		case !p.Guess:
			p.addViolation(claims[consumer],
				fmt.Sprintf(
					"it holds %d of %s, but %d resource providers have that class and nothing shows which one it uses",
					guest.Amounts[class], class, len(sites)))
			continue
		}
		guests = append(guests, guest)
	}
	g.place(guests, claims, Split)
}

// locate finds the devices of one consumer, by site: all that it holds. If their place is unknown
// it returns the problem, and whether they certainly are nowhere in the new layout.
func (g siteGroup) locate(kind Kind, claims []claim) (fixed map[int]int64, problem string, nowhere bool) {
	fixed = map[int]int64{}
	var rest int64
	for _, l := range claims {
		if site := slices.Index(g.sites, l.place.Provider); site >= 0 {
			fixed[site] += l.amount // the provider is still there, and its class is another one
		} else {
			rest += l.amount
		}
	}
	if rest == 0 {
		return fixed, "", false
	}
	d, known := g.domains[claims[0].consumer]
	if !known {
		return nil, "the host has no domain for it, so it is unknown which device it uses", false
	}
	has, problem, nowhere := g.devicesOf(kind, d, rest)
	if problem != "" {
		return nil, problem, nowhere
	}
	var all int64
	for site := range has {
		has[site] -= g.held[holding{claims[0].consumer, g.at(site, "")}] + fixed[site]
		if has[site] <= 0 {
			delete(has, site)
		}
		all += has[site]
	}
	for site, n := range has {
		switch {
		case all == rest:
			fixed[site] += n
		case len(has) == 1:
			fixed[site] += rest
		default:
			return nil, fmt.Sprintf("it holds %d of %s, and its domain has %d such devices, of several providers",
				rest, g.countedClass(claims[0]), all), false
		}
	}
	if len(has) == 0 {
		return nil, fmt.Sprintf("it holds %d of %s, but its domain has no further such device", rest,
				g.countedClass(claims[0])),
			false
	}
	return fixed, "", false
}

// devicesOf counts the devices of a domain by site. Of contexts it has as many as it holds.
func (g siteGroup) devicesOf(kind Kind, d domain.Domain, held int64) (has map[int]int64, problem string, nowhere bool) {
	has = map[int]int64{}
	site := func(is func(Provider) bool) int {
		return slices.IndexFunc(g.sites, func(uuid string) bool { return is(g.Providers[uuid]) })
	}
	switch kind {
	case MdevParent:
		facts := g.host.Facts(d)
		for _, parent := range slices.Sorted(maps.Keys(facts.Mdevs)) {
			at := site(func(p Provider) bool { return p.Parent == parent })
			if at < 0 {
				return nil,
					fmt.Sprintf(
						"its mediated device %s is one of %s, which has no inventory in the new layout: enable its "+
							"type for that device in enabled_mdev_types, "+
							"or migrate the guest away", facts.Mdevs[parent][0], parent), true
			}
			has[at] += int64(len(facts.Mdevs[parent]))
		}
		if len(facts.Lost) > 0 {
			return nil, fmt.Sprintf(
				"its mediated device %s does not exist, and its parent device is not recorded: start the guest to "+
					"create it again", facts.Lost[0]), false
		}
	case PCI:
		for _, device := range d.PCI {
			if at := site(func(p Provider) bool { return p.hasDevice(device.Address) }); at >= 0 {
				has[at]++
			}
		}
	case Encryption:
		if at := site(func(p Provider) bool { return p.Security == d.Security }); at >= 0 && d.Security != "" {
			has[at] = held
		}
	}
	return has, "", false
}
