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
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// requirement ends a test that cannot run here.
func requirement(t *testing.T, met bool, what string) {
	t.Helper()
	if !met {
		testproc.NotRun(t, "this needs "+what)
	}
}

func needDaemon(t *testing.T) {
	t.Helper()
	_, err := findDaemon()
	requirement(t, err == nil, "libvirtd: "+ErrNotInstalled.Error())
}

// place makes a state directory and a short runtime directory.
func place(t *testing.T) Options {
	t.Helper()
	run := testproc.SocketDir(t)
	return Options{Dir: filepath.Join(t.TempDir(), "state"), RuntimeDir: run,
		Logger: zerolog.New(zerolog.NewTestWriter(t))}
}

// noEmulators is a search path without QEMU: the daemon has nothing to question.
const noEmulators = "/usr/sbin:/sbin"

func start(t *testing.T, o Options) *Daemon {
	t.Helper()
	d := testproc.Try(StartPrivate(t.Context(), o)).Or(t)
	t.Cleanup(func() { stop(t, d) })
	return d
}

func stop(t *testing.T, d *Daemon) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testproc.Patience)
	defer cancel()
	testproc.NoError(t, d.Stop(ctx))
	for _, p := range d.layout.temporary() {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is still there after Stop", p)
		}
	}
	if left := processesOf(t, d); len(left) > 0 {
		t.Errorf("processes are still there after Stop: %q", left)
	}
	testproc.NoErrorf(t, d.Err(), "Err after Stop")
}

// processesOf finds the processes whose command line or environment names the daemon's directories.
func processesOf(t *testing.T, d *Daemon) []string {
	t.Helper()
	dirs := testproc.Try(filepath.Glob("/proc/[0-9]*")).Or(t)
	var found []string
	for _, dir := range dirs {
		command, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if pid := filepath.Base(dir); pid != strconv.Itoa(os.Getpid()) && pid != strconv.Itoa(os.Getppid()) &&
			(bytes.Contains(command, []byte(d.layout.run+"/")) || bytes.Contains(environ, []byte(d.layout.run+"/")) ||
				bytes.Contains(environ, []byte(d.layout.dir+"/"))) {
			found = append(found, string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// TestRealUnrelatedProcessesAreNotLeftovers: a namespace's number is used again when it is gone;
// then its processes are unrelated.
func TestRealUnrelatedProcessesAreNotLeftovers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	requirement(t, os.Geteuid() == 0, "root")
	o := place(t)
	o.SearchPath = noEmulators
	d := start(t, o)
	requirement(t, d.Isolated(), "a mount namespace (CAP_SYS_ADMIN)")
	number := testproc.Try(os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", d.PID()))).Or(t)
	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGKILL))
	<-d.Done()
	for range 50 {
		unrelated, err := exec.CommandContext(t.Context(),
			"unshare", "--mount", "--", "readlink", "/proc/self/ns/mnt").Output()
		testproc.Check(t, err)
		if strings.TrimSpace(string(unrelated)) == number {
			t.Fatalf("the number %s of the daemon's namespace is in use before Stop", number)
		}
	}
}

func TestRealPrivateDaemonLivesAndEnds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	o := place(t)
	o.SearchPath = noEmulators
	d := start(t, o)
	testproc.NoError(t, Probe(t.Context(), d.Socket()))
	if !strings.HasSuffix(d.URI(), "?socket="+d.Socket()) {
		t.Errorf("URI %q does not lead to %q", d.URI(), d.Socket())
	}
	testproc.NoErrorf(t, d.Err(), "Err of a running daemon")
	if group, err := syscall.Getpgid(d.PID()); err != nil || group != d.PID() {
		t.Errorf("process group %d (%v), want its own: Ctrl-C must not reach it before us", group, err)
	}
	testproc.Try(StartPrivate(t.Context(), o)).ErrorIs(t, ErrInUse, "a second daemon on the same directory: %v")
	second := start(t, func() Options { p := place(t); p.SearchPath = noEmulators; return p }())
	testproc.NoError(t, Probe(t.Context(), second.Socket()))
	stop(t, d)
	stop(t, d) // twice does no harm
	testproc.ErrorIs(t, Probe(t.Context(), d.Socket()), ErrNotRunning, "after Stop: %v")
	again := start(t, o)
	testproc.NoErrorf(t, Probe(t.Context(), again.Socket()), "started again on the same directory")
}

func TestRealPrivateDaemonLeavesTheSystemAlone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	requirement(t, os.Geteuid() == 0, "root")
	before := systemFiles(t)
	o := place(t)
	o.SearchPath = noEmulators
	d := start(t, o)
	requirement(t, d.Isolated(), "a mount namespace (CAP_SYS_ADMIN)")
	during := systemFiles(t)
	stop(t, d)
	// An empty mount point may come; nothing else.
	during = slices.DeleteFunc(during, func(s string) bool { return s == "/run/libvirt" })
	before = slices.DeleteFunc(before, func(s string) bool { return s == "/run/libvirt" })
	testproc.EqualList(t, during, before, "files of the system changed:\n%v\n%v", before)
	if entries, err := os.ReadDir(filepath.Join(o.Dir, "lib", "qemu")); err != nil || len(entries) == 0 {
		t.Errorf("the daemon did not use the private /var/lib/libvirt: %v", err)
	}
}

