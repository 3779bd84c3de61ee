// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// engine is what differs between database servers.
type engine interface {
	fmt.Stringer
	// initialise makes the files of a new server in i.data, which exists and is empty.
	initialise(ctx context.Context, i *instance) error
	// command returns the server's process, not started yet.
	command(ctx context.Context, i *instance) (*exec.Cmd, error)
	// open returns a pool of connections of the administrator to a database, "" for none in
	// particular.
	open(i *instance, database string) (*sql.DB, error)
	// ready returns nil when the server serves.
	ready(ctx context.Context, db *sql.DB) error
	// stopSignal ends the server in order, without waiting for clients.
	stopSignal() syscall.Signal
	create(database, password string) []string
	drop(database string) []string
	dsn(user, password, address, database string) string

	// What a pool needs: a query for table, position, name and kind of the columns and triggers
	// of a database, an end of all its connections but one, which this is, a statement after
	// which keys of other tables are not looked at, one after which the numbers of the rows of an
	// empty table begin with 1, and how a statement has its n-th value.
	columns(database string) string
	disconnect(ctx context.Context, db *sql.DB, database string) error
	unchecked() string
	renumber(table string) string
	placeholder(n int) string
}

// copier is an engine that copies databases.
type copier interface {
	// copied is create for a database as another one is that nothing is connected to, and what
	// makes its user the owner of what is in it, to be executed there.
	copied(original, database, password string) (create []string, own string)
}

// safety is what survives what.
type safety int

const (
	// fast: nothing survives the end of the server.
	fast safety = iota
	// killable: what is acknowledged survives SIGKILL of the server.
	killable
	// durable: what is acknowledged is on the disk, as for operators.
	durable
)

// admin is the name of the user of a server who may do everything.
const admin = "admin"

// instance is a server: its files and, if it runs, its process.
type instance struct {
	kind     engine
	home     *home
	dir      string // of data and log
	data     string
	address  string // HOST:PORT
	password string // of all users
	safety   safety
	settings []string // further ones
	network  *network // nil if it is in that of the tests
	disk     string   // size of the file system of the data, "" if they have none of their own

	cmd *exec.Cmd // nil while it does not run
}

// newInstance makes the directories of a server: on the disk only if what is there has to stay.
func newInstance(kind engine, keeps safety, disk string) (*instance, error) {
	place := inMemory
	if keeps == durable {
		place = onDisk
	}
	h, err := place()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(h.dir, "")
	if err != nil {
		return nil, err
	}
	i := &instance{kind: kind, home: h, dir: dir, data: filepath.Join(dir, "data"),
		password: rand.Text(), safety: keeps, disk: disk}
	return i, errors.Join(h.give(dir), i.emptyData())
}

// emptyData makes the directory of the data, without anything that was in it.
func (i *instance) emptyData() error {
	if err := remove(i.data); err != nil {
		return err
	}
	if err := os.Mkdir(i.data, 0o700); err != nil {
		return err
	}
	if i.disk != "" {
		if err := unix.Mount("tmpfs", i.data, "tmpfs", 0, "mode=0700,size="+i.disk); err != nil {
			return fmt.Errorf("mounting a file system of %s at %s: %w", i.disk, i.data, err)
		}
	}
	return i.home.give(i.data)
}

// create makes the server's files and starts it. It does not end with ctx.
func (i *instance) create(ctx context.Context) error {
	if err := i.kind.initialise(ctx, i); err != nil {
		return fmt.Errorf("making the files of %s: %w", i.kind, err)
	}
	return i.startAnywhere(ctx)
}

// startAnywhere starts the server for the first time, at an unused address.
func (i *instance) startAnywhere(ctx context.Context) (err error) {
	if i.network != nil && i.address != "" { // its own has no other process
		return i.start(ctx)
	}
	for range 5 { // another process can take the port between the choice and the start
		if i.address, err = testproc.UnusedAddress(ctx); err != nil {
			return err
		}
		if err = i.start(ctx); err == nil || i.cmd != nil {
			return err
		}
	}
	return err
}

// program returns a program to be run as the servers' user.
func (i *instance) program(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	cmd.Dir, cmd.Env = i.data, environment(i.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: i.home.as, Setsid: true}
	return cmd
}

// run runs a program to its end and returns what it writes.
func run(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return string(out), err
}

// write makes a file in the directory of the server that its user alone can read.
func (i *instance) write(name, text string) (string, error) {
	path := filepath.Join(i.dir, name)
	err := os.WriteFile(path, []byte(text), 0o600)
	return path, errors.Join(err, i.home.give(path))
}

func (i *instance) logFile() string { return filepath.Join(i.dir, "log") }

// tail returns the end of the log, for messages.
func (i *instance) tail() string {
	const most = 6000
	log, err := os.ReadFile(i.logFile())
	if err != nil {
		return err.Error()
	}
	return string(bytes.ToValidUTF8(log[max(0, len(log)-most):], nil))
}

// start starts the server's process and waits until the server serves.
func (i *instance) start(ctx context.Context) error {
	if err := i.launch(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := i.kind.open(i, "")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := i.kind.ready(ctx, db)
		if err == nil {
			return nil
		}
		if p, there := processes.Lookup(i.cmd.Process.Pid); !there || p.State == 'Z' {
			bad := i.cmd.Wait()
			i.cmd = nil
			return fmt.Errorf("%s ended while it started: %w\n%s", i.kind, bad, i.tail())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve within %v: %w\n%s", i.kind, patience, err, i.tail())
		}
	}
}

// launch starts the server's process. What it writes goes to a file, so that neither a goroutine
// nor the output of the tests is held by it.
func (i *instance) launch(ctx context.Context) error {
	cmd, err := i.kind.command(ctx, i)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(i.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Start()
	for _, f := range append(cmd.ExtraFiles, log) { // the process has them
		_ = f.Close()
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", i.kind, err)
	}
	i.cmd = cmd
	return nil
}

// processes returns the processes of the server: all that work below its directory, as those of
// PostgreSQL are in sessions of their own.
func (i *instance) processes() ([]processes.Process, error) {
	all, err := processes.All()
	if err != nil {
		return nil, err
	}
	var out []processes.Process
	for _, p := range all {
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.PID)); err == nil &&
			p.State != 'Z' && within(cwd, i.dir) {
			out = append(out, p)
		}
	}
	return out, nil
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// kill ends all processes of the server at once, as a power cut does.
func (i *instance) kill() error {
	for {
		all, err := i.processes()
		if err != nil {
			return err
		}
		if len(all) == 0 {
			break
		}
		for _, p := range all {
			_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended
		}
	}
	if i.cmd != nil {
		_ = i.cmd.Wait() // killed
		i.cmd = nil
	}
	return nil
}

// statements executes statements as the administrator.
func (i *instance) statements(ctx context.Context, statements ...string) (err error) {
	db, err := i.kind.open(i, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// missing is the error for a program that no installed package has.
func missing(program, pkg string) error {
	return fmt.Errorf("%s is missing; run tools/packages.sh real, or: apt-get install --no-install-recommends %s",
		program, pkg)
}
