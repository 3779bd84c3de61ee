// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// accepted is what Placement took of what was written: standard traits that it turned out not to
// know were left out, which the client has said.
func (t *Tracker) accepted(done []reportclient.Operation) []reportclient.Operation {
	realist, ok := t.config.Placement.(Realist)
	if !ok {
		return done
	}
	out := make([]reportclient.Operation, 0, len(done))
	for _, op := range done {
		if op.Kind == reportclient.SetTraits {
			var before []string
			if op.Before != nil {
				before = op.Before.Traits
			}
			if op.Traits = possibleTraits(realist, op.UUID,
				op.Provider, before, op.Traits); slices.Equal(op.Traits, before) {
				continue
			}
		}
		out = append(out, op)
	}
	return out
}

// possibleTraits is [Realist] for the traits of one provider.
func possibleTraits(realist Realist, uuid, name string, before, after []string) []string {
	with := func(traits []string) *providertree.Tree {
		tree := &providertree.Tree{}
		if tree.AddRoot(uuid, name) != nil {
			return nil
		}
		if _, err := tree.SetTraits(uuid, traits); err != nil {
			return nil
		}
		return tree
	}
	known, desired := with(before), with(after)
	if known == nil || desired == nil { // it came from a tree, so this does not happen
		return after
	}
	p, _ := realist.Storable(known, desired).Provider(uuid)
	return p.Traits
}
