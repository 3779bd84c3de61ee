// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
)

// grantedClass is a resource class, or a family of them, that a compute node or a NUMA cell can
// have, and what an instance gets for it.
type grantedClass struct {
	has func(class string) bool
	// give adds an amount to a grant; nil for what no instance gets, and withheld says why.
	give     func(g *grant, class string, amount int64)
	withheld string
}

// grantedClasses lists every class that package inventory can report on a compute node or a cell;
// what it reports beyond that is an error there (see [Understands]).
var grantedClasses = []grantedClass{
	{has: named("VCPU"), give: func(g *grant, _ string, amount int64) { g.vcpu += amount }},
	{has: named("PCPU"), give: func(g *grant, _ string, amount int64) { g.pcpu += amount }},
	{has: named("MEMORY_MB"), give: func(g *grant, _ string, amount int64) { g.memoryMB += amount }},
	{has: hugePages, give: func(g *grant, class string, amount int64) {
		size, _ := selection.PagesSize(class)
		if g.pages == nil {
			g.pages = map[uint64]int64{}
		}
		g.pages[size] += amount
	}},
	{has: named("DISK_GB"), give: func(*grant, string, int64) {}}, // package instances makes the disks
	{
		has:      func(class string) bool { return strings.HasPrefix(class, selection.PMEMPrefix) },
		withheld: "this driver cannot give persistent memory to instances",
	},
	{has: named(encryptionClass),
		withheld: "the provider that granted it does not say which kind of encryption it is of"},
}

func named(name string) func(string) bool {
	return func(class string) bool { return class == name }
}

func hugePages(class string) bool {
	_, pages := selection.PagesSize(class)
	return pages
}

// Understands reports whether it is decided what an instance gets for a class of a compute node or
// a NUMA cell.
func Understands(class string) bool { return grantedClassOf(class) != nil }

func grantedClassOf(class string) *grantedClass {
	for i := range grantedClasses {
		if grantedClasses[i].has(class) {
			return &grantedClasses[i]
		}
	}
	return nil
}
