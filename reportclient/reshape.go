// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Reshape is one POST /reshaper, with the state before it. In one transaction, each provider in it
// gets exactly the inventories in After, and each consumer exactly the allocations in After. It has
// only the providers and consumers that something moves from or to.
//
// Its JSON, in Placement's terms, is what `plan` and `reshape show` print with --output json.
type Reshape struct {
	// Providers are the providers whose inventory moves, in pre-order of the desired tree, and
	// after them those that will be deleted.
	Providers []ReshapedProvider `json:"resource_providers"`
	// Consumers are the consumers whose allocations change, sorted by uuid.
	Consumers []ReshapedConsumer `json:"consumers"`
	// Names are the names, by uuid, of the other providers on which these consumers hold something,
	// for messages. Those that are not of the node's tree, such as another host's, have none.
	// Former versions did not write them.
	Names map[string]string `json:"names,omitempty"`
	// Body is the body of the request, once it is about to be posted: a [ReshapeLog] keeps these
	// bytes. See [Reshape.Request].
	Body json.RawMessage `json:"-"`
}

// ReshapedProvider is one provider of a [Reshape].
type ReshapedProvider struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	// Generation is sent with the request. In a plan it is the one that was read; Apply fills in
	// the one that holds when the request is made, and passes it to the [ReshapeLog].
	Generation int64 `json:"resource_provider_generation"`
	// Before and After are all inventories of the provider; none in Before for one that is created
	// by the same plan, none in After for one that is deleted by it.
	Before providertree.Inventories `json:"before"`
	After  providertree.Inventories `json:"after,omitzero"`
}

// ReshapedConsumer is one consumer of a [Reshape]. Its project, user and generation are as they
// were read, also if a driver changed them. Placement refuses the reshape if a client has written
// to the consumer since.
type ReshapedConsumer struct {
	UUID       string `json:"uuid"`
	Generation *int64 `json:"consumer_generation"`
	ProjectID  string `json:"project_id"`
	UserID     string `json:"user_id"`
	// Before and After are all its allocations, also those of other hosts' providers.
	Before providertree.ProviderResources `json:"before"`
	After  providertree.ProviderResources `json:"after,omitzero"`
}

// touched returns the providers whose generation grows with the allocations: the providers in After
// of each consumer, or those in Before if the consumer has no allocations afterwards.
func (r *Reshape) touched() map[string]bool {
	out := map[string]bool{}
	for _, c := range r.Consumers {
		held := c.After
		if len(held) == 0 {
			held = c.Before
		}
		for provider := range held {
			out[provider] = true
		}
	}
	return out
}

// generationsAfter are the generations of the providers of this reshape once it has happened:
// Placement raises them with the interim inventories (old and new together; left out if the new
// ones are none), with the allocations that touch the provider, and with the final inventories.
// Since each of these steps checks the generation that the one before left, it is exactly this or
// the reshape did not happen.
//
// Source: Placement's objects/reshaper.py; tested on both Placements.
func (r *Reshape) generationsAfter() map[string]int64 {
	touched := r.touched()
	out := make(map[string]int64, len(r.Providers))
	for _, p := range r.Providers {
		generation := p.Generation + 1
		if len(p.After) > 0 {
			generation++
		}
		if touched[p.UUID] {
			generation++
		}
		out[p.UUID] = generation
	}
	return out
}

// Inverse returns the reshape that undoes this one. It has the generations that hold right after
// this one, so Placement refuses it once a client has written to one of the providers or consumers.
func (r *Reshape) Inverse() *Reshape {
	out := &Reshape{
		Providers: make([]ReshapedProvider, 0, len(r.Providers)),
		Consumers: make([]ReshapedConsumer, 0, len(r.Consumers)),
		Names:     maps.Clone(r.Names),
	}
	generations := r.generationsAfter()
	for _, p := range r.Providers {
		out.Providers = append(out.Providers, ReshapedProvider{
			UUID: p.UUID, Name: p.Name, Generation: generations[p.UUID],
			Before: maps.Clone(p.After), After: maps.Clone(p.Before),
		})
	}
	for _, c := range r.Consumers {
		inverse := ReshapedConsumer{UUID: c.UUID, ProjectID: c.ProjectID, UserID: c.UserID,
			Before: c.After.Clone(), After: c.Before.Clone()}
		if c.Generation != nil { // every write of a consumer's allocations raises it by one
			next := *c.Generation + 1
			inverse.Generation = &next
		}
		out.Consumers = append(out.Consumers, inverse)
	}
	return out
}

