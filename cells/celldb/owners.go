// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Reporter is a host that reports, and how it showed who it is.
type Reporter struct {
	Host string
	Auth cellwire.HostAuth
	// Nodes are those that its certificate names; none: it does not say.
	Nodes []string
	// Address is where its request comes from, for people.
	Address string
}

// mayOwn reports whether a node may be the reporter's, and whether its certificate names the node.
func (r Reporter) mayOwn(node string) (may, named bool) {
	named = slices.Contains(r.Nodes, node)
	return named || len(r.Nodes) == 0, named
}

// A node belongs to a host:
//
//	the first host that reports a node has it
//	a host whose certificate names the node takes it from one whose does not
//	any other host that reports it is refused, and kept as a claim while its agent lives
//	nothing else that a host reports changes whose a node is
//
// While there is a claim that is as good as what the host has to show, the node gets no new servers
// at all.

// nodeRow is a node that the reporter has.
type nodeRow struct {
	name, abilities string
	auth            cellwire.HostAuth
	named, present  bool
	details         cellwire.NodeDetails
	problem         string // why the compute API does not use it
	claims          []cellwire.NodeClaim
}

// elsewhere is a node that another host has.
type elsewhere struct {
	host  string // "": none has it any more
	named bool
	// claim is what is kept of the reporter; nil: nothing.
	claim *cellwire.NodeClaim
}

// ownership is what is known of the nodes of a report.
type ownership struct {
	own    map[string]nodeRow   // all that the reporter has
	others map[string]elsewhere // those of the report that others have, and all that it claims
}

// nodeChanges are what a report changes.
type nodeChanges struct {
	kept, added, seized []cellwire.ReportedNode
	absent              []string // own nodes that are not reported any more
	claimed, dropped    []string // claims
}

func (c *nodeChanges) empty() bool {
	return len(c.kept)+len(c.added)+len(c.seized)+len(c.absent)+len(c.claimed)+len(c.dropped) == 0
}

// contested reports whether one of the claims on a node is as good as what its host has to show.
func contested(named bool, claims []cellwire.NodeClaim) bool {
	return slices.ContainsFunc(claims, func(c cellwire.NodeClaim) bool { return c.Named || !named })
}

// changes decides whose the nodes of a report are. A host has at most so many nodes and claims that
// its certificate does not name. What it has or claims and does not report is gone; while it is
// starting, only if its certificate is for other nodes.
func (o ownership) changes(
	who Reporter, report cellwire.HostReport, most int,
) (c nodeChanges, problems []cellwire.NodeProblem) {
	used, reported := 0, report.Nodes
	for uuid := range o.own {
		if _, named := who.mayOwn(uuid); !named {
			used++
		}
	}
	seen := map[string]bool{}
	for _, n := range reported {
		if o.others[n.UUID].claim != nil {
			used++
		}
		seen[n.UUID] = true
	}
	problem := func(uuid string, code cellwire.NodeProblemCode, host, text string, args ...any) {
		problems = append(problems,
			cellwire.NodeProblem{UUID: uuid, Code: code, Host: host, Message: fmt.Sprintf(text, args...)})
	}
	for _, n := range reported {
		may, named := who.mayOwn(n.UUID)
		row, own := o.own[n.UUID]
		other := o.others[n.UUID]
		switch {
		case !may:
			seen[n.UUID] = false
			problem(n.UUID, cellwire.NodeNotInCertificate,
				"", "The certificate of host %s is for other nodes.", who.Host)
		case own:
			if n.Details == nil {
				n.Details = &row.details
			}
			if *n.Details != row.details || row.name != n.Name || row.abilities != keptAbilities(n.Abilities) ||
				row.auth != who.Auth || row.named != named || !row.present {
				c.kept = append(c.kept, n)
			}
			if contested(named, row.claims) {
				problem(n.UUID, cellwire.NodeContested,
					row.claims[0].Host, "Host %s reports it too.", row.claims[0].Host)
			}
			if row.problem != "" {
				problem(n.UUID, cellwire.NodeNotMapped, "", "The compute API does not use it: %s", row.problem)
			}
		case other.host != "" && named && !other.named:
			c.seized = append(c.seized, n)
		case other.host != "":
			problem(n.UUID, cellwire.NodeElsewhere, other.host, "Host %s has it.", other.host)
			if other.claim != nil {
				if other.claim.Auth != who.Auth || other.claim.Named != named {
					c.claimed = append(c.claimed, n.UUID)
				}
			} else if named || used < most {
				c.claimed = append(c.claimed, n.UUID)
				used++
			}
		case !named && used >= most && other.claim == nil:
			problem(n.UUID, cellwire.NodeTooMany, "",
				"Host %s has %d nodes that its certificate does not name, and may have %d.", who.Host, used, most)
		default:
			c.added = append(c.added, n)
			used++
		}
	}
	gone := func(uuid string) bool {
		may, _ := who.mayOwn(uuid)
		return !seen[uuid] && (!report.Starting || !may)
	}
	for _, uuid := range slices.Sorted(maps.Keys(o.own)) {
		if o.own[uuid].present && gone(uuid) {
			c.absent = append(c.absent, uuid)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(o.others)) {
		if o.others[uuid].claim != nil && (gone(uuid) || o.others[uuid].host == "") {
			c.dropped = append(c.dropped, uuid)
		}
	}
	return c, problems
}
