// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Bounds of what is remembered. Beyond them it becomes "everything may have changed", which is
// always true and never lost.
const (
	maxRevisions = 16384 // domains that ever had an event
	maxPending   = 1024  // domains that a watcher has not received
)

// Event names a domain or device that changed. What changed must be read again.
type Event struct {
	// Domain is the uuid of a domain, Device the name of a node device; one of them is set.
	Domain, Device string
}

// Changes is what may have changed.
type Changes struct {
	// All means that everything may have changed: after a new connection, after lost events, or
	// after the resync interval.
	All bool
	// Devices means that node devices were added, removed or changed.
	Devices bool
	// Domains are the uuids of domains that something happened to, in order.
	Domains []string
}

func (c Changes) empty() bool { return !c.All && !c.Devices && len(c.Domains) == 0 }

// EventLog collects the events of a Link, and of its successors, for watchers. A nil *EventLog
// drops events.
//
// Events are hints. libvirt's daemon can lose them (its udev thread dies when a tool is faulty,
// while it continues to answer), so watchers also resync after a time without events.
type EventLog struct {
	mu       sync.Mutex
	events   uint64            // so far
	devices  uint64            // of these about node devices
	floor    uint64            // the revision of domains that are not in last
	last     map[string]uint64 // by uuid: the number of the last event
	watchers map[*Watcher]struct{}
}

// NewEventLog returns an empty log.
func NewEventLog() *EventLog {
	return &EventLog{last: map[string]uint64{}, watchers: map[*Watcher]struct{}{}}
}

// add takes an event. It does not block.
func (el *EventLog) add(e Event) {
	if el == nil {
		return
	}
	el.mu.Lock()
	defer el.mu.Unlock()
	el.events++
	if e.Device != "" {
		el.devices++
	}
	if e.Domain != "" {
		if len(el.last) >= maxRevisions {
			el.floor = el.events
			clear(el.last)
		}
		el.last[e.Domain] = el.events
	}
	for w := range el.watchers {
		w.add(Changes{Devices: e.Device != ""}, e.Domain)
	}
}

// recordLoss records that events may have been lost.
func (el *EventLog) recordLoss() {
	if el == nil {
		return
	}
	el.mu.Lock()
	defer el.mu.Unlock()
	el.events++
	el.floor = el.events
	clear(el.last)
	for w := range el.watchers {
		w.add(Changes{All: true}, "")
	}
}

// Devices is how many events about node devices there were so far: as long as it is the same,
// libvirt most probably says the same of them.
func (el *EventLog) Devices() uint64 {
	el.mu.Lock()
	defer el.mu.Unlock()
	return el.devices
}

// revision returns the revision of the last event of a domain, or of the last event that may have
// been about any domain if that is later.
func (el *EventLog) revision(uuid string) uint64 {
	if el == nil {
		return 0
	}
	el.mu.Lock()
	defer el.mu.Unlock()
	return max(el.floor, el.last[uuid])
}

// Watch returns a watcher, which the caller closes. Events within delay of the first one are
// delivered together: the start of a guest causes several. After resync without events, the watcher
// reports that everything changed; 0 is never.
func (el *EventLog) Watch(delay, resync time.Duration) *Watcher {
	w := &Watcher{eventLog: el, delay: delay, resync: resync, ring: make(chan struct{}, 1),
		domains: map[string]struct{}{}}
	el.mu.Lock()
	defer el.mu.Unlock()
	el.watchers[w] = struct{}{}
	return w
}

// Watcher receives changes. One goroutine at a time may use it.
type Watcher struct {
	eventLog      *EventLog
	delay, resync time.Duration
	ring          chan struct{} // holds one when there is something to take

	// Guarded by eventLog.mu.
	pending Changes
	domains map[string]struct{}
}

// add adds a change to those that are pending. The lock is held.
func (w *Watcher) add(c Changes, domain string) {
	w.pending.All = w.pending.All || c.All
	w.pending.Devices = w.pending.Devices || c.Devices
	switch {
	case domain == "" || w.pending.All:
	case len(w.domains) >= maxPending:
		w.pending.All = true
		clear(w.domains)
	default:
		w.domains[domain] = struct{}{}
	}
	select {
	case w.ring <- struct{}{}:
	default:
	}
}

// Next waits for changes. It returns ctx's error when that ends.
func (w *Watcher) Next(ctx context.Context) (Changes, error) {
	var resync <-chan time.Time
	if w.resync > 0 {
		t := time.NewTimer(w.resync)
		defer t.Stop()
		resync = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return Changes{}, ctx.Err()
		case <-resync:
			w.takePending() // is part of everything
			return Changes{All: true}, nil
		case <-w.ring:
		}
		timer := time.NewTimer(w.delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return Changes{}, ctx.Err()
		case <-timer.C:
		}
		if c := w.takePending(); !c.empty() {
			return c, nil
		}
	}
}

// takePending returns what is pending, once.
func (w *Watcher) takePending() Changes {
	w.eventLog.mu.Lock()
	defer w.eventLog.mu.Unlock()
	c := w.pending
	if !c.All && len(w.domains) > 0 {
		c.Domains = slices.Sorted(maps.Keys(w.domains))
	}
	w.pending = Changes{}
	clear(w.domains)
	return c
}

// Close ends the watching.
func (w *Watcher) Close() {
	w.eventLog.mu.Lock()
	defer w.eventLog.mu.Unlock()
	delete(w.eventLog.watchers, w)
}
