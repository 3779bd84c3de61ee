// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestConflictsAreTriedAgain: a change that other transactions undo is tried for conflictPatience,
// and maxTries times at least.
func TestConflictsAreTriedAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		conflict := errors.New("deadlock")
		class := func(error) Class { return Retry }
		r, start := retries{dialect: &Dialect{class: class, Kind: mysqlKind}}, time.Now()
		for r.wait(t.Context(), conflict) {
		}
		if took := time.Since(start); took < conflictPatience || took > conflictPatience+
			2*lastPause || r.tries < maxTries {
			t.Errorf("%d tries in %v, want at least %d, and %v", r.tries, took, maxTries, conflictPatience)
		}
	})
}
