// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestConflictsAreTriedAgain: a change that other transactions undo is tried for conflictPatience,
// and maxTries times at least.
func TestConflictsAreTriedAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		conflict := &mysql.MySQLError{Number: 1213, Message: "deadlock"}
		r, start := retries{dialect: engine.MySQL}, time.Now()
		for r.wait(t.Context(), conflict) {
		}
		if took := time.Since(start); took < conflictPatience || took > conflictPatience+
			retryPause.Max || r.tries < maxTries {
			t.Errorf("%d tries in %v, want at least %d, and %v", r.tries, took, maxTries, conflictPatience)
		}
	})
}
