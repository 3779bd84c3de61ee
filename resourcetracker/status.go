// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
)

// State is how a tracker or one of its nodes is doing.
type State string

// The states.
const (
	// Starting: no pass has ended yet.
	Starting State = "starting"
	// Reporting: the last pass succeeded, and Placement says what the driver says.
	Reporting State = "reporting"
	// Degraded: the last pass failed. Placement says what the last good pass left there.
	Degraded State = "degraded"
)

// Status is a tracker as people and monitors see it.
type Status struct {
	Driver string `json:"driver"`
	State  State  `json:"state"`
	// Failures counts the turns that failed since the last one that did not.
	Failures int `json:"failures"`
	// Error and Remedy are of the last turn, if it failed before any node was reached.
	Error  string       `json:"error,omitempty"`
	Remedy string       `json:"remedy,omitempty"`
	Nodes  []NodeStatus `json:"nodes"`
}

// NodeStatus is one compute node.
type NodeStatus struct {
	Name  string `json:"name"`
	UUID  string `json:"uuid"`
	State State  `json:"state"`
	// LastSuccess is when Placement last was known to say what the driver says; zero: never since the start.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// LastChange is when something was last written, and Changes what.
	LastChange time.Time `json:"last_change,omitzero"`
	Changes    []string  `json:"changes,omitempty"`
	// Passes and Writes count since the start.
	Passes int64 `json:"passes"`
	Writes int64 `json:"writes"`
	// Failures counts the failed passes since the last good one; Error and Remedy are of the last.
	Failures int    `json:"failures"`
	Error    string `json:"error,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

// nodeState is a node's status and the cause of its last failure, by which another one is told from the same again.
type nodeState struct {
	NodeStatus
	cause string
}

// Status returns how the tracker and its nodes are doing.
func (t *Tracker) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Nodes = []NodeStatus{}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name].NodeStatus
		n.Changes = slices.Clone(n.Changes)
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func (t *Tracker) state(node plugins.Node) *nodeState {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.nodes[node.Name]
	if s == nil {
		s = &nodeState{NodeStatus: NodeStatus{Name: node.Name, State: Starting}}
		t.nodes[node.Name] = s
	}
	s.UUID = node.UUID
	return s
}

// noteTurn keeps the outcome of a turn. Nodes that the driver does not name any more leave the status (and nothing else).
func (t *Tracker) noteTurn(err error, nodes []plugins.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.status.State, t.status.Failures, t.status.Error, t.status.Remedy = Reporting, 0, "", ""
	} else {
		t.status.State = Degraded
		t.status.Failures++
		t.status.Error, t.status.Remedy = "", ""
	}
	if nodes == nil {
		t.status.Error, t.status.Remedy = err.Error(), remedy(err)
		for _, n := range t.nodes {
			n.State = Degraded
			n.Failures++
		}
		t.logFailure(t.status.Failures, "", &t.cause, err)
		return
	}
	maps.DeleteFunc(t.nodes, func(name string, _ *nodeState) bool {
		return !slices.ContainsFunc(nodes, func(n plugins.Node) bool { return n.Name == name })
	})
}

// noteWrites keeps and tells what was written, whatever became of the rest of the pass.
func (t *Tracker) noteWrites(n *nodeState, done []reportclient.Operation) {
	if len(done) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n.LastChange, n.Changes = time.Now(), nil
	n.Writes += int64(len(done))
	for _, op := range done {
		n.Changes = append(n.Changes, op.String())
		t.config.Logger.Info().Str("driver", t.config.Name).Str("node", n.Name).Str("operation", op.Kind.String()).Msg("Placement was told: " + op.String() + ".")
	}
}

func (t *Tracker) noteSuccess(n *nodeState, writes int, reason string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	log := t.config.Logger.With().Str("driver", t.config.Name).Str("node", n.Name).Logger()
	if n.State == Degraded {
		e := log.Info().Int("failed_passes", n.Failures)
		if !n.LastSuccess.IsZero() {
			e = e.Stringer("outage", now.Sub(n.LastSuccess).Round(time.Second))
		}
		e.Msg("The node is reported again. Placement says what the driver says.")
	}
	first := n.Passes == 0
	n.State, n.LastSuccess, n.Failures, n.Error, n.Remedy, n.cause = Reporting, now, 0, "", "", ""
	t.cause = ""
	n.Passes++
	if first && n.Writes == 0 {
		log.Info().Str("uuid", n.UUID).Msg("Placement already says what the driver says: nothing to write.")
	}
	log.Debug().Str("reason", reason).Int("writes", writes).Dur("took", took).Msg("The pass is done.")
}

func (t *Tracker) noteFailure(n *nodeState, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.State = Degraded
	n.Failures++
	n.Error, n.Remedy = err.Error(), remedy(err)
	t.logFailure(n.Failures, n.Name, &n.cause, err)
}

// logEvery is how many failures in a row make one more line: the first says everything, and a night of retries must not
// bury it. Another cause is news, though.
const logEvery = 10

func (t *Tracker) logFailure(failures int, node string, before *string, err error) {
	level := zerolog.DebugLevel
	cause := causeOf(err)
	if failures == 1 || failures%logEvery == 0 || cause != *before {
		level = zerolog.WarnLevel
	}
	*before = cause
	e := t.config.Logger.WithLevel(level).Str("driver", t.config.Name).Err(err).Int("failures", failures)
	if node != "" {
		e = e.Str("node", node)
	}
	if r := remedy(err); r != "" {
		e = e.Str("remedy", r)
	}
	e.Msg("The pass failed. What Placement says stays as the last good pass left it, guests are not affected, and the agent tries again.")
}

// causeOf names the kind of a failure, without what differs from try to try (request ids).
func causeOf(err error) string {
	var step *passError
	if errors.As(err, &step) {
		return step.step + ": " + remedy(err)
	}
	return remedy(err)
}

// remedy is what a person can do about a failed pass, or "".
func remedy(err error) string {
	var reshape *plugins.ReshapeFailed
	switch {
	case errors.Is(err, reportclient.ErrIdentity):
		return "see docs/operators.md, \"Identity\""
	case errors.Is(err, reportclient.ErrRefused):
		return "check [placement_client] auth and token_file; Placement wants the role admin or service"
	case errors.Is(err, reportclient.ErrTooOld):
		return "upgrade the Placement service"
	case errors.Is(err, reportclient.ErrUnavailable):
		return "check that Placement runs and that [placement_client] url is right; `compute-agent doctor` looks at both"
	case errors.Is(err, reportclient.ErrUnexpected):
		return "check [placement_client] url: something answers there that is not Placement"
	case errors.Is(err, reportclient.ErrInventoryInUse), errors.Is(err, reportclient.ErrProviderInUse):
		return "guests still use what the driver no longer reports: `openstack resource provider show --allocations UUID` names them"
	case errors.Is(err, plugins.ErrNotReady):
		return "the driver's own message says what it waits for; `compute-agent doctor` looks at the usual causes"
	case errors.Is(err, plugins.ErrReshapeNeeded), errors.As(err, &reshape):
		return "inventory that guests use must move to another provider, which this version of the agent does not do: go back to the driver's former version"
	}
	return ""
}
