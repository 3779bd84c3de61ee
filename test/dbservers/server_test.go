// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

func TestServersAreKilledStoppedAndStartedAgain(t *testing.T) {
	for name, start := range map[string]func(testing.TB, dbservers.Options) *dbservers.Server{"mariadb": dbservers.StartMariaDB, "postgresql": dbservers.StartPostgreSQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, dbservers.Options{Durable: true, Settings: []string{"max_connections=77"}})
			db := dbservers.Open(t, s.Database(t, "words"))
			execute(t, db, "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)", "INSERT INTO words VALUES ('killed')")
			s.Kill(t)
			if err := db.PingContext(t.Context()); err == nil {
				t.Error("a killed server answers")
			}
			s.Start(t)
			if got := text(t, db, "SELECT word FROM words"); got != "killed" {
				t.Errorf("got %q", got)
			}
			execute(t, db, "UPDATE words SET word = 'stopped'")
			s.Stop(t)
			if err := db.PingContext(t.Context()); err == nil {
				t.Error("a stopped server answers")
			}
			s.Start(t)
			if got := text(t, db, "SELECT word FROM words"); got != "stopped" {
				t.Errorf("got %q", got)
			}
			s.Pause(t)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := db.ExecContext(ctx, "UPDATE words SET word = 'paused'"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a server that is stopped by a signal: %v", err)
			}
			s.Continue(t)
			execute(t, db, "UPDATE words SET word = 'continued'")
			if got := text(t, db, "SELECT word FROM words"); got != "continued" {
				t.Errorf("got %q", got)
			}
			query := map[string]string{"mariadb": "SELECT @@max_connections", "postgresql": "SHOW max_connections"}[name]
			database := map[string]string{"mariadb": "mysql", "postgresql": "postgres"}[name]
			if got := text(t, dbservers.Open(t, s.AdminDSN(database)), query); got != "77" {
				t.Errorf("max_connections is %s", got)
			}
			if log, err := os.ReadFile(s.Log()); err != nil || len(log) == 0 {
				t.Errorf("the log: %v, %d bytes", err, len(log))
			}
		})
	}
}

func TestAPairLosesNothingWithItsPrimary(t *testing.T) {
	t.Parallel()
	p := dbservers.StartPostgreSQLPair(t, dbservers.Options{})
	p.Primary.Database(t, "words")
	execute(t, dbservers.Open(t, p.DSN("words")), "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)")
	for _, word := range []string{"first", "second"} {
		execute(t, dbservers.Open(t, p.DSN("words")), "DELETE FROM words", "INSERT INTO words VALUES ('"+word+"')")
		if got := text(t, dbservers.Open(t, p.Standby.DSN("words")), "SELECT word FROM words"); got != word {
			t.Errorf("the standby has %q, and %q was acknowledged", got, word)
		}
		p.Primary.Kill(t)
		p.Promote(t)
		if got := text(t, dbservers.Open(t, p.DSN("words")), "SELECT word FROM words"); got != word {
			t.Errorf("after the promotion: %q", got)
		}
		p.Rejoin(t)
	}
	// Without its standby, the primary acknowledges nothing.
	p.Standby.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := dbservers.Open(t, p.DSN("words")).ExecContext(ctx, "INSERT INTO words VALUES ('alone')"); err == nil {
		t.Error("a commit is acknowledged that the standby does not have")
	}
	p.Standby.Continue(t)
	p.WaitSynchronous(t)
	execute(t, dbservers.Open(t, p.DSN("words")), "INSERT INTO words VALUES ('both')")
}
