// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// claim gives a new consumer one VCPU of the shared provider.
func claim(l *transactor.Ledger, consumer string) error {
	_, err := l.Update(ctx, func(tx *ledger.Tx) error {
		return tx.ReplaceAllocations(
			[]ledger.ConsumerAllocations{{Consumer: consumer, Project: "q", User: "u", CheckGeneration: true,
				Resources: providertree.ProviderResources{"shared": {"VCPU": 1}}}})
	})
	return err
}

// TestLostCommit loses the connection around a COMMIT in each way, also while another server
// commits. The write is acknowledged, and was made once.
func TestLostCommit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		prepare(t, name)
		other := open(t, name)
		defer closeLedger(t, other)
		proxy := dbservers.NewProxy(t, name)
		l := open(t, proxy.DSN)
		var acked []string
		n := 0
		for _, fault := range []dbservers.Fault{dbservers.LoseCommit, dbservers.LoseAnswer,
			dbservers.DelayCommit, dbservers.CloseAfter} {
			for _, beside := range []int{0, 3} {
				if fault == dbservers.DelayCommit && beside > 0 {
					continue // the others would wait for it
				}
				proxy.Once(fault, func() {
					for range beside {
						n++
						consumer := fmt.Sprint("other", n)
						testproc.NoError(t, claim(other, consumer))
						acked = append(acked, consumer+" ")
					}
				})
				own := fmt.Sprintf("own-%d-%d", fault, beside)
				testproc.NoErrorf(t, claim(l, own), "fault %d, %d others", fault, beside)
				acked = append(acked, own+" ")
			}
		}
		proxy.Faults(nil)
		closeLedger(t, l)
		checkStorm(t, name, acked)
	})
}

// TestVersionThatWentBack: what a database shows that is older than what it has shown is not
// believed, neither by reads nor by writes.
func TestVersionThatWentBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		prepare(t, name)
		l := open(t, name)
		defer closeLedger(t, l)
		execute(t, name, "UPDATE ledger_version SET version = version - 1")
		testproc.Try(l.Snapshot(ctx)).ErrorIs(t, ledger.ErrUnavailable, "a read: %v")
		testproc.ErrorIs(t, claim(l, "consumer"), ledger.ErrUnavailable, "a write: %v")
		execute(t, name, "UPDATE ledger_version SET version = version + 1")
		testproc.NoErrorf(t, claim(l, "consumer"), "after it is back")
	})
}

// TestRealNamesThatAreEqualInTheDatabase: the tables of a database that others made can take two
// names for equal, or lack letters. The write is refused, and those of others beside it are not.
func TestRealNamesThatAreEqualInTheDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	name := dbservers.MariaDB(t)
	prepare(t, name)
	execute(t, name, "ALTER TABLE resource_providers CONVERT TO CHARACTER SET latin1 COLLATE latin1_swedish_ci",
		"ALTER TABLE projects CONVERT TO CHARACTER SET latin1 COLLATE latin1_swedish_ci")
	l := open(t, name)
	defer closeLedger(t, l)
	provider := func(name string) error {
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			_, err := tx.CreateProvider(ledger.NewProvider{UUID: fmt.Sprintf("%x", name), Name: name})
			return err
		})
		return err
	}
	testproc.Check(t, provider("node"))
	isDuplicate := func(err error) bool { return ledger.KindOf(err) == ledger.DuplicateName }
	isRow := func(err error) bool { return errors.Is(err, ledger.ErrRow) }
	for range 3 { // so that some of them share commits with the others
		var running sync.WaitGroup
		for name, want := range map[string]func(error) bool{"NODE": isDuplicate,
			"Nöde":  func(err error) bool { return err == nil || ledger.KindOf(err) == ledger.DuplicateUUID },
			"node🙂": isRow} {
			running.Go(func() {
				if err := provider(name); !want(err) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		for i := range 4 {
			running.Go(func() {
				if err := claim(l, fmt.Sprint("consumer", i)); err != nil &&
					ledger.KindOf(err) != ledger.ConsumerGenerationConflict {
					t.Errorf("beside them: %v", err)
				}
			})
		}
		running.Wait()
	}
	owned := func(project string) error {
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations(
				[]ledger.ConsumerAllocations{{Consumer: "of " + fmt.Sprintf("%x", project), Project: project, User: "u",
					Resources: providertree.ProviderResources{"shared": {"VCPU": 1}}}})
		})
		return err
	}
	for _, project := range []string{"Q", "e"} {
		testproc.NoErrorf(t, owned(project), "project %s", project)
	}
	if c, ok := l.Current().Consumer("of 51"); !ok || c.Project != "q" {
		t.Errorf("the project of a consumer of Q is %+v", c)
	}
	if err := owned("é"); !isDuplicate(err) {
		t.Errorf("a project whose name the database takes for another's: %v", err)
	}
}
