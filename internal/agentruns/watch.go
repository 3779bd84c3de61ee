// SPDX-License-Identifier: Apache-2.0

package agentruns

import (
	"crypto/rand"
	"sync"
	"time"
)

// Watch keeps in memory which agents report as each host. It forgets them when it is full and
// they were not seen for a window, and with its process. It is safe for concurrent use.
type Watch struct {
	server string
	window time.Duration
	now    func() time.Time

	mu    sync.Mutex
	hosts map[string]*Agents
	swept time.Time
}

// maxWatched bounds the hosts of a Watch.
const maxWatched = 20_000

// NewWatch makes a Watch for agents that report more often than once in a window. now is the clock.
func NewWatch(window time.Duration, now func() time.Time) *Watch {
	return &Watch{server: rand.Text()[:8], window: window, now: now, hosts: map[string]*Agents{}}
}

// Add records a request of the host of a key, and returns the header of its answer; "" if there are
// too many hosts. found are the agents of the host, if this request has proven that they are
// several.
func (w *Watch) Add(key, host, address string, p *ProcessHeader) (answer string, found []Process) {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	agents := w.hosts[key]
	if agents == nil {
		if agents = w.newHost(key, now); agents == nil {
			return "", nil
		}
	}
	was := HasSeveral(agents.Until, now, w.window)
	agents.Add(p.Report(w.server, address), now, w.window)
	agents.Changed, agents.Gone = false, nil
	if !was {
		found = agents.Live(now, w.window)
	}
	return agents.Answer(w.server, host, now, w.window), found
}

// newHost is the entry of a new host; nil if there are too many.
func (w *Watch) newHost(key string, now time.Time) *Agents {
	if len(w.hosts) >= maxWatched {
		if now.Sub(w.swept).Abs() < w.window/16 {
			return nil
		}
		w.swept = now
		for key, one := range w.hosts {
			if latest := one.latest(); latest < 0 ||
				!closeTo(now.UnixMicro(), one.All[latest].Seen, w.window.Microseconds()) {
				delete(w.hosts, key)
			}
		}
		if len(w.hosts) >= maxWatched {
			return nil
		}
	}
	agents := &Agents{}
	w.hosts[key] = agents
	return agents
}

// Several is how many hosts have several agents now.
func (w *Watch) Several() (n int) {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.hosts {
		if HasSeveral(one.Until, now, w.window) {
			n++
		}
	}
	return n
}
