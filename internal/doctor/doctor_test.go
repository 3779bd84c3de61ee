// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func result(t *testing.T, results []Result, name string) Result {
	t.Helper()
	var found []Result
	for _, r := range results {
		if r.Name == name {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d results called %s in %+v", len(found), name, results)
	}
	return found[0]
}

func TestNothingIsWrongWithAHealthyHost(t *testing.T) {
	results := healthy(t).examine()
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
		if r.Severity != OK || r.Found == "" || r.Why != "" || r.Fix != "" || r.Title == "" {
			t.Errorf("the result of a healthy host: got %+v, want OK", r)
		}
	}
	want := []string{
		"config", "drivers", "state-dir", "runtime-dir", "disk", "compute-id", "plugin-dir", "plugin.libvirt",
		"sandbox.libvirt", "libvirt", "libvirt-group", "kvm", "cpu-power",
		"driver.libvirt", "placement", "database", "clock", "open-files", "agent", "one-agent",
	}
	testproc.Samef(t, cmp.Diff(want, names), "order")
	if Worst(results) != OK || ExitStatus(results) != 0 {
		t.Errorf("worst is %s", Worst(results))
	}
}

// TestCheckThatHangs: a check that hangs is reported at the deadline, and the others are not held
// up.
func TestCheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		checks := []Check{
			{"hangs", "Hangs", func(context.Context, *Env) []Result { <-release; return pass("late") }},
			{"obeys", "Obeys", func(ctx context.Context, _ *Env) []Result { <-ctx.Done(); return skip("cut short") }},
			{"quick", "Quick", func(context.Context, *Env) []Result { return pass("done") }},
		}
		start := time.Now()
		results := run(context.Background(), Env{Timeout: 3 * time.Second}, checks)
		testproc.Equal(t, time.Since(start), 3*time.Second+grace, "took %v")
		var got []Severity
		for _, r := range results {
			got = append(got, r.Severity)
		}
		testproc.Samef(t, cmp.Diff([]Severity{Error, Skipped, OK}, got), "severities")
		if results[0].Found != "the check did not finish within 3s" || results[0].Title != "Hangs" {
			t.Errorf("the check that hangs: got %+v, want it ended after 3s", results[0])
		}
	})
}

// TestSilentPlacement: Placement that never answers costs one deadline, not one per check.
func TestSilentPlacement(t *testing.T) {
	f := healthy(t)
	f.placement = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	f.env.Timeout = 300 * time.Millisecond
	defer func(was time.Duration) { grace = was }(grace)
	grace = time.Minute
	got := result(t, f.examine(), "placement")
	if got.Severity != Error || !strings.Contains(got.Found, "does not answer in time") {
		t.Errorf("the check of a silent Placement: got %+v, want an error", got)
	}
}

func TestSlowPlacement(t *testing.T) {
	f := healthy(t)
	f.slow = true
	got := result(t, f.examine(), "placement")
	if got.Severity != Warning || !strings.Contains(got.Found, "takes 3s to answer") {
		t.Errorf("the check of a slow Placement: got %+v, want a warning", got)
	}
}

func TestExitStatus(t *testing.T) {
	for worst, want := range map[Severity]int{OK: 0, Skipped: 0, Warning: 0, Error: 1} {
		results := []Result{{Severity: OK}, {Severity: worst}, {Severity: Skipped}}
		testproc.Equal(t, ExitStatus(results), want, "%s: status %d", worst)
	}
	if Worst(nil) != OK {
		t.Error("nothing is not fine")
	}
}

// TestThisMachine: the real machine can be examined without breaking it or the doctor; what is
// found there is its own affair.
func TestThisMachine(t *testing.T) {
	f := healthy(t)
	_ = f.examine()
	env := testproc.Try(Host(f.env.Config, nil, "")).Or(t)
	env.Timeout = 5 * time.Second
	results := Run(t.Context(), env)
	// It has no services: those checks say nothing, about their cells and files neither.
	if len(results) < len(Checks())-5 {
		t.Errorf("%d results of %d checks", len(results), len(Checks()))
	}
	for _, r := range results {
		if r.Found == "" || (r.Severity == Error || r.Severity == Warning) == (r.Fix == "") {
			t.Errorf("the result: got %+v, want a fix for an error or a warning alone", r)
		}
	}
	if _, err := Host(f.env.Config, nil, "there-is-no-such-user"); err == nil {
		t.Error("a user who does not exist is accepted")
	}
}

// sample has one result of each severity.
var sample = []Result{
	{"config", "Configuration", OK, "1 file, /etc/compute-agent/compute-agent.toml", "", ""},
	{"kvm", "KVM", Warning, "the processor has VT-x, but the module kvm_intel is not loaded",
		"Guests run many times slower.", "modprobe kvm_intel"},
	{"placement", "Placement", Error, "no process listens at 127.0.0.1:8778", "The agent keeps the last good state.",
		"systemctl start compute-agent-placement.socket"},
	{"clock", "Clock", Skipped, "the kernel does not tell", "", ""},
	{"plugin.fake", "Plugin fake", OK, "a name with \x1b[31mescapes\nand lines", "", ""},
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	testproc.Check(t, WriteJSON(&out, sample))
	golden.Text(t, "testdata/results.json", out.String())
	out.Reset()
	testproc.Check(t, WriteJSON(&out, nil))
	if got, want := out.String(), "{\n  \"worst\": \"ok\",\n  \"results\": []\n}\n"; got != want {
		t.Errorf("no results are %q", got)
	}
}
