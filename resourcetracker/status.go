// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// State is how a tracker or one of its nodes is doing.
type State string

// The states.
const (
	// Starting: no pass has ended yet.
	Starting State = "starting"
	// Reporting: the last pass succeeded, and Placement has what the driver reports.
	Reporting State = "reporting"
	// Degraded: the last pass failed. Placement has what the last successful pass wrote.
	Degraded State = "degraded"
	// Orphaned: the driver no longer names the node. Placement has what was last written.
	Orphaned State = "orphaned"
)

// Status is a tracker as people and monitors see it.
type Status struct {
	Driver string `json:"driver"`
	State  State  `json:"state"`
	// Failures counts the failed passes since the last successful one.
	Failures int `json:"failures"`
	// Error, Cause and Hint are of the last pass, if it failed before any node was reached.
	Error string       `json:"error,omitempty"`
	Cause Cause        `json:"cause,omitempty"`
	Hint  string       `json:"remedy,omitempty"`
	Nodes []NodeStatus `json:"nodes"`
	// Contested are the nodes that the driver names and does not get, because another driver has
	// them or names them too.
	Contested []Contested `json:"contested,omitempty"`
	// Named says that the driver has named its nodes since the start.
	Named bool `json:"-"`
}

// NodeStatus is one compute node.
type NodeStatus struct {
	Name  string `json:"name"`
	UUID  string `json:"uuid"`
	State State  `json:"state"`
	// LastSuccess is when Placement was last known to have what the driver reports; zero: never
	// since the start.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// LastAnswer is when the driver last returned a tree for the node, or
	// [plugins.ErrReshapeNeeded]; zero: never since the start.
	LastAnswer time.Time `json:"last_answer,omitzero"`
	// Unanswered: the last call of the driver for the node, or for the list of nodes, failed. An
	// answer "not ready" is a failure, too.
	Unanswered bool `json:"unanswered,omitempty"`
	// LastChange is when something was last written for the node, and Changes what was written.
	LastChange time.Time `json:"last_change,omitzero"`
	Changes    []string  `json:"changes,omitempty"`
	// Passes and Writes count since the start.
	Passes int64 `json:"passes"`
	Writes int64 `json:"writes"`
	// Failures counts the failed passes since the last successful one. Error, Cause and Hint are
	// about the last one; Violations are all reasons why a reshape was refused.
	Failures   int      `json:"failures"`
	Error      string   `json:"error,omitempty"`
	Cause      Cause    `json:"cause,omitempty"`
	Hint       string   `json:"remedy,omitempty"`
	Violations []string `json:"offenders,omitempty"`
	// Held: its reshape or its identity was refused at start-up, and nothing is tried or written
	// before an operator asks.
	Held bool `json:"held,omitempty"`
	// Layout is the layout version of the tree, 0 if the driver's layouts have no versions. Shape
	// is the same, under the name that it had up to release 0.2.0.
	Layout int `json:"layout,omitempty"`
	Shape  int `json:"shape,omitempty"`
	// DisabledReason is why the node is disabled, so that no new servers are scheduled to it; "" if
	// it is not.
	DisabledReason string `json:"disabled_reason,omitempty"`
	// Kept is what the driver removed from its tree and the agent put back, because it belongs to
	// another client.
	Kept []string `json:"kept,omitempty"`
	// Conflicts are the entries of provider.yaml that have no effect, and why.
	Conflicts []string `json:"conflicts,omitempty"`
	// Draining is inventory that the driver no longer reports but guests still use. It stays in
	// Placement, closed for new allocations, until it is free.
	Draining []string `json:"retiring,omitempty"`
	// Differing are the allocations of guests that differ from what the driver lists, after a
	// reshape.
	Differing []string `json:"differing_allocations,omitempty"`
	// Flapping are the items that the driver reports differently in nearly every pass, with their
	// last values.
	Flapping []string `json:"flapping,omitempty"`
	// Overwritten are the items that another client changes again and again, and that this agent
	// restores.
	Overwritten []string `json:"overwritten,omitempty"`
	// Writing is the progress of a pass that is writing to Placement now; nil if none is.
	Writing *Writing `json:"writing,omitempty"`
	// Drift are the items that this agent wrote and that the last pass found changed in Placement.
	Drift []string `json:"drift,omitempty"`
	// Orphaned is why a node is still in Placement that was reported before and that the driver no
	// longer names; "" for all other nodes.
	Orphaned string `json:"orphaned,omitempty"`
	// ReportedBy is the other host that reports an orphaned node now; "": none is known.
	ReportedBy string `json:"reported_by,omitempty"`
	// NotNamed: the certificate of this host does not name an orphaned node, but others.
	NotNamed bool `json:"not_named,omitempty"`
}

