// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"context"
	"sync"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// MemoryStore is a ledger.Store that keeps a count of commits and nothing else:
// for tests and benchmarks of the ledger alone. Before, when set, runs at the
// start of each Commit, which returns its error.
type MemoryStore struct {
	Before func(base int64, changes []ledger.Change) error
	// State is what Load returns; its version counts the commits.
	State ledger.State
	// Commits has the number of changes in each commit.
	Commits []int

	mu sync.Mutex
}

// Load implements ledger.Store.
func (m *MemoryStore) Load(context.Context) (*ledger.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.State
	return &state, nil
}

// Version implements ledger.Store.
func (m *MemoryStore) Version(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.State.Version, nil
}

// Commit implements ledger.Store.
func (m *MemoryStore) Commit(_ context.Context, base int64, changes []ledger.Change) error {
	if m.Before != nil {
		if err := m.Before(base, changes); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.State.Version != base {
		return ledger.ErrVersionConflict
	}
	m.State.Version++
	m.Commits = append(m.Commits, len(changes))
	return nil
}

// Changes implements ledger.Store.
func (m *MemoryStore) Changes(context.Context, int64) (*ledger.Delta, error) {
	return nil, ledger.ErrReload
}

// Exclusive implements ledger.Store.
func (m *MemoryStore) Exclusive() bool { return true }

// Close implements ledger.Store.
func (m *MemoryStore) Close() error { return nil }
