// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/providertree"
)

// ErrGiveBack says that a node cannot be given back as it is.
var ErrGiveBack = errors.New("the node cannot be given back")

// Adopted is the tree of an adopted node as it was before this agent first wrote to it, and a list
// of what the agent has changed of it since. [GiveBack] restores what is on that list and nothing
// else, so that changes of other programs stay.
type Adopted struct {
	// Root is the uuid of the node.
	Root string
	// Providers are all providers of the tree, parents first. Their generations are not kept.
	Providers []providertree.Provider
	// Changed is what the agent changed or removed, sorted.
	Changed []AdoptedItem
}

// AdoptedItem is one thing that an adopted tree had.
type AdoptedItem struct {
	// Provider is the uuid of the resource provider.
	Provider string `json:"provider"`
	Kind     Kind   `json:"kind"`
	// Symbol is the resource class, trait or aggregate; "" for the provider's name and parent.
	Symbol string `json:"symbol,omitempty"`
}

// NewAdopted returns the snapshot of a tree.
func NewAdopted(known *providertree.Tree, root string) *Adopted {
	out := &Adopted{Root: root}
	for p := range known.All() {
		p.Generation, p.Resources = providertree.NoGeneration, nil
		out.Providers = append(out.Providers, p)
	}
	return out
}

// WithChanges returns the snapshot with those of its items added to Changed that differ between
// known and desired; a itself if there are none.
//
// Cost: O(size of the trees).
func (a *Adopted) WithChanges(known, desired *providertree.Tree) *Adopted {
	out := *a
	out.Changed = slices.Clone(a.Changed)
	for _, was := range a.Providers {
		now, there := known.Provider(was.UUID)
		if !there {
			continue
		}
		next, stays := desired.Provider(was.UUID)
		add := func(kind Kind, symbol string) {
			out.Changed = append(out.Changed, AdoptedItem{Provider: was.UUID, Kind: kind, Symbol: symbol})
		}
		if !stays || next.Name != now.Name || next.ParentUUID != now.ParentUUID {
			add(KindProvider, "")
		}
		for class := range was.Inventories {
			inv, has := now.Inventories[class]
			to, keeps := next.Inventories[class]
			if has && (!keeps || !inv.Equal(to)) {
				add(KindInventory, class)
			}
		}
		for _, trait := range was.Traits {
			if now.HasTrait(trait) && !next.HasTrait(trait) {
				add(KindTrait, trait)
			}
		}
		for _, aggregate := range was.Aggregates {
			if slices.Contains(now.Aggregates, aggregate) && !slices.Contains(next.Aggregates, aggregate) {
				add(KindAggregate, aggregate)
			}
		}
	}
	slices.SortFunc(out.Changed, func(a, b AdoptedItem) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Symbol, b.Symbol))
	})
	out.Changed = slices.Compact(out.Changed)
	if len(out.Changed) == len(a.Changed) {
		return a
	}
	return &out
}

// Rename changes the names in the snapshot after the host was renamed: those of the root, and of
// the providers that are named after it.
func (a *Adopted) Rename(from, to string) {
	for i, p := range a.Providers {
		if rest, below := strings.CutPrefix(p.Name, from+"_"); below {
			a.Providers[i].Name = to + "_" + rest
		}
		if p.UUID == a.Root {
			a.Providers[i].Name = to
		}
	}
}

func (a *Adopted) provider(uuid string) (providertree.Provider, bool) {
	i := slices.IndexFunc(a.Providers, func(p providertree.Provider) bool { return p.UUID == uuid })
	if i < 0 {
		return providertree.Provider{}, false
	}
	return a.Providers[i], true
}

// GiveBack returns the tree that Placement had before the agent adopted the node. It removes what
// is the agent's by the record and was not there before, and restores what the agent changed or
// removed. Everything else stays as it is.
//
// The snapshot is nil for a node that an earlier version adopted. Then it removes what is certainly
// the agent's: the providers that it created, and traits that no other program writes. Unknown
// lists, for messages, what stays because it may have been there before.
//
// Errors: [ErrGiveBack] if the result is not a valid tree. Cost: O(size of the tree, the record and
// the snapshot).
func GiveBack(
	known *providertree.Tree, record *Record, a *Adopted, isAgents func(trait string) bool,
) (tree *providertree.Tree, unknown []string, err error) {
	g := giveBack{tree: known.Clone(), record: record, adopted: a}
	if a == nil {
		unknown = g.withoutSnapshot(isAgents)
	} else {
		g.restoreProviders()
		g.takeOff()
		g.restoreItems()
	}
	if err := errors.Join(g.errs...); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrGiveBack, err)
	}
	return g.tree, unknown, nil
}

