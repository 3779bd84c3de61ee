// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestServersAreKilledStoppedAndStartedAgain(t *testing.T) {
	testproc.Drawn(t, 2)
	t.Parallel()
	for name, start := range map[string]func(testing.TB,
		dbservers.Options) *dbservers.Server{"mariadb": dbservers.StartMariaDB,
		"postgresql": dbservers.StartPostgreSQL} {
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			s := start(t, dbservers.Options{Durable: true, Settings: []string{"max_connections=77"}})
			db := dbservers.Open(t, s.Database(t, "words"))
			execute(t, db, "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)", "INSERT INTO words VALUES ('killed')")
			s.Kill(t)
			if err := db.PingContext(t.Context()); err == nil {
				t.Error("a killed server answers")
			}
			s.Start(t)
			testproc.Equal(t, text(t, db, "SELECT word FROM words"), "killed", "got %q")
			execute(t, db, "UPDATE words SET word = 'stopped'")
			s.Stop(t)
			if err := db.PingContext(t.Context()); err == nil {
				t.Error("a stopped server answers")
			}
			s.Start(t)
			testproc.Equal(t, text(t, db, "SELECT word FROM words"), "stopped", "got %q")
			s.Pause(t)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			// The server may make this change late, when it continues.
			if _, err := db.ExecContext(ctx,
				"UPDATE words SET word = word"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a server that is stopped by a signal: %v", err)
			}
			s.Continue(t)
			execute(t, db, "UPDATE words SET word = 'continued'")
			testproc.Equal(t, text(t, db, "SELECT word FROM words"), "continued", "got %q")
			query := map[string]string{"mariadb": "SELECT @@max_connections",
				"postgresql": "SHOW max_connections"}[name]
			database := map[string]string{"mariadb": "mysql", "postgresql": "postgres"}[name]
			testproc.Equal(t, text(t, dbservers.Open(t, s.AdminDSN(database)), query), "77", "max_connections is %s")
			if log, err := os.ReadFile(s.Log()); err != nil || len(log) == 0 {
				t.Errorf("the log: %v, %d bytes", err, len(log))
			}
		})
	}
}

func TestAPairLosesNothingWithItsPrimary(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
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

func TestADiskOfItsOwnIsFull(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := dbservers.StartPostgreSQL(t, dbservers.Options{Disk: "120m"})
	words := s.Database(t, "words")
	db := dbservers.Open(t, words)
	execute(t, db, "CREATE TABLE words (word TEXT)", "INSERT INTO words VALUES ('kept')")
	const much = "INSERT INTO words SELECT repeat(md5(n::text), 100) FROM generate_series(1, 2000) n"
	s.Fill(t)
	if _, err := db.ExecContext(t.Context(), much); err == nil {
		t.Error("a full disk takes more")
	}
	s.Kill(t) // it may have ended
	s.Free(t)
	s.Start(t)
	db = dbservers.Open(t, words) // the connections of before are broken
	execute(t, db, much, "DELETE FROM words WHERE length(word) > 10")
	if got := text(t, db, "SELECT word FROM words"); got != "kept" || !s.Running() {
		t.Errorf("got %q, running %v", got, s.Running())
	}
}

// TestHostsAreSeparated: what runs on a host reaches the servers unless they are separated, and the
// test reaches it all the time.
func TestHostsAreSeparated(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	p := dbservers.StartPostgreSQLPair(t, dbservers.Options{Networks: true, Hosts: 1})
	p.Primary.Database(t, "words")
	dsn := testproc.Try(url.Parse(p.DSN("words"))).Or(t)
	primary, standby, _ := strings.Cut(dsn.Host, ",")
	reachesWithin := func(seconds, address string) error {
		host, port, _ := net.SplitHostPort(address)
		cmd := exec.CommandContext(t.Context(), "/usr/bin/timeout", seconds, "/bin/bash", "-c",
			"exec 3<>/dev/tcp/"+host+"/"+port)
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		p.Enter(t, 0, cmd, "", "")
		return cmd.Run()
	}
	reaches := func(address string) error { return reachesWithin("60", address) }
	testproc.Check(t, reaches(primary), reaches(standby))
	p.Partition(t, p.Number(p.Standby))
	testproc.Check(t, reaches(primary))
	if reachesWithin("1", standby) == nil {
		t.Error("the standby is separated, and reached")
	}
	p.Partition(t, 2)
	if reachesWithin("1", primary) == nil {
		t.Error("the host is separated, and reaches the primary")
	}
	p.WaitSynchronous(t)
	p.Heal(t)
	testproc.Check(t, reaches(primary))

	address := testproc.FreeAddress(t)
	cmd := exec.CommandContext(t.Context(), "/bin/bash",
		"-c", `echo "$LISTEN_FDNAMES $LISTEN_FDS $(($$ == LISTEN_PID))"`)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	p.Enter(t, 0, cmd, "names", address)
	c := testproc.Try(net.Dial("tcp", address)).Or(t)
	testproc.Check(t, c.Close())
	out, err := cmd.Output()
	testproc.Check(t, err, cmd.ExtraFiles[0].Close())
	if string(out) != "names 1 1\n" {
		t.Errorf("it inherits %q", out)
	}
}
