// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"maps"
	"net/http"
)

// amounts are by resource class.
type amounts map[string]int64

// clone is a copy, which can be added to.
func (a amounts) clone() amounts {
	out := amounts{}
	maps.Copy(out, a)
	return out
}

// offer is what a provider offers: totals, everything else as it is by default.
type offer struct {
	generation int64
	totals     amounts
}

// holding is what a consumer holds, by provider. Generation 0 is null: it is expected to be new.
type holding struct {
	generation int64
	resources  map[string]amounts
}

// forest is the state of one provider tree with its consumers: the model's state. It is never
// changed once made.
type forest struct {
	project   string // of all its consumers
	providers map[string]offer
	consumers map[string]holding
}

// clone copies what apply may change.
func (f *forest) clone() *forest {
	return &forest{f.project, maps.Clone(f.providers), maps.Clone(f.consumers)}
}

func (f *forest) equal(g *forest) bool {
	return maps.EqualFunc(f.providers, g.providers,
		func(a, b offer) bool { return a.generation == b.generation && maps.Equal(a.totals, b.totals) }) &&
		maps.EqualFunc(f.consumers, g.consumers, func(a, b holding) bool {
			return a.generation == b.generation &&
				maps.EqualFunc(a.resources, b.resources, maps.Equal[amounts, amounts])
		})
}

// used is how much of a class of a provider is allocated.
func (f *forest) used(provider, class string) (n int64) {
	for _, c := range f.consumers {
		n += c.resources[provider][class]
	}
	return n
}

// kind is that of an operation of a history.
type kind string

const (
	putAllocations    kind = "PUT allocations"
	postAllocations   kind = "POST allocations"
	deleteAllocations kind = "DELETE allocations"
	putInventories    kind = "PUT inventories"
	postReshape       kind = "POST reshaper"
	getConsumer       kind = "GET allocations"
	getHolders        kind = "GET provider allocations"
	getInventories    kind = "GET inventories"
	getUsages         kind = "GET usages"
	getTree           kind = "GET tree"
	getProject        kind = "GET project usages"
)

// op is one request to Placement, about one tree.
type op struct {
	kind kind
	tree int
	// subject is the consumer or provider that the path names, or a provider of the tree, or the
	// project.
	subject string
	offers  map[string]offer
	claims  map[string]holding
}

func (o op) reads() bool { return o.kind[:3] == "GET" }

// answer is what Placement said.
type answer struct {
	status int
	code   string // of an error
	body   string // of a 200, as canonical JSON
	// later: it was refused without a look at it, to be sent again.
	later bool
	// unknown: no answer said whether it was done.
	unknown bool
}

// The answers of writes.
var (
	done        = answer{status: http.StatusNoContent}
	conflict    = answer{status: http.StatusConflict, code: "placement.concurrent_update"}
	inUse       = answer{status: http.StatusConflict, code: "placement.inventory.inuse"}
	unavailable = answer{status: http.StatusConflict, code: "placement.undefined_code"}
	missing     = answer{status: http.StatusNotFound, code: "placement.undefined_code"}
)

// apply is Placement, one request at a time: the next state and the answer.
func apply(f *forest, o op) (*forest, answer) {
	next := f.clone()
	var refused *answer
	switch o.kind {
	case putInventories:
		refused = next.offer(o.offers, 1, true)
		if refused == nil {
			return next, ok(inventoriesBody(next.providers[o.subject]))
		}
	case putAllocations, postAllocations:
		refused = next.claim(o.claims)
	case deleteAllocations:
		if _, found := f.consumers[o.subject]; !found {
			return f, missing
		}
		delete(next.consumers, o.subject)
	case postReshape:
		refused = next.reshape(o)
	default:
		return f, f.read(o)
	}
	if refused != nil {
		return f, *refused
	}
	return next, done
}

// offer replaces inventories of providers at the generations given, and moves these by step.
func (f *forest) offer(offers map[string]offer, step int64, check bool) *answer {
	for p, o := range offers {
		if check && f.providers[p].generation != o.generation {
			return &conflict
		}
	}
	for p, o := range offers {
		for class := range f.providers[p].totals {
			if _, keeps := o.totals[class]; !keeps && f.used(p, class) > 0 {
				return &inUse
			}
		}
		f.providers[p] = offer{f.providers[p].generation + step, o.totals}
	}
	return nil
}

