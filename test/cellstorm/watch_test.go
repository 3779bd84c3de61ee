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
func (w *deployment) watching(moved func(uuid string) moved) *watch {
	ctx, stop := context.WithCancel(w.T.Context())
	o := &watch{
		w: w, moved: moved, stop: stop, done: make(chan struct{}),
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

func (o *watch) look() {
	o.looks++
	runs := map[string]*host{}
	for _, h := range o.w.hosts {
		traces, err := h.traces()
		if err != nil {
			o.wrong[err.Error()] = true
		}
		for uuid, g := range traces {
			o.seen(uuid, h.Host)
			if !g.runs {
				continue
			}
			if other := runs[uuid]; other != nil && o.moved(uuid) != evacuated && other.has(uuid) {
				o.wrong[fmt.Sprintf("%s runs on %s and on %s", uuid, other.Host, h.Host)] = true
			}
			runs[uuid] = h
		}
	}
	for uuid, all := range o.w.emulators() {
		if len(all) > 1 && o.moved(uuid) == never {
			o.wrong[fmt.Sprintf("%s runs more than once: %+v", uuid, all)] = true
		}
		for _, g := range all {
			o.seen(uuid, g.host)
		}
	}
}

func (o *watch) seen(uuid, host string) {
	if was, is := o.where[uuid]; is && was != host && o.moved(uuid) == never {
		o.wrong[fmt.Sprintf("%s is on %s, and was on %s before", uuid, host, was)] = true
	}
	o.where[uuid] = host
}

// has looks once more whether a guest runs on a host.
func (h *host) has(uuid string) bool {
	traces, err := h.traces()
	return err == nil && traces[uuid].runs
}

// unmoved says that no client moves anything.
func unmoved(string) moved { return never }

// judge ends the watch. What was wrong is an error.
func (o *watch) judge() {
	o.w.T.Helper()
	o.stop()
	<-o.done
	for text := range o.wrong {
		o.w.T.Error(text)
	}
	o.w.T.Logf("guests of %d servers were seen in %d looks", len(o.where), o.looks)
}
