// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"fmt"
	"strings"
)

// Bounds that Placement does not have, and no machine reaches.
const (
	maxLevels = 64 // of providers below each other
	// minRatio is the smallest single-precision number with full precision: Placement's database
	// stores 0 for less, and 0 is no ratio.
	minRatio = 1.1754944e-38
)

// Check returns the rules that a tree breaks that a driver edited. It has all rules about what a
// driver may do to a tree. before is the tree that the driver was given, after the tree that it
// returned, node the name of the compute node that it was asked about.
//
//   - The node's root is there, under its name and uuid, and is a root. Its tree has inventory if
//     it had some.
//   - New providers are below it, at most 64 levels deep, and have the node's name in theirs.
//   - Providers beside the node's tree are there, under their names and parents. (What of theirs
//     the driver may write is decided by the record of what the agent owns.)
//   - Generations are as they were, or none.
//   - Inventories, traits and named resources that are new or changed can be written to Placement:
//     [Inventory.Check], and no trait that is the agent's own. What was there before stays,
//     whatever it is: Placement has ways to hold it.
//
// Rules about one provider, and about the uuids, names and parents of all, hold for every Tree:
// [Tree.Populate] refuses what breaks them with [Violations]. If before is nil or lacks the node,
// only providers and their items are checked.
//
// Cost: O(size of both trees); providers that both share, as clones do, are skipped.
func Check(before, after *Tree, node string) Violations {
	if before == nil {
		before = &Tree{}
	}
	c := &comparison{before: before, after: after, node: before.nodes[before.byName[node]]}
	if c.node != nil && after.nodes[c.node.UUID] == nil {
		c.add(c.node, "", "the node's own resource provider is missing from the tree",
			"edit the given tree instead of building a new one")
		return c.found
	}
	for _, uuid := range after.UUIDs() {
		was, is := before.nodes[uuid], after.nodes[uuid]
		if was == is {
			continue
		}
		if c.node != nil {
			c.checkPlace(was, is)
		}
		c.checkItems(was, is)
	}
	if c.node == nil {
		return c.found
	}
	for _, uuid := range before.UUIDs() {
		if after.nodes[uuid] == nil && c.rootBefore(uuid) != c.node.UUID {
			c.add(before.nodes[uuid], "", fmt.Sprintf("it is outside of the tree of %q, and is missing", node),
				"return what is not the driver's unchanged")
		}
	}
	if before.hasInventory(c.node.UUID) && !after.hasInventory(c.node.UUID) {
		c.add(c.node, "inventories", "all inventory of the node is missing",
			"a driver that does not know what the machine has must answer that it is not ready")
	}
	return c.found
}

// hasInventory reports whether a provider or one below it has inventory.
func (t *Tree) hasInventory(uuid string) bool {
	for _, u := range t.Subtree(uuid) {
		if len(t.nodes[u].Inventories) > 0 {
			return true
		}
	}
	return false
}

// comparison is a Check under way.
type comparison struct {
	before, after *Tree
	node          *node // before, nil if it was not there
	found         Violations
	// The roots above the providers, and how many levels they are below them. Made when needed.
	rootsBefore, rootsAfter map[string]string
	levels                  map[string]int
}

func (c *comparison) add(p *node, field, problem, hint string) {
	c.found = append(c.found, Violation{UUID: p.UUID, Name: p.Name, Field: field, Problem: problem, Hint: hint})
}

// checkPlace checks where a provider is, what it is called, and its generation. was is nil for a
// new one.
func (c *comparison) checkPlace(was, is *node) {
	c.checkGeneration(was, is)
	if was == nil {
		c.checkAdded(is)
		return
	}
	c.checkRenamed(was, is)
	c.checkMoved(was, is)
}

// checkGeneration checks that Placement's generation came back. A wrong one would make the agent
// overwrite what another client wrote.
func (c *comparison) checkGeneration(was, is *node) {
	want := NoGeneration
	if was != nil {
		want = was.Generation
	}
	text := func(g int64) string {
		if g == NoGeneration {
			return "unset"
		}
		return fmt.Sprint(g)
	}
	if is.Generation != want {
		c.add(is, "generation", fmt.Sprintf("its generation is %s, was %s", text(is.Generation), text(want)),
			"only Placement changes generations")
	}
}