func systemFiles(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, root := range []string{"/run/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/etc/libvirt"} {
		_ = filepath.Walk(root, func(p string, _ os.FileInfo, err error) error {
			if err == nil {
				list = append(list, p)
			}
			return nil
		})
	}
	return list
}

func TestRealPrivateDaemonThatDiesIsReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	var log bytes.Buffer
	o := place(t)
	o.SearchPath, o.Logger = noEmulators, zerolog.New(&log)
	d := start(t, o)
	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGKILL))
	<-d.Done()
	if err := d.Err(); err == nil || !strings.Contains(err.Error(), "signal: killed") ||
		!strings.Contains(err.Error(), d.Log()) {
		t.Errorf("Err: %v, want how it ended and where its log is", err)
	}
	stop(t, d) // orders the reading of log after the last write
	testproc.Contains(t, log.String(), "exited unexpectedly", "nothing was logged: %s")
	testproc.NoErrorf(t, Probe(t.Context(), start(t, o).Socket()), "after starting again")
}

func TestRealPrivateDaemonThatHangsIsNotReadyAndCanBeStopped(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	o := place(t)
	o.SearchPath = noEmulators
	d := start(t, o)
	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	testproc.ErrorIs(t, Probe(ctx, d.Socket()), ErrSilent, "Probe of a stopped daemon: %v")
	stop(t, d)
}

func TestRealPrivateDaemonIsKilledAtTheDeadline(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	requirement(t, os.Geteuid() == 0, "root")
	o := place(t) // with emulators: the daemon is killed while it questions one
	d := start(t, o)
	requirement(t, d.Isolated(), "a mount namespace (CAP_SYS_ADMIN)")
	orphan := exec.Command("nsenter", "-t", strconv.Itoa(d.PID()), "-m", "--", "setsid", "sleep", "1000")
	testproc.Check(t, orphan.Start())
	waited := make(chan error, 1)
	go func() { waited <- orphan.Wait() }()
	testproc.Eventually(t, testproc.Patience, "the orphan is in the namespace",
		testproc.True(func() bool { return len(d.leftovers()) > 0 }))
	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no time at all: SIGKILL
	testproc.NoError(t, d.Stop(ctx))
	testproc.ErrorHas(t, <-waited, "killed", "the process that the daemon left behind: %v")
}

// TestRealPrivateDaemonDiesWithItsStarter: the daemon must go when its starter is killed without a
// chance to stop it.
func TestRealPrivateDaemonDiesWithItsStarter(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if dir := os.Getenv("LIBVIRTD_TEST_STARTER"); dir != "" {
		d, err := StartPrivate(t.Context(),
			Options{Dir: dir + "/s", RuntimeDir: dir, SearchPath: noEmulators, Logger: zerolog.Nop()})
		testproc.Check(t, err)
		fmt.Println("PID", d.PID())
		select {}
	}
	needDaemon(t)
	dir := place(t).RuntimeDir
	starter := exec.Command("/proc/self/exe", "-test.run=^TestRealPrivateDaemonDiesWithItsStarter$")
	starter.Env = append(os.Environ(), "LIBVIRTD_TEST_STARTER="+dir)
	out := testproc.Try(starter.StdoutPipe()).Or(t)
	testproc.Check(t, starter.Start())
	var pid int
	testproc.Try(fmt.Fscanf(io.LimitReader(out, 100), "PID %d", &pid)).Or(t)
	_ = starter.Process.Kill()
	_ = starter.Wait()
	testproc.Eventually(t, testproc.Patience,
		"the daemon ends", testproc.True(func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }))
}

