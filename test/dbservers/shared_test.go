// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"database/sql"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestEachDatabaseIsEmptyAndApart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.Each(t, func(t *testing.T, fresh func(t testing.TB) string) {
		one, other := dbservers.Open(t, fresh(t)), dbservers.Open(t, fresh(t))
		for i, db := range []*sql.DB{one, other} {
			execute(t, db, "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)")
			execute(t, db, []string{"INSERT INTO words VALUES ('çá🙂')", "INSERT INTO words VALUES ('other')"}[i])
		}
		testproc.Equal(t, text(t, one, "SELECT word FROM words"), "çá🙂", "got %q")
		testproc.Equal(t, text(t, other, "SELECT word FROM words"), "other", "got %q")
	})
}

// TestADatabaseGoesWithItsTest leaves a transaction open, which must not keep the database.
func TestADatabaseGoesWithItsTest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, fresh := range map[string]func(testing.TB) string{"mariadb": dbservers.MariaDB,
		"postgresql": dbservers.PostgreSQL} {
		t.Run(name, func(t *testing.T) {
			var gone *sql.DB
			t.Run("inner", func(inner *testing.T) {
				gone = dbservers.Open(t, fresh(inner))
				execute(t, gone, "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)")
				tx := testproc.Try(gone.BeginTx(t.Context(), nil)).Or(t)
				testproc.Try(tx.ExecContext(t.Context(), "INSERT INTO words VALUES ('left')")).Or(t)
			})
			if gone == nil {
				return // it has failed
			}
			if err := gone.PingContext(t.Context()); err == nil {
				t.Error("the database of a test that has ended can be used")
			}
		})
	}
}