func (c *comparison) checkAdded(p *node) {
	hint := fmt.Sprintf("a driver adds providers below its node (%s)", c.node.UUID)
	switch {
	case p.ParentUUID == "":
		c.add(p, "parent", "it is new, and a root", hint+", and lists nodes in AvailableNodes")
	case c.rootAfter(p.UUID) != c.node.UUID:
		c.add(p, "parent", fmt.Sprintf("it is new, and below %s, which is outside of the tree of %q",
			p.ParentUUID, c.node.Name), hint)
	}
	c.checkDepth(p)
	c.checkName(p)
}

func (c *comparison) checkRenamed(was, is *node) {
	switch {
	case was.Name == is.Name:
	case was == c.node:
		c.add(was, "name", fmt.Sprintf("it was renamed to %q", clip(is.Name)),
			"a driver must not rename a node's own provider")
	case c.rootBefore(was.UUID) != c.node.UUID:
		c.add(was, "name", fmt.Sprintf("it is outside of the tree of %q, and was renamed to %q",
			c.node.Name, clip(is.Name)), "")
	default:
		c.checkName(is)
	}
}

func (c *comparison) checkMoved(was, is *node) {
	if was.ParentUUID == is.ParentUUID {
		return
	}
	to := "below " + is.ParentUUID
	if is.ParentUUID == "" {
		to = "the top, as a root"
	}
	switch {
	case was == c.node:
		c.add(was, "parent", "it was put "+to, "a node's own provider is a root")
	case c.rootBefore(was.UUID) != c.node.UUID:
		c.add(was, "parent", fmt.Sprintf("it is outside of the tree of %q, and was moved to %s", c.node.Name, to), "")
	case c.rootAfter(is.UUID) != c.node.UUID:
		c.add(was, "parent", fmt.Sprintf("it was moved to %s, out of the tree of %q", to, c.node.Name), "")
	}
	c.checkDepth(is)
}

func (c *comparison) checkDepth(p *node) {
	c.rootAfter(p.UUID)
	if n := c.levels[p.UUID]; n > maxLevels {
		c.add(p, "parent", fmt.Sprintf("it is %d levels below its root, at most %d are allowed", n, maxLevels), "")
	}
}

// checkName checks a name that a driver chose.
func (c *comparison) checkName(p *node) {
	if err := ValidateText(p.Name); err != nil {
		c.add(p, "name", "its name "+err.Error(), "")
	}
	if !strings.Contains(p.Name, c.node.Name) {
		c.add(p, "name", fmt.Sprintf("its name does not contain the node's name %q", c.node.Name),
			fmt.Sprintf(
				"names are unique in all of Placement, and the next host of this kind would use the same one; "+
					"for example %q", c.node.Name+"_"+clip(p.Name)))
	}
}

// checkItems checks what a provider has now and did not have, or had otherwise.
func (c *comparison) checkItems(was, is *node) {
	var old Provider
	if was != nil {
		old = was.Provider
	}
	r := &reporter{uuid: is.UUID, name: is.Name}
	for _, class := range is.Inventories.Classes() {
		if inv, had := old.Inventories[class]; !had || !inv.Equal(is.Inventories[class]) {
			r.inventory(class, is.Inventories[class].Check())
		}
	}
	r.checkTraits(old, is.Provider)
	if !equalResources(old.Resources, is.Resources) {
		r.checkUnits(is.Resources)
	}
	c.found = append(c.found, r.found...)
}

func (c *comparison) rootBefore(uuid string) string {
	if c.rootsBefore == nil {
		c.rootsBefore, _ = c.before.ancestry()
	}
	return c.rootsBefore[uuid]
}

func (c *comparison) rootAfter(uuid string) string {
	if c.rootsAfter == nil {
		c.rootsAfter, c.levels = c.after.ancestry()
	}
	return c.rootsAfter[uuid]
}

// ancestry is what is above each provider: its root, and how many levels. Cost: O(providers),
// however deep.
func (t *Tree) ancestry() (roots map[string]string, levels map[string]int) {
	roots, levels = make(map[string]string, len(t.nodes)), make(map[string]int, len(t.nodes))
	for _, uuid := range t.UUIDs() { // parents come first
		parent := t.nodes[uuid].ParentUUID
		if parent == "" {
			roots[uuid] = uuid
			continue
		}
		roots[uuid], levels[uuid] = roots[parent], levels[parent]+1
	}
	return roots, levels
}
