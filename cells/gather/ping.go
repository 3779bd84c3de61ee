// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
)

// listInterval is how often Run looks which cells there are. One that is asked for is known at
// once.
const listInterval = 10 * time.Second

// Run pings cells until ctx ends: those that list returns, and others that are asked. It forgets
// those that list does not return any more. List may be nil. Run waits for what it starts.
func (g *Gatherer) Run(ctx context.Context, list func(context.Context) ([]apidb.Cell, error)) error {
	var pings sync.WaitGroup
	defer pings.Wait()
	refresh := time.NewTicker(listInterval)
	defer refresh.Stop()
	g.refreshCells(ctx, list)
	for {
		for _, m := range g.notPinged() {
			pings.Go(func() { g.ping(ctx, m) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.added:
		case <-refresh.C:
			g.refreshCells(ctx, list)
		}
	}
}

// refreshCells reads which cells there are. If that fails, those that are known stay. So do those
// that a request had since the list was begun, which may be older than the request.
func (g *Gatherer) refreshCells(ctx context.Context, list func(context.Context) ([]apidb.Cell, error)) {
	if list == nil {
		return
	}
	begun := g.options.Now()
	asking, cancel := context.WithTimeout(ctx, listInterval)
	defer cancel()
	cells, err := list(asking)
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	there := make(map[string]bool, len(cells))
	for _, cell := range cells {
		there[cell.UUID] = true
		if m := g.known[cell.UUID]; m == nil || m.added.Before(begun) {
			g.member(cell)
		}
	}
	for uuid, m := range g.known {
		if !there[uuid] && m.added.Before(begun) {
			m.close()
			delete(g.known, uuid)
		}
	}
}

// notPinged takes the cells that are not pinged yet.
func (g *Gatherer) notPinged() []*member {
	if g.options.PingInterval <= 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var taken []*member
	for _, m := range g.known {
		if !m.pinged {
			m.pinged = true
			taken = append(taken, m)
		}
	}
	return taken
}

// ping pings a cell until ctx ends or the cell is forgotten. One with another URL or name is
// another cell. The pauses differ by chance, so that cells that answered at the same moment are not
// all pinged at the same moment.
func (g *Gatherer) ping(ctx context.Context, m *member) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		start := g.options.Now()
		now, ok := g.toPing(ctx, m)
		if !ok {
			return
		}
		// A ping has the time that is left of DownTime, and at least what usually is.
		timeout := g.options.DownTime
		if !now.CircuitOpen {
			timeout = max(latest(now.LastAnswer, m.added).Add(timeout).Sub(start), g.leastPingTime())
		}
		g.recordPing(m, start, timeout, g.pingOnce(ctx, m, now.Cell, timeout))
		pause := g.options.PingInterval - rand.N(g.options.PingInterval/4+1)
		timer.Reset(pause - g.options.Now().Sub(start))
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// toPing returns the state of a cell to ping. It returns false if pinging has to end, and closes
// the circuit, which nothing else would close then.
func (g *Gatherer) toPing(ctx context.Context, m *member) (CellState, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.pinged = ctx.Err() == nil && g.known[m.state.Cell.UUID] == m; !m.pinged {
		m.closeCircuit()
	}
	return m.state, m.pinged
}

// pingOnce asks a cell who it is, which it reads from its database.
func (g *Gatherer) pingOnce(ctx context.Context, m *member, cell apidb.Cell, timeout time.Duration) error {
	client, err := g.clientOf(m, cell)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = client.Cell(asking)
	return err
}

// recordPing remembers what came of a ping that had so much time.
func (g *Gatherer) recordPing(m *member, start time.Time, timeout time.Duration, err error) {
	v := classify(err)
	if v.ignored {
		return
	}
	now := g.options.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	before := m.state
	m.state.Pings.add(v.state)
	switch v.state {
	case OK:
		m.state.LastAnswer, m.state.PingTime = now, now.Sub(start)
		if m.broken {
			return // It answers pings, and requests wrongly. Only a request shows that this is over.
		}
		m.closeCircuit()
	case TimedOut:
		// If this process did not run in time, the answer may be there and not be read. If the cell
		// answered a request meanwhile, it was only the ping that took long.
		late, idle := now.Sub(start)-timeout > g.leastPingTime()/4, now.Sub(latest(before.LastAnswer, m.added))
		if late || idle < g.options.DownTime || idle < 2*g.options.DownTime &&
			g.othersAreSlow(m, now) || before.CircuitOpen {
			return
		}
		v.down = &cellclient.Failure{Kind: cellclient.TimedOut,
			Err: fmt.Errorf("it has answered no request and no ping for %s", idle.Round(time.Millisecond))}
		m.broken = false
		m.openCircuit()
	default:
		m.broken = false
		m.closeCircuit()
	}
	g.setState(m, before, now, v)
}

// leastPingTime is the least that a ping has.
func (g *Gatherer) leastPingTime() time.Duration { return g.options.DownTime - g.options.PingInterval }

// othersAreSlow reports whether most other cells that are up answer pings slowly, too: then this
// process, its machine or its network has too much to do, and a cell that hangs cannot be
// distinguished from others as early as usual. The lock is held.
func (g *Gatherer) othersAreSlow(m *member, now time.Time) bool {
	slow, others := 0, 0
	for _, other := range g.known {
		if other == m || other.state.State != OK {
			continue
		}
		others++
		if other.state.PingTime > g.leastPingTime()/2 ||
			now.Sub(other.state.LastAnswer) > g.options.PingInterval+g.leastPingTime()/4 {
			slow++
		}
	}
	return 2*slow > others
}

// errHangs says that a request was ended because the cell answers no ping.
var errHangs = errors.New("the cell answers no ping")

// openCircuit ends the requests to a cell that hangs, and keeps others from being sent. Its
// connections may be dead, whatever becomes of the cell. The lock is held.
func (m *member) openCircuit() {
	m.state.CircuitOpen = true
	m.endRequests()
	m.close()
}

// closeCircuit has requests sent again. The lock is held.
func (m *member) closeCircuit() {
	if m.state.CircuitOpen {
		m.state.CircuitOpen = false
		m.requests, m.endRequests = context.WithCancel(context.Background())
	}
}
