// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Status is how a worker is doing.
type Status struct {
	// Up: the cell took the last heartbeat. Since is when Up last changed; zero until the first
	// heartbeat was answered or failed.
	Up    bool      `json:"up"`
	Since time.Time `json:"since,omitzero"`
	// Error is why the last heartbeat failed. Denied: the cell and this agent reject each other's
	// identity.
	Error  string `json:"error,omitempty"`
	Denied bool   `json:"denied,omitempty"`
	// Epoch is the epoch of the cell's database, "" if it is not known yet.
	Epoch string `json:"-"`
	// Service is the uuid of this host's service there.
	Service string `json:"service,omitempty"`
	// Nodes are the names of the nodes that are reported to the cell. Refused are the uuids of
	// nodes that the cell rejects because they belong to another host.
	Nodes   []string `json:"nodes,omitempty"`
	Refused []string `json:"refused,omitempty"`
	// Held are the names of nodes that are held: they are not reported to the cell, and nothing is
	// done about their servers.
	Held []string `json:"held_nodes,omitempty"`
	// Problems are why nodes get no new servers on this host; cells of older versions do not say.
	Problems []cellwire.NodeProblem `json:"node_problems,omitempty"`
	// Servers is how many servers the cell has on this host; Busy is how many of them are being
	// created, removed, started or stopped.
	Servers int `json:"servers"`
	Busy    int `json:"busy"`
	// Waiting is how many reports the cell has not taken yet.
	Waiting int       `json:"reports_waiting"`
	Unknown []Unknown `json:"unknown_guests,omitempty"`
	// Idle are guests of servers about which this host has nothing to do. Missing are servers whose
	// guests do not exist.
	Idle    []Idle    `json:"idle_guests,omitempty"`
	Missing []Missing `json:"missing_guests,omitempty"`
	Stuck   []Stuck   `json:"stuck,omitempty"`
	Counts
}

// ProblemsOfNodes returns the problems without the one that [Status.SeveralAgents] returns.
func (s Status) ProblemsOfNodes() []cellwire.NodeProblem {
	return slices.DeleteFunc(slices.Clone(s.Problems), ofSeveralAgents)
}

// SeveralAgents returns what the cell answers if several agents report as this host, once for all
// nodes; "" if one does.
func (s Status) SeveralAgents() string {
	if i := slices.IndexFunc(s.Problems, ofSeveralAgents); i >= 0 {
		return strings.TrimSuffix(s.Problems[i].Message, ".")
	}
	return ""
}

// severalAgents is [Status.SeveralAgents] of the last heartbeat.
func (w *Worker) severalAgents() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Status{Problems: w.lastHeartbeat.problems}.SeveralAgents()
}

func ofSeveralAgents(p cellwire.NodeProblem) bool { return p.Code == cellwire.NodeSeveralAgents }

// Unknown is a guest that the driver created and that belongs to no server in the cell.
type Unknown struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	Node string `json:"node"`
}

// Idle is a guest whose server is in the cell, on this host, with nothing to be done about it.
type Idle struct {
	UUID      string `json:"uuid"`
	Name      string `json:"name"` // of the server
	Node      string `json:"node"`
	ProjectID string `json:"project_id"`
	VMState   string `json:"vm_state"`
	TaskState string `json:"task_state,omitempty"`
}

// Missing is a server that should have a guest on this host, but has none.
type Missing struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	Node string `json:"node"`
	// Resized: the server was migrated here, and its former host keeps a guest so that it can go
	// back.
	Resized bool `json:"resized,omitempty"`
	// NowOn is the host to which the server was migrated, if this host should keep the guest so
	// that it can go back; "" otherwise.
	NowOn string `json:"now_on,omitempty"`
}

// Stuck is a server that is not as the cell wants it, and why.
type Stuck struct {
	UUID    string        `json:"uuid"`
	Want    cellwire.Want `json:"want"`
	Since   time.Time     `json:"since"`
	Problem string        `json:"problem"`
}

// Counts counts the calls of drivers since the start of the agent.
type Counts struct {
	Spawns   Outcomes `json:"spawns"`
	Destroys Outcomes `json:"destroys"`
}

// Outcomes counts calls of drivers by how they ended.
type Outcomes struct {
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
}

func (o *Outcomes) count(err error) {
	if err != nil {
		o.Failed++
		return
	}
	o.Succeeded++
}

