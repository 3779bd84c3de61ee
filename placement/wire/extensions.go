// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// RequestedExtensions is the feature of the first microversion with which a client gets the
// extensions that it asks for. No microversion introduced them, because OpenStack's Placement has
// none. They begin at the one that was the newest when they were added; all later ones have them.
const RequestedExtensions = AnyTraits

// The extensions: what this Placement does and OpenStack's does not. A client asks for them by name
// in HeaderExtensions, from RequestedExtensions on; an operator grants them to all with [placement]
// extensions.
//
// To add an extension:
//
//   - a name here, and in Extensions at the end; ExtensionSet has a bit for each, and does not
//     compile if there are more;
//   - what it changes, mostly a parameter with the name as its origin, in url_query.go of
//     placement/candidates or in provider_query.go, and where the parameter takes effect (see
//     there);
//   - rows of the parser with and without the extension, and what its fuzzer checks of it:
//     TestCandidatesQueryExtensions and sound of placement/candidates, or FuzzProviderQuery;
//   - for GET /allocation_candidates, rows in TestCandidatesExtensions (candidates_test.go of
//     placement/api), with and without the header; for another call a test of its own beside those
//     of the call, and the sentences that speak of candidates alone: of extensions in keys.toml of
//     internal/config, and of docs/placement-extensions.md;
//   - docs/placement-extensions.md and the doc.go of placement/api, both from their first
//     sentences on, and CHANGELOG.md;
//   - go test ./placement/api ./internal/config -run '^Test(Reference|Defaults)' -update: the
//     references of the API and of [placement] extensions list it.
const (
	// ExtRootMemberOf is the parameter root_member_of: as member_of, but of the root of the tree,
	// wherever the resources are.
	ExtRootMemberOf = "root_member_of"
	// ExtGroupPolicy makes the parameter group_policy optional, with none as the default.
	ExtGroupPolicy = "group_policy"
	// ExtIsolate is the parameter isolate: suffixes of groups whose providers may serve no other
	// group.
	ExtIsolate = "isolate"
	// ExtResourceless serves groups without resources that only have traits or aggregates to avoid,
	// or in_tree, and lets the unsuffixed group have no resources.
	ExtResourceless = "resourceless"
)

// Extensions are all extensions. The index of one is the number of its bit in an ExtensionSet.
var Extensions = [...]string{ExtRootMemberOf, ExtGroupPolicy, ExtIsolate, ExtResourceless}

// ExtensionSet is a set of extensions: a bit for each of Extensions.
type ExtensionSet uint8

// AllExtensions is the set of all. It does not compile if the type has too few bits for them.
const AllExtensions ExtensionSet = 1<<len(Extensions) - 1

// Has reports whether the set has an extension.
func (e ExtensionSet) Has(name string) bool {
	for i, known := range Extensions {
		if known == name {
			return e&(1<<i) != 0
		}
	}
	return false
}

// String has the names of the extensions, separated by commas.
func (e ExtensionSet) String() string {
	var names []string
	for i, known := range Extensions {
		if e&(1<<i) != 0 {
			names = append(names, known)
		}
	}
	return strings.Join(names, ", ")
}

// ReadExtensions reads the values of HeaderExtensions. Unknown names are ignored.
func ReadExtensions(values []string) (e ExtensionSet) {
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			name = strings.TrimSpace(name)
			for i, known := range Extensions {
				if strings.EqualFold(name, known) {
					e |= 1 << i
				}
			}
		}
	}
	return e
}
