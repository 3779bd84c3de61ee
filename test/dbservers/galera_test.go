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
	for _, db := range out { // a write does not wait for the table, which comes from the first one
		execute(t, db, "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1")
	}
	return out
}

func agree(t testing.TB, words string, all ...*sql.DB) {
	t.Helper()
	for n, db := range all {
		if got := text(t, db,
			"SET STATEMENT wsrep_sync_wait = 1 FOR SELECT GROUP_CONCAT(word ORDER BY word) FROM words"); got != words {
			t.Errorf("database %d has %q, want %q", n, got, words)
		}
	}
}

// refuses returns nil if a node refuses writes because it has no quorum.
func refuses(t testing.TB, db *sql.DB) error {
	_, err := db.ExecContext(t.Context(), "UPDATE words SET word = 'b'")
	var refused *mysql.MySQLError
	switch {
	case err == nil:
		return errors.New("it wrote")
	case errors.As(err, &refused) && refused.Number == 1047:
		return nil
	default:
		return err
	}
}

// copies counts how often a node got all data from another one.
func copies(t testing.TB, c *dbservers.Cluster) int {
	t.Helper()
	n := 0
	for _, s := range c.Nodes {
		log := testproc.Try(os.ReadFile(s.Log())).Or(t)
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "Running: 'wsrep_sst_copy --role 'donor'") &&
				!strings.Contains(line, "--bypass") {
				n++
			}
		}
	}
	return n
}

func TestANodeOfGaleraJoinsAgain(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	c := dbservers.StartGalera(t, 3, dbservers.Options{})
	all := nodes(t, c)
	execute(t, all[2], "INSERT INTO words VALUES ('a')")
	agree(t, "a", all...)
	c.Nodes[2].Kill(t)
	c.WaitSynced(t)
	execute(t, all[1], "INSERT INTO words VALUES ('b')")
	c.Nodes[2].Start(t)
	agree(t, "a,b", all...)
	testproc.Equal(t, copies(t, c), 0, "%d copies of all data were made, and what the node has missed is enough")
}

func TestPartitionsOfGalera(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	c := dbservers.StartGalera(t, 3, dbservers.Options{Networks: true, Provider: []string{"gcs.fc_limit=64"}})
	all := nodes(t, c)
	if got := text(t, all[0], "SELECT @@wsrep_provider_options"); !strings.Contains(got, "gcs.fc_limit = 64;") {
		t.Errorf("the provider's options are %s", got)
	}
	execute(t, all[0], "INSERT INTO words VALUES ('a')")
	agree(t, "a", all...)
	c.Partition(t, 1)
	testproc.Eventually(t, testproc.Patience, "the separated node refuses", func() error {
		return refuses(t, all[1])
	})
	c.WaitSynced(t, 0, 2)
	execute(t, all[2], "INSERT INTO words VALUES ('c')")
	agree(t, "a,c", all[0], all[2])
	c.Heal(t)
	c.WaitSynced(t)
	agree(t, "a,c", all...)
}

// TestDatabasesGaleraAfterAPowerCut is long: it waits for more of Galera's timeouts.
func TestDatabasesGaleraAfterAPowerCut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
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
		return refuses(t, all[2])
	})
	c.Bootstrap(t, 2)
	execute(t, all[2], "INSERT INTO words VALUES ('c')")
	// One that does not know what it has gets all data.
	testproc.Check(t, os.Remove(strings.TrimSuffix(c.Nodes[0].Log(), "log")+"data/grastate.dat"))
	c.Nodes[0].Start(t)
	c.Nodes[1].Start(t)
	c.WaitSynced(t)
	agree(t, "a,c", all...)
	testproc.Equal(t, copies(t, c), 1, "%d copies of all data were made")
	// One that has stopped in order.
	c.Nodes[1].Stop(t)
	execute(t, all[0], "INSERT INTO words VALUES ('d')")
	c.Nodes[1].Start(t)
	agree(t, "a,c,d", all...)
	// One that has hung for long.
	c.Nodes[2].Pause(t)
	c.WaitSynced(t)
	execute(t, all[0], "INSERT INTO words VALUES ('e')")
	c.Nodes[2].Continue(t)
	c.WaitSynced(t)
	agree(t, "a,c,d,e", all...)
	testproc.Equal(t, copies(t, c), 1, "%d copies of all data were made")
}