type giveBack struct {
	tree    *providertree.Tree
	record  *Record
	adopted *Adopted
	errs    []error
}

func (g *giveBack) addError(err error) {
	if err != nil {
		g.errs = append(g.errs, err)
	}
}

// restoreProviders puts providers back to their places. Parents come first.
func (g *giveBack) restoreProviders() {
	for _, was := range g.adopted.Providers {
		if !slices.Contains(g.adopted.Changed, AdoptedItem{Provider: was.UUID, Kind: KindProvider}) {
			continue
		}
		switch {
		case !g.tree.Exists(was.UUID) && was.ParentUUID == "":
			g.addError(fmt.Errorf("the root %s was removed", was.UUID))
		case !g.tree.Exists(was.UUID):
			g.addError(g.tree.AddChild(was.ParentUUID, was.UUID, was.Name))
		default:
			_, err := g.tree.Rename(was.UUID, was.Name)
			g.addError(err)
			if was.ParentUUID != "" {
				_, err = g.tree.Move(was.UUID, was.ParentUUID)
				g.addError(err)
			}
		}
	}
}

// takeOff removes what is the agent's and was not there. A provider of the agent's that has one of
// others below it is an error.
func (g *giveBack) takeOff() {
	for _, uuid := range sortedKeys(g.record.Providers) {
		if !g.tree.Exists(uuid) {
			continue
		}
		ours := g.record.Providers[uuid]
		was, _ := g.adopted.provider(uuid)
		for class := range ours.Inventories {
			if _, had := was.Inventories[class]; !had {
				_, err := g.tree.RemoveInventory(uuid, class)
				g.addError(err)
			}
		}
		_, err := g.tree.RemoveTraits(uuid, missing(ours.Traits, was.Traits)...)
		g.addError(err)
		_, err = g.tree.RemoveAggregates(uuid, missing(ours.Aggregates, was.Aggregates)...)
		g.addError(err)
	}
	g.removeProviders(func(uuid string) bool { _, was := g.adopted.provider(uuid); return !was })
}

// removeProviders removes the providers that the driver made and that are to go, children first.
func (g *giveBack) removeProviders(isRemoved func(uuid string) bool) {
	for _, uuid := range slices.Backward(g.tree.Subtree(g.record.Root)) {
		if uuid == g.record.Root || g.record.provider(uuid).Owner == "" || !isRemoved(uuid) {
			continue
		}
		if below := g.tree.Children(uuid); len(below) > 0 {
			p, _ := g.tree.Provider(uuid)
			other, _ := g.tree.Provider(below[0])
			g.addError(fmt.Errorf(
				"resource provider %s (%s) is this agent's, but its child %s (%s) is not: move or delete the "+
					"child first",
				p.Name, uuid, other.Name, other.UUID))
			continue
		}
		_, err := g.tree.Remove(uuid)
		g.addError(err)
	}
}

// missing are the items of ours that a provider did not have, sorted.
func missing(ours map[string]Owner, was []string) []string {
	return slices.DeleteFunc(sortedKeys(ours), func(item string) bool { return slices.Contains(was, item) })
}

// restoreItems brings back what the agent changed or removed.
func (g *giveBack) restoreItems() {
	for _, item := range g.adopted.Changed {
		was, _ := g.adopted.provider(item.Provider)
		if !g.tree.Exists(item.Provider) {
			continue // another program has removed the provider since
		}
		var err error
		switch item.Kind {
		case KindProvider: // done
		case KindInventory:
			_, err = g.tree.SetInventory(item.Provider, item.Symbol, was.Inventories[item.Symbol])
		case KindTrait:
			_, err = g.tree.AddTraits(item.Provider, item.Symbol)
		case KindAggregate:
			_, err = g.tree.AddAggregates(item.Provider, item.Symbol)
		}
		g.addError(err)
	}
}