// Plan returns a plan of this reshape alone, to undo another one.
func (r *Reshape) Plan() Plan {
	return Plan{Operations: []Operation{{Kind: ReshapeTree, Reshape: r}}, desired: &providertree.Tree{}}
}

// clone is deep enough for the generations of providers to be filled in.
func (r *Reshape) clone() *Reshape {
	return &Reshape{Providers: slices.Clone(r.Providers), Consumers: r.Consumers, Names: r.Names}
}

// Request returns the body of the POST: the one that was posted, or else the one that would be.
func (r *Reshape) Request() (json.RawMessage, error) {
	if r.Body != nil {
		return r.Body, nil
	}
	body := wire.Reshape{
		Inventories: make(map[string]wire.Inventories, len(r.Providers)),
		Allocations: make(map[string]wire.ConsumerAllocations, len(r.Consumers)),
	}
	for _, p := range r.Providers {
		body.Inventories[p.UUID] = wire.Inventories{Generation: p.Generation, Inventories: toWire(p.After)}
	}
	for _, c := range r.Consumers {
		body.Allocations[c.UUID] = wire.ConsumerAllocations{
			Allocations: wire.ProviderResources(c.After),
			ProjectID:   c.ProjectID, UserID: c.UserID, ConsumerGeneration: c.Generation,
		}
	}
	return json.Marshal(body)
}

// WithoutRequest returns a copy in which After of providers and consumers is nil: the body of the
// request has the same, see [Reshape.FillFromRequest].
func (r *Reshape) WithoutRequest() *Reshape {
	out := &Reshape{Providers: slices.Clone(r.Providers), Consumers: slices.Clone(r.Consumers), Names: r.Names}
	for i := range out.Providers {
		out.Providers[i].After = nil
	}
	for i := range out.Consumers {
		out.Consumers[i].After = nil
	}
	return out
}

// FillFromRequest is the inverse of [Reshape.WithoutRequest]: it sets After of all providers and
// consumers from the body of the request.
func (r *Reshape) FillFromRequest(request json.RawMessage) error {
	var body wire.Reshape
	if err := json.Unmarshal(request, &body); err != nil {
		return err
	}
	for i, p := range r.Providers {
		asked, found := body.Inventories[p.UUID]
		if !found {
			return fmt.Errorf("its request does not have resource provider %s", p.UUID)
		}
		r.Providers[i].After = inventoriesFromWire(asked.Inventories)
	}
	for i, c := range r.Consumers {
		asked, found := body.Allocations[c.UUID]
		if !found {
			return fmt.Errorf("its request does not have consumer %s", c.UUID)
		}
		r.Consumers[i].After = providertree.ProviderResources(asked.Allocations)
	}
	return nil
}

// newReshape collects what moves; nil if nothing does.
func newReshape(
	known, desired *providertree.Tree, changes providertree.Changes, before, after providertree.Allocations,
) *Reshape {
	if after == nil {
		return nil
	}
	out := &Reshape{Providers: []ReshapedProvider{}, Consumers: changedConsumers(before, after)}
	fresh := freshProviders(known, desired)
	var all []ReshapedProvider
	add := func(was, is providertree.Provider) {
		p := ReshapedProvider{UUID: is.UUID, Name: is.Name,
			Generation: providertree.NoGeneration, Before: providertree.Inventories{}, After: is.Inventories}
		if !fresh[is.UUID] {
			p.Generation, p.Before = was.Generation, was.Inventories
		}
		all = append(all, p)
	}
	for is := range desired.All() {
		was, _ := known.Provider(is.UUID)
		add(was, is)
	}
	for _, gone := range slices.Backward(changes.Removed) {
		if gone.Generation != providertree.NoGeneration {
			add(gone, providertree.Provider{UUID: gone.UUID, Name: gone.Name, Inventories: providertree.Inventories{}})
		}
	}
	touched, moving := movedAllocations(out.Consumers)
	movedCapacity(all, moving)
	posted := postedAgain(out.Consumers)
	for _, p := range all {
		opens := slices.ContainsFunc(posted[p.UUID].list(),
			func(class string) bool { return capacity(p.After, class) > capacity(p.Before, class) })
		if opens || slices.ContainsFunc(moving.list(), func(class string) bool { return inventoryChanges(p, class) }) {
			out.Providers = append(out.Providers, p)
		}
	}
	switch {
	case len(out.Providers) == 0 && len(out.Consumers) == 0:
		return nil
	case len(out.Providers) == 0:
		out.Providers = anchor(all, touched)
	}
	out.Names = otherNames(out, known, desired)
	return out
}

