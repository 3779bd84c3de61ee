// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
)

// Forest is a number of providers, parents before their children.
type Forest []Provider

// Provider is one provider of a Forest.
type Provider struct {
	Name string
	// Parent is the name of the parent, "" for a root.
	Parent             string
	Inventories        []Inventory
	Traits, Aggregates []string
}

// Inventory is what a provider has of a class. Zero values are Placement's defaults: units and
// steps of 1, a ratio of 1, and max_unit as large as can be.
type Inventory struct {
	Class                      string
	Total, Reserved            int64
	MinUnit, MaxUnit, StepSize int64
	Ratio                      float64
	// Used is what a consumer holds. It may be more than there is.
	Used int64
}

// unbounded is what Placement takes for a max_unit that is not given.
const unbounded = 1<<31 - 1

// Row is the inventory as the ledger takes it.
func (i Inventory) Row() ledger.Inventory {
	row := ledger.Inventory{
		Class: i.Class, Total: i.Total, Reserved: i.Reserved,
		MinUnit: max(i.MinUnit, 1), MaxUnit: i.MaxUnit, StepSize: max(i.StepSize, 1), AllocationRatio: i.Ratio,
	}
	if row.MaxUnit == 0 {
		row.MaxUnit = unbounded
	}
	if row.AllocationRatio == 0 {
		row.AllocationRatio = 1
	}
	return row
}

// UUID of a provider, an aggregate or a consumer with the name. It holds the bytes of the name, so
// that names of up to 16 bytes have different ones.
func UUID(name string) string {
	hex := fmt.Sprintf("%-32x", name)
	hex = strings.ReplaceAll(hex, " ", "0")
	return fmt.Sprintf("%s-%s-%s-%s-%s", hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:32])
}

// UUIDs of the names.
func UUIDs(names []string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = UUID(name)
	}
	return list
}

// String draws the forest, for failures of tests.
func (f Forest) String() string {
	var b strings.Builder
	depth := map[string]int{}
	var draw func(parent string)
	draw = func(parent string) {
		for _, p := range f {
			if p.Parent != parent {
				continue
			}
			fmt.Fprintf(&b, "%s%s", strings.Repeat("  ", depth[parent]), p.Name)
			for _, i := range p.Inventories {
				row := i.Row()
				fmt.Fprintf(
					&b,
					" %s:(%d-%d)*%g used %d units %d-%d step %d",
					row.Class,
					row.Total,
					row.Reserved,
					row.AllocationRatio,
					i.Used,
					row.MinUnit,
					row.MaxUnit,
					row.StepSize,
				)
			}
			if len(p.Traits) > 0 {
				fmt.Fprintf(&b, " traits %v", p.Traits)
			}
			if len(p.Aggregates) > 0 {
				fmt.Fprintf(&b, " aggregates %v", p.Aggregates)
			}
			b.WriteByte('\n')
			depth[p.Name] = depth[parent] + 1
			draw(p.Name)
		}
	}
	draw("")
	return b.String()
}

// Among is the forest and n roots that have nothing.
func (f Forest) Among(n int) Forest {
	all := slices.Clone(f)
	for i := range n {
		all = append(all, Provider{Name: fmt.Sprint("other", i)})
	}
	return all
}

// Copy is the forest again, with the suffix added to the names of its providers. Its aggregates are
// the same.
func (f Forest) Copy(suffix string) Forest {
	list := slices.Clone(f)
	for i := range list {
		list[i].Name += suffix
		if list[i].Parent != "" {
			list[i].Parent += suffix
		}
	}
	return list
}

// Shares says whether any provider is a sharing one.
func (f Forest) Shares() bool {
	return slices.ContainsFunc(f, func(p Provider) bool { return slices.Contains(p.Traits, sharingTrait) })
}

// ForestLedger is a ledger that holds one forest at a time.
type ForestLedger struct {
	ledger *transactor.Ledger
}

// NewForestLedger opens an empty ledger in memory.
func NewForestLedger(ctx context.Context) (*ForestLedger, error) {
	l, err := transactor.Open(ctx, new(MemoryStore), transactor.Options{})
	if err != nil {
		return nil, err
	}
	return &ForestLedger{l}, nil
}

// Close closes the ledger.
func (l *ForestLedger) Close() error { return l.ledger.Close() }

// Load replaces the contents of the ledger by the forest, with one write, and returns the snapshot
// that shows it.
func (l *ForestLedger) Load(ctx context.Context, f Forest) (*ledger.Snapshot, error) {
	return l.ledger.Update(ctx, func(tx *ledger.Tx) error {
		if err := empty(tx); err != nil {
			return err
		}
		for _, p := range f {
			if err := p.create(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// empty deletes all consumers and providers.
func empty(tx *ledger.Tx) error {
	var consumers []string
	for c := range tx.Consumers() {
		consumers = append(consumers, c.UUID)
	}
	for _, uuid := range consumers {
		if err := tx.DeleteAllocations(uuid); err != nil {
			return err
		}
	}
	var list []string
	for tree := range tx.Trees() {
		for _, p := range slices.Backward(tree.Providers()) {
			list = append(list, p.UUID)
		}
	}
	for _, uuid := range list {
		if err := tx.DeleteProvider(uuid); err != nil {
			return err
		}
	}
	return nil
}

// create creates the provider. What is used is allocated while there is enough of it, for a
// provider may have less than is used.
func (p Provider) create(tx *ledger.Tx) error {
	uuid, parent := UUID(p.Name), ""
	if p.Parent != "" {
		parent = UUID(p.Parent)
	}
	if _, err := tx.CreateProvider(ledger.NewProvider{UUID: uuid, Name: p.Name, Parent: parent}); err != nil {
		return err
	}
	for _, trait := range p.Traits {
		if !strings.HasPrefix(trait, providertree.CustomPrefix) {
			continue
		}
		if _, _, err := tx.CreateTrait(trait); err != nil {
			return err
		}
	}
	if _, err := tx.SetTraits(uuid, 0, p.Traits); err != nil {
		return err
	}
	if _, err := tx.SetAggregates(uuid, nil, UUIDs(p.Aggregates)); err != nil {
		return err
	}
	var rows, ample []ledger.Inventory
	used := map[string]int64{}
	for _, i := range p.Inventories {
		if strings.HasPrefix(i.Class, providertree.CustomPrefix) {
			if _, _, err := tx.CreateClass(i.Class); err != nil {
				return err
			}
		}
		rows = append(rows, i.Row())
		if i.Used > 0 {
			ample = append(ample, Inventory{Class: i.Class, Total: i.Used}.Row())
			used[i.Class] = i.Used
		}
	}
	if len(used) > 0 {
		if err := setInventories(tx, uuid, ample); err != nil {
			return err
		}
		if err := tx.ReplaceAllocations([]ledger.ConsumerAllocations{{
			Consumer: UUID("c" + p.Name), Project: "project", User: "user",
			Resources: providertree.ProviderResources{uuid: used},
		}}); err != nil {
			return err
		}
	}
	return setInventories(tx, uuid, rows)
}

func setInventories(tx *ledger.Tx, uuid string, rows []ledger.Inventory) error {
	p, _ := tx.Provider(uuid)
	_, err := tx.SetInventories(uuid, p.Generation, rows)
	return err
}
