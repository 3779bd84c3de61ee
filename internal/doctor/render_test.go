// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"testing"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

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
