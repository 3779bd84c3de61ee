// SPDX-License-Identifier: Apache-2.0

package cell

import "sync"

// bells wake who waits for work: one for each host that somebody waits for.
type bells struct {
	mu     sync.Mutex
	byHost map[string]*bell
}

type bell struct {
	rung    chan struct{} // closed when it rings; then there is another
	waiting int
}

// wait returns a channel that is closed when the host's bell rings next, and how to stop waiting. It is nil for more than most who wait for the same host.
func (b *bells) wait(host string, most int) (rung <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byHost == nil {
		b.byHost = map[string]*bell{}
	}
	one := b.byHost[host]
	if one == nil {
		one = &bell{rung: make(chan struct{})}
		b.byHost[host] = one
	}
	if one.waiting == most {
		return nil, nil
	}
	one.waiting++
	return one.rung, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if one.waiting--; one.waiting == 0 && b.byHost[host] == one {
			delete(b.byHost, host)
		}
	}
}

// ring wakes all who wait for the host.
func (b *bells) ring(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.byHost[host]; one != nil {
		close(one.rung)
		delete(b.byHost, host)
	}
}

// ringAll wakes all who wait.
func (b *bells) ringAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.byHost {
		close(one.rung)
	}
	clear(b.byHost)
}
