// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// patient is when a test that hangs is given up; nothing is measured by it.
const patient = 10 * time.Minute

var binaries = testproc.Of("cmd/compute-agent", "cmd/compute-driver-libvirt", "test/demo")

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// demo is the command, not yet started. Its standard error goes to the first buffer.
func demo(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	testproc.Check(t, binaries.Build())
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(binaries.Dir(), "demo"),
		append([]string{"-bin", binaries.Dir()}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	return cmd, &errs
}

// need tells loudly what keeps a test from running.
func need(t *testing.T) {
	t.Helper()
	var missing string
	switch {
	case runtime.GOARCH != "amd64":
		missing = "the made-up host is an x86 one, and this machine is not"
	case os.Geteuid() != 0:
		missing = "root"
	default:
		for _, program := range []string{"/usr/sbin/libvirtd", "virsh", "qemu-system-x86_64", "openstack"} {
			if _, err := exec.LookPath(program); err != nil {
				missing = err.Error()
			}
		}
	}
	if missing != "" {
		testproc.NotRun(t, missing)
	}
}

// TestTranscript compares the whole demonstration with testdata/transcript.txt, without what
// differs between machines and runs.
func TestTranscript(t *testing.T) {
	need(t)
	before := traces(t)
	cmd, errs := demo(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	golden.Text(t, "testdata/transcript.txt", masked(string(out)))
	for n, line := range strings.Split(string(out), "\n") {
		query := strings.Contains(line, "GET /") || strings.Contains(line, "&resources=") // has no place to break it
		if len([]rune(line)) > 125 && !query {
			t.Errorf("line %d is too wide for most terminals: %s", n+1, line)
		}
	}
	testproc.Samef(t, cmp.Diff(before, traces(t)), "the demonstration leaves something behind")
}

// TestReadme: the README shows parts of the transcript, in their order, with … where something is
// left out.
func TestReadme(t *testing.T) {
	readme := testproc.Try(os.ReadFile("../../README.md")).Or(t)
	transcript := testproc.Try(os.ReadFile("testdata/transcript.txt")).Or(t)
	parts := ""
	for i, after := range strings.Split(string(readme), "<!-- demo: begin -->\n") {
		part, _, found := strings.Cut(after, "<!-- demo: end -->")
		switch {
		case i == 0: // what is above the first one
		case !found:
			t.Fatal("README.md has a part about the demonstration that does not end")
		default:
			parts += part
		}
	}
	rest := strings.Split(string(transcript), "\n")
	if strings.Count(parts, "    $ ") < 4 {
		t.Fatalf("README.md shows few commands of the demonstration: %s", parts)
	}
	for line := range strings.Lines(masked(parts)) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "    ") || line == "    …" {
			continue
		}
		at := slices.Index(rest, line)
		if at < 0 {
			t.Fatalf("README.md shows what the demonstration does not print, or not in this order: %s", line)
		}
		rest = rest[at+1:]
	}
}

// masked is the transcript without times and random uuids, and without the traits, which depend on
// QEMU and the processor. What the driver says of a reshape is put before what the agent says next:
// it comes from another process, by a pipe, and may be late.
func masked(text string) string {
	for _, m := range []struct{ what, by string }{
		{`\d\d\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ`, "<when>"},
		{`(cell1 with uuid |\| id +\| |model +|instance-)[0-9a-f]{8}-[0-9a-f-]{27}`,
			"${1}xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx"},
		{`\d\d:\d\d:\d\d INF`, "<time> INF"},
		{`([Ss]et the traits of cn1(?:_numa_\d)?:)[^.:]*more`, "$1 <traits>"},
		{`\* \(\d+\)`, "* (<n>)"},
		{`(    <time> INF The driver's reshape passed[^\n]*\n(?:    <time> INF [^\n]*\n|          [^\n]*\n)*?)( ` +
			`   <time> INF Allocations move[^\n]*\n)`, "$2$1"},
	} {
		text = regexp.MustCompile(m.what).ReplaceAllString(text, m.by)
	}
	return text
}

// TestMaskedOrder: only that line of the driver is moved, and only from within the same log.
func TestMaskedOrder(t *testing.T) {
	const agent, driver = "    <time> INF The driver's reshape passed all checks. …\n",
		"    <time> INF Allocations move. …\n"
	const told = "    <time> INF Set a very\n          long line. …\n"
	for in, want := range map[string]string{
		driver + agent + told:                 driver + agent + told,
		agent + driver + told:                 driver + agent + told,
		agent + told + driver:                 driver + agent + told,
		agent + told + "\nanother\n" + driver: agent + told + "\nanother\n" + driver,
	} {
		testproc.Samef(t, cmp.Diff(want, masked(in)), "%q", in)
	}
}

