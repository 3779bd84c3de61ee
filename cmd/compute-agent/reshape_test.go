// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const cn1 = "aaaaaaaa-0000-4000-8000-000000000001"

// site is a host with a fake driver, and a Placement that counts what is written to it.
type site struct {
	t    *testing.T
	dir  string
	url  string
	http http.Handler

	mu     sync.Mutex
	writes int
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := testproc.SocketDir(t)
	server, err := placement.New(t.Context(),
		placement.Config{StateDir: filepath.Join(dir, "placement"),
			Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	check(t, err)
	s := &site{t: t, dir: dir, http: server.Handler()}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			s.mu.Lock()
			s.writes++
			s.mu.Unlock()
		}
		s.http.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { web.Close(); _ = server.Close() })
	s.url = web.URL
	fakeDriver(t, dir)
	return s
}

// fakeDriver has the fake driver in a directory, and returns its path.
func fakeDriver(t *testing.T, dir string) string {
	t.Helper()
	driver := filepath.Join(dir, "compute-driver-fake")
	binaries.Copy(t, "compute-driver-fake", driver)
	return driver
}

var check = testproc.Check

// configure has the driver in a layout; more is more of its configuration.
func (s *site) configure(layout, more string, sections ...string) {
	s.t.Helper()
	check(s.t, os.WriteFile(filepath.Join(s.dir, "agent.toml"), []byte(fmt.Sprintf(`[agent]
share_user = true
host = "cn1"
state_dir = "%[1]s/state"
runtime_dir = "%[1]s/run"
[placement_client]
url = %[2]q
[plugins]
dir = %[1]q
[tracker]
update_resources_interval = "1h"
%[5]s
[drivers.fake.config]
layout = %[3]q
%[4]s
nodes = [{name = "cn1", uuid = "%[6]s", inventories = {VCPU = {total = 8}, VGPU = {total = 8}}}]
`, s.dir, s.url, layout, more, strings.Join(sections, "\n"), cn1)), 0o600))
}

// run executes a command line, as a user does.
func (s *site) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, err bytes.Buffer
	code = execute(s.t.Context(), append(args, "--config", filepath.Join(s.dir, "agent.toml")), &out, &err)
	return code, out.String(), err.String()
}

