// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Pair is a PostgreSQL server and its standby, to which it streams. A commit is acknowledged when
// the standby has applied it (synchronous_commit=remote_apply): without a standby, none is.
type Pair struct {
	// Primary and Standby change their places when the standby is promoted.
	Primary, Standby *Server

	servers  [2]*Server // in the order of their numbers
	networks *networks  // nil without
}

// postgreSQLPort is that of a server in its own network.
const postgreSQLPort = "5432"

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
	cmd := i.program(ctx, filepath.Join(bin, "pg_basebackup"), "--pgdata="+i.data, "--dbname="+s.connection(),
		"--wal-method=stream", "--checkpoint=fast", "--no-sync", "--write-recovery-conf")
	if i.network != nil {
		i.enter(cmd)
	}
	_, err = run(cmd)
	return err
}

// connection is how the standby reaches the server that it follows.
func (s standby) connection() string {
	host, port, _ := net.SplitHostPort(s.of.i.address) // it is one of ours
	return fmt.Sprintf("host=%s port=%s user=%s password=%s sslmode=disable application_name=standby",
		host, port, admin, s.of.i.password)
}

// StartPostgreSQLPair starts a PostgreSQL server and its standby for one test.
func StartPostgreSQLPair(t testing.TB, o Options) *Pair {
	t.Helper()
	// Without synchronous_standby_names, which only a server that has a standby gets, the first of
	// these has no effect. A standby that is down for long finds what it has missed.
	o.Settings = append([]string{"synchronous_commit=remote_apply", "wal_keep_size=512MB"}, o.Settings...)
	p := &Pair{}
	if o.Networks {
		p.networks = startNetworks(t, len(p.servers), o.Hosts)
	}
	for n, kind := range []func() engine{func() engine { return postgreSQL{} },
		func() engine { return standby{of: p.servers[0]} }} {
		s := newServer(t, kind(), o)
		if o.Networks {
			s.i.network = p.networks.nodes[n]
			s.i.address = s.i.network.address + ":" + postgreSQLPort
		}
		p.servers[n] = s
		if n > 0 {
			s.i.password = p.servers[0].i.password // the files have it
		}
		testproc.Check(t, s.i.create(t.Context()))
	}
	p.Primary, p.Standby = p.servers[0], p.servers[1]
	p.synchronous(t)
	return p
}

// synchronous has the primary wait for its standby at each commit.
func (p *Pair) synchronous(t testing.TB) {
	t.Helper()
	testproc.Check(t, p.Primary.i.statements(t.Context(),
		"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"))
	p.WaitSynchronous(t)
}

// WaitSynchronous waits until the standby streams from the primary, which waits for it at each
// commit.
func (p *Pair) WaitSynchronous(t testing.TB) {
	t.Helper()
	testproc.Eventually(t, patience, "the standby streams", func() error { return p.Synchronous(t.Context()) })
}

// Synchronous returns nil while the standby streams from the primary, which waits for it at each
// commit.
func (p *Pair) Synchronous(ctx context.Context) error {
	const query = "SELECT current_setting('synchronous_standby_names') || coalesce((SELECT state || sync_state FROM " +
		"pg_stat_replication WHERE application_name = 'standby'), '')"
	state, err := p.Primary.word(ctx, query)
	if err == nil && state != "*streamingsync" {
		err = fmt.Errorf("the standby is in state %q", state)
	}
	return err
}

// DSN returns the DSN of a database, for its owner, on whichever server accepts writes. With
// networks, it is for programs on the hosts.
func (p *Pair) DSN(database string) string {
	i := p.Primary.i
	return i.kind.dsn(database, i.password, i.address+","+p.Standby.i.address, database) +
		"&target_session_attrs=read-write"
}

// Enter is [Cluster.Enter].
func (p *Pair) Enter(t testing.TB, host int, cmd *exec.Cmd, name, address string) {
	t.Helper()
	p.networks.run(t, host, cmd, name, address)
}

// Number is that of a server for Partition.
func (p *Pair) Number(s *Server) int { return slices.Index(p.servers[:], s) }

// Partition is [Cluster.Partition].
func (p *Pair) Partition(t testing.TB, nodes ...int) {
	t.Helper()
	p.networks.partition(t, nodes)
}

// Heal undoes Partition.
func (p *Pair) Heal(t testing.TB) {
	t.Helper()
	p.networks.partition(t, nil)
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
