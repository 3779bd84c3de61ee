// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// ErrMerge says that a driver's answer cannot be merged: it is not about this node, or cannot be
// combined with what must stay.
var ErrMerge = errors.New("the driver's provider tree cannot be merged with the tree in Placement")

// Merge computes the tree that Placement should have for a node, by the rules of the package. It is
// pure, deterministic and idempotent: merging its own result and record with the same answer and
// layers changes nothing.
//
// Errors: [ErrMerge], and those of [providertree.Tree] for values in a layer that Placement would
// refuse.
//
// Cost: O(size of the trees, the record and the layers), no I/O; see BenchmarkMerge.
func Merge(in Input) (Result, error) {
	if err := in.check(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrMerge, err)
	}
	if in.Base == nil {
		in.Base = Strip(in.Known, in.Record)
	}
	m := newMerger(in)
	m.takeAnswer()
	if err := m.placeProviders(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrMerge, err)
	}
	for _, layer := range in.Layers {
		m.applyLayer(layer)
	}
	tree, err := m.tree()
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrMerge, err)
	}
	m.sort()
	return Result{Tree: tree, Record: m.record(tree), Former: m.former(), Kept: m.kept, Conflicts: m.conflicts}, nil
}

func (in Input) check() error {
	switch {
	case in.Known == nil || in.Answer == nil:
		return errors.New("one of the trees is missing")
	case !in.Answer.Exists(in.Root):
		return fmt.Errorf("the root %s (%s) is missing", in.Node, in.Root)
	case in.Record != nil && in.Record.Root != in.Root:
		return fmt.Errorf("the record belongs to another node, %s", in.Record.Root)
	}
	return nil
}

// merger is one merge under way.
type merger struct {
	in           Input
	base, answer map[string]providertree.Provider
	baseOrder    []string
	answerOrder  []string
	// inNode are the providers that were in the tree of the node, and not beside it.
	inNode map[string]bool
	// named are the providers that the operator speaks of.
	named map[string]bool
	// gained are the classes that the driver has put somewhere, see movesClass; come are the
	// traits, see movesTrait.
	gained, come map[string]bool

	entries map[string]*entry
	order   []string
	// traits of another client's that go, by the provider that loses them
	moved     map[string][]string
	kept      []Kept
	conflicts []Conflict
}

// entry is one provider of the result, and whose it and the items on it are.
type entry struct {
	providertree.Provider
	ours
	edited bool // its items are not as the driver answered
}

func newMerger(in Input) *merger {
	m := &merger{
		in: in, base: make(map[string]providertree.Provider, in.Base.Len()),
		answer: make(map[string]providertree.Provider, in.Answer.Len()),
		inNode: map[string]bool{}, named: map[string]bool{}, entries: make(map[string]*entry, in.Answer.Len()),
		moved: map[string][]string{},
	}
	for p := range in.Base.All() {
		m.base[p.UUID] = p
		m.baseOrder = append(m.baseOrder, p.UUID)
		if p.UUID == in.Root || m.inNode[p.ParentUUID] { // parents come first
			m.inNode[p.UUID] = true
		}
	}
	for p := range in.Answer.All() {
		m.answer[p.UUID] = p
		m.answerOrder = append(m.answerOrder, p.UUID)
	}
	for _, layer := range in.Layers {
		for uuid := range layer.Providers {
			if layer.Owner == Operator {
				m.named[uuid] = true
			}
		}
	}
	m.gained, m.come = m.gains()
	return m
}

// takeAnswer decides of each provider on its own.
func (m *merger) takeAnswer() {
	for _, uuid := range m.baseOrder {
		was := m.base[uuid]
		now, stays := m.answer[uuid]
		switch {
		case stays:
			m.put(m.mergedProvider(was, now))
		case !m.ownedByDriver(was):
			m.addKept(was, KindProvider, "", "removed")
			m.put(m.remainder(was))
		}
	}
	for _, uuid := range m.answerOrder {
		if _, known := m.base[uuid]; !known {
			m.put(m.createdProvider(m.answer[uuid]))
		}
	}
}

func (m *merger) put(e *entry) {
	m.entries[e.UUID] = e
	m.order = append(m.order, e.UUID)
}

// ownedByDriver reports whether a provider is the driver's, so that it may remove, rename and move
// it: by the record, or by a mark of Nova's, whose place the driver has taken.
func (m *merger) ownedByDriver(was providertree.Provider) bool {
	return was.UUID == m.in.Root || m.in.Record.provider(was.UUID).Owner != "" || m.marked(was)
}

func (m *merger) addKept(was providertree.Provider, kind Kind, symbol, change string) {
	m.kept = append(m.kept, Kept{Provider: was.UUID, Name: was.Name, Kind: kind, Symbol: symbol, Change: change})
}