// want runs a command and compares what it prints with a golden file.
func (s *site) want(file string, code int, args ...string) {
	s.t.Helper()
	got, stdout, stderr := s.run(args...)
	if got != code {
		s.t.Errorf("%q ended with %d, want %d:\n%s", args, got, code, stderr)
	}
	golden.Text(s.t, filepath.Join("testdata", "reshape", file), s.mask(stdout))
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z`)

// mask takes out what differs from run to run.
func (s *site) mask(text string) string {
	return times.ReplaceAllString(strings.ReplaceAll(text, s.dir, "DIR"), "TIME")
}

// agent runs the daemon until stop is called, and waits for its first pass.
func (s *site) agent() (stop func()) {
	s.t.Helper()
	return s.agentUntil("the first pass", func(view health.Status) bool {
		return len(view.Drivers) > 0 && len(view.Drivers[0].Report.Nodes) > 0 &&
			view.Drivers[0].Report.State != "starting"
	})
}

// agentUntil runs the daemon until stop is called, and waits for what its status shows.
func (s *site) agentUntil(what string, is func(health.Status) bool) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan int, 1)
	var log bytes.Buffer
	go func() {
		ended <- execute(ctx, []string{"run", "--config", filepath.Join(s.dir, "agent.toml")}, io.Discard, &log)
	}()
	s.eventually(what, func() bool {
		view, err := control.NewClient(filepath.Join(s.dir, "run", "agent.sock")).Status(s.t.Context())
		return err == nil && is(view)
	})
	return sync.OnceFunc(func() {
		cancel()
		if code := <-ended; code != cli.ExitDone {
			s.t.Errorf("the agent ended with %d:\n%s", code, log.String())
		}
	})
}

func (s *site) eventually(what string, is func() bool) {
	s.t.Helper()
	testproc.Eventually(s.t, testproc.Patience, what, testproc.True(is))
}

func (s *site) request(method, path, body string, out any) {
	s.t.Helper()
	s.requestAt("1.36", method, path, body, out)
}

func (s *site) requestAt(version, method, path, body string, out any) {
	s.t.Helper()
	req := testproc.Try(http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))).Or(s.t)
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("OpenStack-API-Version", "placement "+version)
	w := httptest.NewRecorder()
	s.http.ServeHTTP(w, req)
	if w.Code >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	if out != nil {
		check(s.t, json.Unmarshal(w.Body.Bytes(), out))
	}
}

// settle has the driver report a flat node on which three guests hold VGPUs.
func (s *site) settle() {
	s.t.Helper()
	s.configure("flat", "")
	s.agent()()
	for n := range 3 {
		s.request(http.MethodPut, fmt.Sprintf("/allocations/99999999-0000-4000-8000-00000000000%d", n+1), fmt.Sprintf(
			`{"allocations": {"%s": {"resources": {"VCPU": 1, "VGPU": %d}}}, "project_id": "p", "user_id": "u", `+
				`"consumer_generation": null}`, cn1, n+1), nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = 0
}

// used is how much VGPU of the root is allocated.
func (s *site) used() int64 {
	var out struct{ Usages map[string]int64 }
	s.request(http.MethodGet, "/resource_providers/"+cn1+"/usages", "", &out)
	return out.Usages["VGPU"]
}

// TestPlanReshapeIsAboutTheFilesAsTheyAre: a configuration that the running agent has not read is
// asked about beside it: its next start reads the files as they are then.
func TestPlanReshapeIsAboutTheFilesAsTheyAre(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.settle()
	stop := s.agent()
	defer stop()
	code, stdout, stderr := s.run("plan", "--reshape")
	if code != cli.ExitDone || strings.Contains(stdout, "would move") || strings.Contains(stderr, "The running agent") {
		t.Errorf("unchanged files: %d\n%s%s", code, stdout, stderr)
	}
	s.configure("vgpu-children", "")
	later := time.Now().Add(time.Minute)
	check(t, os.Chtimes(filepath.Join(s.dir, "agent.toml"), later, later))
	code, stdout, stderr = s.run("plan", "--reshape")
	if code != cli.ExitDone || !strings.Contains(stdout, "a reshape would move allocations of 3 of 3 consumers") {
		t.Errorf("changed files: %d\n%s%s", code, stdout, stderr)
	}
	testproc.Contains(t, stderr, "has changed since the running agent read it", "standard error: %s")
	if got := s.used(); got != 6 || s.writes != 0 {
		t.Errorf("%d VGPU are used on the root after %d writes; nothing may have been written", got, s.writes)
	}
}

func TestRefusedReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.settle()
	s.configure("vgpu-children", `faults.reshape = "lose"`, "[reshape]\non_failure = \"exit\"")
	s.want("plan-refused.txt", cli.ExitProtect, "plan", "--reshape")
	code, stdout, _ := s.run("plan", "--reshape", "-o", "json")
	var view control.PlanView
	check(t, json.Unmarshal([]byte(stdout), &view))
	if code != cli.ExitProtect || !view.Refused() || len(view.Nodes[0].Violations) != 3 || view.Nodes[0].Hint == "" {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	code, _, stderr := s.run("run")
	for _, part := range []string{"\nrefused: ", "\n  - consumer 99999999-0000-4000-8000-000000000001, ",
		"\n  - consumer 99999999-0000-4000-8000-000000000003, ", "\nwhat to do: "} {
		if code != cli.ExitProtect || !strings.Contains(stderr, part) {
			t.Errorf("exit code %d; %q is not said:\n%s", code, part, stderr)
		}
	}
	// in the log, and for who started it
	for _, twice := range []string{"00000000003, VGPU: it holds 3", "report it to its author"} {
		if n := strings.Count(stderr, twice); n != 2 {
			t.Errorf("%q is printed %d times:\n%s", twice, n, stderr)
		}
	}
	s.want("history-empty.txt", cli.ExitDone, "reshape", "history")
	if s.used() != 6 || s.writes != 0 {
		t.Errorf("%d VGPU in use on the root, %d writes", s.used(), s.writes)
	}
}

// gpuGuests is the fake driver's configuration of the three guests, with the GPU that each has and
// how many VCPUs the first one has.
func gpuGuests(vcpus int, gpus ...int) string {
	var lines []string
	for n, gpu := range gpus {
		lines = append(lines,
			fmt.Sprintf(`{uuid = %q, name = "vm%d", resources = {"" = {VCPU = %d}, gpu_%d = {VGPU = %d}}}`,
				vm(n+1), n+1, vcpus, gpu, n+1))
		vcpus = 1
	}
	return "guest_list = [" + strings.Join(lines, ", ") + "]"
}

// TestReshapeIsComparedWithTheGuests before it is written, as far as it moves something, and
// afterwards as a whole.
func TestReshapeIsComparedWithTheGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.settle()
	s.configure("vgpu-children", gpuGuests(2, 1, 0, 1)) // where each is the driver does not tell itself
	s.want("plan-guests.txt", cli.ExitProtect, "plan", "--reshape")
	if s.used() != 6 || s.writes != 0 {
		t.Errorf("%d VGPU in use on the root, %d writes", s.used(), s.writes)
	}
	s.configure("vgpu-children", gpuGuests(2, 1, 0, 1)+
		fmt.Sprintf("\nguests = {%q = \"gpu_1\", %q = \"gpu_0\", %q = \"gpu_1\"}", vm(1), vm(2), vm(3)))
	stop := s.agent()
	testproc.Equal(t, s.used(), 0, "%d VGPU are still in use on the root")
	differs := func(view health.Status) bool {
		return slices.ContainsFunc(view.Conditions, func(c health.Condition) bool {
			return c.Code == health.AllocationsDiffer &&
				slices.Equal(c.Details, []string{vm(1) + " vm1: allocated 1 VCPU on cn1, driver 2"})
		})
	}
	status := func() health.Status {
		return testproc.Try(control.NewClient(filepath.Join(s.dir, "run", "agent.sock")).Status(t.Context())).Or(t)
	}
	s.eventually("the condition", func() bool { return differs(status()) })
	stop()
	stop = s.agent() // it is remembered
	s.eventually("the condition after a restart", func() bool { return differs(status()) })
	stop()
	s.configure("vgpu-children", gpuGuests(1, 1, 0, 1))
	stop = s.agent()
	defer stop()
	if view := status(); differs(view) {
		t.Errorf("it agrees now: %+v", view.Conditions)
	}
}

// TestHeldReshape: the agent stays up, and a refresh tries again.
func TestHeldReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.settle()
	s.configure("vgpu-children", `faults.reshape = "lose"`)
	stop := s.agent()
	defer stop()
	code, stdout, _ := s.run("status")
	for _, part := range []string{"degraded, held", "- consumer 99999999-0000-4000-8000-000000000002",
		"what to do  ", "compute-agent refresh"} {
		if code != cli.ExitFailed || !strings.Contains(stdout, part) {
			t.Errorf("exit code %d; %q is not said:\n%s", code, part, stdout)
		}
	}
	failures := func() int {
		_, raw, _ := s.run("status", "-o", "json")
		var view health.Status
		check(t, json.Unmarshal([]byte(raw), &view))
		return view.Drivers[0].Report.Nodes[0].Failures
	}
	testproc.Equal(t, failures(), 1, "%d failures")
	s.want("refresh.txt", cli.ExitDone, "refresh")
	s.eventually("another try", func() bool { return failures() == 2 })
	s.want("refresh.json", cli.ExitDone, "refresh", "-o", "json")
	s.want("plan-refused.txt", cli.ExitProtect, "plan", "--reshape") // by the running agent, the same
	if code, stdout, _ := s.run("plan"); code == cli.ExitDone || !strings.Contains(stdout, "unknown: ") &&
		!strings.Contains(stdout, "refused") {
		t.Errorf("an unknown plan: exit code %d: %s", code, stdout)
	}
	if s.used() != 6 || s.writes != 0 {
		t.Errorf("%d VGPU in use on the root, %d writes", s.used(), s.writes)
	}
}

func TestReshapeAndUndo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.settle()
	s.configure("vgpu-children", "")
	s.want("plan.txt", cli.ExitDone, "plan", "--reshape")
	testproc.Equal(t, s.writes, 0, "the plan made %d writes")
	stop := s.agent()
	testproc.Equal(t, s.used(), 0, "%d VGPU are still in use on the root")
	s.want("history.txt", cli.ExitDone, "reshape", "history")
	s.want("show.txt", cli.ExitDone, "reshape", "show", "1")
	s.want("show.json", cli.ExitDone, "reshape", "show", "1", "-o", "json")
	s.want("undo.txt", cli.ExitDone, "reshape", "undo", "1") // by the running agent
	testproc.Equal(t, s.used(), 6, "%d VGPU in use on the root after the undo")
	if code, _, stderr := s.run("reshape", "undo", "1"); code != cli.ExitProtect ||
		!strings.Contains(stderr, "already undone, by reshape 2") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	stop()
	// No agent runs: the command does it itself. Reshape 2 is undone while its generations hold,
	// and not after another write.
	s.want("undo.json", cli.ExitDone, "reshape", "undo", "2", "-o", "json")
	testproc.Equal(t, s.used(), 0, "%d VGPU in use on the root")
	s.request(http.MethodDelete, "/allocations/99999999-0000-4000-8000-000000000003", "", nil)
	code, _, stderr := s.run("reshape", "undo", "3")
	if code != cli.ExitProtect || !strings.Contains(stderr, "nothing was written") ||
		!strings.Contains(stderr, "what to do: ") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	testproc.Equal(t, s.used(), 0, "a refused undo moved something: %d VGPU in use on the root")
	s.want("history-undone.txt", cli.ExitDone, "reshape", "history")
	_, stdout, _ := s.run("reshape", "history", "-o", "json")
	var history struct {
		Reshapes []struct {
			ID, Undoes int64
			Outcome    string
		}
	}
	check(t, json.Unmarshal([]byte(stdout), &history))
	if len(history.Reshapes) < 3 || history.Reshapes[2].Undoes != 2 || history.Reshapes[2].Outcome != "happened" {
		t.Errorf("%+v", history)
	}
}

// TestReshapePlanThatIsUnknown: a script must not take "cannot tell" for "nothing to do".
func TestReshapePlanThatIsUnknown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.configure("flat", `not_ready = "the lights are out"`)
	code, stdout, stderr := s.run("plan", "--reshape")
	if code != cli.ExitFailed || !strings.Contains(stdout, "the lights are out") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "state")); !os.IsNotExist(err) {
		t.Errorf("the dry run left a state directory: %v", err)
	}
}

func TestReshapeUsage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.configure("flat", "")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitUsage, "is not the number of a reshape", []string{"reshape", "show", "first"}},
		{cli.ExitUsage, "is not the number of a reshape", []string{"reshape", "undo", "0"}},
		{cli.ExitUsage, "accepts 1 arg", []string{"reshape", "undo"}},
		{cli.ExitUsage, "must be table, json or yaml", []string{"reshape", "history", "-o", "xml"}},
		{cli.ExitUsage, "must be table, json or yaml", []string{"refresh", "-o", "xml"}},
		{cli.ExitUsage, "must be table, json or yaml", []string{"plan", "--reshape", "-o", "xml"}},
		{cli.ExitFailed, "there is no reshape 4", []string{"reshape", "show", "4"}},
		{cli.ExitFailed, "has no such reshape: 4", []string{"reshape", "undo", "4"}},
		{cli.ExitFailed, "the agent is not running", []string{"refresh"}},
	} {
		if code, _, stderr := s.run(c.args...); code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%q: exit code %d, %s", c.args, code, stderr)
		}
	}
}
