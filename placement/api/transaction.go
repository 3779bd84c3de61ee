// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// update runs a transaction.
func (x *exchange) update(fn func(*ledger.Tx) error) error {
	_, err := x.transact(fn)
	return err
}

// transact runs a transaction, has what it changed recorded, and returns the state after it. All
// writes of the API come through here. A write is also recorded when the client does not wait for
// the answer.
//
// The transaction of a traced request is in a span, which includes the wait for the writer and the
// audit log. A span below it is the commit: of all writes of the batch, so that those of several
// requests may have the same times.
func (x *exchange) transact(fn func(*ledger.Tx) error) (s *ledger.Snapshot, err error) {
	if h := x.host(); h != nil {
		if err := h.SpendWrite(); err != nil {
			return nil, err
		}
		fn = h.Guarded(fn)
	}
	if !x.Traced() {
		return x.transactAudited(x.R.Context(), fn)
	}
	err = tracing.Do(x.R.Context(), "transaction", func(ctx context.Context) error {
		s, err = x.transactAudited(ctx, func(tx *ledger.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			began := x.api.service.Now()
			tx.OnOutcome(func(err error) { tracing.RecordSpan(ctx, "commit", began, x.api.service.Now(), err) })
			return nil
		})
		return err
	})
	return s, err
}

// transactAudited runs a transaction, and has what it changed recorded.
func (x *exchange) transactAudited(ctx context.Context, fn func(*ledger.Tx) error) (*ledger.Snapshot, error) {
	log := x.api.audit
	if log == nil {
		return x.api.ledger.Update(ctx, fn)
	}
	if err := log.Refusal(); err != nil {
		return nil, unrecorded(err)
	}
	record := auditlog.Request(&x.Exchange)
	var written <-chan struct{} // of the writer's goroutine until it has answered
	s, err := x.api.ledger.Update(ctx, func(tx *ledger.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		touched, before, after := tx.Touched(), tx.Base(), tx.Snapshot
		changed := sync.OnceValue(func() []auditlog.Change { return changesOf(touched, before, after) })
		var intent *auditlog.Intent
		tx.BeforeCommit(func() ledger.Intent {
			intended := record
			intended.Time = x.api.service.Now().UTC()
			intent = log.Intend(func() auditlog.Record {
				intended.Changes = changed()
				return intended
			})
			return intent
		})
		tx.OnOutcome(func(err error) {
			done := record
			if err != nil {
				done.Outcome = auditlog.Unknown
			}
			done.Time = x.api.service.Now().UTC()
			written = log.Enqueue(func() auditlog.Record {
				done.ID, done.Changes = intent.ID(), changed()
				return done
			})
		})
		return nil
	})
	switch {
	case err == nil:
		log.Wait(ctx, written)
	case errors.Is(err, auditlog.ErrNotRecorded):
		return nil, unrecorded(err)
	}
	return s, err
}

// unrecorded is the answer to a write that a required log cannot record.
func unrecorded(err error) error {
	return osapi.Errorf(http.StatusServiceUnavailable,
		"The audit log cannot be written to, so that writes are refused. Reading is possible.").Because(err)
}
