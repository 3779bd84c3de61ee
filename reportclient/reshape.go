// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
)

// Reshape is one POST /reshaper with what was there before: providers get the inventories in After,
// all of them, and consumers the allocations, in one transaction. It holds only what moves;
// everything else of the tree is not mentioned.
//
// Its JSON, in Placement's terms, is what journals keep and `plan --output json` prints.
type Reshape struct {
	// Providers are those whose inventory moves, in the pre-order of the desired tree, those that
	// go last.
	Providers []ReshapedProvider `json:"resource_providers"`
	// Consumers are those whose allocations differ, by uuid.
	Consumers []ReshapedConsumer `json:"consumers"`
	// Names are the names, by uuid, of the other providers on which these consumers hold something,
	// for messages. Those that are not of the node's tree, such as another host's, have none.
	// Former versions did not write them.
	Names map[string]string `json:"names,omitempty"`
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
	After  providertree.Inventories `json:"after"`
}

// ReshapedConsumer is one consumer of a [Reshape]. Its owner and generation are those that were
// read, whatever a driver made of them; no client must have written to it since.
type ReshapedConsumer struct {
	UUID       string `json:"uuid"`
	Generation *int64 `json:"consumer_generation"`
	ProjectID  string `json:"project_id"`
	UserID     string `json:"user_id"`
	// Before and After are all that it holds, on whichever providers, also those of other hosts.
	Before providertree.ProviderResources `json:"before"`
	After  providertree.ProviderResources `json:"after"`
}

// touched are the providers whose generation moves with the allocations: those of which some
// consumer holds something afterwards, and those of which one held something that has nothing left.
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

// Inverse is the reshape that takes this one back. It carries the generations that hold right after
// this one, so Placement refuses it once any client has written to one of the providers or
// consumers.
func (r *Reshape) Inverse() *Reshape {
	out := &Reshape{
		Providers: make([]ReshapedProvider, 0, len(r.Providers)),
		Consumers: make([]ReshapedConsumer, 0, len(r.Consumers)),
		Names:     maps.Clone(r.Names),
	}
	generations := r.generationsAfter()
	for _, p := range r.Providers {
		out.Providers = append(out.Providers, ReshapedProvider{
			UUID: p.UUID, Name: p.Name, Generation: generations[p.UUID], Before: maps.Clone(p.After), After: maps.Clone(p.Before),
		})
	}
	for _, c := range r.Consumers {
		inverse := ReshapedConsumer{UUID: c.UUID, ProjectID: c.ProjectID, UserID: c.UserID, Before: c.After.Clone(), After: c.Before.Clone()}
		if c.Generation != nil { // every write of a consumer's allocations raises it by one
			next := *c.Generation + 1
			inverse.Generation = &next
		}
		out.Consumers = append(out.Consumers, inverse)
	}
	return out
}

// Plan is the plan that consists of this reshape alone: what undoing one applies.
func (r *Reshape) Plan() Plan {
	return Plan{Operations: []Operation{{Kind: ReshapeTree, Reshape: r}}, desired: &providertree.Tree{}}
}

// clone is deep enough for the generations of providers to be filled in.
func (r *Reshape) clone() *Reshape {
	return &Reshape{Providers: slices.Clone(r.Providers), Consumers: r.Consumers, Names: r.Names}
}

// describe names what moves: first the inventories, then how many consumers.
func (r *Reshape) describe() string {
	parts := make([]string, 0, len(r.Providers))
	for _, p := range r.Providers {
		what := describeInventories(p.Before, p.After)
		if what == "" {
			what = "inventory unchanged"
		}
		parts = append(parts, fmt.Sprintf("%s: %s", p.Name, what))
	}
	noun := "consumers"
	if len(r.Consumers) == 1 {
		noun = "consumer"
	}
	return fmt.Sprintf("%s; with the allocations of %d %s", strings.Join(parts, "; "), len(r.Consumers), noun)
}
