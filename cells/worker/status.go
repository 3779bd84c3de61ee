// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Status is how a worker is doing.
type Status struct {
	// Up: the cell took the last heartbeat. Since is when that began, or ended; zero: none was
	// answered or refused yet.
	Up    bool
	Since time.Time
	// Error is why the last heartbeat was not taken; Denied: the cell refuses who this agent says
	// it is.
	Error  string
	Denied bool
	// Epoch is that of the cell's database, "" if it is not known yet.
	Epoch   string
	Service cellwire.Service
	// Nodes are reported to the cell, Refused the uuids of those that it rejects.
	Nodes   []cellwire.ReportedNode
	Refused []string
	// Servers are those that the cell has on this host, Busy those that are being made, removed,
	// started or stopped.
	Servers, Busy int
	// Waiting is how many reports the cell has not taken yet.
	Waiting int
	Unknown []Unknown
	Stuck   []Stuck
	Counts  Counts
}

// Unknown is a guest that the driver made and no row of the cell is about.
type Unknown struct{ UUID, Name, Node string }

// Stuck is a server that is not as the cell wants it, and why.
type Stuck struct {
	UUID    string
	Want    cellwire.Want
	Since   time.Time
	Problem string
}

// Counts are since the start.
type Counts struct {
	Spawns, Destroys Outcomes
}

// Outcomes counts calls of drivers by how they ended.
type Outcomes struct{ Succeeded, Failed int64 }

func (o *Outcomes) count(err error) {
	if err != nil {
		o.Failed++
		return
	}
	o.Succeeded++
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
	c := w.contact
	out := Status{
		Up: c.up, Since: c.since, Error: c.err, Denied: c.denied, Epoch: w.epoch, Service: c.service, Nodes: nodes, Refused: slices.Clone(c.refused),
		Waiting: waiting, Counts: w.counts,
	}
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
	}
	for _, n := range w.nodes {
		for uuid, name := range n.unknown {
			out.Unknown = append(out.Unknown, Unknown{UUID: uuid, Name: name, Node: n.Name})
		}
	}
	slices.SortFunc(out.Unknown, func(a, b Unknown) int { return cmp.Compare(a.UUID, b.UUID) })
	slices.SortFunc(out.Stuck, func(a, b Stuck) int { return cmp.Compare(a.UUID, b.UUID) })
	return out
}
