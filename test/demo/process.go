// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is how long a command, or the start of a service, may take.
const patience = 2 * time.Minute

// typed runs a command line as a shell would, in the directory of the configuration, and returns
// what it prints. If it fails, that is all in the error; else what it logs to standard error is
// left out.
func (w *world) typed(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = home, w.env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("`%s`: %w\n%s%s", line, errors.Join(err, ctx.Err()), out.String(), errs.String())
	}
	return out.String(), nil
}

// process is a service that runs beside. A nil one does not run.
type process struct {
	cmd  *exec.Cmd
	name string
	log  *log
	done chan struct{}
	err  error // how it ended; valid after done
}

// log is what a service has printed so far. It is a file without a name: unlike a pipe, it has
// every line that the service wrote before it was ready.
type log struct{ file *os.File }

func newLog() (*log, error) {
	f, err := os.CreateTemp("", "compute-agent-demo-")
	if err != nil {
		return nil, err
	}
	return &log{f}, os.Remove(f.Name())
}

func (l *log) String() string {
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, math.MaxInt64))
	if err != nil {
		return fmt.Sprintf("%s\n(its log cannot be read: %v)", text, err)
	}
	return string(text)
}

// serve starts a service with a command line of compute-agent, and waits until it says to systemd
// that it is ready.
func (w *world) serve(ctx context.Context, line string) (*process, error) {
	starting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	socket := filepath.Join(home, "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = listener.Close(), os.Remove(socket) }()
	args := strings.Fields(line)
	p := &process{name: line, done: make(chan struct{})}
	if p.log, err = newLog(); err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(w.bin, args[0]), args[1:]...) // stop ends it
	p.cmd.Dir, p.cmd.Env = home, append(w.env, "NOTIFY_SOCKET="+socket)
	p.cmd.Stdout, p.cmd.Stderr = io.Discard, p.log.file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demonstration, which ends it
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	ready := make(chan struct{})
	go func() { // ends with the listener
		for message := make([]byte, 4096); ; {
			n, err := listener.Read(message)
			if err != nil {
				return
			}
			if bytes.Contains(message[:n], []byte("READY=1")) {
				close(ready)
				return
			}
		}
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("%s ended instead of being ready: %w\n%s", line, p.err, p.log.String())
	case <-starting.Done():
		_ = p.cmd.Process.Kill()
		<-p.done
		return nil, fmt.Errorf("%s is not ready: %w\n%s", line, starting.Err(), p.log.String())
	}
}

// stop ends it in good order.
func (p *process) stop(ctx context.Context) error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.log.String())
	}
	return nil
}