// traces are what a demonstration could leave behind: mounts, files in memory and control groups of
// its guests.
func traces(t *testing.T) map[string][]string {
	t.Helper()
	mounts := testproc.Try(os.ReadFile("/proc/self/mountinfo")).Or(t)
	left := map[string][]string{}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, home) {
			left["mounts"] = append(left["mounts"], line)
		}
	}
	if _, err := os.Stat(home); err == nil {
		left["files"] = append(left["files"], home)
	}
	abandoned := testproc.Try(testhost.SimLeftovers()).Or(t)
	for _, dir := range abandoned {
		if !slices.ContainsFunc(guestsIn(t, dir), otherGuest) {
			left["control groups"] = append(left["control groups"], dir)
		}
	}
	return left
}

// guestsIn are the names of the guests that have control groups in a simulation's.
func guestsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	groups := testproc.Try(filepath.Glob(filepath.Join(dir, "machine", "qemu-*.libvirt-qemu"))).Or(t)
	for _, group := range groups {
		_, name, _ := strings.Cut(strings.TrimPrefix(filepath.Base(group), "qemu-"), "-")
		names = append(names, strings.TrimSuffix(name, ".libvirt-qemu"))
	}
	return names
}

// otherGuest reports whether the demonstration has no such guest: other tests have simulations of
// their own at the same time, some of which they kill.
func otherGuest(name string) bool {
	return !slices.ContainsFunc(guests, func(g guest) bool { return g.name == name })
}

// TestInterrupted: after Ctrl-C or a kill the demonstration ends in order.
func TestInterrupted(t *testing.T) {
	testproc.Drawn(t, 2)
	need(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			before := traces(t)
			cmd, errs := demo(t, "-step")
			never, stdin, err := os.Pipe()
			testproc.Check(t, err)
			defer func() { _ = stdin.Close() }()
			cmd.Stdin = never
			out := testproc.Try(cmd.StdoutPipe()).Or(t)
			testproc.Check(t, cmd.Start())
			_ = never.Close()
			var text []byte
			for one := make([]byte, 1); !bytes.HasSuffix(
				text, []byte("(Enter goes on) ")); text = append(text, one...) {
				if _, err := out.Read(one); err != nil {
					t.Fatalf("%v after\n%s\n%s", err, text, errs)
				}
			}
			testproc.Check(t, cmd.Process.Signal(signal))
			// The output ends when the last process that has it open does.
			if rest, err := io.ReadAll(out); err != nil || len(rest) > 1 {
				t.Errorf("%v: it goes on: %s", err, rest)
			}
			err = cmd.Wait()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || signal != syscall.SIGKILL &&
				exit.ExitCode() != interrupted {
				t.Errorf("%v", err)
			}
			if !strings.Contains(errs.String(), "all that ran has been ended") {
				t.Errorf("it prints: %s", errs)
			}
			testproc.Samef(t, cmp.Diff(before, traces(t)), "something is left behind")
		})
	}
}

// TestUsage: what it says of wrong usage, and where it cannot be.
func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
		root bool
	}{
		"an argument":       {[]string{"now"}, `unexpected argument "now"`, false},
		"an unknown flag":   {[]string{"-fast"}, "-fast", false},
		"without a plugin":  {[]string{"-bin", "/nonexistent"}, "make build", true},
		"the list of flags": {[]string{"-h"}, "wait for Enter", false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root {
				need(t)
			}
			cmd, errs := demo(t, c.args...)
			err := cmd.Run()
			if !strings.Contains(errs.String(), c.want) || (err == nil) != slices.Contains(c.args, "-h") {
				t.Errorf("%v: %s", err, errs)
			}
		})
	}
}

// TestLosses: a guest that lost something, or has it elsewhere, is noticed.
func TestLosses(t *testing.T) {
	whole := func() holdings {
		h := holdings{}
		for _, g := range guests {
			h[g.name] = map[string]map[string]int64{hostName: g.holds()}
		}
		return h
	}
	testproc.NoError(t, whole().complete())
	for name, lose := range map[string]func(holdings){
		"a class":      func(h holdings) { delete(h["train"][hostName], "VGPU") },
		"some of it":   func(h holdings) { h["train"][hostName]["VCPU"]-- },
		"everything":   func(h holdings) { delete(h, "train") },
		"held twice":   func(h holdings) { h["train"][gpu0] = map[string]int64{"VGPU": 1} },
		"another held": func(h holdings) { h["train"][gpu0] = map[string]int64{"CUSTOM_X": 1} },
	} {
		h := whole()
		lose(h)
		testproc.ErrorHas(t, h.complete(), "guest train", "%s: %v", name)
	}
	testproc.ErrorHas(t, whole().at(gpu1, "VGPU", "train"), gpu1, "elsewhere: %v")
}
