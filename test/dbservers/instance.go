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

	"github.com/compute-agent/compute-agent/internal/processes"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// engine is what differs between database servers.
type engine interface {
	fmt.Stringer
	// initialise makes the files of a new server in i.data, which exists and is empty.
	initialise(ctx context.Context, i *instance) error
	// command returns the program of the server and its arguments.
	command(i *instance) (program string, args []string, err error)
	// open returns a pool of connections of the administrator.
	open(i *instance) (*sql.DB, error)
	create(database, password string) []string
	drop(database string) []string
	dsn(user, password, address, database string) string
}

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
	durable  bool   // whether commits are on the disk when they are acknowledged

	cmd *exec.Cmd
}

// start makes a server and starts it. It does not end with ctx.
func start(ctx context.Context, kind engine, durable bool) (*instance, error) {
	i, err := newInstance(kind, durable)
	if err != nil {
		return nil, err
	}
	if err := kind.initialise(ctx, i); err != nil {
		return nil, fmt.Errorf("making the files of %s: %w", kind, err)
	}
	// Another process can take the port between the choice and the start.
	for range 5 {
		if i.address, err = testproc.UnusedAddress(ctx); err != nil {
			return nil, err
		}
		if err = i.run(ctx); err == nil {
			return i, nil
		}
	}
	return nil, err
}

// newInstance makes the directories of a server.
func newInstance(kind engine, durable bool) (*instance, error) {
	h, err := atHome()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(h.dir, "")
	if err != nil {
		return nil, err
	}
	i := &instance{kind: kind, home: h, dir: dir, data: filepath.Join(dir, "data"), password: rand.Text(), durable: durable}
	if err := os.Mkdir(i.data, 0o700); err != nil {
		return nil, err
	}
	return i, errors.Join(h.give(dir), h.give(i.data))
}

// program runs a program to its end, as the servers' user.
func (i *instance) program(ctx context.Context, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = i.data, environment(i.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: i.home.as, Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return nil
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
	const most = 4000
	log, err := os.ReadFile(i.logFile())
	if err != nil {
		return err.Error()
	}
	return string(bytes.ToValidUTF8(log[max(0, len(log)-most):], nil))
}

// run starts the server's process and waits until the server answers.
func (i *instance) run(ctx context.Context) error {
	if err := i.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := i.kind.open(i)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		if p, there := processes.Look(i.cmd.Process.Pid); !there || p.State == 'Z' {
			return fmt.Errorf("%s ended while it started: %w\n%s", i.kind, i.cmd.Wait(), i.tail())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer within %v: %w\n%s", i.kind, patience, err, i.tail())
		}
	}
}

// launch starts the server's process. What it writes goes to a file, so that neither a goroutine
// nor the output of the tests is held by it.
func (i *instance) launch() error {
	path, args, err := i.kind.command(i)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(i.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has it
	cmd := exec.Command(path, args...) //nolint:noctx // it ends with the test, or with this process
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = i.data, environment(i.dir), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: i.home.as, Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", i.kind, err)
	}
	i.cmd = cmd
	return nil
}

// statements executes statements as the administrator.
func (i *instance) statements(ctx context.Context, statements ...string) (err error) {
	db, err := i.kind.open(i)
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
	return fmt.Errorf("%s is missing; run tools/packages.sh test, or: apt-get install --no-install-recommends %s", program, pkg)
}
