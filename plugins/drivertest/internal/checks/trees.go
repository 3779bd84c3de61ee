// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// baseline is what the driver reports for a new node. Most checks start from it.
type baseline struct {
	nodes []plugins.Node
	node  string // the first one's name
	root  string // its uuid
	bare  *providertree.Tree
	reply *driverv1.UpdateProviderTreeResponse // to bare
	own   *providertree.Tree                   // reply as a tree
	// stored is own as Placement would have it: every provider with a generation.
	stored *providertree.Tree
}

// base returns the baseline, for which it calls the driver once. Without one a check does not
// apply: nodes/some and tree/answers report that.
func (b *Bench) base(ctx context.Context) (*baseline, *proc, error) {
	p, err := b.shared(ctx)
	if err != nil {
		return nil, nil, err
	}
	if b.baseline == nil && b.baseErr == nil {
		b.baseline, b.baseErr = p.baseline(ctx)
	}
	return b.baseline, p, b.baseErr
}

func (p *proc) baseline(ctx context.Context) (*baseline, error) {
	nodes, err := p.nodes(ctx)
	if err != nil || len(nodes) == 0 || nodes[0].Name == "" {
		return nil, notRun("the driver lists no node; see nodes/some")
	}
	base := &baseline{nodes: nodes, node: nodes[0].Name, root: rootOf(nodes[0])}
	if base.bare, err = trial.BareTree(base.root, base.node); err != nil {
		return nil, notRun("the driver's first node is invalid: %v; see nodes/names and nodes/uuids", err)
	}
	if base.reply, err = p.update(ctx, base.bare, base.node, nil); err != nil {
		return nil, notRun("the driver makes no tree for a new node; see tree/answers")
	}
	if base.own, err = protocol.ToTree(base.reply.GetTree()); err != nil {
		return base, notRun("the driver's tree is invalid; see tree/well-formed")
	}
	base.stored = trial.Stored(base.own)
	return base, nil
}

// rootOf returns the uuid of a node's root provider.
func rootOf(n plugins.Node) string {
	if id, err := providertree.CanonicalUUID(n.UUID); err == nil {
		return id
	}
	return trial.Node
}

// differences describes how two trees differ, a line each.
func differences(before, after *providertree.Tree) []string {
	return providertree.Diff(before, after).Lines()
}

// external is a node's tree with what another client wrote into it and beside it.
type external struct {
	tree      *providertree.Tree
	child     string // provider below the root
	nested    string // provider below one of the driver's, "" if it has none
	sharing   string // root beside the node's
	aggregate string
}

const (
	externalClass = "CUSTOM_EXTERNAL"
	externalTrait = "CUSTOM_EXTERNAL_TRAIT"
	externalName  = ":external" // after the node's
)

// withExternal adds external providers, inventory, traits and aggregates to a copy of a tree.
func (base *baseline) withExternal(tree *providertree.Tree) (external, error) {
	s := external{tree: tree.Clone(), child: uuid.NewString(), sharing: uuid.NewString(), aggregate: uuid.NewString()}
	e := &editor{tree: s.tree}
	e.child(base.root, s.child, base.node+externalName)
	e.inventory(s.child, externalClass, 100)
	e.traits(s.child, externalTrait)
	if kids := slices.DeleteFunc(tree.Subtree(base.root),
		func(id string) bool { return id == base.root }); len(kids) > 0 {
		s.nested = uuid.NewString()
		e.child(kids[len(kids)-1], s.nested, base.node+externalName+"-nested")
		e.inventory(s.nested, externalClass, 50)
	}
	e.inventory(base.root, externalClass, 7)
	e.traits(base.root, externalTrait)
	e.aggregates(base.root, s.aggregate)
	e.root(s.sharing, "external-storage")
	e.inventory(s.sharing, "DISK_GB", 1_000_000)
	e.traits(s.sharing, providertree.TraitSharesViaAggregate)
	e.aggregates(s.sharing, s.aggregate)
	s.tree = trial.Stored(s.tree)
	return s, e.err
}

// editor edits a tree and keeps the first error.
type editor struct {
	tree *providertree.Tree
	err  error
}

func (e *editor) setError(err error) {
	if e.err == nil && err != nil {
		e.err = fmt.Errorf("preparing a tree: %w", err)
	}
}
func (e *editor) root(id, name string)          { e.setError(e.tree.AddRoot(id, name)) }
func (e *editor) child(parent, id, name string) { e.setError(e.tree.AddChild(parent, id, name)) }
func (e *editor) traits(id string, t ...string) {
	_, err := e.tree.AddTraits(id, t...)
	e.setError(err)
}
func (e *editor) aggregates(id string, a string) {
	_, err := e.tree.AddAggregates(id, a)
	e.setError(err)
}
func (e *editor) inventory(id, class string, total int64) {
	_, err := e.tree.SetInventory(id, class, providertree.Inventory{Total: total})
	e.setError(err)
}

// adopted returns a tree of the same providers with other uuids, as if another client had created
// them.
func (base *baseline) adopted() (*providertree.Tree, error) {
	ids := map[string]string{"": "", base.root: base.root}
	var all []providertree.Provider
	for p := range base.stored.All() {
		if _, ok := ids[p.UUID]; !ok {
			ids[p.UUID] = uuid.NewString()
		}
		p.UUID, p.ParentUUID = ids[p.UUID], ids[p.ParentUUID]
		all = append(all, p)
	}
	tree := &providertree.Tree{}
	return tree, tree.Populate(all)
}

// flat returns the driver's tree with the inventory of all its providers on the root, as an earlier
// layout may have been; nil if it is flat already.
func (base *baseline) flat() (*providertree.Tree, error) {
	sum := providertree.Inventories{}
	root, _ := base.own.Provider(base.root)
	moved := false
	for _, id := range base.own.Subtree(base.root) {
		p, _ := base.own.Provider(id)
		for class, inv := range p.Inventories {
			sum[class] = merge(sum[class], inv)
			moved = moved || id != base.root
		}
	}
	if !moved {
		return nil, nil
	}
	root.Inventories, root.Generation = sum, 9
	tree := &providertree.Tree{}
	return tree, tree.Populate([]providertree.Provider{root})
}

// merge returns the inventories of two providers as one; the zero Inventory counts as none.
func merge(a, b providertree.Inventory) providertree.Inventory {
	if a.Total == 0 {
		return b
	}
	a.Total, a.Reserved = min(a.Total+b.Total, providertree.MaxUnit), min(a.Reserved+b.Reserved, providertree.MaxUnit)
	a.MaxUnit, a.MinUnit, a.StepSize = max(a.MaxUnit, b.MaxUnit), max(a.MinUnit, b.MinUnit), max(a.StepSize, b.StepSize)
	return a
}

func quoted(list []string) string { return `"` + strings.Join(list, `", "`) + `"` }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
