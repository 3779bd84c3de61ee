// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Pair is a PostgreSQL server and its standby, to which it streams. A commit is acknowledged when
// the standby has applied it (synchronous_commit=remote_apply): without a standby, none is.
type Pair struct {
	// Primary and Standby change their places when the standby is promoted.
	Primary, Standby *Server
}

// standby is PostgreSQL whose files come from another server, which it follows.
type standby struct {
	postgreSQL
	of *Server
}

func (s standby) String() string { return "PostgreSQL's standby" }

func (s standby) initialise(ctx context.Context, i *instance) error {
	bin, err := s.programs()
	if err != nil {
		return err
	}
	_, err = run(i.program(ctx, filepath.Join(bin, "pg_basebackup"), "--pgdata="+i.data, "--dbname="+s.connection(),
		"--wal-method=stream", "--checkpoint=fast", "--no-sync", "--write-recovery-conf"))
	return err
}

// connection is how the standby reaches the server that it follows.
func (s standby) connection() string {
	host, port, _ := net.SplitHostPort(s.of.i.address) // it is one of ours
	return fmt.Sprintf("host=%s port=%s user=%s password=%s sslmode=disable application_name=standby", host, port, admin, s.of.i.password)
}

// StartPostgreSQLPair starts a PostgreSQL server and its standby for one test.
func StartPostgreSQLPair(t testing.TB, o Options) *Pair {
	t.Helper()
	// Without synchronous_standby_names, which only a server that has a standby gets, the first of
	// these has no effect. A standby that is down for long finds what it has missed.
	o.Settings = append([]string{"synchronous_commit=remote_apply", "wal_keep_size=512MB"}, o.Settings...)
	p := &Pair{Primary: startServer(t, postgreSQL{}, o)}
	p.Standby = newServer(t, standby{of: p.Primary}, o)
	p.Standby.i.password = p.Primary.i.password // the files have it
	testproc.Check(t, p.Standby.i.create(t.Context()))
	p.synchronous(t)
	return p
}

// synchronous has the primary wait for its standby at each commit.
func (p *Pair) synchronous(t testing.TB) {
	t.Helper()
	testproc.Check(t, p.Primary.i.statements(t.Context(), "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"))
	p.WaitSynchronous(t)
}

// WaitSynchronous waits until the standby streams from the primary, which waits for it at each
// commit.
func (p *Pair) WaitSynchronous(t testing.TB) {
	t.Helper()
	testproc.Eventually(t, patience, "the standby streams", func() error {
		const query = "SELECT current_setting('synchronous_standby_names') || coalesce((SELECT state || sync_state FROM pg_stat_replication WHERE application_name = 'standby'), '')"
		state, err := p.Primary.word(t.Context(), query)
		if err == nil && state != "*streamingsync" {
			err = fmt.Errorf("it is in state %q", state)
		}
		return err
	})
}

// DSN returns the DSN of a database, for its owner, on whichever server accepts writes.
func (p *Pair) DSN(database string) string {
	i := p.Primary.i
	return i.kind.dsn(database, i.password, i.address+","+p.Standby.i.address, database) + "&target_session_attrs=read-write"
}

// Promote makes the standby a primary without a standby, and returns when it accepts writes. The
// former primary is Standby then. It is not ended: as real ones, it may serve on, and answers reads
// with what it has.
func (p *Pair) Promote(t testing.TB) {
	t.Helper()
	testproc.Check(t, p.Standby.i.statements(t.Context(), "SELECT pg_promote()"))
	testproc.Eventually(t, patience, "the standby is promoted", func() error {
		readOnly, err := p.Standby.word(t.Context(), "SHOW transaction_read_only")
		if err == nil && readOnly != "off" {
			err = fmt.Errorf("transaction_read_only is %s", readOnly)
		}
		return err
	})
	p.Primary, p.Standby = p.Standby, p.Primary
}

// Rejoin makes the former primary the standby of the present one, with new files, and returns when
// commits wait for it. If it runs, it is killed.
func (p *Pair) Rejoin(t testing.TB) {
	t.Helper()
	s := p.Standby
	s.Kill(t)
	s.i.kind = standby{of: p.Primary}
	testproc.Check(t, s.i.emptyData())
	testproc.Check(t, s.i.kind.initialise(t.Context(), s.i))
	s.Start(t)
	p.synchronous(t)
}
