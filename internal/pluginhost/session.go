// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// ErrKilled says that a process did not exit when asked, and was killed.
var ErrKilled = errors.New("it did not exit and was killed")

// Session is one plugin process without a supervisor, started as the agent starts it. It is for
// tools that test plugins: its services are called directly, and responses are not checked, or by
// its client.
type Session struct {
	p    *process
	host *Host
}

// Open starts a plugin process and connects, without any call. It uses only those fields of spec
// that are about starting. The process ends with the session, the host or this process.
//
// Unlike the supervisor, it accepts an executable that other users could have changed: it may have
// just been built.
//
// Errors: an invalid spec; an [*UnconfinedError]; a [*StartError]; those of the file system.
func (h *Host) Open(ctx context.Context, spec Spec) (*Session, error) {
	spec, err := spec.Complete(h.opts.Dir)
	if err == nil {
		err = h.confinable(spec)
	}
	if err != nil {
		return nil, err
	}
	exe, err := launch.OpenOwn(spec.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = exe.File.Close() }()
	p, err := h.connect(ctx, spec, exe, h.opts.Logger, func(State) {})
	if err != nil {
		return nil, err
	}
	s := &Session{p, h}
	if !h.addSession(s) {
		p.kill()
		return nil, errHostClosed
	}
	return s, nil
}

// addSession is false if the host is closed.
func (h *Host) addSession(s *Session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.sessions[s] = struct{}{}
	return true
}

func (h *Host) removeSession(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
}

// Plugin returns the service that every plugin has.
func (s *Session) Plugin() driverv1.PluginClient { return driverv1.NewPluginClient(s.p.conn) }

// Driver returns the service for nodes.
func (s *Session) Driver() driverv1.DriverClient { return driverv1.NewDriverClient(s.p.conn) }

// Instances returns the service for instances.
func (s *Session) Instances() driverv1.InstancesClient { return driverv1.NewInstancesClient(s.p.conn) }

// Client returns what makes the calls as the agent does, and checks responses.
func (s *Session) Client() *driverclient.Client { return s.p.Client }

// PID returns the id of the process, which is also that of its process group.
func (s *Session) PID() int { return s.p.runner.pid() }

// Sandbox says what the process was started in, such as "landlock 6, seccomp" or "none", and what a
// complete one would keep it from on this machine and this one does not.
func (s *Session) Sandbox() (is string, lacks []string) { return s.p.sandbox, s.p.lacks }

// Done returns a channel that is closed when the process has ended and its output was read.
func (s *Session) Done() <-chan struct{} { return s.p.Done() }

// Exit waits for the end of the process and returns how it ended.
func (s *Session) Exit() error { return s.p.Exit() }

// EndsWithin waits for the end of a process whose connection broke, and returns how it ended; nil
// if the process goes on for all of that time.
func (s *Session) EndsWithin(limit time.Duration) error { return endsWithin(s, limit) }

// Output returns the last lines that the process wrote.
func (s *Session) Output() []string { return s.p.runner.output.tail() }

// CatchUp waits until every line that the process has written so far is in the log: a response can
// arrive before the lines that were written during the call. After the end of the process it does
// not wait.
//
// Errors: ctx ended.
func (s *Session) CatchUp(ctx context.Context) error {
	return s.p.runner.catchUp(ctx)
}

// End closes the connection, on which a plugin exits within two seconds. It does not call Shutdown.
//
// Errors: [ErrKilled]. The process is gone in any case.
func (s *Session) End() error {
	defer s.host.removeSession(s)
	var killed bool
	s.p.ending.Do(func() {
		killed = s.p.disconnect()
	})
	if killed {
		return ErrKilled
	}
	return nil
}

// Kill ends the process at once.
func (s *Session) Kill() {
	defer s.host.removeSession(s)
	s.p.kill()
}