// withoutSnapshot removes what is certainly the agent's, and says what it cannot know.
func (g *giveBack) withoutSnapshot(isAgents func(trait string) bool) (unknown []string) {
	// Nova gives its providers random uuids, drivers of this agent those of
	// [providertree.ChildUUID], which are of version 5.
	g.removeProviders(func(uuid string) bool { return uuid[14] == '5' })
	for _, uuid := range sortedKeys(g.record.Providers) {
		p, there := g.tree.Provider(uuid)
		if !there {
			continue
		}
		ours := g.record.Providers[uuid]
		var certain, open []string
		for _, trait := range sortedKeys(ours.Traits) {
			switch {
			case !p.HasTrait(trait):
			case isAgents(trait):
				certain = append(certain, trait)
			default:
				open = append(open, trait)
			}
		}
		_, err := g.tree.RemoveTraits(uuid, certain...)
		g.addError(err)
		if len(open) > 0 {
			unknown = append(unknown, fmt.Sprintf("the traits %s of resource provider %s (%s)",
				strings.Join(open, ", "), p.Name, uuid))
		}
		if classes := sortedKeys(ours.Inventories); len(classes) > 0 {
			unknown = append(unknown, fmt.Sprintf("the inventories of %s of resource provider %s (%s)",
				strings.Join(classes, ", "), p.Name, uuid))
		}
	}
	return unknown
}

// fileAdopted is the file: JSON, with the names of [fileRecord].
type fileAdopted struct {
	Version   int            `json:"version"`
	Root      string         `json:"root"`
	Providers []fileSnapshot `json:"providers"`
	Changed   []AdoptedItem  `json:"changed,omitempty"`
}

type fileSnapshot struct {
	UUID        string                   `json:"uuid"`
	Name        string                   `json:"name"`
	Parent      string                   `json:"parent_provider_uuid,omitempty"`
	Inventories providertree.Inventories `json:"inventories,omitempty"`
	Traits      []string                 `json:"traits,omitempty"`
	Aggregates  []string                 `json:"aggregates,omitempty"`
}

const adoptedVersion = 1

// adoptedSuffix ends the name of a snapshot's file, which is beside that of the record.
const adoptedSuffix = ".adopted"

func (a *Adopted) encode() ([]byte, error) {
	f := fileAdopted{Version: adoptedVersion, Root: a.Root, Changed: a.Changed}
	for _, p := range a.Providers {
		fp := fileSnapshot{UUID: p.UUID, Name: p.Name, Parent: p.ParentUUID, Inventories: p.Inventories,
			Traits: p.Traits, Aggregates: p.Aggregates}
		f.Providers = append(f.Providers, fp)
	}
	content, err := json.MarshalIndent(f, "", "  ")
	return append(content, '\n'), err
}

func decodeAdopted(root string, content []byte) (*Adopted, error) {
	var f fileAdopted
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case f.Version > adoptedVersion:
		return nil, fmt.Errorf("%w: it has format version %d, but this agent knows versions up to %d",
			ErrNewer, f.Version, adoptedVersion)
	case f.Version < 1 || f.Root != root:
		return nil, fmt.Errorf("%w: it belongs to node %s", ErrDamaged, textutil.Clip(f.Root, maxShown))
	}
	a := &Adopted{Root: f.Root, Changed: f.Changed}
	for _, fp := range f.Providers {
		p := providertree.Provider{
			UUID: fp.UUID, Name: fp.Name, ParentUUID: fp.Parent, Generation: providertree.NoGeneration,
			Inventories: fp.Inventories, Traits: fp.Traits, Aggregates: fp.Aggregates,
		}
		a.Providers = append(a.Providers, p)
	}
	if err := (&providertree.Tree{}).Populate(a.Providers); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return a, nil
}

// AdoptedPath is where the snapshot of an adopted node is, or would be.
func (s *Store) AdoptedPath(root string) string {
	return filepath.Join(s.dir, root+adoptedSuffix+suffix)
}

// LoadAdopted returns the snapshot of a node; nil and no error, if there is none.
//
// Errors: [ErrDamaged], [ErrNewer], and whatever keeps the file from being read.
func (s *Store) LoadAdopted(root string) (*Adopted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkRoot(root); err != nil {
		return nil, err
	}
	path := s.AdoptedPath(root)
	content, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var a *Adopted
	if err == nil {
		a, err = decodeAdopted(root, content)
	}
	if err != nil {
		return nil, fmt.Errorf(
			"reading what node %s was before this agent adopted it: %s: %w; restore the file from a backup, or move "+
				"it away: then the agent cannot restore the node exactly", root, path, err)
	}
	return a, nil
}

// SaveAdopted puts a snapshot on disk, durably, in place of the one before.
func (s *Store) SaveAdopted(a *Adopted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkRoot(a.Root); err != nil {
		return err
	}
	content, err := a.encode()
	if err == nil {
		err = s.replace(s.AdoptedPath(a.Root), content)
	}
	if err != nil {
		return fmt.Errorf("saving what node %s was before this agent adopted it: %w", a.Root, err)
	}
	return nil
}