// Writing is a pass that is writing to Placement.
type Writing struct {
	// Operations is how many writes the pass has, and Done how many of them have ended, whether
	// they succeeded or not.
	Done       int       `json:"done"`
	Operations int       `json:"operations"`
	Since      time.Time `json:"since"`
}

// nodeState is a node's status and what its passes remember. But for the status, only the pass
// under way touches it.
type nodeState struct {
	NodeStatus
	// cause is the cause of the last failure. Only a failure with another one is a new one.
	cause string
	// startup: start-up still lasts for this node.
	startup bool
	// record is what is ours in Placement; saved says that the state directory has it.
	record *ownership.Record
	saved  bool
	// adopted is what the node was before this agent's first write, nil if that is not known.
	// adoptedSaved: adopted needs no write to the state directory.
	adopted      *ownership.Adopted
	adoptedSaved bool
	// flaps are the items that the last passes wrote.
	flaps flaps
	// reshaped is 0 unless the last pass that succeeded made a reshape; then it is one more than
	// the tracker's configured was.
	reshaped int64
	// used is how much was allocated of what drains.
	used map[string]cachedUsage
	// unmatched are the entries of provider.yaml that this node has no provider for, by their keys.
	// Guarded by the tracker's mu.
	unmatched map[string]bool
	// guests is when the driver was last asked for its guests.
	guests time.Time
	// enabling: the next pass that succeeds removes TraitStatusDisabled, also if another client set
	// it.
	enabling bool
	// writingLogged is when the log last said how far the writes of the pass have come.
	writingLogged time.Time
	// logged are the lines that were logged and still hold.
	logged map[string]bool
}

