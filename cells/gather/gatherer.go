// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"cmp"
	"context"
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

// Options say how cells are asked.
type Options struct {
	// Client makes the client of a cell. It is kept as long as the cell has the same name and URL.
	Client func(apidb.Cell) (*cellclient.Client, error)
	// Timeout is how long a cell may take for one request, at least a moment; 0 is a minute, as
	// with Nova.
	Timeout time.Duration
	// PingInterval is how often [Gatherer.Run] pings a cell, at least. 0 is never: then each
	// request to a cell that hangs takes Timeout.
	PingInterval time.Duration
	// DownTime is how long after its last answer a cell that does not answer a ping either is down:
	// its requests end, and no others are sent until it answers a ping. It is longer than
	// PingInterval; what is left of it is the time that a ping may take. It is twice as long while
	// most cells answer pings slowly. 0 is twice PingInterval.
	DownTime time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger gets a line when a cell goes down and one when it is back.
	Logger zerolog.Logger
}

// Gatherer asks cells and remembers how they are. It is safe for concurrent use.
type Gatherer struct {
	options Options
	added   chan struct{} // a request was the first to a cell
	// asked limits how many cells are asked at the same time by requests to several: at most
	// maxAsked.
	asked    *semaphore.Weighted
	maxAsked int64

	mu    sync.Mutex
	known map[string]*member // by uuid
}

// member is what is known of a cell under one name at one URL.
type member struct {
	added    time.Time  // as if it had answered then
	clientMu sync.Mutex // guards making the client, which may read files
	client   atomic.Pointer[cellclient.Client]

	// The rest is the gatherer's to lock.
	state       CellState
	formerState CellState // its state under its former URL, if it was down there
	pinged      bool      // Run pings it
	broken      bool      // it answered a request, but not as a cell does, and no request well since
	// requests is the context of requests to it, which end with endRequests when it hangs.
	requests    context.Context
	endRequests context.CancelFunc
}

// CellState is the state of a cell as of its last request or ping.
type CellState struct {
	Cell  apidb.Cell
	State State // 0 before the first one ended
	// Since is when it became so: up, or down.
	Since time.Time
	// LastAnswer is when it last gave an answer.
	LastAnswer time.Time
	// Cause is why it is down.
	Cause string
	// CircuitOpen says that requests are not sent to it now: it does not answer pings.
	CircuitOpen bool
	// Requests and Pings count those that were sent, and NotSent the requests that met an open
	// circuit.
	Requests, Pings Counts
	NotSent         uint64
	// PingTime is how long the last ping took that was answered.
	PingTime time.Duration
}

// Counts are numbers of requests by how they ended.
type Counts struct{ Answered, TimedOut, Failed uint64 }

func (c *Counts) add(s State) {
	switch s {
	case OK:
		c.Answered++
	case TimedOut:
		c.TimedOut++
	default:
		c.Failed++
	}
}

