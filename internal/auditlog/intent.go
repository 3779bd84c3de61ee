// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotRecorded is wrapped by errors of acts that are refused, because a required log cannot
// record that they are intended.
var ErrNotRecorded = errors.New("the audit log cannot be written to")

// Intent is the record of an action before it, so that what a kill interrupts is recorded. A nil
// Intent belongs to no log.
type Intent struct {
	log  *Log
	id   string
	done chan struct{} // closed when it is written or that failed

	// After done:
	empty   bool // it changes nothing, and has no record
	written bool
	err     error // why a required log cannot be written
}

// Intend has it recorded that an action is about to happen. The record is made when it is next, in
// the order of the calls. Wait before the action, and call Abandon, or write a record with the ID,
// after it. Intents that are made before the first of them waits share a write, and an fsync.
func (l *Log) Intend(record func() Record) *Intent {
	if l == nil {
		return nil
	}
	return l.intend(rand.Text(), record)
}

func (l *Log) intend(id string, record func() Record) *Intent {
	i := &Intent{log: l, id: id, done: make(chan struct{})}
	e := entry{intent: i, done: i.done, record: func() Record {
		r := l.complete(record(), Intended)
		r.ID, r.Outcome = i.id, Intended
		return r
	}}
	select {
	case l.queue <- e:
		return i
	default:
	}
	if l.opts.Required && !l.hung.Load() {
		timer := time.NewTimer(intentAtMost)
		defer timer.Stop()
		select {
		case l.queue <- e:
			return i
		case <-timer.C:
			l.hung.Store(true)
		case <-l.closing:
		}
	}
	i.err = errQueueFull
	close(i.done)
	return i
}

// Wait waits for the record, at most ten seconds, or one if the log is not required, and not at all
// after another action has waited for so long and until the log answers. Its error, of a required
// log alone, wraps [ErrNotRecorded]: the action must not happen.
func (i *Intent) Wait(ctx context.Context) error {
	if i == nil {
		return nil
	}
	required, atMost := i.log.opts.Required, waitAtMost
	if required {
		atMost = intentAtMost
	}
	select {
	case <-i.done:
	default:
		if i.log.hung.Load() {
			if required {
				return fmt.Errorf("%w: it does not answer", ErrNotRecorded)
			}
			return nil
		}
		timer := time.NewTimer(atMost)
		defer timer.Stop()
		err := error(nil)
		select {
		case <-i.done:
		case <-timer.C:
			i.log.hung.Store(true)
			err = fmt.Errorf("it does not answer within %v", atMost)
		case <-ctx.Done():
			err = ctx.Err()
		case <-i.log.done:
			err = errors.New("it is closed")
		}
		if err != nil {
			if required {
				return fmt.Errorf("%w: %w", ErrNotRecorded, err)
			}
			return nil
		}
	}
	if required && i.err != nil {
		return fmt.Errorf("%w: %w", ErrNotRecorded, i.err)
	}
	return nil
}

// ID returns the ID for the record after the action; "" if there is none before it. It must be
// called in the function of the record, which is made after the intent was.
func (i *Intent) ID() string {
	if i == nil {
		return ""
	}
	if i.unwritten() {
		return ""
	}
	return i.id // it is on the disk, or in the same batch, before the record that is made
}

// unwritten reports whether it is known that there is no record.
func (i *Intent) unwritten() bool {
	select {
	case <-i.done:
		return !i.written
	default:
		return false
	}
}

// Abandon has it recorded that the action changed nothing. It does not block.
func (i *Intent) Abandon() {
	if i != nil {
		i.log.abandon(Record{}, []*Intent{i})
	}
}

// abandon has it recorded that acts, whose intents have one ID, changed nothing. It does not block:
// while the queue is full a goroutine waits, of which there are no more than intents in the queue.
func (l *Log) abandon(r Record, intents []*Intent) {
	if !slices.ContainsFunc(intents, func(i *Intent) bool { return !i.unwritten() }) {
		return
	}
	e := entry{done: make(chan struct{}), record: func() Record {
		for _, i := range intents {
			r.ID = cmp.Or(r.ID, i.ID())
		}
		r.Outcome = NotDone
		return l.complete(r, NotDone)
	}}
	select {
	case l.queue <- e:
	default:
		go func() {
			select {
			case l.queue <- e:
			case <-l.closing:
				l.countLost("queue", 1, errQueueFull)
			}
		}()
	}
}
