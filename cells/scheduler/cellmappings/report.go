// SPDX-License-Identifier: Apache-2.0

package cellmappings

import (
	"errors"
	"path"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// DiscoverOptions say which hosts are mapped.
type DiscoverOptions struct {
	// Patterns are shell patterns of the names of hosts that are mapped although no person enrolled
	// them.
	Patterns []string
	// Hosts are mapped, and enrolled with the nodes that they report, because the person By named
	// them.
	Hosts []string
	By    string
	// Cell is the uuid of the only one whose hosts are mapped; "": all are.
	Cell string
}

// DiscoverReport says what Discover found and did.
type DiscoverReport struct {
	// Mapped are nodes that are mapped now, with their hosts.
	Mapped []apidb.Node
	// Remapped are the nodes of Mapped that were mapped to another host before, to which they do
	// not belong.
	Remapped []RemappedNode
	// Conflicts are nodes that are not mapped, or get no new servers, because their host or node
	// belongs to another cell or host. NotEnrolled are nodes of hosts that no person enrolled.
	Conflicts, NotEnrolled []Conflict
	// Forgotten are nodes that were unmapped, because their hosts have not reported them for long.
	Forgotten []string
	// Missing are the hosts of DiscoverOptions.Hosts that no cell has.
	Missing []string
	// Down are cells that could not be asked.
	Down []apidb.Cell
}

// RemappedNode is a node that was mapped to the host From.
type RemappedNode struct {
	Node apidb.Node
	From string
}

// Conflict is a node that cannot be mapped or used. Err wraps [apidb.ErrExists], or
// [ErrNotEnrolled].
type Conflict struct {
	Node apidb.Node
	Err  error
}

// ErrNotEnrolled says that nothing allows a host to be mapped.
var ErrNotEnrolled = errors.New("the host is not enrolled")

// CellName is the name of a cell; its uuid if it is not among those.
func CellName(cells []apidb.Cell, uuid string) string {
	for _, c := range cells {
		if c.UUID == uuid {
			return c.Name
		}
	}
	return uuid
}

// MatchesAny reports whether one of some shell patterns matches the name of a host.
func MatchesAny(patterns []string, host string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		is, err := path.Match(pattern, host)
		return is && err == nil
	})
}
