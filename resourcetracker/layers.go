// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
)

// merge lays the agent's and the operator's items upon the driver's answer, and puts back what was
// not the driver's to take away. What goes while guests use it is kept, closed for new ones, until
// it is free.
//
// Cost: no request, but one GET of the usages of a provider that is to lose inventory, for each
// generation of it and every five minutes.
func (t *Tracker) merge(ctx context.Context, state *nodeState, d draft) (draft, error) {
	var config *providerconfig.Config // the one of this pass; it may change meanwhile
	if t.config.ProviderConfig != nil {
		config = t.config.ProviderConfig()
	}
	operator, conflicts := t.operatorLayer(state, d, config)
	agent, unsupported := t.agentLayer(state, d)
	result, err := ownership.Merge(ownership.Input{
		Root: d.Node.UUID, Node: d.Node.Name, Driver: t.config.Name, Known: d.Known, Base: d.Base,
		Answer: d.Answer, Record: d.record,
		Layers: []ownership.Layer{agent, operator}, Renames: d.Renames, Reshape: d.Before != nil,
		Created: d.record.Created || isNew(d.Known, d.Node.UUID),
	})
	if err != nil {
		return d, &passError{step: "merging the driver's provider tree with other clients' changes", err: err}
	}
	d.Desired, d.next, d.record = result.Tree, result.Record, result.Former
	// what the agent says itself was not put back for another's sake
	d.kept = slices.DeleteFunc(result.Kept, func(k ownership.Kept) bool {
		return k.Kind == ownership.KindTrait && k.Provider == d.Node.UUID &&
			(slices.Contains(agent.Providers[k.Provider].Traits, k.Symbol) || slices.Contains(unsupported, k.Symbol))
	})
	d.next.Layout = cmp.Or(d.layout, d.record.Layout)
	for _, c := range result.Conflicts {
		if c.Owner == ownership.Driver {
			d.refused = append(d.refused, c.String())
		} else {
			conflicts = append(conflicts, conflictText(c, config))
		}
	}
	d.conflicts = conflicts
	removed, err := d.Desired.RemoveTraits(d.Node.UUID, unsupported...)
	if err != nil {
		return d, err
	}
	if removed {
		d.next = d.next.Exact(d.record, d.Desired)
	}
	if d, err = t.drain(ctx, state, d); err != nil {
		return d, err
	}
	return t.storable(d), nil
}

// storable omits what Placement cannot store, so that it is neither recorded as ours nor reported
// as drift at every pass.
func (t *Tracker) storable(d draft) draft {
	if tree := t.config.Placement.Storable(d.Known, d.Desired); tree != d.Desired {
		d.Desired, d.next = tree, d.next.Exact(d.record, tree)
	}
	return d
}

// agentLayer is what the agent itself sets on a node's root, and the traits that must not be on it,
// whichever client set them: what the driver says the node is not capable of, and, right after an
// operator enabled the node, that it is disabled.
func (t *Tracker) agentLayer(state *nodeState, d draft) (layer ownership.Layer, unsupported []string) {
	traits := []string{TraitComputeNode}
	if !adopted(d) || d.Known.HasTraits(d.Node.UUID, TraitOwnerNova) {
		traits = append(traits, TraitOwnerNova)
	}
	if t.config.Disabled != nil {
		if _, disabled := t.config.Disabled(d.Node); disabled {
			traits = append(traits, TraitStatusDisabled)
		} else if state.enabling {
			unsupported = append(unsupported, TraitStatusDisabled)
		}
	}
	if reporter, ok := t.config.Driver.(CapabilityReporter); ok {
		capabilities := reporter.Capabilities(d.Node.Name)
		for _, trait := range slices.Sorted(maps.Keys(capabilities)) {
			if capabilities[trait] {
				traits = append(traits, trait)
			} else {
				unsupported = append(unsupported, trait)
			}
		}
	}
	layouts, former := t.layoutTraits(d)
	traits, unsupported = append(traits, layouts...), append(unsupported, former...)
	return ownership.Layer{Owner: ownership.Agent,
		Providers: map[string]ownership.LayerProvider{d.Node.UUID: {Traits: traits}}}, unsupported
}

// operatorLayer is what provider.yaml says of the node's tree as the driver answered it. Entries
// for providers that none of the driver's nodes has are reported, and take effect when one has
// them.
func (t *Tracker) operatorLayer(state *nodeState, d draft, config *providerconfig.Config) (ownership.Layer, []string) {
	if config == nil {
		return ownership.Layer{Owner: ownership.Operator}, nil
	}
	layer, unmatched := config.Layer(d.Answer, d.Node.UUID)
	t.mu.Lock()
	defer t.mu.Unlock()
	state.unmatched = map[string]bool{}
	var texts []string
	for _, u := range unmatched {
		state.unmatched[u.Key] = true
		onOtherNode := false
		for _, other := range t.nodes {
			// one that has had no pass yet may have it
			onOtherNode = onOtherNode || other.State != Orphaned && !other.unmatched[u.Key]
		}
		if u.Duplicate || !onOtherNode {
			texts = append(texts, u.Where+": "+u.Reason)
		}
	}
	return layer, texts
}

