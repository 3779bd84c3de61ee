// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
)

// layoutPrefix begins the trait that says which layout version a tree has; the driver's name and
// the version follow. Agents up to release 0.2.0 wrote formerLayoutPrefix, which is read too; the
// trait is replaced when the tree is next written.
const (
	layoutPrefix       = "CUSTOM_COMPUTE_AGENT_LAYOUT_"
	formerLayoutPrefix = "CUSTOM_COMPUTE_AGENT_SHAPE_"
)

// LayoutTraits is the name of a driver. Its methods make and read the traits that have the layout
// version of the driver's trees.
type LayoutTraits string

// Trait returns the trait that the root of a tree with a layout version has. By it an agent knows
// the version after the state directory was lost.
func (l LayoutTraits) Trait(version int) string {
	return layoutPrefix + l.name() + strconv.Itoa(version)
}

// Version returns the layout version in a trait of the driver, with either prefix; 0 for any other
// trait, also for one of a driver whose name begins with this one's.
func (l LayoutTraits) Version(trait string) int {
	for _, prefix := range []string{layoutPrefix, formerLayoutPrefix} {
		number, ours := strings.CutPrefix(trait, prefix+l.name())
		if n, err := strconv.Atoi(number); ours && err == nil {
			return n
		}
	}
	return 0
}

// name returns the driver's name as traits have it, with what separates it from the version.
func (l LayoutTraits) name() string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, string(l))
	return name + "_"
}

// InTree returns the layout version that the tree itself has in the traits of its root: the least
// of several, 0 without any.
func (l LayoutTraits) InTree(tree *providertree.Tree, root string) int {
	p, _ := tree.Provider(root)
	least := 0
	for _, trait := range p.Traits {
		if n := l.Version(trait); n != 0 {
			least = min(n, cmp.Or(least, n))
		}
	}
	return least
}

// Former returns the traits, of those given, that have a layout version with the former prefix.
func (l LayoutTraits) Former(traits []string) (former []string) {
	for _, trait := range traits {
		if strings.HasPrefix(trait, formerLayoutPrefix) && l.Version(trait) != 0 {
			former = append(former, trait)
		}
	}
	return former
}

// IsLayoutTrait reports whether a trait says the layout version of a tree, of whichever driver: no
// other program sets such a trait on the root of a compute node.
func IsLayoutTrait(trait string) bool {
	return strings.HasPrefix(trait, layoutPrefix) || strings.HasPrefix(trait, formerLayoutPrefix)
}
