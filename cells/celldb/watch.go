// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Watch receives what writes changed, after they are durable and before they return.
type Watch struct {
	// Before, if not nil, is called before the commit of a write that changed something. tell calls
	// the functions of a Watch with the changes. An error of Before refuses the write. Before is
	// called again if the write is tried again.
	Before func(tell func(*Watch)) error
	// Server is called for each transition of a server: before is nil for an inserted row, after
	// for one that was erased.
	Server func(before, after *cellwire.Server)
	// Host is called for a report of a host that says something new, beside that it lives.
	Host func(host string, r cellwire.HostReport, problems []cellwire.NodeProblem)
	// Service is called for a service that an administrator changed; after is nil for one that was
	// deleted.
	Service func(before, after *cellwire.Service)
}

type watchKey struct{}

// WithWatch returns a context whose writes are watched.
func WithWatch(ctx context.Context, w *Watch) context.Context {
	return context.WithValue(ctx, watchKey{}, w)
}

func watchOf(ctx context.Context) *Watch {
	w, _ := ctx.Value(watchKey{}).(*Watch)
	return w
}

// onDurable keeps a call of the watch until the transaction is durable.
func (w *writeTx) onDurable(call func(*Watch)) { w.calls = append(w.calls, call) }

// notifyWatch calls a watch with all changes.
func (w *writeTx) notifyWatch(watch *Watch) {
	for _, call := range w.calls {
		call(watch)
	}
}

// transition keeps that of a server.
func (w *writeTx) transition(before, after *cellwire.Server) {
	w.onDurable(func(watch *Watch) { watch.Server(before, after) })
}

// cloneServer is a server that does not share what transitions may change in place.
func cloneServer(s *cellwire.Server) *cellwire.Server {
	c := *s
	c.Metadata, c.Tags = maps.Clone(s.Metadata), slices.Clone(s.Tags)
	return &c
}
