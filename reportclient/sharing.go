// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
)

// aggregatesPerQuery keeps the URL of a query below half of the 8 KiB that web servers take.
const aggregatesPerQuery = 100

// addSharing puts the providers that share something with the tree's (they are in an aggregate with
// one of them, and have the trait MISC_SHARES_VIA_AGGREGATE) beside it, each as a root of its own,
// wherever it is in its own tree. Each is read once, however many aggregates lead to it; what
// shares with them in turn is not looked for.
//
// They are external: Placement has them for several hosts, so they are shown, written to only where
// an operator's provider.yaml says so, and never deleted.
//
// Cost: nothing if no provider of the tree is in an aggregate; else one GET for each 100
// aggregates, and three for each sharing provider whose generation moved.
func (c *Client) addSharing(ctx context.Context, n *node, tree *providertree.Tree) error {
	var aggregates []string
	for p := range tree.All() {
		aggregates = append(aggregates, p.Aggregates...)
	}
	slices.Sort(aggregates)
	for chunk := range slices.Chunk(slices.Compact(aggregates), aggregatesPerQuery) {
		list, err := c.placement.Providers(ctx,
			url.Values{"required": {providertree.TraitSharesViaAggregate},
				"member_of": {"in:" + strings.Join(chunk, ",")}})
		if err != nil {
			return err
		}
		for _, rp := range list {
			if tree.Exists(canonical(rp.UUID)) {
				continue // found before, or one of the node's own
			}
			p, err := c.fill(ctx, n, rp)
			switch {
			case errors.Is(err, ErrNotFound):
				continue // deleted meanwhile
			// so many hosts claim of it that it never stood still; the next look reads it again
			case errors.Is(err, ErrConflict):
				p.Generation = rp.Generation
			case err != nil:
				return err
			}
			p.ParentUUID = ""
			if err := tree.Populate([]providertree.Provider{p}); err != nil {
				c.config.Logger.Warn().Str("resource_provider", rp.UUID).Err(err).
					Msg(
						"Ignoring an invalid sharing provider: the driver does not see it. Correct it with the " +
							"openstack command.")
			}
		}
	}
	return nil
}
