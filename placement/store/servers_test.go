// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealServerWithOtherSettings: on a MariaDB whose own settings are as different as an operator
// can have them, all is as the model says, and names are refused that the engine takes for equal.
func TestRealServerWithOtherSettings(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := dbservers.StartMariaDB(t, dbservers.Options{Settings: []string{
		"sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", "autocommit=0", "completion-type=CHAIN",
		"default-storage-engine=MyISAM",
		"innodb-force-primary-key=ON", "character-set-server=latin1",
		"skip-character-set-client-handshake", "default-time-zone=-11:00",
		"sql-safe-updates=1", "transaction-isolation=SERIALIZABLE", "log-bin=binlog", "binlog-format=ROW",
	}})
	dbservers.Execute(t, s.AdminDSN("mysql"), "SET GLOBAL sql_select_limit = 2", "SET GLOBAL foreign_key_checks = 0",
		"SET GLOBAL sql_auto_is_null = 1")
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n <= 3 {
			name := s.Database(t, fmt.Sprint("round", n))
			roundTrip(rt, []string{name, name})
		}
	})
	name := s.Database(t, "names")
	l := open(t, name)
	provider := func(name string) error {
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			_, err := tx.CreateProvider(ledger.NewProvider{UUID: fmt.Sprintf("%x", name), Name: name})
			return err
		})
		return err
	}
	for _, name := range []string{"node", "NODE", "nöde", "no\\de", "no'de\"", "node🙂", "node🙃", " node", "日本"} {
		testproc.NoErrorf(t, provider(name), "%q", name)
	}
	before := l.Current()
	closeLedger(t, l)
	after := open(t, name)
	defer closeLedger(t, after)
	same(t, "written -, loaded +", before, after.Current())
}

// TestDatabasesThreeWritersOnGalera: three servers, each at another node of a cluster, that write
// in turns show what the model says; and of claims that all of them make at the same time, each
// that was acknowledged is there, once.
func TestDatabasesThreeWritersOnGalera(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	c := dbservers.StartGalera(t, 3, dbservers.Options{})
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n <= roundsOnServers {
			roundTrip(rt, c.Database(t, fmt.Sprint("round", n)))
		}
	})
	names := c.Database(t, "storm")
	prepare(t, names[0])
	var ledgers []*transactor.Ledger
	for _, name := range names {
		ledgers = append(ledgers, openPatiently(t, name))
	}
	// At another node, a commit can be late again and again: then it is refused, to be sent again.
	acked := claimAll(t, ledgers, 25, func(err error) bool { return errors.Is(err, ledger.ErrBusy) })
	for _, name := range names {
		checkStorm(t, name, acked)
	}
}

// claimAll has four clients of each ledger claim so many times each, all at once, and closes the
// ledgers. What was refused with an error of again is claimed again. It returns what was
// acknowledged, for checkStorm.
func claimAll(t *testing.T, ledgers []*transactor.Ledger, each int, again func(error) bool) (acked []string) {
	t.Helper()
	var mu sync.Mutex
	var running sync.WaitGroup
	for server, l := range ledgers {
		for client := range 4 {
			running.Go(func() {
				for i := range each {
					consumer := fmt.Sprintf("consumer-%d-%d-%d", server, client, i)
					err := claim(l, consumer)
					for err != nil && again(err) {
						err = claim(l, consumer)
					}
					if err != nil {
						t.Errorf("%s: %v", consumer, err)
						return
					}
					mu.Lock()
					acked = append(acked, consumer+" ")
					mu.Unlock()
				}
			})
		}
	}
	running.Wait()
	for _, l := range ledgers {
		closeLedger(t, l)
	}
	return acked
}