// conflictText says which entry of provider.yaml is left out, and why.
func conflictText(c ownership.Conflict, config *providerconfig.Config) string {
	return fmt.Sprintf("%s: %s on %s has no effect: %s",
		config.Location(c.Provider, c.Name, c.Symbol), c.Symbol, c.Name, c.Problem)
}

// adopted reports whether the root existed before this agent reported the node. [TraitOwnerNova] is
// not added to such a root: Nova before 2026.2 does not set it, and the adoption of its tree takes
// no write.
func adopted(d draft) bool { return !d.record.Created && !isNew(d.Known, d.Node.UUID) }

func isNew(tree *providertree.Tree, root string) bool {
	p, found := tree.Provider(root)
	return !found || p.Generation == providertree.NoGeneration
}

// drain keeps removed inventory that guests use: it stays in the desired tree, closed for new
// allocations.
func (t *Tracker) drain(ctx context.Context, state *nodeState, d draft) (draft, error) {
	shrinking := ownership.Shrinking(d.Known, d.Desired)
	if len(shrinking) == 0 {
		return d, nil
	}
	var usages providertree.ProviderResources
	var may func(provider, class string) bool
	// the driver has moved what is allocated, or the guard says so; but for what stayed behind
	// already, and the operator's
	if d.Before != nil {
		usages = d.After.Usages()
		may = func(provider, class string) bool {
			inv, _ := d.Known.Inventory(provider, class)
			owner := d.record.Providers[provider].Inventories[class].Owner
			return owner == ownership.Operator || owner == ownership.Former || inv.Reserved >= inv.Total
		}
	} else {
		var err error
		if usages, err = t.usages(ctx, state, d.Known, shrinking); err != nil {
			return d, &passError{step: "reading usages of inventory that the driver removes", err: err}
		}
	}
	desired, draining, err := ownership.Drain(d.Known, d.Desired, usages, may)
	if err != nil {
		return d, &passError{step: "keeping inventory that is still in use", err: err}
	}
	if d.Before != nil {
		if desired, err = leaveOpen(d.Known, desired, draining); err != nil {
			return d, err
		}
	}
	d.Desired, d.draining = desired, draining
	if d.Before == nil {
		d.holders = t.holders(ctx, state, draining)
	}
	d.next = d.next.Exact(d.record, d.Desired).Hold(d.Base, d.Desired, draining)
	return d, nil
}

// leaveOpen undoes the closing of inventory that stays behind in a reshape; the next pass closes
// it. A reshape posts all allocations of the consumers that it moves, and Placement before 14.0.0
// (2025.2) refuses those on closed inventory.
func leaveOpen(known, desired *providertree.Tree, draining []ownership.Draining) (*providertree.Tree, error) {
	out := desired.Clone()
	for _, d := range draining {
		if d.Class == "" {
			continue
		}
		inv, _ := known.Inventory(d.Provider, d.Class)
		if _, err := out.SetInventory(d.Provider, d.Class, inv); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cachedUsage is how much of a provider was allocated at one of its generations. An allocation
// raises the generation; a deallocation does not always: neither a DELETE of allocations does, nor
// a move of all that a consumer has to another provider.
type cachedUsage struct {
	generation int64
	amounts    providertree.Resources
	read       time.Time
	// holders are the consumers by class; nil if it was not read.
	holders map[string][]string
}

// usageLifetime is how long usages are believed while the generation stays.
const usageLifetime = 5 * time.Minute

// usages reads how much is allocated of some providers, unless that is known for the generation
// that they have, and is not old.
func (t *Tracker) usages(
	ctx context.Context, state *nodeState, known *providertree.Tree, providers []string,
) (providertree.ProviderResources, error) {
	out := make(providertree.ProviderResources, len(providers))
	fresh := make(map[string]cachedUsage, len(providers))
	for _, uuid := range providers {
		p, _ := known.Provider(uuid)
		if p.Generation == providertree.NoGeneration {
			continue
		}
		u, cached := state.used[uuid]
		if !cached || u.generation != p.Generation || time.Since(u.read) >= usageLifetime {
			amounts, err := t.config.Placement.Usages(ctx, uuid)
			if err != nil {
				if state.used == nil {
					state.used = map[string]cachedUsage{}
				}
				maps.Copy(state.used, fresh) // with very many, one pass must not be enough
				return nil, err
			}
			u = cachedUsage{generation: p.Generation, amounts: amounts, read: time.Now()}
		}
		fresh[uuid], out[uuid] = u, u.amounts
	}
	state.used = fresh
	return out, nil
}