// placeProviders puts the providers into one tree.
func (m *merger) placeProviders() error {
	s := newResolver(len(m.entries), func(uuid string) (string, string, bool) {
		p, found := m.base[uuid]
		return p.Name, p.ParentUUID, found
	})
	for _, uuid := range m.order {
		s.add(uuid, m.entries[uuid].Name, m.entries[uuid].ParentUUID)
	}
	s.resolve()
	for _, uuid := range s.back {
		m.put(m.remainder(m.base[uuid]))
	}
	for _, w := range s.waiting {
		problem := "its parent provider is ignored too"
		if w.holder != "" {
			problem = "its name is that of " + w.holder + ", which the driver does not own"
		}
		m.conflicts = append(m.conflicts,
			Conflict{Owner: Driver, Provider: w.uuid, Name: w.name, Kind: KindProvider, Problem: problem})
		delete(m.entries, w.uuid)
	}
	for _, r := range s.renamed {
		m.conflicts = append(m.conflicts,
			Conflict{Owner: Driver, Provider: r.uuid, Name: m.base[r.uuid].Name, Kind: KindProvider,
				Problem: "the new name " + r.name + " is that of " + r.holder + ", which the driver does not own"})
	}
	for _, u := range s.unmoved {
		m.conflicts = append(m.conflicts,
			Conflict{Owner: Driver, Provider: u.uuid, Name: m.base[u.uuid].Name, Kind: KindProvider,
				Problem: "it cannot be moved without a cycle or a change in another tree"})
	}
	if m.in.Reshape && len(s.waiting) > 0 {
		return errors.New("allocations may be moved to a provider that cannot be created: " + m.conflicts[0].String())
	}
	for uuid, e := range m.entries {
		e.Name, e.ParentUUID = s.places[uuid].name, s.places[uuid].parent
	}
	return nil
}

// tree builds the result. Where only the driver has placed providers, it is its answer with the
// items corrected, so that what is untouched stays shared; else it is built again.
func (m *merger) tree() (*providertree.Tree, error) {
	same := len(m.entries) == len(m.answer)
	for uuid, e := range m.entries {
		a, found := m.answer[uuid]
		same = same && found && a.Name == e.Name && a.ParentUUID == e.ParentUUID && a.Generation == e.Generation
	}
	if same {
		return m.edited()
	}
	all := make([]providertree.Provider, 0, len(m.entries))
	for _, uuid := range m.order {
		if e := m.entries[uuid]; e != nil {
			all = append(all, e.Provider)
		}
	}
	tree := &providertree.Tree{}
	return tree, tree.Populate(all)
}

func (m *merger) edited() (*providertree.Tree, error) {
	tree := m.in.Answer.Clone()
	var errs []error
	for _, uuid := range m.order {
		e := m.entries[uuid]
		if !e.edited {
			continue
		}
		_, inventories := tree.SetInventories(uuid, e.Inventories)
		_, traits := tree.SetTraits(uuid, e.Traits)
		_, aggregates := tree.SetAggregates(uuid, e.Aggregates)
		errs = append(errs, inventories, traits, aggregates)
	}
	return tree, errors.Join(errs...)
}

// record is exact: it says what is ours of what is in the tree, with the values that it has there.
func (m *merger) record(tree *providertree.Tree) *Record {
	r := &Record{Root: m.in.Root, Node: m.in.Node, Driver: m.in.Driver, Created: m.in.Created,
		Providers: make(map[string]Provider, len(m.entries))}
	if m.in.Record != nil {
		r.Created = r.Created || m.in.Record.Created
		r.Layout = m.in.Record.Layout
	}
	for p := range tree.All() {
		r.setProvider(p, m.entries[p.UUID].ours)
	}
	return r
}

// former is the last record, with the traits that move as the driver's.
func (m *merger) former() *Record {
	if len(m.moved) == 0 {
		return m.in.Record
	}
	out := m.in.Record.Clone()
	if out == nil {
		out = &Record{Root: m.in.Root, Node: m.in.Node, Driver: m.in.Driver, Providers: map[string]Provider{}}
	}
	for uuid, traits := range m.moved {
		out.claim(m.in.Known, Driver, uuid, traits)
	}
	return out
}

// sort brings the lists for messages into an order that does not depend on that of maps, without
// duplicates.
func (m *merger) sort() {
	slices.SortFunc(m.kept, func(a, b Kept) int {
		return cmp.Or(
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Provider, b.Provider),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Symbol, b.Symbol),
			cmp.Compare(a.Change, b.Change),
		)
	})
	slices.SortFunc(m.conflicts, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Symbol, b.Symbol), cmp.Compare(a.Problem, b.Problem))
	})
	m.kept, m.conflicts = slices.Compact(m.kept), slices.Compact(m.conflicts)
}
