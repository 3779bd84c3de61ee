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
	return Options{Dir: filepath.Join(t.TempDir(), "state"), RuntimeDir: run, Logger: zerolog.New(zerolog.NewTestWriter(t))}
}

// noEmulators is a search path without QEMU: the daemon has nothing to question.
const noEmulators = "/usr/sbin:/sbin"

func start(t *testing.T, o Options) *Daemon {
	t.Helper()
	d, err := StartPrivate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, d) })
	return d
}

func stop(t *testing.T, d *Daemon) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testproc.Patience)
	defer cancel()
	if err := d.Stop(ctx); err != nil {
		t.Error(err)
	}
	for _, p := range d.layout.temporary() {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is still there after Stop", p)
		}
	}
	if left := processesOf(t, d); len(left) > 0 {
		t.Errorf("processes are still there after Stop: %q", left)
	}
	if err := d.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
}

// processesOf finds the processes whose command line or environment names the daemon's directories.
func processesOf(t *testing.T, d *Daemon) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs {
		command, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if pid := filepath.Base(dir); pid != strconv.Itoa(os.Getpid()) && pid != strconv.Itoa(os.Getppid()) &&
			(bytes.Contains(command, []byte(d.layout.run+"/")) || bytes.Contains(environ, []byte(d.layout.run+"/")) || bytes.Contains(environ, []byte(d.layout.dir+"/"))) {
			found = append(found, string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// A namespace's number is used again when it is gone; then its processes are unrelated.
func TestRealUnrelatedProcessesAreNotLeftovers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	requirement(t, os.Geteuid() == 0, "root")
	o := place(t)
	o.SearchPath = noEmulators
	d := start(t, o)
	requirement(t, d.Isolated(), "a mount namespace (CAP_SYS_ADMIN)")
	number, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", d.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(d.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-d.Done()
	for range 50 {
		unrelated, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--", "readlink", "/proc/self/ns/mnt").Output()
		if err != nil {
			t.Fatal(err)
		}
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
	if err := Probe(t.Context(), d.Socket()); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(d.URI(), "?socket="+d.Socket()) {
		t.Errorf("URI %q does not lead to %q", d.URI(), d.Socket())
	}
	if d.Err() != nil {
		t.Errorf("Err of a running daemon: %v", d.Err())
	}
	if group, err := syscall.Getpgid(d.PID()); err != nil || group != d.PID() {
		t.Errorf("process group %d (%v), want its own: Ctrl-C must not reach it before us", group, err)
	}
	if _, err := StartPrivate(t.Context(), o); !errors.Is(err, ErrInUse) {
		t.Errorf("a second daemon on the same directory: %v, want ErrInUse", err)
	}
	second := start(t, func() Options { p := place(t); p.SearchPath = noEmulators; return p }())
	if err := Probe(t.Context(), second.Socket()); err != nil {
		t.Error(err)
	}
	stop(t, d)
	stop(t, d) // twice does no harm
	if err := Probe(t.Context(), d.Socket()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after Stop: %v", err)
	}
	again := start(t, o)
	if err := Probe(t.Context(), again.Socket()); err != nil {
		t.Errorf("started again on the same directory: %v", err)
	}
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
	if !slices.Equal(before, during) {
		t.Errorf("files of the system changed:\n%v\n%v", before, during)
	}
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
	if err := syscall.Kill(d.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-d.Done()
	if err := d.Err(); err == nil || !strings.Contains(err.Error(), "signal: killed") || !strings.Contains(err.Error(), d.Log()) {
		t.Errorf("Err: %v, want how it ended and where its log is", err)
	}
	stop(t, d) // orders the reading of log after the last write
	if !strings.Contains(log.String(), "exited unexpectedly") {
		t.Errorf("nothing was logged: %s", log.String())
	}
	if err := Probe(t.Context(), start(t, o).Socket()); err != nil {
		t.Errorf("after starting again: %v", err)
	}
}

func TestRealPrivateDaemonThatHangsIsNotReadyAndCanBeStopped(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	o := place(t)
	o.SearchPath = noEmulators
	d := start(t, o)
	if err := syscall.Kill(d.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := Probe(ctx, d.Socket()); !errors.Is(err, ErrSilent) {
		t.Errorf("Probe of a stopped daemon: %v, want ErrSilent", err)
	}
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
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- orphan.Wait() }()
	testproc.Eventually(t, testproc.Patience, "the orphan is in the namespace", testproc.True(func() bool { return len(d.leftovers()) > 0 }))
	if err := syscall.Kill(d.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no time at all: SIGKILL
	if err := d.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := <-waited; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process that the daemon left behind: %v, want killed", err)
	}
}

// The daemon must go when its starter is killed without a chance to stop it.
func TestRealPrivateDaemonDiesWithItsStarter(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if dir := os.Getenv("LIBVIRTD_TEST_STARTER"); dir != "" {
		d, err := StartPrivate(t.Context(), Options{Dir: dir + "/s", RuntimeDir: dir, SearchPath: noEmulators, Logger: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("PID", d.PID())
		select {}
	}
	needDaemon(t)
	dir := place(t).RuntimeDir
	starter := exec.Command("/proc/self/exe", "-test.run=^TestRealPrivateDaemonDiesWithItsStarter$")
	starter.Env = append(os.Environ(), "LIBVIRTD_TEST_STARTER="+dir)
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(io.LimitReader(out, 100), "PID %d", &pid); err != nil {
		t.Fatal(err)
	}
	_ = starter.Process.Kill()
	_ = starter.Wait()
	testproc.Eventually(t, testproc.Patience, "the daemon ends", testproc.True(func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }))
}

// The same stories as another user than root, and as root that may not make namespaces.
func TestRealPrivateDaemonOfOtherUsers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	needDaemon(t)
	requirement(t, os.Geteuid() == 0, "root (to become another user)")
	home := testproc.SocketDir(t)
	self := filepath.Join(home, "tests")
	copyFile(t, "/proc/self/exe", self)
	const tests = "^(TestRealPrivateDaemonThatDiesIsReported|TestRealPrivateDaemonThatHangsIsNotReadyAndCanBeStopped|TestRealPrivateDaemonDiesWithItsStarter)$"
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
			if err := os.Mkdir(tmp, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Chown(tmp, tc.uid, tc.uid), os.Chmod(home, 0o755)); err != nil {
				t.Fatal(err)
			}
			args := append(slices.Clone(tc.with), self, "-test.v", "-test.parallel=1", "-test.timeout=5m", "-test.run="+tests)
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Dir = tmp
			cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + tmp, "TMPDIR=" + tmp, "CI=1"}
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), "--- PASS") != 3 {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := testproc.WriteExecutable(to, text); err != nil {
		t.Fatal(err)
	}
}

func TestStartPrivateReportsWhatIsMissing(t *testing.T) {
	t.Run("a path too long for sockets", func(t *testing.T) {
		o := place(t)
		o.RuntimeDir += "/" + strings.Repeat("x", 100)
		if _, err := StartPrivate(t.Context(), o); err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a path that a URI cannot hold", func(t *testing.T) {
		o := place(t)
		o.RuntimeDir += "/a?b"
		if _, err := StartPrivate(t.Context(), o); err == nil || !strings.Contains(err.Error(), "cannot express") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a relative path", func(t *testing.T) {
		if _, err := StartPrivate(t.Context(), Options{Dir: "x", RuntimeDir: "/tmp/y"}); err == nil || !strings.Contains(err.Error(), "Dir") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a daemon that does not start", func(t *testing.T) {
		bin := t.TempDir()
		if err := testproc.WriteExecutable(filepath.Join(bin, "libvirtd"), []byte("#!/bin/sh\necho no such thing as a daemon; exit 3\n")); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		_, err := StartPrivate(t.Context(), place(t))
		if err == nil || !strings.Contains(err.Error(), "no such thing as a daemon") || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("%v, want how it ended and what it said", err)
		}
	})
}