// Names returns the names of the servers that the cell has on this host, by uuid. It does not
// block.
func (w *Worker) Names() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := make(map[string]string, len(w.servers))
	for uuid, s := range w.servers {
		if s.known {
			names[uuid] = s.item.Server.Name
		}
	}
	return names
}

// Server is the desired state of a server that is on this host, or moves from it or to it.
type Server struct {
	Name string
	Want cellwire.Want
	// Migration is the uuid of the migration that the desired state is for, or "".
	Migration string
}

// Servers returns all servers that the cell has sent to this host, by uuid. unknown says why they
// may be out of date: the cell does not answer, or has not sent all since it answered again. It
// does not block.
func (w *Worker) Servers() (servers map[string]Server, unknown string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	servers = make(map[string]Server, len(w.servers))
	for uuid, s := range w.servers {
		if s.known {
			servers[uuid] = Server{Name: s.item.Server.Name, Want: s.item.Want, Migration: migrationOf(s.item).UUID}
		}
	}
	switch {
	case !w.lastHeartbeat.up && w.lastHeartbeat.err != "":
		unknown = "the cell does not answer: " + w.lastHeartbeat.err
	case !w.lastHeartbeat.up, !w.complete:
		unknown = "the cell has not told all servers of this host to a running agent: start it (systemctl start " +
			"compute-agent), and repeat the command when `compute-agent status` shows the cell as up"
	case w.revision == 0: // heartbeats are answered, and the last poll was not
		unknown = "the cell did not answer when it was last asked for the servers of this host: repeat the command " +
			"in a minute; the cell's log says why if that stays"
	}
	return servers, unknown
}

func (w *Worker) count(change func(*Counts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.counts)
}

// Status returns the status of the worker. It does not block.
func (w *Worker) Status() Status {
	nodes := w.reportable()
	waiting := w.outbox.len()
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.lastHeartbeat
	out := Status{
		Up: c.up, Since: c.since, Error: c.err, Denied: c.denied, Epoch: w.epoch, Service: c.service.UUID,
		Refused:  slices.Clone(c.refused),
		Problems: slices.Clone(c.problems),
		Waiting:  waiting, Counts: w.counts,
	}
	for _, n := range nodes {
		out.Nodes = append(out.Nodes, n.Name)
	}
	for _, n := range w.held {
		out.Held = append(out.Held, n.Name)
	}
	slices.Sort(out.Held)
	for uuid, s := range w.servers {
		if s.known {
			out.Servers++
		}
		if s.task {
			out.Busy++
		}
		if s.problem != "" && s.known && s.task {
			out.Stuck = append(out.Stuck, Stuck{UUID: uuid, Want: s.item.Want, Since: s.since, Problem: s.problem})
		}
		if kept := s.known && keepsGuest(s.item); s.missing && (kept || s.hasGuest()) {
			one := Missing{UUID: uuid, Name: s.item.Server.Name, Resized: !kept &&
				s.item.Server.VMState == cellwire.VMResized}
			if _, one.Node = w.nodeRef(s.item); kept {
				one.NowOn = s.item.Server.Host
			}
			out.Missing = append(out.Missing, one)
		}
	}
	for _, n := range w.nodes {
		for uuid, name := range n.unknown {
			out.Unknown = append(out.Unknown, Unknown{UUID: uuid, Name: name, Node: n.Name})
		}
		for uuid := range n.idle {
			if s := w.servers[uuid]; s != nil && s.known && s.item.Want == cellwire.WantIdle {
				of := s.item.Server
				out.Idle = append(out.Idle, Idle{
					UUID: uuid, Name: of.Name, Node: n.Name, ProjectID: of.ProjectID,
					VMState: of.VMState, TaskState: of.TaskState,
				})
			}
		}
	}
	slices.SortFunc(out.Unknown, func(a, b Unknown) int { return cmp.Compare(a.UUID, b.UUID) })
	slices.SortFunc(out.Idle, func(a, b Idle) int { return cmp.Compare(a.UUID, b.UUID) })
	slices.SortFunc(out.Missing, func(a, b Missing) int { return cmp.Compare(a.UUID, b.UUID) })
	slices.SortFunc(out.Stuck, func(a, b Stuck) int { return cmp.Compare(a.UUID, b.UUID) })
	return out
}
