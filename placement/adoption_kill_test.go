// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// writing is a statement that changes a database, in what a client sends.
var writing = regexp.MustCompile(`\b(CREATE|DROP|INSERT|UPDATE|setval)\b`)

// cut is a connection to a database server that breaks for good once a number of statements that
// change something were sent: what a process that is killed leaves behind.
type cut struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	left  int
	dead  bool
	conns []net.Conn
}

// cutAfter is the DSN by which the database is reached through a cut.
func cutAfter(t *testing.T, dsn string, statements int) (through string, c *cut) {
	t.Helper()
	u := testproc.Try(url.Parse(dsn)).Or(t)
	listener := testproc.Try(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	c = &cut{listener: listener, to: u.Host, left: statements}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.serve(client)
		}
	}()
	u.Host = listener.Addr().String()
	return u.String(), c
}

func (c *cut) serve(client net.Conn) {
	server, err := net.Dial("tcp", c.to)
	c.mu.Lock()
	if c.dead || err != nil {
		_ = client.Close()
		if err == nil {
			_ = server.Close()
		}
		c.mu.Unlock()
		return
	}
	c.conns = append(c.conns, client, server)
	c.mu.Unlock()
	go func() { _, _ = io.Copy(client, server) }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			_ = server.Close()
			return
		}
		_, _ = server.Write(buffer[:n])
		if writing.Match(buffer[:n]) && c.count() {
			return
		}
	}
}

// count counts a statement, and cuts all connections after the last one.
func (c *cut) count() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		c.die()
	}
	return c.dead
}

func (c *cut) die() {
	c.dead = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// close ends it, and says whether it had cut.
func (c *cut) close() (cut bool) {
	_ = c.listener.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	cut = c.dead
	c.die()
	return cut
}

// TestDatabasesKilledAdoption: adopting and handing back are ended after some statements, with
// PLACEMENT_TEST_EVERY_STATEMENT after each, which takes many minutes. Whatever is left, no row of
// OpenStack's is altered and no server starts on half a schema; the same command, run again, ends
// what it began, and handing back gives OpenStack's Placement a database that it can write to.
func TestDatabasesKilledAdoption(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	stride := 13
	switch {
	case os.Getenv("PLACEMENT_TEST_EVERY_STATEMENT") != "":
		stride = 1
	case dbservers.Long(t):
		stride = 5
	}
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		k := killing{dsn: theirDatabase(t, fresh)}
		k.rows = dump(t, k.dsn)
		kills := 0
		for n := 1; k.killed(t, n, "adopt"); n += stride {
			kills++
			if n%2 == 0 {
				k.adopt(t, n)
			}
			k.handBack(t, n)
		}
		k.handBack(t, 0)
		for n := 1; ; n += stride {
			k.adopt(t, n)
			if !k.killed(t, n, "hand back") {
				break
			}
			kills++
			if n%2 == 0 {
				k.adopt(t, n)
			}
			k.handBack(t, n)
		}
		if kills < 3 {
			t.Errorf("only %d kills", kills)
		}
		t.Logf("%d kills", kills)
	})
}

// killing is a database of OpenStack's Placement whose adoption is interrupted.
type killing struct {
	dsn  string
	rows map[string][]string
}

// killed runs one of the two until the nth statement, and returns whether it came so far.
func (k *killing) killed(t *testing.T, n int, do string) bool {
	t.Helper()
	through, c := cutAfter(t, k.dsn, n)
	var err error
	if do == "adopt" {
		_, err = placement.Adopt(t.Context(), placement.Config{Database: through}, store.AdoptOptions{})
	} else {
		_, err = placement.HandBack(t.Context(), placement.Config{Database: through}, store.AdoptOptions{})
	}
	was := c.close()
	if !was && err != nil {
		t.Fatalf("%s, to be killed at statement %d: %v", do, n, err)
	}
	k.alone(t)
	found, _ := checkDatabase(t, k.dsn)
	if direct, err := placement.NewDirect(t.Context(),
		placement.Config{Database: k.dsn, Logger: zerolog.Nop()}); err == nil {
		testproc.NoError(t, direct.Close())
		// A start makes what is left of the last step.
		if again, _ := checkDatabase(t, k.dsn); again.State != store.StateAdopted {
			t.Errorf("%s, killed at statement %d: served in state %s", do, n, found.State)
		}
	} else if !errors.Is(err, engine.ErrSchema) && !errors.Is(err, engine.ErrUnreachable) {
		t.Errorf("%s, killed at statement %d, in state %s: %v", do, n, found.State, err)
	}
	return was
}

// alone waits until the server has done the last statement of what was killed: all sessions of that
// have ended then.
func (k *killing) alone(t *testing.T) {
	t.Helper()
	query := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
	if strings.HasPrefix(k.dsn, "postgres:") {
		query = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> " +
			"pg_backend_pid() AND backend_type = 'client backend'"
	}
	db := dbservers.Open(t, k.dsn)
	db.SetMaxOpenConns(1)
	testproc.Eventually(t, testproc.Patience, "no other session uses the database", func() error {
		var n int
		err := db.QueryRowContext(t.Context(), query).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d do", n)
		}
		return err
	})
	testproc.Check(t, db.Close())
}

// adopt adopts what is left of statement n, and looks whether it is served.
func (k *killing) adopt(t *testing.T, n int) {
	t.Helper()
	done, err := placement.Adopt(t.Context(), placement.Config{Database: k.dsn}, store.AdoptOptions{})
	if err != nil || done.After != store.StateAdopted || done.Guarded != 12 {
		t.Fatalf("statement %d: adopted: %+v, %v", n, done, err)
	}
	direct, err := placement.NewDirect(t.Context(), placement.Config{Database: k.dsn, Logger: zerolog.Nop()})
	testproc.Checkf(t, err, "statement %d: adopted, and not served", n)
	testproc.NoError(t, direct.Close())
}

// handBack hands back what is left of statement n, and looks whether others can write to it.
func (k *killing) handBack(t *testing.T, n int) {
	t.Helper()
	if done := handDatabaseBack(t, k.dsn); done.After != store.StateOpenStack {
		t.Errorf("statement %d: handed back: %+v", n, done)
	}
	if found, _ := checkDatabase(t, k.dsn); found.State != store.StateOpenStack || found.Guarded != 0 {
		t.Errorf("statement %d: at last %+v", n, found)
	}
	for table := range k.rows {
		statement := "UPDATE " + table + " SET created_at = created_at"
		if table == "alembic_version" {
			continue
		}
		testproc.Checkf(t, onServer(t, k.dsn, statement), "statement %d: %s is not to be written to", n, table)
	}
	if diff := cmp.Diff(k.rows, dump(t, k.dsn)); diff != "" {
		t.Fatalf("statement %d: rows of OpenStack's Placement are altered:\n%s", n, diff)
	}
}
