// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"fmt"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// Request is a request for candidates. It may name classes, traits, aggregates and providers that
// do not exist.
type Request struct {
	// Groups are in the order of the request, each suffix once. At least one has resources.
	Groups []Group
	// GroupPolicy says whether one provider may serve several suffixed groups.
	GroupPolicy GroupPolicy
	// SameSubtree are sets of suffixes: of the providers that serve the groups of a set, one must
	// be an ancestor of all others (1.36). Each suffix is that of a group.
	SameSubtree [][]string
	// Isolate are suffixes of groups whose providers may serve no other group: the extension
	// isolate.
	Isolate []string
	// Resourceless is the extension resourceless. It applies in_tree to suffixed groups without
	// resources, which may also have no condition but in_tree, or only traits and aggregates to
	// avoid. It lets the unsuffixed group have no resources: then one provider of the tree must
	// meet all its conditions, whichever groups it serves.
	Resourceless bool
	// Root are conditions on the root of the tree, wherever the resources come from.
	Root RootConditions
	// Flat excludes candidates with resources of two providers of one tree, as before microversion
	// 1.29.
	Flat bool
}

// Group is a request group.
type Group struct {
	// Suffix is "" for the unsuffixed group.
	Suffix string
	// Resources are amounts of different classes. A suffixed group may have none (1.36), and the
	// unsuffixed one with Request.Resourceless.
	Resources []Resource
	// Required are sets of traits, none empty: at least one of each must be there; Forbidden are
	// traits that must not. The providers of the unsuffixed group have the required ones together.
	Required  [][]string
	Forbidden []string
	// MemberOf are sets of aggregates, none empty: the provider must be in at least one of each.
	// It must not be in any aggregate of NotMemberOf. For the unsuffixed group, a provider of the
	// tree, not a sharing one of another tree, also meets MemberOf if the root is in one of each;
	// and the root must not be in an aggregate of NotMemberOf either.
	MemberOf    [][]string
	NotMemberOf []string
	// InTree is the uuid of a provider in whose tree the group must be served; "" for any.
	InTree string
}

// Resource is an amount of a class.
type Resource struct {
	Class  string
	Amount int64
}

// GroupPolicy is the group_policy of a request.
type GroupPolicy uint8

// The group policies.
const (
	// None lets a provider serve any number of groups.
	None GroupPolicy = iota
	// Isolate lets a provider serve one suffixed group at most.
	Isolate
)

// RootConditions are the conditions of root_required (1.35) and of the extension root_member_of.
type RootConditions struct {
	Required, Forbidden []string // traits
	MemberOf            [][]string
	NotMemberOf         []string
}

// Options select and order candidates.
type Options struct {
	// Limit is the maximum number of candidates; 0 is no limit.
	Limit int
	// DepthFirst returns all candidates of a tree before those of the next. Otherwise the trees
	// alternate.
	DepthFirst bool
	// Seed, if it is not 0, puts trees and providers in a random order; the same seed gives the
	// same order.
	Seed uint64
	// Rotation says where a search begins whose order is not random.
	Rotation Rotation
	// Steps bounds the work, in attempts to place a slot. When it is used up, the search ends with
	// the candidates found so far; see Stats. 0 is DefaultSteps.
	Steps int
}

// DefaultSteps is about a second of search.
const DefaultSteps = 20_000_000

// Candidate is one way to serve the request. It and its slices are valid only until the callback
// returns.
type Candidate struct {
	// Root is the root of the candidate's tree. It may serve nothing itself if sharing providers
	// serve the whole request.
	Root *ledger.Provider
	// Allocations has each pair of provider and class once, ordered by provider.
	Allocations []Allocation
	// Groups has, for each of Request.Groups, the providers that serve it, each once. For an
	// unsuffixed group without resources, it is the first provider of the tree that meets the
	// conditions.
	Groups [][]*ledger.Provider
}

// Allocation is an amount of a class of one provider.
type Allocation struct {
	Provider *ledger.Provider
	Class    string
	Amount   int64
}

// Stats are counters of a search.
type Stats struct {
	Candidates int  // returned
	Trees      int  // visited
	Steps      int  // placements tried
	Exhausted  bool // Options.Steps was used up: there may be more candidates than were found
	// Passed is how far to advance Rotation.At for the next search of the same request.
	Passed int
}

// UnknownNameError says that a request names a class or a trait that does not exist. As in
// Placement, it is returned only if every group before the one with the name could be served.
type UnknownNameError struct {
	// Class or Trait is the name; the other one is "".
	Class, Trait string
	// Suffix is the group's; Root: the name is in the conditions on roots instead.
	Suffix string
	Root   bool
}

func (e *UnknownNameError) Error() string {
	if e.Class != "" {
		return fmt.Sprintf("No such resource class %s.", e.Class)
	}
	return fmt.Sprintf("No such trait(s): %s.", e.Trait)
}
