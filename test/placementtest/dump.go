// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// Dump is all that a snapshot shows, in plain values.
type Dump struct {
	Providers map[string]ProviderDump
	Consumers map[string]ConsumerDump
	// Members, Traited and Offering are provider uuids, by aggregate, trait and class.
	Members, Traited, Offering map[string][]string
	Classes, Traits            []string // the custom ones, sorted
	Hosts                      map[string]HostDump
}

// HostDump is what a host may report in a Dump.
type HostDump struct {
	Since   time.Time
	Classes map[string]int64
	Traits  []string
}

// ProviderDump is a resource provider in a Dump.
type ProviderDump struct {
	Name, Parent, Root string
	Generation         int64
	Inventories        map[string]InventoryDump
	Traits, Aggregates []string
	Used               map[string]int64
	Consumers          []string // sorted
	Children           []string // sorted
}

// InventoryDump is an inventory in a Dump.
type InventoryDump struct {
	Total, Reserved, MinUnit, MaxUnit, StepSize int64
	Ratio                                       float64
}

// ConsumerDump is a consumer in a Dump.
type ConsumerDump struct {
	Generation          int64
	Project, User, Type string
	Allocations         providertree.ProviderResources
}

// DumpOf draws a snapshot, and checks on the way that its ways to the same
// thing agree; the error says where they do not.
func DumpOf(s *ledger.Snapshot) (Dump, error) {
	dump := Dump{
		Providers: map[string]ProviderDump{},
		Consumers: map[string]ConsumerDump{},
		Members:   map[string][]string{},
		Traited:   map[string][]string{},
		Offering:  map[string][]string{},
		Hosts:     map[string]HostDump{},
	}
	last := int64(0)
	for p := range s.Providers() {
		if p.ID <= last {
			return dump, fmt.Errorf("providers are not in order of creation at %s", p.UUID)
		}
		last = p.ID
		dumped, err := dumpProvider(s, p)
		if err != nil {
			return dump, err
		}
		dump.Providers[p.UUID] = dumped
	}
	for c := range s.Consumers() {
		again, ok := s.Consumer(c.UUID)
		if !ok || again != c {
			return dump, fmt.Errorf("consumer %s is not found by its uuid", c.UUID)
		}
		dumped := ConsumerDump{Generation: c.Generation, Project: c.Project, User: c.User, Type: c.Type,
			Allocations: providertree.ProviderResources{}}
		for _, a := range c.Allocations {
			if dumped.Allocations[a.Provider] == nil {
				dumped.Allocations[a.Provider] = map[string]int64{}
			}
			dumped.Allocations[a.Provider][a.Class] = a.Used
		}
		dump.Consumers[c.UUID] = dumped
	}
	for h := range s.Hosts() {
		if again, ok := s.Host(h.Name); !ok || again != h {
			return dump, fmt.Errorf("host %s is not found by its name", h.Name)
		}
		dump.Hosts[h.Name] = HostDump{h.Since, h.Classes, h.Traits}
	}
	if err := checkOwners(s); err != nil {
		return dump, err
	}
	if err := dumpIndexes(s, &dump); err != nil {
		return dump, err
	}
	return dump, checkTrees(s)
}

// checkOwners checks that each project has the consumers that say so, in
// order, and no others.
func checkOwners(s *ledger.Snapshot) error {
	want, got := map[string][]string{}, map[string][]string{}
	for c := range s.Consumers() {
		want[c.Project] = append(want[c.Project], c.UUID)
	}
	for project := range s.Projects() {
		for c := range s.ConsumersOf(project) {
			got[project] = append(got[project], c.UUID)
		}
	}
	if !maps.EqualFunc(want, got, slices.Equal[[]string]) {
		return fmt.Errorf("the consumers by project are %v, and the index has %v", want, got)
	}
	return nil
}

func dumpProvider(s *ledger.Snapshot, p *ledger.Provider) (ProviderDump, error) {
	byUUID, _ := s.Provider(p.UUID)
	byName, _ := s.ProviderByName(p.Name)
	if byUUID != p || byName != p {
		return ProviderDump{}, fmt.Errorf("provider %s is not found by its uuid and name", p.UUID)
	}
	dumped := ProviderDump{Name: p.Name, Parent: p.Parent, Root: p.Root, Generation: p.Generation,
		Traits: slices.Clone(p.Traits), Aggregates: slices.Clone(p.Aggregates),
		Inventories: map[string]InventoryDump{}, Used: map[string]int64{}}
	for _, i := range p.Inventories {
		dumped.Inventories[i.Class] = InventoryDump{i.Total, i.Reserved, i.MinUnit, i.MaxUnit,
			i.StepSize, i.AllocationRatio}
	}
	for _, c := range s.Classes() {
		if used := s.Used(p, c.Name); used != 0 {
			dumped.Used[c.Name] = used
		}
	}
	traitID := func(name string) int64 {
		t, _ := s.Trait(name)
		return t.ID
	}
	if byID := slices.SortedFunc(slices.Values(p.Traits),
		func(a, b string) int { return cmp.Compare(traitID(a), traitID(b)) }); !slices.Equal(byID, p.TraitsByID()) {
		return ProviderDump{}, fmt.Errorf("the traits of provider %s by ID are %q, not %q",
			p.UUID, byID, p.TraitsByID())
	}
	for _, c := range s.ConsumersOn(p.UUID) {
		dumped.Consumers = append(dumped.Consumers, c.UUID)
	}
	for _, c := range s.Children(p.UUID) {
		dumped.Children = append(dumped.Children, c.UUID)
	}
	slices.Sort(dumped.Consumers)
	slices.Sort(dumped.Children)
	return dumped, nil
}

