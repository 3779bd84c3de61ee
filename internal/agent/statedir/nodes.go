// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// Nodes is the answer of `compute-agent node list`.
type Nodes struct {
	Nodes []Node `json:"nodes"`
}

// Node is a compute node that this agent reports, or has reported.
type Node struct {
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	Driver string `json:"driver"`
	// State is the state in the report, "orphaned" if no driver reports the node any more, "" if no
	// agent runs.
	State string `json:"state,omitempty"`
	// Since is when Placement first had it; zero: not yet.
	Since time.Time `json:"reported_since,omitzero"`
	// Created means that this agent created the node's root provider.
	Created bool   `json:"created"`
	Error   string `json:"error,omitempty"`
}

// StateOrphaned is the state of a node that no driver reports any more.
const StateOrphaned = "orphaned"

// StateHeld is the state of a node that only drivers report that do not own it.
const StateHeld = "held"

// Sort sorts the nodes by name.
func (n Nodes) Sort() {
	slices.SortFunc(n.Nodes, func(a, b Node) int {
		return strings.Compare(a.Name+"\x00"+a.UUID, b.Name+"\x00"+b.UUID)
	})
}

// Find finds a node by its name or uuid.
func (n Nodes) Find(which string) (Node, error) {
	var found []Node
	id, err := providertree.CanonicalUUID(which)
	for _, node := range n.Nodes {
		if err == nil && node.UUID == id {
			return node, nil
		}
		if node.Name == which {
			found = append(found, node)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Node{},
			fmt.Errorf("this agent has never reported a node %q; `compute-agent node list` lists the reported ones",
				which)
	}
	uuids := make([]string, 0, len(found))
	for _, node := range found {
		uuids = append(uuids, node.UUID)
	}
	return Node{}, fmt.Errorf("several nodes are named %q; give one of their uuids: %s",
		which, strings.Join(uuids, ", "))
}

// Nodes are the nodes that the state directory knows of. What their drivers say of them now is not
// among it.
func (s *State) Nodes() (Nodes, error) {
	byUUID, given := map[string]Node{}, map[string]string{}
	if s.Identity != nil {
		r, _ := s.Identity.Record()
		given = r.Given
		for id, n := range r.Nodes {
			byUUID[id] = Node{Name: n.Name, UUID: id, Driver: r.Owner(id), Since: n.Since}
		}
	}
	list, err := s.Records.List()
	if err != nil {
		return Nodes{}, err
	}
	for _, r := range list {
		n := byUUID[r.Root]
		n.UUID, n.Created = r.Root, r.Created
		if n.Name == "" {
			n.Name, n.Driver = r.Node, r.Driver
			if driver := given[r.Root]; driver != "" {
				n.Driver = driver
			}
		}
		byUUID[r.Root] = n
	}
	out := Nodes{Nodes: slices.AppendSeq([]Node{}, maps.Values(byUUID))}
	out.Sort()
	return out, nil
}

// RecordedNode opens the record of the host's identity, and finds a node by its name or uuid.
func (s *State) RecordedNode(which string) (node Node, err error) {
	if s.Identity, err = identity.Open(s.Dir); err != nil {
		return node, err
	}
	nodes, err := s.Nodes()
	if err != nil {
		return node, err
	}
	return nodes.Find(which)
}