// Status returns how the tracker and its nodes are doing.
func (t *Tracker) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Nodes, s.Contested, s.Named = []NodeStatus{}, slices.Clone(s.Contested), t.nodesNamed
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name].NodeStatus
		n.Unanswered = n.State != Orphaned && (n.Unanswered || t.nameless)
		// as it is now, stored in Placement or not
		if t.config.Disabled != nil && n.State != Orphaned {
			n.DisabledReason, _ = t.config.Disabled(plugins.Node{Name: n.Name, UUID: n.UUID})
		}
		for _, list := range []*[]string{&n.Changes, &n.Violations, &n.Kept, &n.Conflicts, &n.Draining, &n.Drift,
			&n.Differing, &n.Flapping, &n.Overwritten} {
			*list = slices.Clone(*list)
		}
		if n.Writing != nil {
			writing := *n.Writing
			n.Writing = &writing
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// addNodes adds the nodes that the driver names. For those that it names first, at the start of the
// agent, start-up begins.
func (t *Tracker) addNodes(nodes []plugins.Node) {
	for _, node := range nodes {
		t.stateOf(node)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodesNamed = true
}

func (t *Tracker) stateOf(node plugins.Node) *nodeState {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.nodes[node.Name]
	if s == nil || s.UUID != node.UUID {
		s = &nodeState{NodeStatus: NodeStatus{Name: node.Name, State: Starting}, startup: !t.nodesNamed &&
			!t.config.Running, flaps: flaps{}}
		t.nodes[node.Name] = s
	}
	s.UUID = node.UUID
	return s
}

// noteContested keeps the nodes that the driver names and does not get.
func (t *Tracker) noteContested(held []*ClaimedError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Contested = contestedNodes(held)
}

// noteOutcome keeps the outcome of the passes over all nodes. Nodes that the driver does not name
// any more leave the status (and nothing else).
func (t *Tracker) noteOutcome(err error, nodes []plugins.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.status.State, t.status.Failures, t.status.Error, t.status.Hint = Reporting, 0, "", ""
		t.status.Cause = ""
	} else {
		t.status.State = Degraded
		t.status.Failures++
		t.status.Error, t.status.Hint, t.status.Cause = "", "", ""
	}
	if nodes == nil {
		t.status.Error, t.status.Hint, t.status.Cause = err.Error(), hint(err), kindOf(err)
		for _, n := range t.nodes {
			if n.State != Orphaned {
				n.State = Degraded
				n.Failures++
			}
		}
		t.logFailure(t.status.Failures, "", &t.cause, err)
		return
	}
	maps.DeleteFunc(t.nodes, func(name string, s *nodeState) bool {
		return s.Orphaned == "" && !slices.ContainsFunc(nodes, func(n plugins.Node) bool { return n.Name == name })
	})
	if len(t.status.Contested) > 0 {
		t.status.State = Degraded
	}
	for _, n := range t.nodes {
		if n.Held {
			t.status.State = Degraded
		}
	}
}

// noteAnswer records whether the driver answered for a node. A cancelled call changes nothing.
func (t *Tracker) noteAnswer(ctx context.Context, node string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	if n == nil {
		return
	}
	var failed *plugins.ReshapeFailed
	n.Unanswered = err != nil && !errors.Is(err, plugins.ErrReshapeNeeded) && !errors.As(err, &failed)
	if !n.Unanswered {
		n.LastAnswer = time.Now()
	}
}

// loadFormerNodes makes the nodes known that this driver had in an earlier run of the agent. It is
// for a driver that cannot list them: that they are disabled is reported without waiting for the
// driver.
//
// Cost: one read of the records, once, and only if the first question of all fails.
func (t *Tracker) loadFormerNodes() {
	t.mu.Lock()
	done := t.nodesNamed || t.recordsLoaded
	t.recordsLoaded = true
	t.mu.Unlock()
	if done || t.config.Records == nil {
		return
	}
	records, err := t.config.Records.List()
	if err != nil {
		t.config.Logger.Warn().Str("driver", t.config.Name).Err(err).
			Msg("Not all records of former nodes can be read, so some are not shown until the driver names them.")
	}
	for _, r := range records {
		if r.Driver == t.config.Name && (t.config.HasOtherDriver == nil || !t.config.HasOtherDriver(r.Root)) {
			t.stateOf(plugins.Node{Name: r.Node, UUID: r.Root})
		}
	}
}

// noteWrites records and logs what a pass wrote, also if the pass failed afterwards.
func (t *Tracker) noteWrites(ctx context.Context, n *nodeState, done []reportclient.Operation) {
	if len(done) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n.LastChange, n.Changes = time.Now(), nil
	n.Writes += int64(len(done))
	for _, op := range t.accepted(done) {
		n.Changes = append(n.Changes, op.String())
		t.config.Logger.Info().Str("driver", t.config.Name).Str("node", n.Name).Str("operation", op.Kind.String()).
			Str("request_id", plugins.RequestID(ctx)).Msg(op.Done() + ".")
	}
}

// noteFlaps keeps what the driver reports otherwise at every pass, and what others overwrite.
func (t *Tracker) noteFlaps(n *nodeState, done []reportclient.Operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.flaps.observe(done)
	n.Flapping, n.Overwritten = n.flaps.lines(), n.flaps.overwritten()
}

// noteDiffering keeps what guests hold that is not what the driver lists, and logs it when it
// changes.
func (t *Tracker) noteDiffering(n *nodeState, differing []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(differing) > 0 && !slices.Equal(n.Differing, differing) {
		t.config.Logger.Warn().Str("driver", t.config.Name).Str("node", n.Name).Strs("differing", differing).
			Msg("Since the reshape, guests hold other allocations than the driver lists. `compute-agent allocations " +
				"audit` shows both.")
	}
	n.Differing = differing
}

// writingLogEvery is how often the log says how far the writes of a pass have come.
const writingLogEvery = 10 * time.Second

// noteWriting keeps how far the writes of a pass have come; no operations: it has ended.
func (t *Tracker) noteWriting(n *nodeState, done, operations int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case operations == 0:
		n.Writing = nil
	case n.Writing == nil:
		n.Writing = &Writing{Operations: operations, Since: time.Now()}
		n.writingLogged = n.Writing.Since
	default:
		n.Writing.Done = done
		if now := time.Now(); now.Sub(n.writingLogged) >= writingLogEvery {
			n.writingLogged = now
			t.config.Logger.Info().Str("driver", t.config.Name).Str("node", n.Name).Int("done", done).
				Int("operations", n.Writing.Operations).
				Stringer("since", now.Sub(n.Writing.Since).Round(time.Second)).
				Msg("Still writing to Placement. Each write is logged when all are done.")
		}
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
		e.Msg("The node is reported again. Placement is up to date.")
	}
	first := n.Passes == 0
	n.State, n.LastSuccess, n.Failures, n.Error, n.Hint, n.cause = Reporting, now, 0, "", "", ""
	n.Cause, n.Violations, n.Held, n.startup, n.enabling = "", nil, false, false, false
	t.cause = ""
	n.Passes++
	if first && n.Writes == 0 {
		log.Info().Str("uuid", n.UUID).Msg("Placement is already up to date: nothing to write.")
	}
	log.Debug().Str("reason", reason).Int("writes", writes).Dur("took", took).Msg("Finished the pass.")
}