// otherNames are the names of the providers that consumers of a reshape hold from, other than those
// that it names anyway; nil if there are none.
func otherNames(r *Reshape, trees ...*providertree.Tree) map[string]string {
	named := make(map[string]bool, len(r.Providers))
	for _, p := range r.Providers {
		named[p.UUID] = true
	}
	var out map[string]string
	note := func(resources providertree.ProviderResources) {
		for uuid := range resources {
			if named[uuid] {
				continue
			}
			named[uuid] = true
			for _, tree := range trees {
				if p, found := tree.Provider(uuid); found {
					if out == nil {
						out = map[string]string{}
					}
					out[uuid] = p.Name
				}
			}
		}
	}
	for _, c := range r.Consumers {
		note(c.Before)
		note(c.After)
	}
	return out
}

// anchor is the provider that a reshape names although its inventory stays, since Placement wants
// one: the first that is touched, else the node's root.
func anchor(all []ReshapedProvider, touched map[string]bool) []ReshapedProvider {
	for _, p := range all {
		if touched[p.UUID] {
			return []ReshapedProvider{p}
		}
	}
	return all[:min(1, len(all))]
}

// changedConsumers returns the consumers whose allocations change, sorted by uuid.
func changedConsumers(before, after providertree.Allocations) []ReshapedConsumer {
	out := []ReshapedConsumer{}
	for _, uuid := range slices.Sorted(maps.Keys(after)) {
		was, known := before[uuid]
		is := after[uuid]
		owner := is.Clone()
		if known { // the driver must not change it
			owner = was.Clone()
		}
		c := ReshapedConsumer{
			UUID: uuid, Generation: owner.Generation, ProjectID: owner.ProjectID, UserID: owner.UserID,
			Before: positiveAmounts(was.Resources), After: positiveAmounts(is.Resources),
		} // sent at 1.37, where a consumer keeps the type that it has
		if !c.Before.Equal(c.After) {
			out = append(out, c)
		}
	}
	return out
}

// positiveAmounts is a copy of what a consumer holds without amounts of 0 and providers of which it
// holds nothing: Placement refuses both.
func positiveAmounts(resources providertree.ProviderResources) providertree.ProviderResources {
	out := make(providertree.ProviderResources, len(resources))
	for provider, amounts := range resources {
		for class, amount := range amounts {
			out.Add(provider, class, amount)
		}
	}
	return out
}

// classes is a set of resource classes.
type classes map[string]bool

func (c classes) list() []string { return slices.Sorted(maps.Keys(c)) }

// movedAllocations returns the providers on which an amount comes or goes, and the classes of these
// amounts.
func movedAllocations(consumers []ReshapedConsumer) (touched map[string]bool, moving classes) {
	touched, moving = map[string]bool{}, classes{}
	note := func(from, to providertree.ProviderResources) {
		for provider, amounts := range from {
			for class, amount := range amounts {
				if to[provider][class] != amount {
					touched[provider], moving[class] = true, true
				}
			}
		}
	}
	for _, c := range consumers {
		note(c.Before, c.After)
		note(c.After, c.Before)
	}
	return touched, moving
}

// postedAgain are the classes by provider that consumers hold before and after.
func postedAgain(consumers []ReshapedConsumer) map[string]classes {
	out := map[string]classes{}
	for _, c := range consumers {
		for provider, amounts := range c.After {
			for class := range amounts {
				if out[provider] == nil {
					out[provider] = classes{}
				}
				out[provider][class] = true
			}
		}
	}
	return out
}

// movedCapacity adds the classes whose capacity shrinks on one provider and grows on another.
func movedCapacity(providers []ReshapedProvider, moving classes) {
	shrinks, grows := map[string]bool{}, map[string]bool{}
	for _, p := range providers {
		for class := range p.Before {
			if capacity(p.After, class) < capacity(p.Before, class) {
				shrinks[class] = true
			}
		}
		for class := range p.After {
			if capacity(p.After, class) > capacity(p.Before, class) {
				grows[class] = true
			}
		}
	}
	for class := range shrinks {
		if grows[class] {
			moving[class] = true
		}
	}
}

func capacity(inventories providertree.Inventories, class string) int64 {
	inv, found := inventories[class]
	if !found {
		return 0
	}
	return inv.Capacity()
}

func inventoryChanges(p ReshapedProvider, class string) bool {
	was, had := p.Before[class]
	is, has := p.After[class]
	return had != has || had && !was.Equal(is)
}
