// SPDX-License-Identifier: Apache-2.0

//go:build linux

package libvirtd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
)

// Why a private daemon cannot be started.
var (
	// ErrNotInstalled: there is no libvirtd on this machine.
	ErrNotInstalled = errors.New(
		"libvirtd is not installed (Debian packages: libvirt-daemon, libvirt-daemon-driver-qemu; for guests also " +
			"qemu-system-x86)")
	// ErrInUse: another private daemon works with the same state directory.
	ErrInUse = errors.New("the state directory is in use by another private libvirt daemon")
)

const (
	// readyInterval is the pause between looking whether a starting daemon answers.
	readyInterval = 20 * time.Millisecond
	// readyTimeout bounds the start when ctx does not. It takes 0.2 s, more on a busy machine.
	readyTimeout = 60 * time.Second
	// killTimeout is how long a daemon may take to end after SIGKILL; only one stuck in the kernel
	// takes longer.
	killTimeout = 5 * time.Second
)

// Options say where a private daemon lives.
type Options struct {
	// Dir keeps what outlives the daemon: its log, its configuration, and the cache of what the
	// emulators can do, which takes seconds to find out the first time.
	Dir string
	// RuntimeDir is for sockets and the pid file. It must be short (a Unix socket's path has at
	// most 107 bytes) and should be on a tmpfs.
	RuntimeDir string
	// SearchPath is the PATH of the daemon, where it looks for emulators; "" is ours.
	SearchPath string
	// Environment are more variables for the daemon and what it starts, as NAME=value.
	Environment []string
	// Emulators are more lines for qemu.conf, each with its end.
	Emulators string
	Logger    zerolog.Logger
}

// StartPrivate starts a daemon of our own and waits until it answers. It lives until Stop, or until
// this process ends, whichever way that happens.
//
// Errors: [ErrNotInstalled], [ErrInUse]; if the daemon exits or does not respond, the error has the
// last lines of its log.
func StartPrivate(ctx context.Context, o Options) (*Daemon, error) {
	l := layout{dir: filepath.Clean(o.Dir), run: filepath.Clean(o.RuntimeDir),
		privileged: os.Geteuid() == 0, emulators: o.Emulators}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("private libvirt daemon: %w", err)
	}
	binary, err := findDaemon()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state directory of the private libvirt daemon: %w", err)
	}
	lock, err := takeLock(l.lock())
	if err != nil {
		return nil, err
	}
	d := &Daemon{layout: l, logger: o.Logger, lock: lock, done: make(chan struct{})}
	if err := l.make(); err != nil {
		d.release()
		return nil, err
	}
	if err := d.start(context.WithoutCancel(ctx), binary, o); err != nil {
		d.release()
		return nil, err
	}
	if err := d.waitReady(ctx); err != nil {
		stopped, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*killTimeout)
		defer cancel()
		return nil, errors.Join(err, d.Stop(stopped))
	}
	d.mu.Lock()
	d.ready = true
	d.mu.Unlock()
	return d, nil
}

// findDaemon looks in the PATH, and where Debian keeps daemons if that does not lead there.
func findDaemon() (string, error) {
	if p, err := exec.LookPath("libvirtd"); err == nil {
		return p, nil
	}
	for _, p := range []string{"/usr/sbin/libvirtd", "/usr/local/sbin/libvirtd"} {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return p, nil
		}
	}
	return "", ErrNotInstalled
}

// findMount is mount(8), which the daemon's own search path need not lead to.
func findMount() string {
	if p, err := exec.LookPath("mount"); err == nil {
		return p
	}
	return "/bin/mount"
}

func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the state directory of the private libvirt daemon: %w", err)
	}
	if err := files.Lock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrInUse, filepath.Dir(path))
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

