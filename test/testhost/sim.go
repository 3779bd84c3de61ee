// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotRoot means that this user must not make a mount namespace with another /sys.
var ErrNotRoot = errors.New(
	"a simulated host needs root with CAP_SYS_ADMIN: it mounts a made-up /sys in a namespace of its own")

// ErrRemotely is an error of the keeper or the daemon.
var ErrRemotely = errors.New("the simulated host")

// SimOptions choose the parts of a simulation.
type SimOptions struct {
	// Emulators lets the daemon find QEMU, which it then questions for seconds, and gives it
	// control groups to start guests in. Without, it is up in 0.3 s.
	Emulators bool
	// Passthrough lets guests with devices, pins and memory of the made-up host run: QEMU starts
	// without them, and libvirt does not notice. It implies Emulators.
	Passthrough bool
	// Cache is a directory that keeps the capabilities of the emulators between simulations; "" for
	// none.
	Cache string
	// OneProcessor has the daemon and its guests run on one processor. A daemon takes Cache for
	// that of another machine if CPUID differs, and on processors of Intel with leaf 0x1f, which
	// has the number of the processor, it does so by chance: then it questions QEMU again.
	OneProcessor bool
	// NoMdevctl hides the tool with which libvirt makes mediated devices.
	NoMdevctl bool
}

// Sim is a running simulation. Its methods are safe for concurrent use and run one at a time.
type Sim struct {
	dir    string
	keeper *os.Process
	orders *os.File
	tree   Tree

	plugging sync.Mutex
	host     Host

	mu      sync.Mutex
	answers chan answer // closed when the keeper has ended
	pid     int
	closed  bool
}

// StartSim renders the host and starts a daemon on it. The caller closes what was started.
func StartSim(ctx context.Context, h Host, o SimOptions) (*Sim, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	dir, err := Scratch()
	if err != nil {
		return nil, fmt.Errorf("simulated host: %w", err)
	}
	o.Emulators = o.Emulators || o.Passthrough
	s := &Sim{dir: dir, host: h.Clone(), answers: make(chan answer, 1)}
	if err := s.prepare(h, o); err != nil {
		return nil, errors.Join(fmt.Errorf("simulated host: %w", err), os.RemoveAll(dir))
	}
	if err := s.launchKeeper(o); err != nil {
		return nil, errors.Join(fmt.Errorf("simulated host: %w", err), os.RemoveAll(dir))
	}
	if err := s.Launch(ctx); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Sim) prepare(h Host, o SimOptions) error {
	for _, d := range []string{"bin", "state", "run"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o755); err != nil {
			return err
		}
	}
	var err error
	if s.tree, err = h.Sysfs(filepath.Join(s.dir, "host")); err != nil {
		return err
	}
	if o.Cache != "" {
		if err := os.MkdirAll(o.Cache, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(o.Cache, filepath.Join(s.dir, "state", "cache")); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if !o.NoMdevctl {
		if err := os.Symlink(self, filepath.Join(s.dir, "bin", "mdevctl")); err != nil {
			return err
		}
	}
	if o.Passthrough {
		if err := emulators(emulatorDir(s.dir, o)); err != nil {
			return err
		}
	}
	return saveDefined(s.dir, inactive(h))
}

// emulatorDir is the directory of the wrappers of the emulators, beside the cache of their
// capabilities.
func emulatorDir(dir string, o SimOptions) string {
	if o.Cache != "" {
		dir = o.Cache
	}
	return filepath.Join(dir, "emulators")
}

// launchKeeper starts this program again in namespaces of its own.
func (s *Sim) launchKeeper(o SimOptions) error {
	ordersR, ordersW, err := os.Pipe()
	if err != nil {
		return err
	}
	answersR, answersW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, ordersR.Close(), ordersW.Close())
	}
	log, err := os.Create(s.keeperLog())
	if err != nil {
		return errors.Join(err, ordersR.Close(), ordersW.Close(), answersR.Close(), answersW.Close())
	}
	settings, err := json.Marshal(keeperSettings{Dir: s.dir, Emulators: o.Emulators, Passthrough: o.Passthrough,
		Path: emulatorDir(s.dir, o)})
	if err == nil && o.OneProcessor {
		var restore func()
		if restore, err = onOneProcessor(); err == nil {
			defer restore()
		}
	}
	if err == nil {
		s.keeper, err = os.StartProcess("/proc/self/exe", []string{"simulated-host"}, &os.ProcAttr{
			Dir: "/", Env: append(os.Environ(), keeperEnv+"="+string(settings)),
			Files: []*os.File{ordersR, answersW, log},
			Sys:   &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Setsid: true},
		})
	}
	closing := errors.Join(ordersR.Close(), answersW.Close(), log.Close())
	if err != nil {
		if errors.Is(err, syscall.EPERM) { // root, though not with CAP_SYS_ADMIN
			err = fmt.Errorf("%w: %w", ErrNotRoot, err)
		}
		return errors.Join(fmt.Errorf("starting in new namespaces: %w", err), closing,
			ordersW.Close(), answersR.Close())
	}
	s.orders = ordersW
	go func() { // ends when the keeper does
		defer close(s.answers)
		defer func() { _ = answersR.Close() }()
		lines := bufio.NewScanner(answersR)
		for lines.Scan() {
			var a answer
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				a = answer{Error: "not understood: " + lines.Text()}
			}
			s.answers <- a
		}
	}()
	return closing
}

