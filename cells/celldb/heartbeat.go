// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"slices"
	"sync"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// heartbeats writes down that hosts live: those that come while one write is under way are all in
// the next one, so that a cell of a thousand hosts needs few.
type heartbeats struct {
	// save writes that the hosts live at a time.
	save     func(ctx context.Context, hosts []string, at int64) error
	writeSem chan struct{} // held by who writes

	mu   sync.Mutex
	next *heartbeatBatch // nil: none waits
}

// heartbeatBatch is the hosts of one write.
type heartbeatBatch struct {
	hosts []string
	at    int64         // the latest
	done  chan struct{} // closed when it is written, or failed
	err   error
}

func newHeartbeats(save func(context.Context, []string, int64) error) *heartbeats {
	return &heartbeats{save: save, writeSem: make(chan struct{}, 1)}
}

// write writes that the host lives, and returns when that is done.
func (h *heartbeats) write(ctx context.Context, host string, at int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	mine := h.addToBatch(host, at)
	select {
	case h.writeSem <- struct{}{}:
		defer func() { <-h.writeSem }()
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-mine.done: // by the one before
		return mine.err
	default:
	}
	h.mu.Lock()
	h.next = nil // it was mine: only who holds writeSem takes it away, and ends it before giving that back
	h.mu.Unlock()
	mine.err = h.save(context.WithoutCancel(ctx), mine.hosts, mine.at) // others wait for it as well
	close(mine.done)
	return mine.err
}

func (h *heartbeats) addToBatch(host string, at int64) *heartbeatBatch {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next == nil {
		h.next = &heartbeatBatch{done: make(chan struct{})}
	}
	h.next.hosts, h.next.at = append(h.next.hosts, host), max(h.next.at, at)
	return h.next
}

const updateHeartbeats = "UPDATE services SET last_seen_up = ?, updated_at = ? WHERE host IN "

// saveHeartbeats writes that hosts live. On a file it does not wait for the disk; on servers it
// does not wait for other writers: it changes nothing that they read.
func (d *DB) saveHeartbeats(ctx context.Context, hosts []string, at int64) error {
	const op = "noting heartbeats in"
	slices.Sort(hosts) // so that two processes do not wait for each other
	hosts = slices.Compact(hosts)
	for part := range slices.Chunk(hosts, sqldb.MaxListed) {
		parameters, args := sqldb.ListParameters(part)
		query := updateHeartbeats + parameters
		args = append([]any{at, at}, args...)
		var err error
		if d.engine.Shared() {
			err = d.kit.Repeatable(ctx, d.heartbeatConn, op, query, args...)
		} else {
			err = d.transaction(ctx, d.heartbeatConn, op, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, query, args...)
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
