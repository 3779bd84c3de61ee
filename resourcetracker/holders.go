// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// Holders is implemented by a [Placement] that can list the consumers of a provider, see
// [reportclient.Client.ConsumersOf].
type Holders interface {
	// ConsumersOf returns amounts by consumer and resource class.
	ConsumersOf(ctx context.Context, provider string) (map[string]providertree.Resources, error)
}

// maxHolders is how many consumers are named of each draining inventory.
const maxHolders = 10

// holders are the consumers of draining inventory. They are for messages: what cannot be read is
// left out, and the pass goes on.
//
// Cost: one GET for each provider with draining inventory, each time that its usage is read (see
// usages), and none otherwise.
func (t *Tracker) holders(
	ctx context.Context, state *nodeState, draining []ownership.Draining,
) map[plugins.Place][]string {
	placement, can := t.config.Placement.(Holders)
	if !can {
		return nil
	}
	out := map[plugins.Place][]string{}
	for _, d := range draining {
		u, read := state.used[d.Provider]
		if d.Class == "" || !read {
			continue
		}
		if u.holders == nil {
			all, err := placement.ConsumersOf(ctx, d.Provider)
			if err != nil {
				t.config.Logger.Debug().
					Str("driver", t.config.Name).
					Str("provider", d.Provider).
					Err(err).
					Msg("Failed to read the consumers of inventory that drains, so they are not listed.")
				continue
			}
			u.holders = map[string][]string{}
			for _, consumer := range slices.Sorted(maps.Keys(all)) {
				for class := range all[consumer] {
					u.holders[class] = append(u.holders[class], consumer)
				}
			}
			state.used[d.Provider] = u
		}
		out[plugins.Place{Provider: d.Provider, Class: d.Class}] = u.holders[d.Class]
	}
	return out
}

// heldBy names consumers, at most some of them.
func heldBy(consumers []string) string {
	switch more := len(consumers) - maxHolders; {
	case len(consumers) == 0:
		return ""
	case more > 0:
		return fmt.Sprintf(" They are held by the consumers %s and %d more.",
			strings.Join(consumers[:maxHolders], ", "), more)
	case len(consumers) == 1:
		return " They are held by the consumer " + consumers[0] + "."
	}
	return " They are held by the consumers " + strings.Join(consumers, ", ") + "."
}