// New makes a gatherer.
func New(o Options) *Gatherer {
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	if o.DownTime <= o.PingInterval {
		o.DownTime = 2 * o.PingInterval
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	most := int64(askedPerProcessor * runtime.GOMAXPROCS(0))
	return &Gatherer{options: o, added: make(chan struct{}, 1), asked: semaphore.NewWeighted(most),
		maxAsked: most, known: map[string]*member{}}
}

// States are the cells that were asked, by a request or a ping, by name.
func (g *Gatherer) States() []CellState {
	g.mu.Lock()
	defer g.mu.Unlock()
	states := make([]CellState, 0, len(g.known))
	for _, m := range g.known {
		states = append(states, m.state)
	}
	slices.SortFunc(states, func(a, b CellState) int {
		return cmp.Or(cmp.Compare(a.Cell.Name, b.Cell.Name), cmp.Compare(a.Cell.UUID, b.Cell.UUID))
	})
	return states
}

// errCircuitOpen says that a request was not sent because the cell does not answer pings.
var errCircuitOpen = errors.New("not asked (circuit breaker open)")

// memberToAsk gives what is known of a cell that is about to be asked, and a context that ends when
// the cell is found to hang. The error is [errCircuitOpen], with why, for one that was.
func (g *Gatherer) memberToAsk(cell apidb.Cell) (*member, context.Context, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.member(cell)
	if !m.state.CircuitOpen {
		return m, m.requests, nil
	}
	m.state.NotSent++
	return m, m.requests, fmt.Errorf("%w, since %s: %s", errCircuitOpen,
		m.state.Since.UTC().Format(time.RFC3339), m.state.Cause)
}

// clientOf makes the client of a cell, or gives the one there is.
func (g *Gatherer) clientOf(m *member, cell apidb.Cell) (*cellclient.Client, error) {
	m.clientMu.Lock()
	defer m.clientMu.Unlock()
	if client := m.client.Load(); client != nil {
		return client, nil
	}
	client, err := g.options.Client(cell)
	if err != nil {
		return nil, &cellclient.Failure{Kind: cellclient.Broken,
			Err: fmt.Errorf("cannot make a client for it: %w", err)}
	}
	m.client.Store(client)
	return client, nil
}

// member finds or makes what is known of a cell. One of another name or at another URL is another
// cell. The lock is held.
func (g *Gatherer) member(cell apidb.Cell) *member {
	m := g.known[cell.UUID]
	var formerState CellState
	if m != nil && (m.state.Cell.URL != cell.URL || m.state.Cell.Name != cell.Name) {
		m.close()
		switch {
		case m.state.State == 0:
			formerState = m.formerState
		case m.state.State != OK:
			formerState = m.state
		}
		m = nil
	}
	if m == nil {
		m = &member{added: g.options.Now(), formerState: formerState}
		m.requests, m.endRequests = context.WithCancel(context.Background())
		g.known[cell.UUID] = m
		select {
		case g.added <- struct{}{}:
		default: // Run is about to look.
		}
	}
	m.state.Cell = cell
	return m
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

// recordAnswer records what came of a request to a cell since start. full says that the cell had
// all the time it may have.
func (g *Gatherer) recordAnswer(m *member, start time.Time, err error, full bool) verdict {
	v := classify(err)
	if v.ignored || v.state == TimedOut && !full {
		return v
	}
	now := g.options.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	before := m.state
	m.state.Requests.add(v.state)
	switch {
	case m.state.CircuitOpen:
		return v // An answer may be from before. That the cell answers again, a ping finds out.
	case v.state == OK:
		m.state.LastAnswer, m.broken = now, false
	case v.state == TimedOut && (m.pinged || m.state.LastAnswer.After(start)):
		return v // It was this request that took long: a ping, or a later request, was answered.
	case v.state == Failed:
		m.broken = !cellclient.NotSent(v.down)
	}
	g.setState(m, before, now, v)
	return v
}

// setState records that a cell is up or down, and logs it if it was not before. The lock is held.
func (g *Gatherer) setState(m *member, before CellState, now time.Time, v verdict) {
	m.state.State, m.state.Cause = v.state, ""
	if v.down != nil {
		m.state.Cause = v.down.Error()
	}
	if wasUp, isUp := before.State == 0 || before.State == OK, v.state == OK; wasUp == isUp && before.State != 0 {
		return
	}
	m.state.Since = now
	if before.State == 0 {
		before = m.formerState
	}
	if g.known[m.state.Cell.UUID] == m {
		g.log(m.state.Cell, before, now, v)
	}
}

// log logs that a cell went down or came back.
func (g *Gatherer) log(cell apidb.Cell, before CellState, now time.Time, v verdict) {
	entry := func(e *zerolog.Event) *zerolog.Event {
		return e.Str("cell", cell.Name).Str("cell_uuid", cell.UUID).Str("url", cell.URL)
	}
	switch {
	case v.state != OK:
		entry(g.options.Logger.Warn()).Err(v.down).Str("hint", v.hint).
			Msg("A cell is down. Its servers are shown as UNKNOWN and cannot be changed, and no new server is " +
				"scheduled there.")
	case before.State != 0:
		entry(g.options.Logger.Info()).Str("down_for", now.Sub(before.Since).Round(time.Millisecond).String()).
			Msg("A cell is up again. Its servers are shown in full, and new servers are scheduled there.")
	}
}
