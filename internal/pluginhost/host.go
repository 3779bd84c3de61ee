// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

const (
	// socketDirName is below the runtime directory; a plugin's socket is
	// socketDirName/plugin-dirN/pluginM there, where N and M have up to 10 digits.
	socketDirName  = "plugins"
	socketTail     = len("/plugin-dir0123456789/plugin0123456789")
	maxSocketPath  = 107 // what fits into a sockaddr_un
	socketDirMatch = "plugin-dir*"
)

// Options are what all plugins of an agent share.
type Options struct {
	// Dir is where plugin executables are, unless their Spec says otherwise.
	Dir string
	// RuntimeDir is the agent's directory for sockets, such as /run/compute-agent. It must exist.
	// It must not be below /tmp on a real system, where the sockets would be removed after some
	// days.
	RuntimeDir string
	// Logger gets the host's own log lines about plugins, and those of the plugins.
	Logger zerolog.Logger
	// Environ is the environment from which plugins get the allowed variables; nil is the agent's
	// own.
	Environ []string
	// Jitter returns a uniform random duration in [0, d); nil is a real one. For tests.
	Jitter func(d time.Duration) time.Duration
	// OnTransition, if not nil, is called by the plugin's supervisor at every change of state, for
	// metrics. It must not block.
	OnTransition func(Status)
	// Observe, if not nil, observes the calls of all plugins.
	Observe driverclient.Observer
	// Dial is for tests, which count calls.
	Dial []grpc.DialOption
}

// Host is what all plugins of an agent share: the options and the directory of sockets.
type Host struct {
	opts     Options
	sockets  string
	lock     *os.File
	uid      int
	kernel   launch.Kernel
	warnOnce sync.Once

	mu       sync.Mutex
	plugins  map[string]*Plugin
	sessions map[*Session]struct{} // that have not ended
	closed   bool
}

// New prepares the runtime directory and removes leftovers of a former agent.
//
// Errors: [ErrRuntimeDir], also when another agent uses the directory or when its path is too long
// for sockets.
func New(opts Options) (*Host, error) {
	if opts.Jitter == nil {
		opts.Jitter = func(d time.Duration) time.Duration { return rand.N(max(d, 1)) }
	}
	if opts.Environ == nil {
		opts.Environ = os.Environ()
	}
	h := &Host{opts: opts, uid: os.Geteuid(), kernel: launch.OwnKernel(), plugins: map[string]*Plugin{},
		sessions: map[*Session]struct{}{}}
	if err := h.prepareSockets(); err != nil {
		return nil, err
	}
	return h, nil
}

// prepareSockets creates and locks the directory of sockets, and empties it.
func (h *Host) prepareSockets() error {
	dir, err := filepath.Abs(h.opts.RuntimeDir)
	if err != nil || h.opts.RuntimeDir == "" {
		return fmt.Errorf("%w: none is given", ErrRuntimeDir)
	}
	h.sockets = filepath.Join(dir, socketDirName)
	if n := len(h.sockets) + socketTail; n > maxSocketPath {
		return fmt.Errorf(
			"%w: %s is too long: the path of a plugin's socket would have %d bytes, the system allows %d. Choose a "+
				"path of at most %d bytes",
			ErrRuntimeDir, dir, n, maxSocketPath, maxSocketPath-socketTail-len("/"+socketDirName))
	}
	if err := os.Mkdir(h.sockets, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %w", ErrRuntimeDir, err)
	}
	lock, err := os.Open(h.sockets)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRuntimeDir, err)
	}
	if err := h.claim(lock); err != nil {
		_ = lock.Close()
		return fmt.Errorf("%w: %s: %w", ErrRuntimeDir, h.sockets, err)
	}
	h.lock = lock
	return nil
}

func (h *Host) claim(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if int(st.Uid) != h.uid || st.Mode&0o077 != 0 {
		return fmt.Errorf("belongs to user %d with mode %04o, must belong to %d with mode 0700: remove it, the agent "+
			"creates it again", st.Uid, st.Mode&0o7777, h.uid)
	}
	// files.Lock is of the agent's module, which this one does not import. It also repeats what a
	// signal interrupts; a lock that does not wait is not interrupted.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errors.New(
				"is in use by another compute-agent: stop that one, or give this one its own runtime directory")
		}
		return fmt.Errorf("locking it: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(h.sockets, socketDirMatch))
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing the leftovers of a former agent: %w", err)
		}
	}
	return nil
}

// Plugin adds the plugin of one configured driver. It does not start it: see [Plugin.Start] and
// [Plugin.Run].
//
// Errors: an invalid Spec, or one whose name is in use.
func (h *Host) Plugin(spec Spec) (*Plugin, error) {
	spec, err := spec.Complete(h.opts.Dir)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errHostClosed
	}
	if h.plugins[spec.Name] != nil {
		return nil, fmt.Errorf("driver %s is configured twice", spec.Name)
	}
	p := newPlugin(spec, pluginDeps{
		log:          h.opts.Logger.With().Str("driver", spec.Name).Logger(),
		dir:          h.opts.Dir,
		jitter:       h.opts.Jitter,
		onTransition: h.opts.OnTransition,
		launch:       h.launch,
		identify:     launch.Identify,
		verify:       h.verify,
	})
	h.plugins[spec.Name] = p
	return p, nil
}

// Remove stops a plugin, as [Plugin.Stop] does, and removes it, so that another driver of that name
// can be added. The removed one cannot be started again.
func (h *Host) Remove(ctx context.Context, p *Plugin) error {
	p.forbidStart(errRemoved)
	err := p.Stop(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plugins[p.Name()] == p {
		delete(h.plugins, p.Name())
	}
	return err
}

// Status returns the status of all plugins, sorted by name.
func (h *Host) Status() []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Status, 0, len(h.plugins))
	for _, p := range h.plugins {
		out = append(out, p.Status())
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Close kills what still runs and releases the runtime directory. To stop plugins in an orderly
// way, call [Plugin.Stop] first.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	all := make([]*Plugin, 0, len(h.plugins))
	for _, p := range h.plugins {
		all = append(all, p)
	}
	sessions := slices.Collect(maps.Keys(h.sessions))
	h.mu.Unlock()
	for _, p := range all {
		p.forbidStart(errHostClosed)
		p.abandon()
	}
	for _, s := range sessions {
		s.Kill()
	}
	_ = os.Remove(h.sockets)
	// Closing it is too late while a process that was just started has it, until it executes its
	// program.
	_ = unix.Flock(int(h.lock.Fd()), unix.LOCK_UN)
	return h.lock.Close()
}
