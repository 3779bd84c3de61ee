// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"context"
	"fmt"
	"time"
)

// watch looks all the time on which hosts there is something of which server. A server's place is
// decided once, unless a client has it moved: what was ever on one host must never be on another,
// and of what is migrated only one guest runs.
type watch struct {
	w     *deployment
	moved func(uuid string) moved
	stop  context.CancelFunc
	done  chan struct{}

	where map[string]string // by the server's uuid
	wrong map[string]bool
	looks int
}

// watching starts to watch. moved says how clients may have moved a server until now.
func (d *deployment) watching(moved func(uuid string) moved) *watch {
	ctx, stop := context.WithCancel(d.T.Context())
	o := &watch{
		w: d, moved: moved, stop: stop, done: make(chan struct{}),
		where: map[string]string{}, wrong: map[string]bool{},
	}
	go func() {
		defer close(o.done)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			o.look()
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return o
}

func (w *watch) look() {
	w.looks++
	runs := map[string]*host{}
	for _, h := range w.w.hosts {
		traces, err := h.traces()
		if err != nil {
			w.wrong[err.Error()] = true
		}
		for uuid, g := range traces {
			w.seen(uuid, h.Host)
			if !g.runs {
				continue
			}
			if other := runs[uuid]; other != nil && w.moved(uuid) != evacuated && other.has(uuid) {
				w.wrong[fmt.Sprintf("%s runs on %s and on %s", uuid, other.Host, h.Host)] = true
			}
			runs[uuid] = h
		}
	}
	for uuid, all := range w.w.emulators() {
		if len(all) > 1 && w.moved(uuid) == never {
			w.wrong[fmt.Sprintf("%s runs more than once: %+v", uuid, all)] = true
		}
		for _, g := range all {
			w.seen(uuid, g.host)
		}
	}
}

func (w *watch) seen(uuid, host string) {
	if was, is := w.where[uuid]; is && was != host && w.moved(uuid) == never {
		w.wrong[fmt.Sprintf("%s is on %s, and was on %s before", uuid, host, was)] = true
	}
	w.where[uuid] = host
}

// has looks once more whether a guest runs on a host.
func (h *host) has(uuid string) bool {
	traces, err := h.traces()
	return err == nil && traces[uuid].runs
}

// unmoved says that no client moves anything.
func unmoved(string) moved { return never }

// judge ends the watch. What was wrong is an error.
func (w *watch) judge() {
	w.w.T.Helper()
	w.stop()
	<-w.done
	for text := range w.wrong {
		w.w.T.Error(text)
	}
	w.w.T.Logf("guests of %d servers were seen in %d looks", len(w.where), w.looks)
}
