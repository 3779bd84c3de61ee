// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// UnknownStandardNames returns a warning for each name that is neither custom nor standard, with a
// suggestion: sorted, classes first.
func UnknownStandardNames(classes, traits []string) []string {
	out := nameList{
		what: "resource class", list: "os-resource-classes " + ledger.OSResourceClassesVersion,
		known:   ledger.StandardClasses(),
		meaning: "a Placement without it rejects the provider's inventory",
	}.unknown(classes)
	return append(out, nameList{
		what: "trait", list: "os-traits " + ledger.OSTraitsVersion, known: ledger.StandardTraits(),
		meaning: "it is omitted if Placement does not have it",
	}.unknown(traits)...)
}

type nameList struct {
	what, list, meaning string
	known               []string
}

func (n nameList) unknown(names []string) []string {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	var out []string
	for _, name := range slices.Compact(sorted) {
		if strings.HasPrefix(name, providertree.CustomPrefix) || slices.Contains(n.known, name) {
			continue
		}
		hint := "custom names begin with " + providertree.CustomPrefix
		if near := textutil.Suggest(name, n.known, max(2, len(name)/4)); near != "" {
			hint = "did you mean " + near + "?"
		}
		out = append(out, fmt.Sprintf("the %s %s is not in %s, and %s; %s", n.what, name, n.list, n.meaning, hint))
	}
	return out
}
