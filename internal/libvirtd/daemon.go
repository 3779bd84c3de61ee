// SPDX-License-Identifier: Apache-2.0

//go:build linux

package libvirtd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
)

// Daemon is a running private daemon. Its methods may be called from any goroutine.
type Daemon struct {
	layout    layout
	logger    zerolog.Logger
	lock      *os.File
	process   *os.Process
	namespace *os.File // of its mounts, nil if it shares ours

	done    chan struct{}
	exit    error // why the process ended; valid after done
	problem error // the same in whole sentences; valid after done

	mu       sync.Mutex
	ready    bool // its end is no longer the business of StartPrivate
	stopped  bool
	released sync.Once
}

// URI is the daemon's address for libvirt's library.
func (d *Daemon) URI() string { return d.layout.uri() }

// Socket is the Unix socket that the daemon listens on.
func (d *Daemon) Socket() string { return d.layout.socket() }

// Log is the file that the daemon writes its log to.
func (d *Daemon) Log() string { return d.layout.log() }

// PID is the daemon's process id.
func (d *Daemon) PID() int { return d.process.Pid }

// Done is closed when the daemon has exited.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// ended notes the end of the process. It runs once, in the goroutine that owns the process.
func (d *Daemon) ended(err error) {
	defer close(d.done)
	if err == nil {
		err = errors.New("exit status 0")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exit = err
	d.problem = fmt.Errorf("the private libvirt daemon (pid %d) exited unexpectedly (%w): %s",
		d.PID(), err, d.lastLogLines())
	if d.ready && !d.stopped {
		d.logger.Error().Int("pid", d.PID()).Str("log", d.Log()).Err(d.problem).
			Msg("The private libvirt daemon exited unexpectedly. libvirt is unavailable until it is started again.")
	}
}

// Stop ends the daemon: SIGTERM, and SIGKILL when ctx ends first. Then it ends what the daemon has
// left behind (emulators that it was questioning, helpers) and removes its sockets and its pid
// file. Guests go on running. It may be called more than once.
func (d *Daemon) Stop(ctx context.Context) error {
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	err := d.terminate(ctx)
	d.endLeftovers()
	d.release()
	return err
}

func (d *Daemon) terminate(ctx context.Context) error {
	select {
	case <-d.done:
		return nil
	default:
	}
	// A stopped process does not receive SIGTERM before it continues.
	_ = d.process.Signal(syscall.SIGTERM)
	_ = d.process.Signal(syscall.SIGCONT)
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
	}
	d.logger.Warn().Int("pid", d.PID()).Msg("The private libvirt daemon did not stop when asked to. Killing it.")
	_ = d.process.Kill()
	t := time.NewTimer(killTimeout)
	defer t.Stop()
	select {
	case <-d.done:
		return nil
	case <-t.C:
		return fmt.Errorf(
			"the private libvirt daemon (pid %d) does not exit, not even on SIGKILL: it hangs in the kernel", d.PID())
	}
}

// endLeftovers kills the daemon's remaining processes. A killed daemon leaves emulators that have
// daemonized, so neither its process group nor its children include them.
func (d *Daemon) endLeftovers() {
	for _, pid := range d.leftovers() {
		d.logger.Debug().Int("pid", pid).Msg("Stopping a process that the private libvirt daemon left behind.")
		// The handle is opened before the second check: the signal then reaches the process that
		// was checked.
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if d.owns(pid) {
			_ = p.Kill()
		}
		_ = p.Release()
	}
}

// release gives back what is held on disk.
func (d *Daemon) release() {
	d.released.Do(func() {
		for _, p := range d.layout.temporary() {
			_ = os.Remove(p)
		}
		if d.namespace != nil {
			_ = d.namespace.Close()
		}
		// Closing alone does it later, if a child that is being started has the file still.
		_ = files.Lock(d.lock, syscall.LOCK_UN)
		_ = d.lock.Close()
	})
}

// lastLogLines are the last lines of the daemon's log, on one line.
func (d *Daemon) lastLogLines() string {
	const tail = 2048
	f, err := os.Open(d.layout.log())
	if err != nil {
		return "it left no log"
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		if _, err := f.Seek(-tail, io.SeekEnd); err != nil {
			return "its log cannot be read"
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, tail))
	if err != nil {
		return "its log cannot be read"
	}
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(text, nil))), "\n")
	if len(lines) > 5 {
		lines = lines[len(lines)-5:]
	}
	if s := strings.Join(lines, " | "); s != "" {
		return "the last lines of " + d.layout.log() + ": " + s
	}
	return "its log " + d.layout.log() + " is empty"
}
