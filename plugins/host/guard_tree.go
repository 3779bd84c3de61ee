// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// Bounds that Placement does not have, and no machine reaches.
const (
	maxLevels = 64 // of providers below each other: things are looked up by walking to the root
	// minRatio is the smallest single-precision number with full precision: Placement's database makes 0 of less, and 0 is no ratio.
	minRatio = 1.1754944e-38
)

// comparison finds what a driver did to a tree that no driver may do.
type comparison struct {
	*defects
	before, after *providertree.Tree
	node          providertree.Provider // before
	// The uuids of the roots above the providers, and how many levels they are below them. Made when something is new or moved.
	rootsBefore, rootsAfter map[string]string
	levels                  map[string]int
}

// compare checks an answer against the tree that was given: the node is still what it was, generations are Placement's, what is new is below
// the node and called after it, what stands beside the node's tree is still there, and what is told anew can be told to Placement.
//
// Cost: O(size of both trees).
func compare(d *defects, before, after *providertree.Tree, node string) {
	root, known := before.ProviderByName(node)
	if !known {
		return // nothing to compare with; the caller asked for a node that its tree does not hold
	}
	c := &comparison{defects: d, before: before, after: after, node: root}
	if !after.Exists(root.UUID) {
		c.add("the node's own resource provider %q (%s) is missing in the tree: edit the tree that is given, rather than making a new one", node, root.UUID)
		return
	}
	for is := range after.All() {
		was, known := before.Provider(is.UUID)
		if known && was.Generation == is.Generation && was.Equal(is) {
			continue
		}
		c.generation(was, is, known)
		if known {
			c.changed(was, is)
		} else {
			c.added(is)
		}
		c.items(is)
		if c.enough() {
			return
		}
	}
	for was := range before.All() {
		if !after.Exists(was.UUID) && c.rootBefore(was.UUID) != root.UUID {
			c.wrong(was, "it is not of the tree of %q, and is missing: give back what is not the driver's as it came", node)
		}
	}
}

func (c *comparison) wrong(p providertree.Provider, format string, args ...any) {
	c.add("resource provider %q (%s): "+format, append([]any{p.Name, p.UUID}, args...)...)
}

// generation checks that Placement's came back. A wrong one would make the agent overwrite what somebody else wrote.
func (c *comparison) generation(was, is providertree.Provider, known bool) {
	want := providertree.NoGeneration
	if known {
		want = was.Generation
	}
	name := func(g int64) string {
		if g == providertree.NoGeneration {
			return "none"
		}
		return fmt.Sprint(g)
	}
	if is.Generation != want {
		c.wrong(is, "its generation is %s, was %s: generations are Placement's to change", name(is.Generation), name(want))
	}
}

// added looks at a provider that was not given.
func (c *comparison) added(p providertree.Provider) {
	switch root := c.rootAfter(p.UUID); {
	case p.ParentUUID == "":
		c.wrong(p, "it is new, and a root: a driver adds providers below its node (%s), and lists nodes in AvailableNodes", c.node.UUID)
	case root != c.node.UUID:
		c.wrong(p, "it is new, and below %s, which is not of the tree of %q: a driver adds providers below its node (%s)", p.ParentUUID, c.node.Name, c.node.UUID)
	}
	c.place(p)
	c.called(p)
}

// changed looks at a provider that was given, and came back with something else.
func (c *comparison) changed(was, is providertree.Provider) {
	own := func() bool { return c.rootBefore(was.UUID) == c.node.UUID }
	node := was.UUID == c.node.UUID
	if was.Name != is.Name {
		switch {
		case node:
			c.wrong(was, "it was renamed to %q: the name of a node's own provider is not the driver's to change", clipped(is.Name))
		case !own():
			c.wrong(was, "it is not of the tree of %q, and was renamed to %q", c.node.Name, clipped(is.Name))
		default:
			c.called(is)
		}
	}
	if was.ParentUUID == is.ParentUUID {
		return
	}
	switch root := c.rootAfter(is.UUID); {
	case node:
		c.wrong(was, "it was put below %s: a node's own provider is a root", is.ParentUUID)
	case !own():
		c.wrong(was, "it is not of the tree of %q, and was moved to %s", c.node.Name, orRoot(is.ParentUUID))
	case root != c.node.UUID:
		c.wrong(was, "it was moved to %s, out of the tree of %q", orRoot(is.ParentUUID), c.node.Name)
	}
	c.place(is)
}

func orRoot(parent string) string {
	if parent == "" {
		return "the top, as a root"
	}
	return "below " + parent
}

// place looks at how deep a provider is.
func (c *comparison) place(p providertree.Provider) {
	c.rootAfter(p.UUID)
	if n := c.levels[p.UUID]; n > maxLevels {
		c.wrong(p, "it is %d levels below its root, at most %d are allowed", n, maxLevels)
	}
}