func (t *Tracker) noteFailure(n *nodeState, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.fail(err)
	t.logFailure(n.Failures, n.Name, &n.cause, err)
}

// noteFatal keeps why the agent ends; the caller that ends it logs that. The violations of a
// reshape are logged only here.
func (t *Tracker) noteFatal(n *nodeState, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.fail(err)
	if n.Cause == CauseReshapeRefused {
		t.logRefusal(n, "The reshape is refused: nothing was moved, and guests are not affected. The agent exits; "+
			"with [reshape] on_failure = \"hold\" it stays up.")
	}
}

// logRefusal says all that stands against a reshape.
func (t *Tracker) logRefusal(n *nodeState, message string) {
	t.config.Logger.Error().Str("driver", t.config.Name).
		Str("node", n.Name).Str("error", n.Error).Strs("offenders", n.Violations).Str("hint", n.Hint).Msg(message)
}

func (n *nodeState) fail(err error) {
	n.State = Degraded
	n.Failures++
	n.Error, n.Hint, n.Cause, n.Violations = summary(err), hint(err), kindOf(err), violations(err)
}

// noteHeld keeps that a node waits for an operator.
func (t *Tracker) noteHeld(n *nodeState, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.fail(err)
	n.Held = true
	what, hint := "The reshape", "; then `compute-agent refresh`, or a reload, tries again"
	if n.Cause == CauseIdentity {
		what, hint = "The identity of the node",
			"; `compute-agent adopt` is for an agent that is stopped. After another fix, `compute-agent refresh`, "+
				"or a reload, tries again"
	}
	if !strings.Contains(n.Hint, "compute-agent refresh") {
		n.Hint += hint
	}
	t.logRefusal(n, what+
		" is refused and the node is held: the agent stays up and writes nothing for it. Placement is unchanged, "+
		"and guests are not affected.")
}

