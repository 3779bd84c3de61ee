// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// watch looks all the time on which hosts there is something of which server. A server's place is
// decided once: what was ever on one host must never be on another.
type watch struct {
	w    *world
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	where map[string]string // by the server's uuid
	wrong map[string]bool
	looks int
}

// watching starts to watch.
func (w *world) watching(ctx context.Context) *watch {
	ctx, stop := context.WithCancel(ctx)
	o := &watch{w: w, stop: stop, done: make(chan struct{}), where: map[string]string{}, wrong: map[string]bool{}}
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
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looks++
	for _, h := range o.w.hosts {
		traces, err := h.traces()
		if err != nil {
			o.wrong[err.Error()] = true
		}
		for uuid := range traces {
			o.seen(uuid, h.name)
		}
	}
	for uuid, all := range o.w.emulators() {
		if len(all) > 1 {
			o.wrong[fmt.Sprintf("%s runs more than once: %+v", uuid, all)] = true
		}
		for _, g := range all {
			o.seen(uuid, g.host)
		}
	}
}

func (o *watch) seen(uuid, host string) {
	if was, is := o.where[uuid]; is && was != host {
		o.wrong[fmt.Sprintf("%s is on %s, and was on %s before", uuid, host, was)] = true
	}
	o.where[uuid] = host
}

// found ends the watch and returns what was wrong, and how many servers were seen how often.
func (o *watch) found() (wrong []string, servers, looks int) {
	o.stop()
	<-o.done
	o.mu.Lock()
	defer o.mu.Unlock()
	for text := range o.wrong {
		wrong = append(wrong, text)
	}
	return wrong, len(o.where), o.looks
}
