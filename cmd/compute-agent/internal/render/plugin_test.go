// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// tested prints a report that is complete.
func tested(w io.Writer, r trial.Report, width int, warnings ...string) error {
	var checks []trial.Check
	for _, res := range r.Results {
		checks = append(checks, res.Check)
	}
	t := render.NewPluginTest(w, io.Discard, checks, width)
	t.Begin(r)
	for _, res := range r.Results {
		if r.Ended == "" || res.Why != r.Ended { // those come only with the report
			t.Result(res)
		}
	}
	return t.End(r, warnings)
}

func TestPluginTest(t *testing.T) {
	check := func(id, title string) trial.Check {
		return trial.Check{ID: id, Title: title, Protects: "guests", Rule: "Nothing is lost.", See: "docs/drivers.md"}
	}
	report := trial.Report{
		Description: trial.Description{Path: "./compute-driver-mine", Name: "mine", Version: "1.2.3",
			SDK: "go compute-agent v0.1.0", Capabilities: []string{"health", "watch"}},
		Results: []trial.Result{
			{Check: check("start/handshake", "starts"), Outcome: trial.Passed},
			{Check: check("reshape/conserves", "leaves every consumer with what it had"), Outcome: trial.Failed,
				Sent:   "UpdateProviderTree for node \"cn1\"",
				Came:   "consumer a has 1 VGPU in all, had 2\nconsumer b has 0 VGPU in all, had 1",
				Output: []string{"info: reshaped"}},
			{Check: check("reshape/settled", "is done"),
				Outcome: trial.NotRun, Why: "the driver makes no reshape\nsee reshape/done"},
		},
	}
	var b bytes.Buffer
	testproc.Check(t, tested(&b, report, 0))
	golden.Text(t, "testdata/plugin-test.txt", b.String())

	b.Reset()
	testproc.Check(t, tested(&b, trial.Report{Description: trial.Description{Path: "./x"}}, 80))
	golden.Text(t, "testdata/plugin-test-silent.txt", b.String())
}

// TestPluginTestOnATerminal: no line is longer than the terminal is wide, what a plugin said is
// shown and not obeyed, and checks that are not run for one reason are listed once.
func TestPluginTestOnATerminal(t *testing.T) {
	check := func(id string) trial.Check {
		return trial.Check{ID: id, Title: "takes the allocations of 10,000 consumers and gives them back",
			Protects: "the scheduler's view of the host",
			Rule:     "A rule that says at some length what must be, so that it takes more than a line of a terminal.",
			See:      "docs/drivers.md, Reshapes"}
	}
	na := func(id, why string) trial.Result {
		return trial.Result{Check: check(id), Outcome: trial.NotRun, Why: why}
	}
	const flat = "the driver's tree is flat, and no former configuration is given: there is nothing to reshape from"
	report := trial.Report{
		Description: trial.Description{Path: "/a/path/of/some/length/as/they/are/in/the/directories/of/people/" +
			"compute-driver-mine", Name: "mine", SDK: "go compute-agent v0.1.0"},
		Results: []trial.Result{
			{Check: check("load/many-consumers-and-more-than-that-even"), Outcome: trial.Passed},
			{Check: check("load/large"), Outcome: trial.Failed,
				Sent: "UpdateProviderTree for node \"cn1\": a tree of 2 resource providers, no allocations",
				Came: "an error: \x1b[31mred\x1b[0m\x07\nand a second line that is so long that it has to be broken " +
					"somewhere, at a blank", Output: []string{"info: \tindented"}},
			na("reshape/needed", flat), na("reshape/done", flat), na("reshape/settled", flat),
			na("layouts/present", "no versions"), na("layouts/empty", "no versions"),
			na("layouts/steps", "another reason"),
			{Check: check("layouts/version"), Outcome: trial.Failed, Came: "3"},
		},
	}
	var b bytes.Buffer
	for _, width := range []int{80, 30} {
		testproc.Check(t, tested(&b, report, width))
	}
	golden.Text(t, "testdata/plugin-test-terminal.txt", b.String())
}

// TestPluginTestThatEndsBeforeItsEnd: the report counts what was not run, and says why.
func TestPluginTestThatEndsBeforeItsEnd(t *testing.T) {
	var b bytes.Buffer
	report := trial.Report{
		Description: trial.Description{Path: "./x", Name: "mine"}, Ended: "a check failed",
		Results: []trial.Result{{Check: trial.Check{ID: "start/handshake", Title: "starts"},
			Outcome: trial.Failed, Came: "nothing"}},
	}
	for _, id := range []string{"tree/root", "tree/answers"} {
		report.Results = append(report.Results,
			trial.Result{Check: trial.Check{ID: id}, Outcome: trial.NotRun, Why: report.Ended})
	}
	testproc.Check(t, tested(&b, report, 0, "the trait X is not known\x1b"))
	golden.Text(t, "testdata/plugin-test-ended.txt", b.String())
}

