// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
)

// forgetAfter is how long a cell without requests is kept: it was removed.
const forgetAfter = 10 * time.Minute

// Options say how cells are asked.
type Options struct {
	// Client makes the client of a cell. It is kept as long as the cell has the same name and URL.
	Client func(apidb.Cell) (*cellclient.Client, error)
	// Timeout is how long a cell may take for one request, at least a moment; 0 is a minute, as
	// with Nova.
	Timeout time.Duration
	// FastFail is how long a cell that was too slow is taken for down without being asked. 0 is
	// off.
	FastFail time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger gets a line when a cell goes down and one when it is back.
	Logger zerolog.Logger
}

// Gatherer asks cells and remembers how they are. It is safe for concurrent use.
type Gatherer struct {
	options Options
	hangs   chan struct{} // a request found a cell that hangs
	// asked limits how many cells are asked at the same time by requests to several: at most
	// mostAsked.
	asked     *semaphore.Weighted
	mostAsked int64

	mu    sync.Mutex
	known map[string]*member // by uuid
}

// member is what is known of a cell under one name at one URL.
type member struct {
	client atomic.Pointer[cellclient.Client]
	making sync.Mutex // the client: making it may read files

	// The rest is the gatherer's to lock.
	cell     apidb.Cell
	state    CellState
	moved    CellState // how it was under its URL of before, if it was down there
	lastUsed time.Time
	hangs    bool      // it timed out, and has neither answered nor failed otherwise since
	until    time.Time // when it hangs: not to be asked before
	probed   bool      // Run is asking it
}

// CellState is the state of a cell as of its last request.
type CellState struct {
	Cell  apidb.Cell
	State State // 0 before the first request
	// Since is when it became so: up, or down.
	Since time.Time
	// LastAnswer is when it last gave an answer.
	LastAnswer time.Time
	// Cause is why it is down.
	Cause string
	// CircuitOpen says that requests are not sent to it now: it timed out.
	CircuitOpen bool
	// Answered, TimedOut, Failed count requests by how they ended, and NotSent those that met an
	// open circuit.
	Answered, TimedOut, Failed, NotSent uint64
}

// New makes a gatherer.
func New(o Options) *Gatherer {
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	most := int64(askedPerProcessor * runtime.GOMAXPROCS(0))
	return &Gatherer{options: o, hangs: make(chan struct{}, 1), asked: semaphore.NewWeighted(most), mostAsked: most, known: map[string]*member{}}
}

// States are the cells that were asked lately, by name.
func (g *Gatherer) States() []CellState {
	now := g.options.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	states := make([]CellState, 0, len(g.known))
	for _, m := range g.known {
		s := m.state
		s.Cell, s.CircuitOpen = m.cell, m.circuitOpen(now)
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b CellState) int {
		return cmp.Or(cmp.Compare(a.Cell.Name, b.Cell.Name), cmp.Compare(a.Cell.UUID, b.Cell.UUID))
	})
	return states
}

// circuitOpen reports whether requests must not be sent.
func (m *member) circuitOpen(now time.Time) bool { return m.hangs && (m.probed || now.Before(m.until)) }

// errCircuitOpen says that a request was not sent because the cell timed out before.
var errCircuitOpen = errors.New("not asked (circuit breaker open)")

// enter gives what is known of a cell that is about to be asked. The error is [errCircuitOpen],
// with why, for one that timed out.
func (g *Gatherer) enter(cell apidb.Cell) (*member, error) {
	now := g.options.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.member(cell, now)
	if !m.circuitOpen(now) {
		return m, nil
	}
	m.state.NotSent++
	return m, fmt.Errorf("%w, since %s: %s", errCircuitOpen, m.state.Since.UTC().Format(time.RFC3339), m.state.Cause)
}

