// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import "strings"

// classGroups are resource classes that an operator has declared to be names of one thing: one name
// of each group, by all of them. The present and the former name are of one group, so that a
// reshape can be undone.
type classGroups map[string]string

// newClassGroups reads pairs of the form OLD=NEW.
func newClassGroups(renames []string) classGroups {
	g := classGroups{}
	for _, pair := range renames {
		former, present, found := strings.Cut(pair, "=")
		if !found {
			continue
		}
		group, other := g.groupOf(former), g.groupOf(present)
		g[former], g[present] = group, group
		for class, of := range g {
			if of == other {
				g[class] = group
			}
		}
	}
	return g
}

// groupOf is the group of a class; most are groups of their own.
func (g classGroups) groupOf(class string) string {
	if group, ok := g[class]; ok {
		return group
	}
	return class
}
