// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	_ "embed" // the lists of standard names
	"slices"
	"strings"
)

// Versions of the lists of standard names that are built in.
const (
	OSResourceClassesVersion = "1.1.0"
	OSTraitsVersion          = "3.9.0"
)

//go:embed data/resource_classes.txt
var standardClassesText string

//go:embed data/traits.txt
var standardTraitsText string

// StandardClasses returns the standard resource classes; the ID of each is
// its place in the list.
func StandardClasses() []string { return lines(standardClassesText) }

// StandardTraits returns the standard traits, sorted.
func StandardTraits() []string {
	t := lines(standardTraitsText)
	slices.Sort(t)
	return t
}

func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}
