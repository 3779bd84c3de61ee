// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// giveBack is one node that is given back to the agent that reported it before.
type giveBack struct {
	record *ownership.Record
	plan   reportclient.Plan
}

// maxHeldNamed bounds how many consumers a refusal names, as maxNamed of package access does for
// servers.
const maxHeldNamed = 10

// planGiveBack works out what giving the node back takes. It writes nothing.
func (ad *adopter) planGiveBack(ctx context.Context) (err error) {
	ad.plan = control.Adoption{Node: ad.opts.Node, Providers: []control.AdoptedProvider{}, Steps: []string{}}
	record, err := ad.recordOfNode()
	if err != nil || record == nil {
		return err // without a record there is nothing (left) to give back
	}
	ad.root, ad.plan.UUID = record.Root, record.Root
	if record.Created {
		return &identity.Error{
			Problem: fmt.Sprintf(
				"the resource provider of node %s (%s) was created by this agent: there is nothing to give back",
				record.Node, record.Root),
			Hint: "delete it when no guest has allocations on it any more: openstack resource provider delete " +
				record.Root,
		}
	}
	adopted, err := ad.records.LoadAdopted(record.Root)
	if err != nil {
		return err
	}
	if ad.tree, err = ad.placement.Tree(ctx, record.Root, record.Node); err != nil {
		return err
	}
	if root, _ := ad.tree.Provider(record.Root); root.Generation == providertree.NoGeneration {
		return &identity.Error{
			Problem: fmt.Sprintf("Placement has no resource provider %s (%s)", record.Node, record.Root),
			Hint:    "check [placement_client] url and region",
		}
	}
	desired, unknown, err := ownership.GiveBack(ad.tree, record, adopted, reshape.IsLayoutTrait)
	if errors.Is(err, ownership.ErrGiveBack) {
		return &identity.Error{Problem: err.Error(), Hint: "nothing was written; run the command again afterwards"}
	}
	if err != nil {
		return err
	}
	if err := ad.checkUnused(ctx, desired); err != nil {
		return err
	}
	if err := ad.addCurrent(ctx); err != nil {
		return err
	}
	ad.giving = &giveBack{record: record, plan: ad.placement.Plan(ad.tree, desired)}
	for _, op := range ad.giving.plan.Operations {
		ad.plan.Steps = append(ad.plan.Steps, op.String())
	}
	ad.plan.Steps = append(ad.plan.Steps, "forget what this agent owned of the node ("+ad.records.Path(record.Root)+")")
	ad.plan.Unknown = unknown
	return nil
}

// recordOfNode returns the record of the node, nil if there is none.
func (ad *adopter) recordOfNode() (*ownership.Record, error) {
	records, err := ad.records.List()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range records {
		if r.Node == ad.opts.Node {
			return r, nil
		}
		names = append(names, r.Node)
	}
	if len(names) > 0 {
		return nil, &identity.Error{
			Problem: fmt.Sprintf("this agent has no record of a node %q", ad.opts.Node),
			Hint:    fmt.Sprintf("name one of those that it has, with --node: %s", strings.Join(names, ", ")),
		}
	}
	return nil, nil
}

// checkUnused refuses to remove what is allocated: a reshape has moved it there.
func (ad *adopter) checkUnused(ctx context.Context, desired *providertree.Tree) error {
	history, err := journal.Read(ad.cfg.Agent.StateDir)
	if err != nil {
		return err
	}
	hint := "give the driver the configuration that it had when the node was adopted, and start the agent once: " +
		"it moves the allocations back"
	for _, e := range history {
		if e.Root != ad.root || e.Err != nil {
			continue
		}
		if e.Open() {
			return &identity.Error{
				Problem: fmt.Sprintf("the outcome of reshape %d of node %s is not known", e.ID, ad.opts.Node),
				Hint:    "start the agent once: its first pass finds out",
			}
		}
		undone := slices.ContainsFunc(history, func(o journal.Entry) bool {
			return o.Undoes == e.ID && o.Outcome == reportclient.ReshapeHappened
		})
		if e.Outcome == reportclient.ReshapeHappened && e.Undoes == 0 && !undone {
			hint = fmt.Sprintf(
				"reshape %d has moved allocations. Take it back with `compute-agent reshape "+
					"undo %d`; if that is refused, give the driver the configuration that it had "+
					"before, and start the agent once: it moves the allocations back", e.ID, e.ID)
		}
	}
	var held []string
	for p := range ad.tree.All() {
		var goes []string
		for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
			if _, stays := desired.Inventory(p.UUID, class); !stays {
				goes = append(goes, class)
			}
		}
		if len(goes) == 0 {
			continue
		}
		consumers, err := ad.placement.ConsumersOf(ctx, p.UUID)
		if err != nil {
			return err
		}
		for _, consumer := range slices.Sorted(maps.Keys(consumers)) {
			for _, class := range goes {
				if n := consumers[consumer][class]; n > 0 {
					held = append(held, fmt.Sprintf("%d %s of %s by %s", n, class, p.Name, consumer))
				}
			}
		}
	}
	if len(held) == 0 {
		return nil
	}
	more := ""
	if n := len(held) - maxHeldNamed; n > 0 {
		held, more = held[:maxHeldNamed], fmt.Sprintf(" and %d more", n)
	}
	return &identity.Error{Problem: "what would be removed is allocated: " +
		strings.Join(held, ", ") + more, Hint: hint}
}

// doGiveBack writes. After a failure the same command goes on.
func (ad *adopter) doGiveBack(ctx context.Context) error {
	if err := ad.placement.Apply(ctx, ad.root, ad.giving.plan); err != nil {
		return fmt.Errorf("giving node %s back: %w; run the same command again", ad.opts.Node, err)
	}
	return ad.records.Remove(ad.root)
}