// TestPluginTestSaysWhatTheDriverRanIn, before the first check, and after the last one where it may
// have to do with the result.
func TestPluginTestSaysWhatTheDriverRanIn(t *testing.T) {
	failed := []trial.Result{{Check: trial.Check{ID: "config/accepted", Title: "takes it"},
		Outcome: trial.Failed, Came: "permission denied"}}
	for name, c := range map[string]struct {
		description trial.Description
		results     []trial.Result
		want, not   string
	}{
		"a sandbox": {trial.Description{Sandbox: "landlock 6, seccomp"}, nil,
			"\n  in   the agent's sandbox: landlock 6, seccomp (but not as ", "The driver ran"},
		"a sandbox, and fails": {trial.Description{Sandbox: "landlock 6, seccomp"}, failed,
			"\nThe driver ran in the agent's sandbox. If a file or a call was refused: ", "WITHOUT"},
		"an incomplete sandbox": {trial.Description{Sandbox: "seccomp", SandboxLacks: []string{"signals"}}, nil,
			"\n  in   an incomplete sandbox: seccomp (but not as ", "The driver ran"},
		"none": {trial.Description{Sandbox: "none: the configuration says so"}, nil,
			"\n  in   NO SANDBOX, unlike the agent's drivers\n", "the agent's sandbox:"},
		"none, at the end": {trial.Description{Sandbox: "none"}, failed,
			"\nThe driver ran WITHOUT THE AGENT'S SANDBOX: ", "--no-sandbox shows"},
		"none: it did not start": {trial.Description{}, failed, "1 failed", "andbox"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			testproc.Check(t, tested(&b, trial.Report{Description: c.description, Results: c.results}, 0))
			if !strings.Contains(b.String(), c.want) || strings.Contains(b.String(), c.not) {
				t.Errorf("%q is missing, or %q is there:\n%s", c.want, c.not, &b)
			}
		})
	}
}

func TestPluginChecks(t *testing.T) {
	var b bytes.Buffer
	testproc.Check(t, render.PluginChecks(&b,
		[]trial.Check{{ID: "a/b", Title: "does"}, {ID: "a/longer", Title: "does too", Needs: "watch"}}))
	if want := "a/b       does\na/longer  does too (if the driver has the capability \"watch\")\n"; b.String() != want {
		t.Errorf("got %q", b.String())
	}
}

func TestPluginInfo(t *testing.T) {
	report := trial.Description{Path: "./compute-driver-mine", Name: "mine", Version: "1.2.3",
		SDK: "go compute-agent v0.1.0"}
	schema := `{"type": "object", "properties": {"uri": {"type": "string", "description": "Where the daemon ` +
		`listens: a URI of libvirt's, such as qemu:///system. Without it the driver finds out by itself, which ` +
		`takes a moment."}, "many": {}, "slots": {"type": "integer", "default": 4}}, "required": ["uri"]}`
	var b bytes.Buffer
	for _, s := range []string{schema, "", "[1]"} {
		testproc.Check(t, render.PluginInfo(&b, report, "00ff", []byte(s)))
	}
	golden.Text(t, "testdata/plugin-info.txt", b.String())
}

func TestPluginPass(t *testing.T) {
	tree := &providertree.Tree{}
	const root, child = "0d5a6f1c-5f3e-4c55-8d7a-6a8f2f0c9e11", "32ca3b36-8f56-5fed-8b69-a90012786f2a"
	testproc.Check(t, tree.AddRoot(root, "cn1"))
	testproc.Check(t, tree.AddChild(root, child, "cn1_gpu_0"))
	testproc.Try(tree.SetInventory(child, "VGPU", providertree.Inventory{Total: 4})).Or(t)
	var b bytes.Buffer
	var run render.PluginRun
	for _, pass := range []trial.Pass{
		{Health: "slow disk",
			Warnings: []plugins.Warning{{Name: "numa-memory", Text: "libvirt and the kernel\ndiffer \x1b[31m"}},
			Nodes: []trial.NodePass{{Node: "cn1", UUID: root, Tree: tree,
				ProductNames: map[string]string{"cn1_gpu_0": "Acme 9000"}, Changes: []string{"cn1_gpu_0 added"}}}},
		{Nodes: []trial.NodePass{{Node: "cn1", UUID: root, Tree: tree}}, Watch: "Watch: an error: no daemon"},
		{Nodes: []trial.NodePass{{Node: "cn1", UUID: root, Tree: tree, Reshape: "ReshapeNeeded: VGPU moves",
			Problem: "UpdateProviderTree: no response within the deadline"}}},
		{Nodes: []trial.NodePass{{Problem: "AvailableNodes: NotReady: no daemon"}}},
		{Nodes: []trial.NodePass{{Node: "cn1", UUID: root, Tree: tree}}, Removed: []string{"cn2"}},
	} {
		testproc.Check(t, run.Pass(&b, pass, nil))
	}
	golden.Text(t, "testdata/plugin-run.txt", b.String())
}

// TestPluginLog: a driver's log is for its author: the stack of a panic line by line, what was
// merely printed as such, nothing that a terminal obeys.
func TestPluginLog(t *testing.T) {
	var b bytes.Buffer
	for _, line := range []string{
		`{"level":"info","driver":"examined","pid":7,"call":"Configure","nodes":2,"time":"2026-01-01T00:00:00Z",` +
			`"message":"configured"}`,
		`{"level":"debug","pid":7,"message":"not for an author who did not ask"}`,
		`{"level":"warn","message":"of the host, not of the driver"}`,
		`{"level":"warn","pid":7,"output":"raw","message":"hello \u001b[31mred"}`,
		`{"level":"error","pid":7,"panic":"nil map","stack":"goroutine 1 [running]:\nmain.main()\n\t/src/main.go:3 ` +
			`+0x1\n","message":"the driver\npanicked"}`,
		`no JSON`,
	} {
		testproc.Check(t, render.PluginLog(&b, []byte(line)))
	}
	golden.Text(t, "testdata/plugin-log.txt", b.String())
}

func TestPluginList(t *testing.T) {
	var b bytes.Buffer
	testproc.Check(t, render.PluginList(&b, []string{"/p"}, nil))
	entries := []pluginhost.Entry{
		{Name: "fake", Path: "/p/compute-driver-fake", State: "not configured"},
		{Name: "libvirt", Path: "/p/compute-driver-libvirt", State: "enabled", Problem: "it is not installed"},
	}
	testproc.Check(t, render.PluginList(&b, []string{"/p"}, entries))
	golden.Text(t, "testdata/plugin-list.txt", b.String())
}
