// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/doctor"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// examined has one result of each severity.
var examined = []doctor.Result{
	{Title: "Configuration", Severity: doctor.OK, Found: "1 file, /etc/compute-agent/compute-agent.toml"},
	{
		Title: "KVM", Severity: doctor.Warning, Found: "the processor has VT-x, but the module kvm_intel is not loaded",
		Why: "Guests run many times slower.", Fix: "modprobe kvm_intel",
	},
	{
		Title: "Placement", Severity: doctor.Error, Found: "no process listens at 127.0.0.1:8778",
		Why: "The agent keeps the last good state.",
		Fix: "systemctl start compute-agent-placement.socket && journalctl --unit compute-agent-placement",
	},
	{Title: "Clock", Severity: doctor.Skipped, Found: "the kernel does not tell"},
	{Title: "Plugin fake", Severity: doctor.OK, Found: "a name with \x1b[31mescapes\nand lines"},
}

// TestDoctor: results in a pipe, on a terminal with colours, and on a narrow one.
func TestDoctor(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var out bytes.Buffer
	testproc.NoError(t, Doctor(&out, examined))
	if strings.Contains(out.String(), "\x1b") {
		t.Error("colour where there is no terminal")
	}
	golden.Text(t, "testdata/doctor.txt", out.String())
	for _, width := range []int{60, 100} {
		out.Reset()
		testproc.NoError(t, Doctor(NewTerminal(&out, width, true), examined))
		golden.Text(t, fmt.Sprintf("testdata/doctor-%d.txt", width), out.String())
		for line := range strings.Lines(out.String()) {
			if bare := sequence.ReplaceAllString(strings.TrimSuffix(line, "\n"), ""); len(bare) > width &&
				!strings.Contains(bare, "$ ") {
				t.Errorf("more than %d columns: %s", width, bare)
			}
		}
	}
}

func TestDoctorSummary(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for want, results := range map[string][]doctor.Result{
		"No problems found.":                       {examined[0], examined[3]},
		"1 warning; the agent works despite this.": {examined[1]},
		"2 errors.":           {examined[2], examined[2]},
		"1 error, 1 warning.": {examined[1], examined[2]},
	} {
		var out bytes.Buffer
		testproc.NoError(t, Doctor(&out, results))
		if !strings.HasSuffix(out.String(), "\n"+want+"\n") {
			t.Errorf("want %q at the end of\n%s", want, out.String())
		}
	}
}