// logEvery is how many failures in a row make one more line: the first says everything, and a night
// of retries must not bury it. Another cause is logged at once.
const logEvery = 10

func (t *Tracker) logFailure(failures int, node string, before *string, err error) {
	level := zerolog.DebugLevel
	cause := causeOf(err)
	if failures == 1 || failures%logEvery == 0 || cause != *before {
		level = zerolog.WarnLevel
	}
	*before = cause
	e := t.config.Logger.WithLevel(level).Str("driver", t.config.Name).
		Str(zerolog.ErrorFieldName, summary(err)).Int("failures", failures)
	if all := violations(err); len(all) > 0 {
		e = e.Strs("offenders", all)
	}
	if node != "" {
		e = e.Str("node", node)
	}
	if r := hint(err); r != "" {
		e = e.Str("hint", r)
	}
	e.Msg("The pass failed. Placement keeps the result of the last successful pass, guests are not affected, and " +
		"the agent tries again.")
}

// causeOf names the kind of a failure, without what differs from try to try (request ids).
func causeOf(err error) string {
	var step *passError
	if errors.As(err, &step) {
		return step.step + ": " + hint(err)
	}
	var refused *reshape.Error
	if errors.As(err, &refused) {
		return refused.Problem
	}
	return hint(err)
}

// hint is what an operator can do about a failed pass, or "".
func hint(err error) string {
	var refused *reshape.Error
	var identityErr *identity.Error
	var older *reshape.OlderDriverError
	var again *repeatedReshape
	switch {
	case errors.As(err, &older):
		return older.Hint()
	case errors.As(err, &again):
		return "report it to the driver's author: after a reshape UpdateProviderTree must return the tree as it is " +
			"and ask for nothing. The previous version of the driver " +
			"works, unless it is older than the tree"
	case errors.As(err, &refused):
		return refused.Hints()
	case errors.As(err, &identityErr):
		return identityErr.Hint
	case errors.Is(err, reportclient.ErrIdentity):
		return "see docs/operators.md, \"Identity\""
	case errors.Is(err, reportclient.ErrRefused):
		return "check the credentials in [placement_client] (auth and the keys that belong to it); Placement " +
			"requires the role service or admin, or a host's certificate or token; `compute-agent doctor` tests them"
	case errors.Is(err, reportclient.ErrNotAdmitted):
		return "if this machine has what the driver reports, a person admits it, on the machine of the compute API: " +
			"Placement's message names the command " +
			"(compute-agent cells manage admit-host); see docs/identity.md"
	case errors.Is(err, reportclient.ErrHostRefused):
		return "Placement's message names the rule; the name in the host's certificate or token must be agent.host, " +
			"see docs/identity.md"
	case errors.Is(err, reportclient.ErrTooOld):
		return "the agent and this Placement have no microversion in common: upgrade the older one"
	case errors.Is(err, reportclient.ErrUnavailable):
		return "check that Placement (and Keystone, if configured) is running and that [placement_client] points to " +
			"it; `compute-agent doctor` tests each"
	case errors.Is(err, reportclient.ErrUnexpected):
		return "check [placement_client] url: the server there is not Placement"
	case errors.Is(err, reportclient.ErrInventoryInUse), errors.Is(err, reportclient.ErrProviderInUse):
		return "guests still use inventory that the driver no longer reports: `openstack resource provider show " +
			"--allocations UUID` lists them"
	case errors.Is(err, plugins.ErrNotReady):
		return "the driver's message says what it waits for; `compute-agent doctor` checks the usual causes"
	case errors.Is(err, plugins.ErrReshapeNeeded):
		return "restart the agent (systemctl restart compute-agent), which moves inventory and allocations " +
			"together; `compute-agent plan --reshape` shows beforehand what moves where"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, fs.ErrPermission):
		return "the agent must be able to write to its state directory (agent.state_dir); `compute-agent " +
			"doctor` checks it"
	}
	return ""
}
