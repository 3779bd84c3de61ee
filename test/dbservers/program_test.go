// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"os"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestServerOfProgram: a server that a program starts has its settings, durable commits and
// processes, and is gone with its files when it is closed.
func TestServerOfProgram(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testproc.Try(dbservers.NewMariaDB(t.Context(), "max-connections=77")).Or(t)
	dsn := testproc.Try(s.MakeDatabase(t.Context(), "words")).Or(t)
	if got := text(t, dbservers.Open(t, dsn),
		"SELECT CONCAT(@@max_connections, ' ', @@innodb_flush_log_at_trx_commit)"); got != "77 1" {
		t.Errorf("max_connections and innodb_flush_log_at_trx_commit are %s", got)
	}
	if pids, err := s.PIDs(); err != nil || len(pids) != 1 {
		t.Errorf("the processes are %v, %v", pids, err)
	}
	testproc.Check(t, s.Close())
	if pids, err := s.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("after its end the processes are %v, %v", pids, err)
	}
	if _, err := os.Stat(s.Log()); !os.IsNotExist(err) {
		t.Errorf("the log of a closed server: %v", err)
	}
}