// called looks at a name that a driver chose.
func (c *comparison) called(p providertree.Provider) {
	if problem := presentable(p.Name); problem != "" {
		c.wrong(p, "its name %s", problem)
	}
	if !strings.Contains(p.Name, c.node.Name) {
		c.wrong(p, "its name does not have the node's name %q in it: names are unique in all of Placement, and the next host of this kind would want the same one; %q would do",
			c.node.Name, c.node.Name+"_"+clip(p.Name, 100))
	}
}

// items looks at what a provider has now and did not have, or had otherwise. A tree cannot hold what is worse.
func (c *comparison) items(p providertree.Provider) {
	var bad []string
	for class, inv := range p.Inventories {
		if was, had := c.before.Inventory(p.UUID, class); had && was.Equal(inv) {
			continue
		}
		if inv.Reserved > inv.Total || inv.MinUnit > inv.MaxUnit || inv.AllocationRatio < minRatio || class == customPrefix {
			bad = append(bad, class)
		}
	}
	slices.Sort(bad)
	for _, class := range bad {
		c.inventory(p, class)
	}
	added := func(trait string) bool {
		return c.after.HasTraits(p.UUID, trait) && !c.before.HasTraits(p.UUID, trait)
	}
	if added(customPrefix) {
		c.wrong(p, "trait %s: a custom trait has something behind CUSTOM_", customPrefix)
	}
	for _, trait := range agentTraits {
		if added(trait) {
			c.wrong(p, "trait %s is the agent's own, not a driver's to report", trait)
		}
	}
}

// inventory says what is wrong with one.
func (c *comparison) inventory(p providertree.Provider, class string) {
	inv := p.Inventories[class]
	if inv.Reserved > inv.Total {
		c.wrong(p, "inventory of %s: reserved is %d, more than the total %d, which Placement refuses", class, inv.Reserved, inv.Total)
	}
	if inv.MinUnit > inv.MaxUnit {
		c.wrong(p, "inventory of %s: min_unit is %d, more than max_unit %d: nobody could allocate anything", class, inv.MinUnit, inv.MaxUnit)
	}
	if inv.AllocationRatio < minRatio {
		c.wrong(p, "inventory of %s: allocation_ratio is %v, must be at least %v, or 0 for Placement's default: it would be stored as 0", class, inv.AllocationRatio, minRatio)
	}
	if class == customPrefix {
		c.wrong(p, "inventory of %s: a custom resource class has something behind CUSTOM_", class)
	}
}

const customPrefix = "CUSTOM_"

func (c *comparison) rootBefore(uuid string) string {
	if c.rootsBefore == nil {
		c.rootsBefore, _ = above(c.before)
	}
	return c.rootsBefore[uuid]
}

func (c *comparison) rootAfter(uuid string) string {
	if c.rootsAfter == nil {
		c.rootsAfter, c.levels = above(c.after)
	}
	return c.rootsAfter[uuid]
}

// above is what is above each provider: its root, and how many levels. Cost: O(providers), however deep.
func above(tree *providertree.Tree) (roots map[string]string, levels map[string]int) {
	roots, levels = make(map[string]string, tree.Len()), make(map[string]int, tree.Len())
	for p := range tree.All() { // parents come first
		if p.ParentUUID == "" {
			roots[p.UUID] = p.UUID
			continue
		}
		roots[p.UUID], levels[p.UUID] = roots[p.ParentUUID], levels[p.ParentUUID]+1
	}
	return roots, levels
}

// checkUnits looks at the named resources, which a tree takes as they come.
func checkUnits(d *defects, msg *driverv1.ProviderTree) {
	type unit struct{ class, identifier string }
	for _, p := range msg.GetProviders() {
		if len(p.GetResources()) == 0 {
			continue
		}
		seen := make(map[unit]bool, len(p.GetResources()))
		for _, r := range p.GetResources() {
			u := unit{r.GetResourceClass(), r.GetIdentifier()}
			switch who := "resource provider %q (%s): named resource %q of %s "; {
			case u.identifier == "" || len(u.identifier) > maxOwner || presentable(u.identifier) != "":
				d.add(who+"must have an identifier of 1 to %d printable bytes", p.GetName(), p.GetUuid(), clipped(u.identifier), u.class, maxOwner)
			case seen[u]:
				d.add(who+"is there twice: an identifier is given once", p.GetName(), p.GetUuid(), u.identifier, u.class)
			}
			seen[u] = true
			if d.enough() {
				return
			}
		}
	}
}

// checkRenames looks at renames of resource classes.
func checkRenames(d *defects, renames map[string]string) {
	for _, from := range slices.Sorted(maps.Keys(renames)) {
		to := renames[from]
		_, again := renames[to]
		switch {
		case providertree.ValidateClass(from) != nil || providertree.ValidateClass(to) != nil || from == customPrefix || to == customPrefix:
			d.add("resource class %q is renamed to %q: a class has 1 to 255 of A-Z, 0-9 and _, and something behind CUSTOM_", clipped(from), clipped(to))
		case from == to:
			d.add("resource class %s is renamed to itself", from)
		case again:
			d.add("resource class %s is renamed to %s, which is renamed too: declare what it becomes in the end", from, to)
		}
		if d.enough() {
			return
		}
	}
}