// claim replaces what consumers hold.
func (f *forest) claim(claims map[string]holding) *answer {
	for c, want := range claims {
		if f.consumers[c].generation != want.generation {
			return &conflict
		}
	}
	before := f.clone()
	touched := map[string]bool{}
	for c, want := range claims {
		given := want.resources
		if len(given) == 0 {
			given = f.consumers[c].resources
			delete(f.consumers, c)
		} else {
			f.consumers[c] = holding{f.consumers[c].generation + 1, given}
		}
		for p := range given {
			touched[p] = true
		}
	}
	for _, want := range claims {
		for p, resources := range want.resources {
			for class := range resources {
				total, offered := f.providers[p].totals[class]
				// A provider that is over-committed takes what does not make it worse.
				if after := f.used(p, class); !offered || after > total && after > before.used(p, class) {
					return &unavailable
				}
			}
		}
	}
	for p := range touched {
		f.providers[p] = offer{f.providers[p].generation + 1, f.providers[p].totals}
	}
	return nil
}

// reshape is POST /reshaper, in Placement's order: providers offer both what they did and what they
// will, allocations move, providers offer only what they will.
func (f *forest) reshape(o op) *answer {
	both, final := map[string]offer{}, map[string]offer{}
	for p, want := range o.offers {
		if f.providers[p].generation != want.generation {
			return &conflict
		}
		final[p] = want
		if len(want.totals) > 0 {
			sum := f.providers[p].totals.clone()
			maps.Copy(sum, want.totals)
			both[p] = offer{totals: sum}
		}
	}
	if refused := f.offer(both, 1, false); refused != nil {
		return refused
	}
	if refused := f.claim(o.claims); refused != nil {
		return refused
	}
	return f.offer(final, 1, false)
}

// read answers a GET.
func (f *forest) read(o op) answer {
	p := f.providers[o.subject]
	switch o.kind {
	case getConsumer:
		c, found := f.consumers[o.subject]
		if !found {
			return ok(map[string]any{"allocations": map[string]any{}})
		}
		held := map[string]any{}
		for p, resources := range c.resources {
			held[p] = map[string]any{"resources": resources, "generation": f.providers[p].generation}
		}
		return ok(map[string]any{"allocations": held, "project_id": f.project, "user_id": user,
			"consumer_generation": c.generation, "consumer_type": consumerType})
	case getHolders:
		held := map[string]any{}
		for uuid, c := range f.consumers {
			if resources := c.resources[o.subject]; len(resources) > 0 {
				held[uuid] = map[string]any{"resources": resources, "consumer_generation": c.generation}
			}
		}
		return ok(map[string]any{"resource_provider_generation": p.generation, "allocations": held})
	case getInventories:
		return ok(inventoriesBody(p))
	case getUsages:
		usages := map[string]any{}
		for class := range p.totals {
			usages[class] = f.used(o.subject, class)
		}
		return ok(map[string]any{"resource_provider_generation": p.generation, "usages": usages})
	case getTree:
		generations := map[string]any{}
		for uuid, p := range f.providers {
			generations[uuid] = p.generation
		}
		return ok(generations)
	case getProject:
		usages := map[string]any{}
		if len(f.consumers) > 0 {
			sums := amounts{"consumer_count": int64(len(f.consumers))}
			for _, c := range f.consumers {
				for _, resources := range c.resources {
					for class, n := range resources {
						sums[class] += n
					}
				}
			}
			usages[consumerType] = sums
		}
		return ok(map[string]any{"usages": usages})
	}
	panic("no such operation: " + o.kind)
}

func inventoriesBody(p offer) any {
	inventories := map[string]any{}
	for class, total := range p.totals {
		inventories[class] = map[string]any{"total": total,
			"reserved": 0, "min_unit": 1, "max_unit": 1<<31 - 1, "step_size": 1, "allocation_ratio": 1}
	}
	return map[string]any{"resource_provider_generation": p.generation, "inventories": inventories}
}

// ok is a 200 with a body. Keys are sorted by json.Marshal, which makes equal bodies equal strings.
func ok(body any) answer {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return answer{status: http.StatusOK, body: string(text)}
}
