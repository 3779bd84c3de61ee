// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"context"
	"sync"
)

// Trail gathers what a request or command changes, for one record. It is safe for concurrent use.
type Trail struct {
	log *Log

	mu      sync.Mutex
	record  Record
	written bool
}

type trailKey struct{}

// Begin returns a context whose changes are gathered for a record of the request or command. A nil
// log gathers nothing: the Trail is nil, and writes nothing.
func (l *Log) Begin(ctx context.Context, r Record) (context.Context, *Trail) {
	if l == nil {
		return ctx, nil
	}
	t := &Trail{log: l, record: r}
	return context.WithValue(ctx, trailKey{}, t), t
}

// Note adds changes, which are done, to the record of the context's request. What is done after the
// request was answered gets a record of its own with the same sender, and what no request of the
// context caused a copy of otherwise.
func (l *Log) Note(ctx context.Context, otherwise Record, changes ...Change) {
	if l == nil || len(changes) == 0 {
		return
	}
	r := otherwise
	if t, ok := ctx.Value(trailKey{}).(*Trail); ok {
		t.mu.Lock()
		if !t.written {
			t.record.Changes = append(t.record.Changes, changes...)
			t.mu.Unlock()
			return
		}
		r = t.record
		t.mu.Unlock()
	}
	r.Changes = changes
	l.Write(ctx, r)
}

// Changed reports whether changes were noted.
func (t *Trail) Changed() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.record.Changes) > 0
}

// Write writes the record, if there are changes. It is called once, before the request is answered.
func (t *Trail) Write(ctx context.Context) {
	if t == nil {
		return
	}
	t.mu.Lock()
	r := t.record
	t.record.Changes, t.written = nil, true
	t.mu.Unlock()
	t.log.Write(ctx, r)
}
