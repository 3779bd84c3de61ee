// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// staleness logs when answers begin to be stale, and when they are current again.
type staleness struct {
	log      zerolog.Logger
	observer Observer
	now      atomic.Bool
}

// read is the state for an answer to a request that changes nothing. Without the database it may be
// stale, which a header of the answer says.
func (x *exchange) read() (*ledger.Snapshot, error) {
	if x.judged != nil {
		return x.judged, nil
	}
	s, age, err := x.api.ledger.Read(x.R.Context())
	if err != nil {
		return nil, err
	}
	stale := &x.api.stale
	if age == 0 {
		if stale.now.Load() && stale.now.CompareAndSwap(true, false) {
			stale.log.Info().Msg("The database answers again. Reads show its newest state.")
		}
		return s, nil
	}
	if stale.now.CompareAndSwap(false, true) {
		stale.log.Warn().
			Msg("The database cannot be asked for its version, so reads are answered from the state in memory, with " +
				"the header " + wire.HeaderStale +
				", until that is as old as [placement] stale_reads allows. Writes are refused. The log says why the " +
				"database cannot be used.")
	}
	if stale.observer != nil {
		stale.observer.ReadStale(age)
	}
	x.W.Header()[wire.HeaderStale] = []string{strconv.FormatInt(int64((age+time.Second-1)/time.Second), 10)}
	return s, nil
}
