// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// transactTraced runs a transaction within a span, which includes the wait for the writer and the
// audit log. A span below it is the commit: of all writes of the batch, so that those of several
// requests may have the same times.
func (x *exchange) transactTraced(fn func(*ledger.Tx) error) (s *ledger.Snapshot, err error) {
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
