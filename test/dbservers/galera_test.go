// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// nodes connects to a new database of a cluster through each node. Reads wait for what was written
// before on other nodes.
func nodes(t testing.TB, c *dbservers.Cluster) []*sql.DB {
	t.Helper()
	var out []*sql.DB
	for _, dsn := range c.Database(t, "words") {
		out = append(out, dbservers.Open(t, dsn))
	}
	execute(t, out[0], "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)")
	return out
}

func agree(t testing.TB, words string, all ...*sql.DB) {
	t.Helper()
	for n, db := range all {
		if got := text(t, db, "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT GROUP_CONCAT(word ORDER BY word) FROM words"); got != words {
			t.Errorf("database %d has %q, want %q", n, got, words)
		}
	}
}

func TestANodeOfGaleraJoinsAgain(t *testing.T) {
	c := dbservers.StartGalera(t, 3, dbservers.Options{})
	all := nodes(t, c)
	execute(t, all[2], "INSERT INTO words VALUES ('a')")
	agree(t, "a", all...)
	c.Nodes[2].Kill(t)
	c.WaitSynced(t)
	execute(t, all[1], "INSERT INTO words VALUES ('b')")
	c.Nodes[2].Start(t)
	agree(t, "a,b", all...)
	if log, err := os.ReadFile(c.Nodes[2].Log()); err != nil || !strings.Contains(string(log), "IST received") {
		t.Errorf("the node did not get only what it has missed: %v", err)
	}
}

func TestPartitionsOfGalera(t *testing.T) {
	c := dbservers.StartGalera(t, 3, dbservers.Options{Networks: true})
	all := nodes(t, c)
	execute(t, all[0], "INSERT INTO words VALUES ('a')")
	agree(t, "a", all...)
	c.Partition(t, 1)
	testproc.Eventually(t, testproc.Patience, "the separated node refuses", func() error {
		_, err := all[1].ExecContext(t.Context(), "UPDATE words SET word = 'b'")
		var refused *mysql.MySQLError
		if !errors.As(err, &refused) || refused.Number != 1047 {
			return err
		}
		return nil
	})
	execute(t, all[2], "INSERT INTO words VALUES ('c')")
	agree(t, "a,c", all[0], all[2])
	c.Heal(t)
	c.WaitSynced(t)
	agree(t, "a,c", all...)
}

// TestDatabasesGaleraAfterAPowerCut is long: it waits for more of Galera's timeouts.
func TestDatabasesGaleraAfterAPowerCut(t *testing.T) {
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	c := dbservers.StartGalera(t, 3, dbservers.Options{Durable: true, Networks: true})
	all := nodes(t, c)
	execute(t, all[1], "INSERT INTO words VALUES ('a')")
	agree(t, "a", all...)
	for _, s := range c.Nodes {
		s.Kill(t)
	}
	c.Bootstrap(t, 1)
	c.Nodes[0].Start(t)
	c.Nodes[2].Start(t)
	c.WaitSynced(t)
	agree(t, "a", all...)

	// One that has lost the others.
	c.Nodes[0].Kill(t)
	c.Nodes[1].Kill(t)
	testproc.Eventually(t, testproc.Patience, "the last node refuses", func() error {
		if err := all[2].PingContext(t.Context()); err != nil {
			return err
		}
		_, err := all[2].ExecContext(t.Context(), "INSERT INTO words VALUES ('b')")
		if err == nil {
			return errors.New("it wrote")
		}
		return nil
	})
	c.Bootstrap(t, 2)
	execute(t, all[2], "INSERT INTO words VALUES ('c')")
	// One without its data gets all of them.
	testproc.Check(t, os.Remove(c.Nodes[0].Log()))
	testproc.Check(t, os.RemoveAll(strings.TrimSuffix(c.Nodes[0].Log(), "log")+"data/grastate.dat"))
	c.Nodes[0].Start(t)
	c.Nodes[1].Start(t)
	c.WaitSynced(t)
	agree(t, "a,c", all...)
	if log, err := os.ReadFile(c.Nodes[0].Log()); err != nil || !strings.Contains(string(log), "SST received") || strings.Contains(string(log), "IST received") {
		t.Errorf("the node did not get all data: %v", err)
	}
}