// start launches the daemon. In a mount namespace of its own if that is possible; where it is
// refused (root in a container without CAP_SYS_ADMIN) on the container's own directories. The
// daemon lives as long as ctx, which is not the context of the start.
func (d *Daemon) start(ctx context.Context, binary string, o Options) error {
	if !d.layout.privileged {
		return d.launch(d.command(ctx, binary, o, nil))
	}
	if err := mountPoints(d.layout.binds()); err != nil {
		return fmt.Errorf("private libvirt daemon: %w", err)
	}
	err := d.launch(d.command(ctx, binary, o, d.layout.binds()))
	if errors.Is(err, syscall.EPERM) {
		d.logger.Warn().Err(err).Msg("This user cannot create a mount namespace (CAP_SYS_ADMIN). " +
			"The libvirt daemon works with /run/libvirt, /var/lib/libvirt and /etc/libvirt of this machine itself. " +
			"Give the container that capability, or run as another user than root, to keep them apart.")
		err = d.launch(d.command(ctx, binary, o, nil))
	}
	return err
}

// command builds the daemon's command line. With binds it goes through a shell that mounts them in
// the new namespace and then becomes the daemon, so that the process is the same and the signal of
// our death reaches it.
func (d *Daemon) command(ctx context.Context, binary string, o Options, binds [][2]string) *exec.Cmd {
	args := []string{"--config", d.layout.config(), "--pid-file", d.layout.pidFile()}
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var cmd *exec.Cmd
	if len(binds) == 0 {
		cmd = exec.CommandContext(ctx, binary, args...)
	} else {
		script := `set -e; mount=$1; n=$2; shift 2; while [ "$n" -gt 0 ]; do "$mount" --bind "$1" "$2"; shift 2; ` +
			`n=$((n-1)); done; exec "$@"`
		shell := []string{"-c", script, "libvirtd", findMount(), fmt.Sprint(len(binds))}
		for _, b := range binds {
			shell = append(shell, b[0], b[1])
		}
		cmd = exec.CommandContext(ctx, "/bin/sh", append(append(shell, binary), args...)...)
		attr.Unshareflags = syscall.CLONE_NEWNS
	}
	cmd.SysProcAttr = attr
	cmd.Dir = "/"
	cmd.Env = append(d.environment(o.SearchPath), o.Environment...)
	return cmd
}

// environment is a small one: nothing of ours (a NOTIFY_SOCKET, credentials) is the daemon's
// business.
func (d *Daemon) environment(searchPath string) []string {
	if searchPath == "" {
		searchPath = os.Getenv("PATH")
		for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
			if !strings.Contains(":"+searchPath+":", ":"+dir+":") {
				searchPath += ":" + dir
			}
		}
	}
	env := []string{"PATH=" + searchPath, "LC_ALL=C"}
	if d.layout.privileged {
		return append(env, "HOME="+filepath.Join(d.layout.dir, "home"))
	}
	return append(env, d.layout.session()...)
}

// launch starts cmd and a goroutine that owns it until it ends. The goroutine keeps its thread: the
// kernel sends the signal of the parent's death when the starting thread ends, not the process.
func (d *Daemon) launch(cmd *exec.Cmd) error {
	log, err := os.OpenFile(d.layout.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of the private libvirt daemon: %w", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("starting %s: %w", cmd.Path, err)
			return
		}
		d.process = cmd.Process
		d.namespace = mountNamespace(cmd.Process.Pid)
		started <- nil
		d.ended(cmd.Wait())
	}()
	return <-started
}

// waitReady returns when the daemon answers. It accepts calls only after all its drivers are
// initialised.
func (d *Daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		err := Probe(ctx, d.layout.socket())
		if err == nil {
			return nil
		}
		select {
		case <-d.done:
			return fmt.Errorf("the private libvirt daemon exited during start-up (%w): %s", d.exit, d.lastLogLines())
		case <-ctx.Done():
			return fmt.Errorf("the private libvirt daemon did not become ready: %w: %s", err, d.lastLogLines())
		case <-tick.C:
		}
	}
}

// mountPoints makes the targets that do not exist. They stay: another daemon may have mounted
// something there meanwhile, in a namespace of its own, where it would go with the directory.
func mountPoints(binds [][2]string) error {
	for _, b := range binds {
		if err := os.MkdirAll(b[1], 0o755); err != nil {
			return fmt.Errorf("making the mount point %s: %w", b[1], err)
		}
	}
	return nil
}
