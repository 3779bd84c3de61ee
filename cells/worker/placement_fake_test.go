// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"maps"
	"sync"

	"github.com/compute-agent/compute-agent/providertree"
)

// fakePlacement holds allocations by consumer.
type fakePlacement struct {
	mu      sync.Mutex
	held    map[string]providertree.ProviderResources
	err     error
	removed []string
	reading func() // runs before an answer
}

func newPlacement() *fakePlacement {
	return &fakePlacement{held: map[string]providertree.ProviderResources{}}
}

func (p *fakePlacement) grant(n int) { p.grantOf(n, nodeUUID) }

func (p *fakePlacement) grantOf(n int, provider string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[serverUUID(n)] = providertree.ProviderResources{provider: {"VCPU": 1}}
}

// clear takes all away.
func (p *fakePlacement) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.held)
}

func (p *fakePlacement) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *fakePlacement) Granted(_ context.Context, uuid string) (providertree.ProviderResources, error) {
	if p.reading != nil {
		p.reading()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.held[uuid]), p.err
}

func (p *fakePlacement) Remove(_ context.Context, uuid string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if len(p.held[uuid]) > 0 {
		p.removed = append(p.removed, uuid)
	}
	delete(p.held, uuid)
	return nil
}

func (p *fakePlacement) holds(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held[serverUUID(n)]) > 0
}