// TestRealPrivateDaemonOfOtherUsers: the same stories as another user than root, and as root that
// may not make namespaces.
func TestRealPrivateDaemonOfOtherUsers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	requirement(t, os.Geteuid() == 0, "root (to become another user)")
	home := testproc.SocketDir(t)
	self := filepath.Join(home, "tests")
	copyFile(t, "/proc/self/exe", self)
	const tests = "^(TestRealPrivateDaemonThatDiesIsReported|" +
		"TestRealPrivateDaemonThatHangsIsNotReadyAndCanBeStopped|TestRealPrivateDaemonDiesWithItsStarter)$"
	const container = `for d in /run/libvirt /var/lib/libvirt /var/cache/libvirt /etc/libvirt; do mkdir -p $d; mount -t tmpfs tmpfs $d; done
exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin "$@"`
	for _, tc := range []struct {
		name string
		with []string
		uid  int
	}{
		{"not root", []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}, 65534},
		{"root in a container", []string{"unshare", "--mount", "--", "sh", "-ec", container, "container"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tmp := filepath.Join(home, strconv.Itoa(tc.uid))
			testproc.Check(t, os.Mkdir(tmp, 0o700))
			testproc.Check(t, errors.Join(os.Chown(tmp, tc.uid, tc.uid), os.Chmod(home, 0o755)))
			args := append(slices.Clone(tc.with), self,
				"-test.v", "-test.parallel=1", "-test.timeout=5m", "-test.run="+tests)
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Dir = tmp
			cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + tmp, "TMPDIR=" + tmp, "CI=1"}
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), "--- PASS") != 3 {
				t.Fatalf("three tests as another user: %v\n%s", err, out)
			}
		})
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text := testproc.Try(os.ReadFile(from)).Or(t)
	testproc.Check(t, testproc.WriteExecutable(to, text))
}

func TestStartPrivateReportsWhatIsMissing(t *testing.T) {
	t.Run("a path too long for sockets", func(t *testing.T) {
		o := place(t)
		o.RuntimeDir += "/" + strings.Repeat("x", 100)
		testproc.Try(StartPrivate(t.Context(), o)).ErrorHas(t, "too long", "StartPrivate: %v")
	})
	t.Run("a path that a URI cannot hold", func(t *testing.T) {
		o := place(t)
		o.RuntimeDir += "/a?b"
		testproc.Try(StartPrivate(t.Context(), o)).ErrorHas(t, "cannot express", "StartPrivate: %v")
	})
	t.Run("a relative path", func(t *testing.T) {
		testproc.Try(StartPrivate(t.Context(), Options{Dir: "x", RuntimeDir: "/tmp/y"})).ErrorHas(t, "Dir", "%v")
	})
	t.Run("a daemon that does not start", func(t *testing.T) {
		bin := t.TempDir()
		testproc.Check(t, testproc.WriteExecutable(filepath.Join(bin, "libvirtd"),
			[]byte("#!/bin/sh\necho no such thing as a daemon; exit 3\n")))
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		_, err := StartPrivate(t.Context(), place(t))
		if err == nil || !strings.Contains(err.Error(), "no such thing as a daemon") ||
			!strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("%v, want how it ended and what it said", err)
		}
	})
}

// Isolated reports whether the daemon has directories of its own: always, but for root in a
// container without CAP_SYS_ADMIN.
func (d *Daemon) Isolated() bool { return !d.layout.privileged || d.namespace != nil }

// Err is how the daemon exited, with the last lines of its log: nil while it runs, and after Stop.
func (d *Daemon) Err() error {
	select {
	case <-d.done:
	default:
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return nil
	}
	return d.problem
}
