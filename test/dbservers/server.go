// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Options are those of servers that a test controls. What such a server has acknowledged survives
// its SIGKILL.
type Options struct {
	// Durable has commits on the disk before they are acknowledged, as for operators.
	Durable bool
	// Settings are further settings of the server, NAME=VALUE.
	Settings []string
	// Files are made for the server, which alone can read them. A setting with the value FILES/NAME
	// is the path of one.
	Files map[string]string
	// Provider are further options of Galera's provider, NAME=VALUE. By default a node that does
	// not answer is given up after 5 s; after 2 s with evs.keepalive_period=PT0.5S and
	// evs.suspect_timeout=PT2S.
	Provider []string
	// Networks gives each node of a cluster a network of its own, for [Cluster.Partition]. Without
	// root the test is skipped, or fails where CI is set. While such a node starts, connections to
	// it are made and wait, instead of being refused.
	Networks bool
	// Hosts is how many more networks there are with Networks, for clients that are separated from
	// the nodes like these from each other.
	Hosts int
	// Disk is the size of the file system that each server gets for its data, such as "300m"; by
	// default they are where everything is. It needs root, as Networks does.
	Disk string
}

// Server is a database server that a test controls. It ends with the test, which shows the end of
// its log if it failed. Methods with a test are called where that test's methods may be, and one at
// a time.
type Server struct {
	i      *instance
	paused bool
}

// StartMariaDB starts a MariaDB server for one test.
func StartMariaDB(t testing.TB, o Options) *Server {
	t.Helper()
	return startServer(t, mariaDB{}, o)
}

// StartPostgreSQL starts a PostgreSQL server for one test.
func StartPostgreSQL(t testing.TB, o Options) *Server {
	t.Helper()
	return startServer(t, postgreSQL{}, o)
}

func startServer(t testing.TB, kind engine, o Options) *Server {
	t.Helper()
	s := newServer(t, kind, o)
	testproc.Check(t, s.i.create(t.Context()))
	return s
}

// newServer makes a server without files, that is removed when the test ends.
func newServer(t testing.TB, kind engine, o Options) *Server {
	t.Helper()
	if o.Disk != "" {
		needsRoot(t, "file systems of their own for database servers")
	}
	keeps := killable
	if o.Durable {
		keeps = durable
	}
	i := testproc.Try(newInstance(kind, keeps, o.Disk)).Or(t)
	for name, text := range o.Files {
		testproc.Try(i.write(name, text)).Or(t)
	}
	for _, setting := range o.Settings {
		i.settings = append(i.settings, strings.Replace(setting, "=FILES/", "="+i.dir+"/", 1))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of %s at %s:\n%s", kind, i.address, i.tail())
		}
		testproc.Check(t, i.kill())
		testproc.Check(t, remove(i.dir))
	})
	return &Server{i: i}
}

// Database makes an empty database, whose owner has the same name, and returns its DSN.
func (s *Server) Database(t testing.TB, name string) string {
	t.Helper()
	return testproc.Try(s.MakeDatabase(t.Context(), name)).Or(t)
}

// DSN returns the DSN of a database, for its owner.
func (s *Server) DSN(database string) string {
	return s.i.kind.dsn(database, s.i.password, s.i.address, database)
}

// AdminDSN returns the DSN of a database for the user who may do everything: in PostgreSQL the
// database postgres and in MariaDB mysql always exist.
func (s *Server) AdminDSN(database string) string {
	return s.i.kind.dsn(admin, s.i.password, s.i.address, database)
}

// Address returns HOST:PORT. It stays the same.
func (s *Server) Address() string { return s.i.address }

// Log returns the path of the server's log.
func (s *Server) Log() string { return s.i.logFile() }

// Kill ends all processes of the server as a power cut does, also those that are stopped, and
// returns when they have ended.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	testproc.Check(t, s.i.kill())
	s.paused = false
}

// Stop ends the server in order, without waiting for its clients, and returns when it has ended.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if s.i.cmd == nil {
		t.Fatalf("%s at %s is to stop, and does not run", s.i.kind, s.i.address)
	}
	process := s.i.cmd.Process
	testproc.Check(t, process.Signal(s.i.kind.stopSignal()))
	kill := time.AfterFunc(patience, func() { _ = process.Kill() })
	err := s.i.cmd.Wait()
	s.i.cmd = nil
	if !kill.Stop() || err != nil {
		t.Fatalf("%s does not stop in order within %v: %v\n%s", s.i.kind, patience, err, s.i.tail())
	}
}

// Running says whether the server's process runs; it may have ended by itself.
func (s *Server) Running() bool {
	if s.i.cmd == nil {
		return false
	}
	p, there := processes.Lookup(s.i.cmd.Process.Pid)
	return there && p.State != 'Z'
}

// filler is the file that fills the server's disk.
func (s *Server) filler() string { return filepath.Join(s.i.data, "filler") }

// Fill takes all that is free of the server's disk, which Options.Disk has to have made.
func (s *Server) Fill(t testing.TB) {
	t.Helper()
	if s.i.disk == "" {
		t.Fatalf("%s at %s has no disk of its own: start it with Options.Disk", s.i.kind, s.i.address)
	}
	f := testproc.Try(os.OpenFile(s.filler(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)).Or(t)
	defer func() { _ = f.Close() }() // it only has to fill the disk
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/16]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Free undoes Fill. A server that has ended on a full disk is not started.
func (s *Server) Free(t testing.TB) {
	t.Helper()
	if err := os.Remove(s.filler()); !errors.Is(err, fs.ErrNotExist) {
		testproc.Check(t, err)
	}
}

// Start starts the server again, at its address and with its files, and returns when it serves. A
// node of a cluster joins it again: that needs the others. One that has ended by itself is killed
// first.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if s.i.cmd != nil {
		t.Fatalf("%s at %s is to start, and runs", s.i.kind, s.i.address)
	}
	testproc.Check(t, s.i.start(t.Context()))
}

// Pause stops all processes of the server (SIGSTOP), and returns when they are stopped: connections
// to it succeed, and no request is answered.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	if s.i.cmd == nil {
		t.Fatalf("%s at %s is to be stopped, and does not run", s.i.kind, s.i.address)
	}
	s.paused = true
	testproc.Eventually(t, patience, s.i.kind.String()+" is stopped", func() error {
		all, err := s.i.processes()
		for _, p := range all {
			if p.State != 'T' {
				_ = syscall.Kill(p.PID, syscall.SIGSTOP) // it may have ended
				err = fmt.Errorf("process %d is in state %c", p.PID, p.State)
			}
		}
		return err
	})
}

// Continue continues a server that was stopped by Pause.
func (s *Server) Continue(t testing.TB) {
	t.Helper()
	all := testproc.Try(s.i.processes()).Or(t)
	for _, p := range all {
		// one ends once others continue
		if err := syscall.Kill(p.PID, syscall.SIGCONT); !errors.Is(err, syscall.ESRCH) {
			testproc.Check(t, err)
		}
	}
	s.paused = false
}

// word asks the administrator's connection for one text.
func (s *Server) word(ctx context.Context, query string) (string, error) {
	db, err := s.i.kind.open(s.i, "")
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	var out string
	if err := db.QueryRowContext(ctx, query).Scan(&out); err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	return out, nil
}