// onOneProcessor has processes that this goroutine starts run on the first processor that it may
// use, until restore.
func onOneProcessor() (restore func(), err error) {
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("processors of this thread: %w", err)
	}
	first := 0
	for !before.IsSet(first) { // a thread may use one at least
		first++
	}
	one.Set(first)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("one processor for this thread: %w", err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil { // else the thread ends with the goroutine
			runtime.UnlockOSThread()
		}
	}, nil
}

func (s *Sim) keeperLog() string { return filepath.Join(s.dir, "keeper.log") }

// order sends the keeper an order, and waits for its answer.
func (s *Sim) order(ctx context.Context, o order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: %s: it was closed", ErrRemotely, o.Do)
	}
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if _, err := s.orders.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %s: %w%s", ErrRemotely, o.Do, err, s.lastWords())
	}
	select {
	case a, ok := <-s.answers:
		if !ok {
			return fmt.Errorf("%w: %s: its keeper ended%s", ErrRemotely, o.Do, s.lastWords())
		}
		s.pid = a.PID
		return a.err(o.Do)
	case <-ctx.Done():
		// The answer would be taken for that of the next order.
		_ = s.keeper.Kill()
		return fmt.Errorf("%w: %s: %w%s", ErrRemotely, o.Do, ctx.Err(), s.lastWords())
	}
}

func (s *Sim) lastWords() string {
	text, err := os.ReadFile(s.keeperLog())
	if err != nil || len(text) == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(string(text[max(0, len(text)-1000):]))
}

// URI returns the URI for libvirt's library.
func (s *Sim) URI() string {
	return "qemu+unix:///system?socket=" + filepath.Join(s.dir, "run", "libvirt-sock")
}

// Root returns the directory with the host's sys and proc: the chroot of their readers.
func (s *Sim) Root() string { return string(s.tree) }

// Tree returns what the kernel shows; it can be changed at any time. The daemon reads most of it
// again with each call, and learns of devices that come and go by events.
func (s *Sim) Tree() Tree { return s.tree }

// Log returns the file that the daemon logs to.
func (s *Sim) Log() string { return filepath.Join(s.dir, "state", "libvirtd.log") }

// PID returns that of the daemon, 0 if none runs.
func (s *Sim) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Launch starts the daemon after it was killed or stopped, and waits until it answers.
func (s *Sim) Launch(ctx context.Context) error { return s.order(ctx, order{Do: "launch"}) }

// Stop ends the daemon in good order. Guests go on running.
func (s *Sim) Stop(ctx context.Context) error { return s.order(ctx, order{Do: "stop"}) }

// Restart stops and launches.
func (s *Sim) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Launch(ctx)
}

// Kill ends the daemon as a crash does.
func (s *Sim) Kill(ctx context.Context) error { return s.order(ctx, order{Do: "kill"}) }

// Freeze makes the daemon hang, Thaw makes it go on.
func (s *Sim) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw ends what Freeze began.
func (s *Sim) Thaw() error { return s.signal(syscall.SIGCONT) }

func (s *Sim) signal(sig syscall.Signal) error {
	pid := s.PID()
	if pid == 0 {
		return fmt.Errorf("%w: no daemon runs", ErrRemotely)
	}
	return syscall.Kill(pid, sig)
}

// Close ends everything and removes what it left on disk.
func (s *Sim) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	errs := []error{s.orders.Close()} // the keeper ends with its orders
	for done := false; !done; {
		select {
		case _, more := <-s.answers:
			done = !more
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%w does not end: %w%s", ErrRemotely, ctx.Err(), s.lastWords()),
				s.keeper.Kill())
			done = true
		}
	}
	state, err := s.keeper.Wait()
	if err == nil && !state.Success() {
		err = fmt.Errorf("%w: its keeper ended with %s%s", ErrRemotely, state, s.lastWords())
	}
	return errors.Join(append(errs, err, s.removeGroups(), os.RemoveAll(s.dir))...)
}

// removeGroups cleans up after a killed keeper; otherwise it finds nothing.
func (s *Sim) removeGroups() error {
	mounted, err := mountedHierarchies()
	if err != nil {
		return err
	}
	var dirs []string
	for _, h := range mounted {
		dirs = append(dirs, filepath.Join(h.At, groupPrefix+filepath.Base(s.dir)))
	}
	return clearGroups(dirs, time.Now().Add(clearing))
}
