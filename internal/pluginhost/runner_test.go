// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestStartFailuresSayWhy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	script := func(name, text string) string {
		path := filepath.Join(binDir, name)
		testproc.Check(t, testproc.WriteExecutable(path, []byte(text)))
		return path
	}
	for _, c := range []struct {
		name string
		path string
		mode string
		want []string
		is   error
	}{
		{name: "exits", mode: "exit-at-start", want: []string{"exit status 3", "cannot find the library that I need"}},
		{name: "slow", mode: "slow-start", want: []string{"the handshake was not complete within 1s"},
			is: driverclient.ErrNoAnswer},
		{name: "no plugin", path: script("hello", "#!/bin/sh\necho to stderr >&2\necho hello\nsleep 300\n"),
			want: []string{`"hello"`, "is this a driver", "to stderr"}},
		{name: "floods stdout", path: script("flood", "#!/bin/sh\nexec yes abcdefgh\n"),
			want: []string{"abcdefgh", "is this a driver"}},
		{name: "one endless line", path: script("endless", "#!/bin/sh\nexec tr '\\0' x </dev/zero\n"),
			want: []string{"xxxx"}},
		{name: "other version", path: script("other", "#!/bin/sh\necho '1|99|unix|/nowhere|grpc|'\nsleep 300\n"),
			is: ErrIncompatible, want: []string{`version "99"`}},
		{name: "no socket", path: script("nosock", "#!/bin/sh\necho '1|1|unix|/nowhere|grpc|'\nsleep 300\n")},
		{name: "not executable", path: script("noexec", "this is no program"),
			want: []string{"exec format error", "not a program for this machine"}, is: ErrNotExecutable},
		{name: "no interpreter", path: script("nointerpreter", "#!/nonexistent/python\n"),
			want: []string{"the interpreter"}, is: ErrNotExecutable},
		{name: "missing", path: "/nonexistent/driver",
			want: []string{"there is no executable /nonexistent/driver. Install it there"},
			is:   launch.ErrNotInstalled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			spec := chaosSpec(c.mode, nil)
			spec.Path = c.path
			spec.Timeouts.Info = time.Second
			if errors.Is(c.is, driverclient.ErrNoAnswer) {
				spec.Timeouts.Handshake = time.Second // none of the others is to meet it
			}
			spec.Restart.BackoffBase = time.Hour
			_, err := r.start(spec)
			if !errors.Is(err, driverclient.ErrUnavailable) {
				t.Fatalf("want driverclient.ErrUnavailable, got %v", err)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("want %v, got %v", c.is, err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
		})
	}
}

func TestHangingConfigureEndsTheStart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	spec := chaosSpec("", map[string]string{"update": "hang-configure"})
	spec.Timeouts.Configure = 100 * time.Millisecond
	spec.Restart.BackoffBase, spec.Restart.BackoffMax = time.Hour, time.Hour
	if _, err := r.start(spec); !errors.Is(err, driverclient.ErrUnavailable) ||
		!errors.Is(err, driverclient.ErrNoAnswer) {
		t.Errorf("want driverclient.ErrNoAnswer, got %v", err)
	}
}

func TestNoiseDoesNotHurt(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("noisy-start", map[string]string{"update": "print"}))
	testproc.Try(r.update(p, nil)).Or(t)
	testproc.Check(t, p.Stop(context.Background()))
	found := map[string]map[string]any{}
	for _, rec := range r.log.records(t) {
		if msg, ok := rec["message"].(string); ok {
			found[textutil.Clip(msg, 60)] = rec
		}
	}
	for _, want := range []string{
		"a line on standard output before the handshake", `{"@message":1}`, strings.Repeat("z", 60) + "...",
		"printed on standard output", "printed on standard error",
	} {
		if rec := found[want]; rec == nil || rec["output"] != "raw" || rec["level"] != "warn" || rec["pid"] == nil {
			t.Errorf("log record of %q: %v", want, rec)
		}
	}
	rec := found["configuring"]
	if rec == nil || rec["level"] != "info" || rec["driver"] != "chaos" || rec["plugin_driver"] != "another driver" ||
		rec["answer"] != 42.0 || rec["call"] != "Configure" {
		t.Errorf("log record of the driver's own: %v", rec)
	}
}

func TestEnvironmentIsAnAllowList(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "environment"}))
	_, err := r.update(p, nil)
	if err == nil {
		t.Fatal("no environment came")
	}
	for _, leak := range []string{"SECRET", "NOTIFY_SOCKET"} {
		if strings.Contains(err.Error(), leak) {
			t.Errorf("%s leaked", leak)
		}
	}
	for _, want := range []string{"LIBVIRT_DEFAULT_URI=test:///default", "PATH=", partKey + "=" + partDriver} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestDescriptorsAndName(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "descriptors"}))
	_, err := r.update(p, nil)
	testproc.ErrorHas(t, err, "comm=driver-chaos ", "process name: %v")
	for _, want := range []string{"0=/dev/null", "3=" + chaosPath} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("descriptor %s is missing: %v", want, err)
		}
	}
}

func TestGrandchildrenGoWithTheProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "grandchild"}))
	_, err := r.update(p, nil)
	grandchild := pidIn(t, err)
	testproc.Check(t, p.Stop(context.Background()))
	waitGone(t, grandchild)
}

func TestRunawayGrandchildDoesNotHoldUpTheStop(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", map[string]string{"update": "runaway"}))
	_, err := r.update(p, nil)
	runaway := pidIn(t, err)
	if err := p.Stop(context.Background()); err != nil { // it sleeps for 300 s and holds our pipes: this would too
		t.Fatal(err)
	}
	testproc.NoErrorf(t, syscall.Kill(runaway, syscall.SIGKILL), "the runaway is gone; then this test tests nothing")
}

func TestNothingSurvivesAKilledAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := testproc.Try(os.MkdirTemp("/tmp", "rt")).Or(t)
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.Command(chaosPath)
	cmd.Env = append(os.Environ(), partKey+"="+partAgent, "AGENT_RUNTIME="+dir, "AGENT_BIN="+binDir)
	cmd.Stderr = os.Stderr
	out := testproc.Try(cmd.StdoutPipe()).Or(t)
	testproc.Check(t, cmd.Start())
	line := testproc.Try(bufio.NewReader(out).ReadString('\n')).Or(t)
	pid := testproc.Try(strconv.Atoi(strings.TrimSpace(line))).Or(t)
	testproc.Check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	waitGone(t, pid)

	left, err := filepath.Glob(filepath.Join(dir, socketDirName, "*", "*"))
	if err != nil || len(left) == 0 {
		t.Fatalf("the killed agent left no socket, so this test tests nothing: %v, %v", left, err)
	}
	h := testproc.Try(New(Options{RuntimeDir: dir, Logger: zerolog.Nop()})).Or(t)
	defer func() { _ = h.Close() }()
	if left, _ := filepath.Glob(filepath.Join(dir, socketDirName, "*")); len(left) > 0 {
		t.Errorf("the next agent did not clear away %v", left)
	}
}

// agentMain is the agent of the test above: it starts a driver, says its process id, and waits to
// be killed.
func agentMain() {
	h, err := New(Options{Dir: os.Getenv("AGENT_BIN"), RuntimeDir: os.Getenv("AGENT_RUNTIME"), Logger: zerolog.Nop()})
	if err != nil {
		panic(err)
	}
	p, err := h.Plugin(chaosSpec("", nil))
	if err != nil {
		panic(err)
	}
	if err := p.Start(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(p.Status().PID)
	select {}
}
