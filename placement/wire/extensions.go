// SPDX-License-Identifier: Apache-2.0

package wire

// RequestedExtensions is the feature of the microversion from which on a client is granted the
// extensions that it asks for. None brought them, for OpenStack's Placement has none: they belong
// to the one that was the newest when they came, so that a newer one takes them from no client.
const RequestedExtensions = AnyTraits

// The extensions: what this Placement does and OpenStack's does not. A client asks for them by name
// in HeaderExtensions, from RequestedExtensions on; an operator grants them to all with [placement]
// extensions.
//
// To add an extension: a name here; what it changes, mostly a parameter in placement/api's
// candidates_query.go with the name as its origin; a row in TestCandidatesExtensions, and in
// TestCandidatesQueryExtensions and sound, by which its parser is fuzzed, if it has a parameter;
// docs/placement-extensions.md and the doc.go of placement/api; CHANGELOG.md. The set of them in
// placement/api has a bit for each, and does not compile if there are more.
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

// Extensions are all extensions. Their place is that of their bit in a set of them.
var Extensions = [...]string{ExtRootMemberOf, ExtGroupPolicy, ExtIsolate, ExtResourceless}