func dumpIndexes(s *ledger.Snapshot, dump *Dump) error {
	aggregates := map[string]bool{}
	for p := range s.Providers() {
		for _, a := range p.Aggregates {
			aggregates[a] = true
		}
	}
	uuids := func(providers []*ledger.Provider) (out []string) {
		for _, p := range providers {
			out = append(out, p.UUID)
		}
		slices.Sort(out)
		return out
	}
	for a := range aggregates {
		dump.Members[a] = uuids(s.ProvidersInAggregate(a))
	}
	for _, t := range s.Traits() {
		if with := uuids(slices.Collect(s.WithTrait(t.Name).All())); len(with) > 0 {
			dump.Traited[t.Name] = with
		}
		if s.TraitInUse(t.Name) != (len(dump.Traited[t.Name]) > 0) {
			return fmt.Errorf("TraitInUse(%s) is wrong", t.Name)
		}
		if !t.Standard() {
			dump.Traits = append(dump.Traits, t.Name)
		}
	}
	slices.Sort(dump.Traits)
	for _, c := range s.Classes() {
		if with := uuids(slices.Collect(s.WithClass(c.Name).All())); len(with) > 0 {
			dump.Offering[c.Name] = with
		}
		if !c.Standard() {
			dump.Classes = append(dump.Classes, c.Name)
		}
	}
	slices.Sort(dump.Classes)
	return nil
}

// checkTrees checks that every provider is in the tree of its root, once,
// after its parent, and the same object as elsewhere.
func checkTrees(s *ledger.Snapshot) error {
	seen := map[string]bool{}
	for t := range s.Trees() {
		nodes := t.Providers()
		for i, p := range nodes {
			elsewhere, _ := s.Provider(p.UUID)
			switch {
			case elsewhere != p:
				return fmt.Errorf("provider %s in its tree is not the one found by uuid", p.UUID)
			case seen[p.UUID]:
				return fmt.Errorf("provider %s is in the forest twice", p.UUID)
			case p.Root != nodes[0].UUID:
				return fmt.Errorf("provider %s has root %s and stands in the tree of %s", p.UUID, p.Root, nodes[0].UUID)
			case (i == 0) != (p.Parent == ""):
				return fmt.Errorf("provider %s with parent %q is number %d of its tree", p.UUID, p.Parent, i)
			case i > 0 && !seen[p.Parent]:
				return fmt.Errorf("provider %s comes before its parent", p.UUID)
			}
			seen[p.UUID] = true
			if at, _ := s.TreeAt(p.TreeNumber()); at != t || p.TreeNumber() >= s.TreeNumbers() {
				return fmt.Errorf("provider %s has tree number %d of %d, which is not that of its tree",
					p.UUID, p.TreeNumber(), s.TreeNumbers())
			}
		}
		if tree := s.Tree(nodes[0].UUID); !slices.Equal(tree, nodes) {
			return fmt.Errorf("Tree(%s) is not the tree in the forest", nodes[0].UUID)
		}
	}
	if len(seen) != s.ProviderCount() {
		return fmt.Errorf("%d providers stand in trees, of %d", len(seen), s.ProviderCount())
	}
	return nil
}

// Rows is what a Dump leaves out: numbers, times and the order in trees, for
// comparing a snapshot with the same one loaded from a store.
func Rows(s *ledger.Snapshot) []string {
	at := func(t time.Time) string { return t.Format(time.RFC3339Nano) }
	var out []string
	for p := range s.Providers() {
		out = append(out, fmt.Sprintf("provider %d %s %d %s %s", p.ID, p.UUID, p.Generation,
			at(p.CreatedAt), at(p.UpdatedAt)))
		for _, i := range p.Inventories {
			out = append(out, fmt.Sprintf("inventory %s %s %s %s", p.UUID, i.Class, at(i.CreatedAt), at(i.UpdatedAt)))
		}
		for _, member := range s.Tree(p.UUID) {
			out = append(out, fmt.Sprintf("in the tree of %s: %s below %s", p.UUID, member.UUID, member.Parent))
		}
	}
	for c := range s.Consumers() {
		out = append(out, fmt.Sprintf("consumer %d %s %s %s", c.ID, c.UUID, at(c.CreatedAt), at(c.UpdatedAt)))
		for _, a := range c.Allocations {
			out = append(out, fmt.Sprintf("allocation %s %s %s %s %s",
				c.UUID, a.Provider, a.Class, at(a.CreatedAt), at(a.UpdatedAt)))
		}
	}
	for _, c := range s.Classes() {
		out = append(out, fmt.Sprintf("class %d %s %s %s", c.ID, c.Name, at(c.CreatedAt), at(c.UpdatedAt)))
	}
	for _, t := range s.Traits() {
		out = append(out, fmt.Sprintf("trait %d %s %s %s", t.ID, t.Name, at(t.CreatedAt), at(t.UpdatedAt)))
	}
	for h := range s.Hosts() {
		out = append(out, fmt.Sprintf("host %d %s", h.ID, h.Name))
	}
	return append(out, fmt.Sprintf("consumer types %q", s.ConsumerTypes()))
}
