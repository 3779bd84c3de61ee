// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// peer is a running Placement service with an empty database of its own, in a directory of its own:
// ours (compute-agent placement serve) or OpenStack's (Debian's package python3-placement under
// uwsgi, on MariaDB). It does not touch the machine's own services.
type peer struct {
	Name string
	// URL is its endpoint, where a request with the token "admin" may do everything.
	URL string
	// Database is the file of an SQLite database; "" for others.
	Database string
	// Startup is how long the service took from the start of its process to its first answer.
	Startup time.Duration

	dir       string
	processes []*process // in the order in which they were started
	// server has its database; nil for SQLite. Close leaves it.
	server *server
}

// process is one that was started here, the first of a process group of its own.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended, once done is closed
}

// patience is how long a service may take to start and to stop.
const patience = 5 * time.Minute

// start runs a program; what it prints goes to a file in the peer's directory. Close ends it, not
// the context; and it dies with this process.
func (p *peer) start(ctx context.Context, name string, env []string, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(p.logFile(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // The process has its own.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, p.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	proc := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(proc.done)
		proc.err = cmd.Wait()
	}()
	p.processes = append(p.processes, proc)
	return proc, nil
}

func (p *peer) logFile(name string) string { return filepath.Join(p.dir, name+".log") }

// run runs a program to its end, with input.
func (p *peer) run(ctx context.Context, name string, input *os.File, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = p.dir
	if input != nil {
		cmd.Stdin = input
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s (%s): %w\n%s", name, filepath.Base(program), err, out)
	}
	return nil
}

// await asks a process again and again until it is ready.
func (p *peer) await(ctx context.Context, proc *process, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-proc.done:
			said, _ := os.ReadFile(p.logFile(proc.name))
			return fmt.Errorf("%s ended before it was ready: %w\n%s", proc.name, proc.err, said)
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready in time: %w", proc.name, errors.Join(err, ctx.Err()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// answers says whether the service answers.
func (p *peer) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s/: %s", p.URL, resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// Close ends the service.
func (p *peer) Close() error {
	var errs []error
	for _, proc := range slices.Backward(p.processes) {
		if err := proc.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("stop %s: %w", proc.name, err))
		}
		select {
		case <-proc.done:
		case <-time.After(patience):
			errs = append(errs, fmt.Errorf("%s did not stop and was killed", proc.name))
			_ = syscall.Kill(-proc.cmd.Process.Pid, syscall.SIGKILL)
			<-proc.done
		}
	}
	p.processes = nil
	return errors.Join(errs...)
}

// freePort returns a port of the loopback interface on which no process listens.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
