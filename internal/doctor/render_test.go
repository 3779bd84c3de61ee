// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// sample has one result of each severity.
var sample = []Result{
	{"config", "Configuration", OK, "1 file, /etc/compute-agent/compute-agent.toml", "", ""},
	{"kvm", "KVM", Warning, "the processor has VT-x, but the module kvm_intel is not loaded", "Guests run many times slower.", "modprobe kvm_intel"},
	{"placement", "Placement", Error, "no process listens at 127.0.0.1:8778", "The agent keeps the last good state.", "systemctl start compute-agent-placement.socket"},
	{"clock", "Clock", Skipped, "the kernel does not tell", "", ""},
	{"plugin.fake", "Plugin fake", OK, "a name with \x1b[31mescapes\nand lines", "", ""},
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	testproc.Check(t, WriteText(&out, sample, false))
	if strings.Contains(out.String(), "\x1b") {
		t.Error("colour where there is no terminal")
	}
	golden.Text(t, "testdata/results.txt", out.String())
	out.Reset()
	testproc.Check(t, WriteText(&out, sample, true))
	golden.Text(t, "testdata/results-colour.txt", out.String())
}

func TestSummary(t *testing.T) {
	for want, results := range map[string][]Result{
		"No problems found.":                       {sample[0], sample[3]},
		"1 warning; the agent works despite this.": {sample[1]},
		"2 errors.": {sample[2], sample[2]},
	} {
		var out bytes.Buffer
		testproc.Check(t, WriteText(&out, results, false))
		if !strings.HasSuffix(out.String(), "\n"+want+"\n") {
			t.Errorf("want %q at the end of\n%s", want, out.String())
		}
	}
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
