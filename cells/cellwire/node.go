// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
)

// HostAuth is how a host showed who it is.
type HostAuth string

// The ways.
const (
	HostAuthNone        HostAuth = "none" // the cell trusts its clients, which are on one machine
	HostAuthToken       HostAuth = "token"
	HostAuthCertificate HostAuth = "certificate"
)

// NodeClaim is a host that reports a node which another one has.
type NodeClaim struct {
	Host string   `json:"host"`
	Auth HostAuth `json:"auth"`
	// Named says that the certificate of the host names the node.
	Named bool `json:"named,omitempty"`
}

// NodeReporter is the answer to an agent that asks who else reports a node.
type NodeReporter struct {
	UUID string `json:"uuid"`
	// Host is another host that reports the node; "": none does.
	Host string `json:"host,omitempty"`
}

// NodeProblem is why a node that a host reports gets no new servers there.
type NodeProblem struct {
	UUID string          `json:"uuid"`
	Code NodeProblemCode `json:"code"`
	// Host is the other host, for codes that are about one.
	Host string `json:"host,omitempty"`
	// Message describes the problem for people.
	Message string `json:"message"`
}

// NodeProblemCode is a kind of NodeProblem.
type NodeProblemCode string

// The codes.
const (
	// NodeElsewhere: another host has it.
	NodeElsewhere NodeProblemCode = "another-host"
	// NodeContested: this host has it, and another one reports it too.
	NodeContested NodeProblemCode = "contested"
	// NodeNotInCertificate: the certificate of this host has a list of nodes, without it.
	NodeNotInCertificate NodeProblemCode = "not-in-certificate"
	// NodeTooMany: the host has as many nodes as it may have.
	NodeTooMany NodeProblemCode = "too-many"
	// NodeNotMapped: the compute API does not use it.
	NodeNotMapped NodeProblemCode = "not-mapped"
	// NodeSeveralAgents: several agents report as this host, see HostState.Turn.
	NodeSeveralAgents NodeProblemCode = "several-agents"
)

// Refuses reports whether the cell does not take the node for the host.
func (c NodeProblemCode) Refuses() bool {
	return c == NodeElsewhere || c == NodeNotInCertificate || c == NodeTooMany
}

// NodesAnswer has the compute nodes of a cell.
type NodesAnswer struct {
	Nodes []ComputeNode `json:"compute_nodes"`
	// Forgotten are nodes that their hosts have not reported for a long time. The cell forgets them
	// after the compute API has done so ([NodesRequest]). Older cells leave it empty.
	Forgotten []string `json:"forgotten,omitempty"`
}

// TakesState reports whether the cell takes a NodesRequest. A cell does if it answers how hosts
// authenticate, or forgotten nodes; older ones answer neither.
func (a NodesAnswer) TakesState() bool {
	return len(a.Forgotten) > 0 || slices.ContainsFunc(a.Nodes, func(n ComputeNode) bool { return n.Auth != "" })
}

// NodesRequest is what the compute API says about the nodes of a cell.
type NodesRequest struct {
	// Problems has the reason for each node that the compute API does not use, by uuid. A node that
	// is not in it has no problem any more. Nil changes nothing.
	Problems map[string]string `json:"problems,omitzero"`
	// Forgotten are nodes that the compute API has forgotten, as [NodesAnswer].Forgotten asked for.
	Forgotten []string `json:"forgotten,omitempty"`
	// Host is a host whose nodes become free for other hosts to report: the nodes that it does not
	// report any more, or all if its agent does not live. "": none.
	Host string `json:"host,omitempty"`
}

// RenameRequest gives a host of a cell another name, and names to its nodes.
type RenameRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Nodes are the new names of nodes, by uuid; others keep theirs.
	Nodes map[string]string `json:"nodes"`
	// Check makes the cell answer whether it would refuse the request, without changing anything.
	Check bool `json:"check,omitempty"`
}

// MaxProblem bounds the reason of a problem of a node, in bytes.
const MaxProblem = 1000

// Bounds of the abilities of a node.
const (
	// MaxAbilities is how many a node has at most.
	MaxAbilities = 32
	// MaxAbility bounds the name of one, in bytes: lower-case letters, digits and hyphens.
	MaxAbility = 64
)

// abilityTexts complete "cannot".
var abilityTexts = map[string]string{
	plugins.AbilityConsoleLog: "show its console log",
	plugins.AbilityConsole:    "give access to its console",
	plugins.AbilityRebuild:    "rebuild it",
	plugins.AbilityMigrate:    "move it to another host",
}

// Unable is the refusal of what the host of a server cannot do ([CodeUnable]).
func Unable(uuid, ability string) *Error {
	text := abilityTexts[ability]
	if text == "" {
		text = "do that with it"
	}
	return &Error{
		Status: http.StatusConflict, Code: CodeUnable,
		Message: fmt.Sprintf("The host of instance %s cannot %s: its virt driver, or the agent, lacks the ability %q.",
			uuid, text, ability),
	}
}

// IsAbility reports whether a name can be that of an ability.
func IsAbility(name string) bool {
	if name == "" || len(name) > MaxAbility {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
