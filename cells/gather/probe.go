// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
)

// A cell that hangs is asked again a quarter of FastFail after the last time, within these bounds.
const (
	shortestPause = 10 * time.Millisecond
	longestPause  = time.Second
)

// Run asks cells that hang until they answer, so that requests do not have to wait for them to find
// out. It owns what it starts, and ends with ctx.
func (g *Gatherer) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		for _, m := range g.hanging() {
			probes.Go(func() { g.probe(ctx, m) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.hangs:
		}
	}
}

// hanging takes the cells that hang and are not probed yet.
func (g *Gatherer) hanging() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	var taken []*member
	for _, m := range g.known {
		if m.hangs && !m.probed {
			m.probed = true
			taken = append(taken, m)
		}
	}
	return taken
}

// probe asks a cell who it is until it answers, fails at once, or is forgotten. Another URL or name
// makes another member: then this one's is over.
func (g *Gatherer) probe(ctx context.Context, m *member) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		client := g.toProbe(ctx, m)
		if client == nil {
			return
		}
		start := g.options.Now()
		asking, cancel := context.WithTimeout(ctx, g.options.Timeout)
		_, err := client.Cell(asking)
		cancel()
		g.note(m, start, err, ctx.Err() == nil)
		pause.Reset(min(max(g.options.FastFail/4, shortestPause), longestPause))
	}
}

// toProbe gives the client to probe a cell with, or nil when that is to end.
func (g *Gatherer) toProbe(ctx context.Context, m *member) *cellclient.Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.probed = ctx.Err() == nil && m.hangs && g.known[m.cell.UUID] == m && g.options.Now().Sub(m.lastUsed) <= forgetAfter
	if !m.probed {
		return nil
	}
	return m.client.Load()
}