// clientOf makes the client of a cell, or gives the one there is.
func (g *Gatherer) clientOf(m *member, cell apidb.Cell) (*cellclient.Client, error) {
	m.making.Lock()
	defer m.making.Unlock()
	if client := m.client.Load(); client != nil {
		return client, nil
	}
	client, err := g.options.Client(cell)
	if err != nil {
		return nil, &cellclient.Failure{Kind: cellclient.Broken, Err: fmt.Errorf("cannot make a client for it: %w", err)}
	}
	m.client.Store(client)
	return client, nil
}

// member finds or makes what is known of a cell. One of another name or at another URL is another
// cell. The lock is held.
func (g *Gatherer) member(cell apidb.Cell, now time.Time) *member {
	m := g.known[cell.UUID]
	var moved CellState
	if m != nil && (m.cell.URL != cell.URL || m.cell.Name != cell.Name) {
		m.close()
		switch {
		case m.state.State == 0:
			moved = m.moved
		case m.state.State != OK:
			moved = m.state
		}
		m = nil
	}
	if m == nil {
		g.forget(now)
		m = &member{moved: moved}
		g.known[cell.UUID] = m
	}
	m.cell, m.lastUsed = cell, now
	return m
}

// forget removes cells without requests for long. The lock is held.
func (g *Gatherer) forget(now time.Time) {
	for uuid, m := range g.known {
		if now.Sub(m.lastUsed) > forgetAfter {
			m.close()
			delete(g.known, uuid)
		}
	}
}

func (m *member) close() {
	if client := m.client.Load(); client != nil {
		client.CloseIdle()
	}
}

// CloseIdle closes connections that are not in use.
func (g *Gatherer) CloseIdle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.known {
		m.close()
	}
}

// note remembers what came of asking a cell since start. Full says that the cell had all the time
// it may have.
func (g *Gatherer) note(m *member, start time.Time, err error, full bool) verdict {
	v := classify(err)
	if v.ignored || v.state == TimedOut && !full {
		return v
	}
	now := g.options.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	before := m.state
	switch v.state {
	case OK:
		m.state.Answered++
		m.state.LastAnswer, m.state.Cause, m.hangs = now, "", false
	case TimedOut:
		m.state.TimedOut++
		if m.state.LastAnswer.After(start) {
			return v // It was this request that took long: others, begun later, were answered.
		}
		m.state.Cause, m.hangs = v.down.Error(), g.options.FastFail > 0
		m.until = now.Add(g.options.FastFail)
	default:
		m.state.Failed++
		m.state.Cause, m.hangs = v.down.Error(), false
	}
	m.state.State = v.state
	if m.hangs {
		g.wake()
	}
	if wasUp, isUp := before.State == 0 || before.State == OK, v.state == OK; wasUp != isUp || before.State == 0 {
		m.state.Since = now
		if before.State == 0 {
			before = m.moved
		}
		if g.known[m.cell.UUID] == m {
			g.log(m.cell, before, now, v)
		}
	}
	return v
}

// log logs that a cell went down or came back.
func (g *Gatherer) log(cell apidb.Cell, before CellState, now time.Time, v verdict) {
	entry := func(e *zerolog.Event) *zerolog.Event {
		return e.Str("cell", cell.Name).Str("cell_uuid", cell.UUID).Str("url", cell.URL)
	}
	switch {
	case v.state != OK:
		entry(g.options.Logger.Warn()).Err(v.down).Str("hint", v.hint).
			Msg("A cell is down. Its servers are shown as UNKNOWN and cannot be changed, and no new server is scheduled there.")
	case before.State != 0:
		entry(g.options.Logger.Info()).Str("down_for", now.Sub(before.Since).Round(time.Millisecond).String()).
			Msg("A cell is up again. Its servers are shown in full, and new servers are scheduled there.")
	}
}

// wake makes Run ask a cell that hangs.
func (g *Gatherer) wake() {
	select {
	case g.hangs <- struct{}{}:
	default: // It is about to.
	}
}
