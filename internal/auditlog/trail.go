// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Trail gathers what a request or command changes, for one record. It is safe for concurrent use.
type Trail struct {
	log *Log

	mu           sync.Mutex
	record       Record
	id           string    // of its intents
	intents      []*Intent // of all acts
	unknown      bool      // some action may have changed something or not
	written      bool
	neverRefused bool // no client waits for it: it is not refused
}

type trailKey struct{}

// Begin returns a context whose changes are gathered for a record of the request or command. A nil
// log gathers nothing: the Trail is nil, and writes nothing.
func (l *Log) Begin(ctx context.Context, r Record) (context.Context, *Trail) {
	if l == nil {
		return ctx, nil
	}
	t := &Trail{log: l, record: r, neverRefused: r.Command != ""}
	return context.WithValue(ctx, trailKey{}, t), t
}

// trailOf is the trail of a request that is not answered yet, or else a new one for what goes on
// after it, with the same sender, or for what no request of the context caused, which is a copy of
// otherwise.
func (l *Log) trailOf(ctx context.Context, otherwise Record) (t *Trail, own bool) {
	if t, ok := ctx.Value(trailKey{}).(*Trail); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.written {
			return t, false
		}
		otherwise = t.record
	}
	return &Trail{log: l, record: otherwise, neverRefused: true}, true
}

// AddChanges adds changes, which are done, to the record of the context's request. What is done
// after the request was answered gets a record of its own with the same sender, and what no request
// of the context caused a copy of otherwise.
func (l *Log) AddChanges(ctx context.Context, otherwise Record, changes ...Change) {
	if l == nil || len(changes) == 0 {
		return
	}
	t, own := l.trailOf(ctx, otherwise)
	t.addChanges(changes)
	if own {
		t.Write(ctx)
	}
}

// Action is a change, or several, that is recorded before it is made. A nil Action is not recorded.
type Action struct {
	trail   *Trail
	changes []Change
}

// Do has an action recorded before and after it: do says with Intend what it is about to change. If
// do returns nil, that is noted, as [Log.AddChanges] does.
func (l *Log) Do(ctx context.Context, otherwise Record, do func(*Action) error) error {
	if l == nil {
		return do(nil)
	}
	t, own := l.trailOf(ctx, otherwise)
	a := &Action{trail: t}
	err := do(a)
	if err == nil {
		t.addChanges(a.changes)
	} else {
		t.Failed(err)
	}
	if own {
		t.Write(ctx)
	}
	return err
}

// Intend records what the action is about to change, and returns when that is written. An action
// that is tried again calls it again. Errors: [ErrNotRecorded].
func (a *Action) Intend(ctx context.Context, changes ...Change) error {
	if a == nil || len(changes) == 0 {
		return nil
	}
	a.changes = changes
	return a.trail.Intend(ctx, changes...)
}

// SetChanges replaces the changes of an action by what is known after it.
func (a *Action) SetChanges(changes ...Change) {
	if a != nil {
		a.changes = changes
	}
}

// Intend records what a request is about to change, and returns when that is written. Errors:
// [ErrNotRecorded], for requests of clients alone: commands, and what a service does by itself, are
// not refused.
func (t *Trail) Intend(ctx context.Context, changes ...Change) error {
	if t == nil || len(changes) == 0 {
		return nil
	}
	t.mu.Lock()
	if t.id == "" {
		t.id = rand.Text()
	}
	r := t.record
	r.Changes = changes
	i := t.log.intend(t.id, func() Record { return r })
	t.intents = append(t.intents, i)
	t.mu.Unlock()
	if err := i.Wait(ctx); err != nil && !t.neverRefused {
		return err
	}
	return nil
}

// Failed keeps that an action ended with an error: if this does not say whether it changed
// anything, its intent is not closed.
func (t *Trail) Failed(err error) {
	if t == nil || !errors.Is(err, engine.ErrOutcomeUnknown) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unknown = true
}

func (t *Trail) addChanges(changes []Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.record.Changes = append(t.record.Changes, changes...)
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

// Write writes the record, and returns when that is done, as [Log.Write]. Without changes it has it
// recorded that the intents are not done, and does not wait. It is called once, before the request
// is answered.
func (t *Trail) Write(ctx context.Context) {
	if t == nil {
		return
	}
	t.mu.Lock()
	r, intents := t.record, t.intents
	if t.unknown {
		intents = nil
	}
	t.record.Changes, t.intents, t.written = nil, nil, true
	t.mu.Unlock()
	if len(r.Changes) == 0 {
		t.log.abandon(r, intents)
		return
	}
	t.log.Wait(ctx, t.log.Enqueue(func() Record {
		for _, i := range intents {
			r.ID = cmp.Or(r.ID, i.ID())
		}
		return r
	}))
}
