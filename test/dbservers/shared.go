// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// MariaDB makes an empty database on a MariaDB server that all tests share, those of this process
// or of the whole run (see [Share]), and returns its DSN:
// mysql://USER:PASSWORD@127.0.0.1:PORT/NAME. The user owns this database and may do nothing else.
// Both are gone when the test has ended.
func MariaDB(t testing.TB) string {
	t.Helper()
	return sharedMariaDB.database(t)
}

// PostgreSQL does the same on a PostgreSQL server:
// postgres://USER:PASSWORD@127.0.0.1:PORT/NAME?sslmode=disable.
func PostgreSQL(t testing.TB) string {
	t.Helper()
	return sharedPostgreSQL.database(t)
}

var (
	sharedMariaDB    = &shared{kind: mariaDB{}}
	sharedPostgreSQL = &shared{kind: postgreSQL{}}
)

// shared is a server that is started when the first database is made, and ends with the process.
type shared struct {
	kind engine

	mu  sync.Mutex
	srv *instance
	err error
}

// server starts the server at the first call. A server that does not start is not tried again: it
// would not start for the next test either.
func (s *shared) server(ctx context.Context) (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil && s.err == nil {
		if dir := os.Getenv(testproc.ServicesEnv); dir != "" {
			s.srv, s.err = askFor(ctx, s.kind, dir)
		} else if s.srv, s.err = newInstance(s.kind, fast, ""); s.err == nil {
			s.err = s.srv.create(ctx)
		}
	}
	if s.err != nil {
		return nil, fmt.Errorf("a shared database server: %w", s.err)
	}
	return s.srv, nil
}

func (s *shared) database(t testing.TB) string {
	t.Helper()
	srv := testproc.Try(s.server(t.Context())).Or(t)
	name := newName()
	if err := srv.statements(t.Context(), srv.kind.create(name, srv.password)...); err != nil {
		t.Fatalf("making a database on %s: %v\n%s", srv.kind, err, srv.tail())
	}
	t.Cleanup(func() {
		// The test's context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := srv.statements(ctx, srv.kind.drop(name)...); err != nil {
			t.Errorf("dropping a database of %s: %v\n%s", srv.kind, err, srv.tail())
		}
	})
	return srv.kind.dsn(name, srv.password, srv.address, name)
}

// newName is one that no other test of the run has.
func newName() string { return "test" + strings.ToLower(rand.Text()) }

// patience bounds every wait.
const patience = testproc.Patience
