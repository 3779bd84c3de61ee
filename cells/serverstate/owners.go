// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Reporter is a host that reports, and how it showed who it is.
type Reporter struct {
	Host string
	Auth cellwire.HostAuth
	// Nodes are the names of nodes in its certificate. A certificate without any is for all nodes.
	Nodes []string
	// Address is where its request comes from, for people.
	Address string
}

// MayOwn reports whether a node may be the reporter's, and whether its certificate names the node.
func (r Reporter) MayOwn(node string) (may, named bool) {
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
// While another host's claim has as strong a proof as the host that has the node (its certificate
// names the node, or neither's does), the node gets no new servers at all.

// OwnNode is a node that the reporter has, as its row has it.
type OwnNode struct {
	Name string
	// Abilities are as [JoinAbilities] returns them.
	Abilities string
	Auth      cellwire.HostAuth
	// Named: the certificate of the reporter named the node. Present: its last report had it.
	Named, Present bool
	Details        cellwire.NodeDetails
	// Problem is why the compute API does not use it; "": it does.
	Problem string
	// Claims have the other hosts that report the node and whose agents live.
	Claims []cellwire.NodeClaim
}

// OtherOwner is the host of a node that is not the reporter's.
type OtherOwner struct {
	Host string // "": none has it any more
	// Named: the certificate of the host named the node.
	Named bool
	// Claim is what is kept of the reporter; nil: nothing.
	Claim *cellwire.NodeClaim
}

// NodeOwnership is what is known of the nodes of a report, by their uuids.
type NodeOwnership struct {
	// Own has all nodes of the reporter.
	Own map[string]OwnNode
	// Others has the nodes of the report that other hosts have, and all that the reporter claims.
	Others map[string]OtherOwner
}

// NodeChanges are what a report changes.
type NodeChanges struct {
	// Kept are own nodes that are not as they were, Added those that none had, Seized those that
	// others had.
	Kept, Added, Seized []cellwire.ReportedNode
	// Absent are own nodes that are not reported any more.
	Absent []string
	// Claimed and Dropped are nodes of others: claims that are new or not as they were, and claims
	// that end.
	Claimed, Dropped []string
}

// Empty reports whether nothing changes.
func (c *NodeChanges) Empty() bool {
	return len(c.Kept)+len(c.Added)+len(c.Seized)+len(c.Absent)+len(c.Claimed)+len(c.Dropped) == 0
}

// JoinAbilities returns the abilities of a node as its row has them: sorted, each once, with commas
// between them.
func JoinAbilities(names []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ",")
}

// Contested reports whether one of the claims on a node is as good as what its host has to show.
func Contested(named bool, claims []cellwire.NodeClaim) bool {
	return slices.ContainsFunc(claims, func(c cellwire.NodeClaim) bool { return c.Named || !named })
}

// Changes decides which host the nodes of a report belong to. maxNodes bounds the nodes and claims
// of a host that its certificate does not name. A host loses a node, or a claim, that it does not
// report; while it is starting, only if its certificate is for other nodes.
func (o NodeOwnership) Changes(
	who Reporter, report cellwire.HostReport, maxNodes int,
) (c NodeChanges, problems []cellwire.NodeProblem) {
	used, reported := 0, report.Nodes
	for uuid := range o.Own {
		if _, named := who.MayOwn(uuid); !named {
			used++
		}
	}
	seen := map[string]bool{}
	for _, n := range reported {
		if o.Others[n.UUID].Claim != nil {
			used++
		}
		seen[n.UUID] = true
	}
	problem := func(uuid string, code cellwire.NodeProblemCode, host, text string, args ...any) {
		problems = append(problems,
			cellwire.NodeProblem{UUID: uuid, Code: code, Host: host, Message: fmt.Sprintf(text, args...)})
	}
	for _, n := range reported {
		may, named := who.MayOwn(n.UUID)
		row, own := o.Own[n.UUID]
		other := o.Others[n.UUID]
		switch {
		case !may:
			seen[n.UUID] = false
			problem(n.UUID, cellwire.NodeNotInCertificate,
				"", "The certificate of host %s is for other nodes.", who.Host)
		case own:
			if n.Details == nil {
				n.Details = &row.Details
			}
			if *n.Details != row.Details || row.Name != n.Name || row.Abilities != JoinAbilities(n.Abilities) ||
				row.Auth != who.Auth || row.Named != named || !row.Present {
				c.Kept = append(c.Kept, n)
			}
			if Contested(named, row.Claims) {
				problem(n.UUID, cellwire.NodeContested,
					row.Claims[0].Host, "Host %s reports it too.", row.Claims[0].Host)
			}
			if row.Problem != "" {
				problem(n.UUID, cellwire.NodeNotMapped, "", "The compute API does not use it: %s", row.Problem)
			}
		case other.Host != "" && named && !other.Named:
			c.Seized = append(c.Seized, n)
		case other.Host != "":
			problem(n.UUID, cellwire.NodeElsewhere, other.Host, "Host %s has it.", other.Host)
			if other.Claim != nil {
				if other.Claim.Auth != who.Auth || other.Claim.Named != named {
					c.Claimed = append(c.Claimed, n.UUID)
				}
			} else if named || used < maxNodes {
				c.Claimed = append(c.Claimed, n.UUID)
				used++
			}
		case !named && used >= maxNodes && other.Claim == nil:
			problem(n.UUID, cellwire.NodeTooMany, "",
				"Host %s has %d nodes that its certificate does not name, and may have %d.", who.Host, used, maxNodes)
		default:
			c.Added = append(c.Added, n)
			used++
		}
	}
	gone := func(uuid string) bool {
		may, _ := who.MayOwn(uuid)
		return !seen[uuid] && (!report.Starting || !may)
	}
	for _, uuid := range slices.Sorted(maps.Keys(o.Own)) {
		if o.Own[uuid].Present && gone(uuid) {
			c.Absent = append(c.Absent, uuid)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(o.Others)) {
		if o.Others[uuid].Claim != nil && (gone(uuid) || o.Others[uuid].Host == "") {
			c.Dropped = append(c.Dropped, uuid)
		}
	}
	return c, problems
}
