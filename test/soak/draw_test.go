// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"maps"
	"math/rand/v2"

	"github.com/compute-agent/compute-agent/placement/wire"
)

var classes = []string{"VCPU", "MEMORY_MB"}

// guess is what a client believes a tree to be, from what it was answered: what it writes is based
// on it, as with any real client, and may be out of date.
type guess struct {
	*forest
	rand *rand.Rand
	tree int
}

// next draws an operation.
func (g *guess) next() op {
	o := op{tree: g.tree, offers: map[string]offer{}, claims: map[string]holding{}}
	switch n := g.rand.IntN(100); {
	case n < 14:
		o.kind, o.subject = getConsumer, g.consumer()
	case n < 24:
		o.kind, o.subject = getInventories, g.provider()
	case n < 29:
		o.kind, o.subject = getHolders, g.provider()
	case n < 33:
		o.kind, o.subject = getUsages, g.provider()
	case n < 37:
		o.kind, o.subject = getTree, g.provider()
	case n < 41:
		o.kind, o.subject = getProject, project(g.tree)
	case n < 60:
		o.kind, o.subject = putAllocations, g.consumer()
		o.claims[o.subject] = g.claim(o.subject)
	case n < 72:
		o.kind = postAllocations
		for range 2 {
			c := g.consumer()
			o.claims[c] = g.claim(c)
		}
	case n < 76:
		o.kind, o.subject = deleteAllocations, g.consumer()
	case n < 90:
		o.kind, o.subject = putInventories, g.provider()
		o.offers[o.subject] = offer{g.generation(g.providers[o.subject].generation), g.totals()}
	default:
		g.reshape(&o)
	}
	return o
}

func (g *guess) provider() string { return providerUUID(g.tree, g.rand.IntN(providersPerTree)) }
func (g *guess) consumer() string { return consumerUUID(g.tree, g.rand.IntN(consumersPerTree)) }

// generation is the one believed in, and now and then another.
func (g *guess) generation(believed int64) int64 {
	if g.rand.IntN(12) == 0 {
		return max(0, believed+int64(g.rand.IntN(3))-1)
	}
	return believed
}

func (g *guess) totals() amounts {
	out := amounts{}
	for _, class := range classes {
		if g.rand.IntN(6) > 0 {
			out[class] = 1 + g.rand.Int64N(9)
		}
	}
	return out
}

func (g *guess) claim(consumer string) holding {
	h := holding{g.generation(g.consumers[consumer].generation), map[string]amounts{}}
	for range g.rand.IntN(3) {
		p := g.provider()
		for _, class := range classes {
			if g.providers[p].totals[class] > 0 && g.rand.IntN(4) > 0 || g.rand.IntN(20) == 0 {
				if h.resources[p] == nil {
					h.resources[p] = amounts{}
				}
				h.resources[p][class] = 1 + g.rand.Int64N(3)
			}
		}
	}
	return h
}

// reshape moves a class with all that is allocated of it from one provider to another.
func (g *guess) reshape(o *op) {
	from, to, class := g.provider(), g.provider(), classes[g.rand.IntN(len(classes))]
	o.kind = postReshape
	leaves, gains := g.providers[from].totals.clone(), g.providers[to].totals.clone()
	moved := leaves[class]
	delete(leaves, class)
	gains[class] = max(moved, 1)
	o.offers[from] = offer{g.generation(g.providers[from].generation), leaves}
	o.offers[to] = offer{g.generation(g.providers[to].generation), gains}
	for c, held := range g.consumers {
		n := held.resources[from][class]
		if n == 0 || from == to {
			continue
		}
		h := holding{g.generation(held.generation), map[string]amounts{}}
		for p, resources := range held.resources {
			h.resources[p] = maps.Clone(resources)
		}
		delete(h.resources[from], class)
		if len(h.resources[from]) == 0 {
			delete(h.resources, from)
		}
		if h.resources[to] == nil {
			h.resources[to] = amounts{}
		}
		h.resources[to][class] += n
		o.claims[c] = h
	}
}

// learn updates the guess from an answer.
func (g *guess) learn(o op, a answer) error {
	switch {
	case a.unknown || a.later || a.status >= 400:
		return nil
	case !o.reads():
		// Whatever the server did, it did not refuse what the guess refuses, so the guess was
		// wrong: reads correct it.
		g.forest, _ = apply(g.forest, o)
		return nil
	}
	f := g.clone()
	var err error
	read := func(body any) { err = json.Unmarshal([]byte(a.body), body) }
	switch o.kind {
	case getConsumer:
		var body struct {
			Generation  *int64 `json:"consumer_generation"`
			Allocations map[string]struct {
				Generation int64   `json:"generation"`
				Resources  amounts `json:"resources"`
			} `json:"allocations"`
		}
		read(&body)
		delete(f.consumers, o.subject)
		if body.Generation != nil {
			h := holding{*body.Generation, map[string]amounts{}}
			for p, held := range body.Allocations {
				h.resources[p] = held.Resources
				f.providers[p] = offer{held.Generation, f.providers[p].totals}
			}
			f.consumers[o.subject] = h
		}
	case getInventories:
		var body wire.Inventories
		read(&body)
		p := offer{body.Generation, amounts{}}
		for class, inv := range body.Inventories {
			p.totals[class] = inv.Total
		}
		f.providers[o.subject] = p
	case getTree:
		var generations map[string]int64
		read(&generations)
		for p, generation := range generations {
			f.providers[p] = offer{generation, f.providers[p].totals}
		}
	}
	if err == nil {
		g.forest = f
	}
	return err
}
