// SPDX-License-Identifier: Apache-2.0

package cell

import "sync"

// broadcasts wake long polls: one for each host with waiting requests.
type broadcasts struct {
	mu     sync.Mutex
	byHost map[string]*broadcast
}

type broadcast struct {
	done    chan struct{} // closed by notify, which replaces the broadcast
	waiting int
}

// subscribe returns a channel that is closed by the next notify of the host, and how to stop
// waiting. It is nil if maxWaiting requests wait for the host already.
func (b *broadcasts) subscribe(host string, maxWaiting int) (notified <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byHost == nil {
		b.byHost = map[string]*broadcast{}
	}
	one := b.byHost[host]
	if one == nil {
		one = &broadcast{done: make(chan struct{})}
		b.byHost[host] = one
	}
	if one.waiting == maxWaiting {
		return nil, nil
	}
	one.waiting++
	return one.done, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if one.waiting--; one.waiting == 0 && b.byHost[host] == one {
			delete(b.byHost, host)
		}
	}
}

// notify wakes all requests that wait for the host.
func (b *broadcasts) notify(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.byHost[host]; one != nil {
		close(one.done)
		delete(b.byHost, host)
	}
}

// notifyAll wakes all waiting requests.
func (b *broadcasts) notifyAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.byHost {
		close(one.done)
	}
	clear(b.byHost)
}
