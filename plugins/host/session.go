// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// ErrKilled says that a process did not end when it was asked to, and was killed.
var ErrKilled = errors.New("it did not end by itself and was killed")

// Session is one plugin process without a supervisor: started as the agent starts it, and then left
// alone. Its services are called as they are, without checks of what it answers. It is for tools
// that examine plugins.
type Session struct {
	p    *process
	host *Host
}

// Open starts a plugin process and makes the connection; nothing is asked of it. Of spec, only what
// is about starting counts. The process is gone when the session ends, the host is closed or this
// process dies.
//
// Unlike the supervisor, it takes an executable that others could have changed: it may have just
// been built.
//
// Errors: a spec that cannot be; a [*StartError]; those of the file system.
func (h *Host) Open(ctx context.Context, spec Spec) (*Session, error) {
	spec, err := spec.complete(h.opts.Dir)
	if err != nil {
		return nil, err
	}
	exe, err := openOwn(spec.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = exe.file.Close() }()
	p, err := h.connect(ctx, spec, exe, h.opts.Logger, func(State) {})
	if err != nil {
		return nil, err
	}
	s := &Session{p, h}
	if !h.enter(s) {
		p.kill()
		return nil, errHostClosed
	}
	return s, nil
}

// enter notes a session; false if the host is closed.
func (h *Host) enter(s *Session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.sessions[s] = struct{}{}
	return true
}

func (h *Host) leave(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
}

// openOwn opens an executable for a session.
func openOwn(path string) (*executable, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("finding the plugin executable: %w", err)
	}
	st, err := os.Stat(real)
	switch {
	case err != nil:
		return nil, fmt.Errorf("looking at the plugin executable: %w", err)
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: give the path of the plugin's executable", real)
	case st.Mode()&0o111 == 0:
		return nil, fmt.Errorf("%s has mode %04o: it is not executable. Fix it with: chmod 0755 %s", real, st.Mode().Perm(), real)
	}
	file, err := os.Open(real)
	if err != nil {
		return nil, fmt.Errorf("opening the plugin executable: %w", err)
	}
	return &executable{file: file, path: real}, nil
}

// Plugin is the service that every plugin has.
func (s *Session) Plugin() driverv1.PluginClient { return s.p.plugin }

// Driver is the service that is about nodes.
func (s *Session) Driver() driverv1.DriverClient { return s.p.driver }

// Instances is the service that is about guests which the agent makes.
func (s *Session) Instances() driverv1.InstancesClient { return s.p.instances }

// PID is that of the process, which also leads its process group.
func (s *Session) PID() int { return s.p.runner.pid() }

// Done is closed when the process has ended and its output was read.
func (s *Session) Done() <-chan struct{} { return s.p.Done() }

// Exit waits for the end of the process and says how it came about.
func (s *Session) Exit() error { return s.p.Exit() }

// Output is the end of what the process wrote, line by line.
func (s *Session) Output() []string { return s.p.runner.output.tail() }

// CatchUp waits until every line that the process has written so far is in the log: an answer of
// the process may arrive before the lines that it wrote while it made it. After the end of a
// process that holds without a wait.
//
// Errors: ctx ended.
func (s *Session) CatchUp(ctx context.Context) error {
	return s.p.runner.catchUp(ctx)
}

// End closes the connection, on which a plugin exits by itself within two seconds. It does not ask
// for Shutdown: that is the caller's.
//
// Errors: [ErrKilled]. Nothing of the process is left in any case.
func (s *Session) End() error {
	defer s.host.leave(s)
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
	defer s.host.leave(s)
	s.p.kill()
}
