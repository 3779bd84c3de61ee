// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// traitsPerQuery keeps the URL of a query below the 8 KiB that web servers take: a trait's name may
// have 255 characters.
const traitsPerQuery = 25

// Plan is [NewPlan] without the standard traits that this Placement has turned out not to know: a
// driver may be newer than the control plane, and its other traits count all the same.
func (c *Client) Plan(known, desired *providertree.Tree) Plan {
	return NewPlan(known, c.Storable(known, desired))
}

// Storable is the desired tree without the standard traits that this Placement has turned out not
// to know: the tree itself, if there are none.
func (c *Client) Storable(known, desired *providertree.Tree) *providertree.Tree {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unknown) == 0 {
		return desired
	}
	possible := desired.Clone()
	for _, uuid := range possible.UUIDs() {
		for trait := range c.unknown {
			if !known.HasTraits(uuid, trait) { // Placement may have learnt it meanwhile
				_, _ = possible.RemoveTraits(uuid, trait) // no error: it has the provider
			}
		}
	}
	return possible
}

// knownTraits asks which of these traits Placement knows, and remembers the others.
//
// Cost: one GET for each 25 traits, and only after Placement refused them.
func (c *Client) knownTraits(ctx context.Context, traits []string) ([]string, error) {
	var known []string
	for chunk := range slices.Chunk(traits, traitsPerQuery) {
		var out wire.TraitList
		path := "/traits?name=" + url.QueryEscape("in:"+strings.Join(chunk, ","))
		if err := c.placement.Do(ctx, http.MethodGet, path, nil, &out); err != nil {
			return nil, err
		}
		known = append(known, out.Traits...)
	}
	slices.Sort(known)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, trait := range traits {
		if _, found := slices.BinarySearch(known, trait); !found && !c.unknown[trait] && !providertree.IsCustom(trait) {
			c.unknown[trait] = true
			c.config.Logger.Warn().Str("trait", trait).
				Msg("Placement does not know this standard trait: it is omitted until the agent restarts. Update " +
					"os-traits on the control plane.")
		}
	}
	return known, nil
}
