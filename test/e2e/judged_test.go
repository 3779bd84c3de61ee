// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCommandsJudgeTheRunningAgent: without --config, commands that check a configuration check
// that of the running agent, with its files, variables and flags, and say so.
func TestCommandsJudgeTheRunningAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	address := testproc.FreeAddress(t)
	servePlacement(t, t.TempDir(), address)
	s := newSite(t, "http://"+address)
	agent := spawn(t, []string{"COMPUTE_AGENT_LOG_LEVEL=debug"}, "compute-agent", "run", "--config", s.config)
	agent.await(0, wrote, "Set the traits of cn1")
	judged := fmt.Sprintf("this is the configuration of the running agent (process %d)", agent.Pid())
	for _, c := range []struct {
		args []string
		want []string
		not  string
	}{
		{[]string{"doctor"}, []string{judged, "ok       Drivers" + strings.Repeat(" ", 13) + "fake",
			"ok       Plugin fake", "Driver fake", "ok       Placement"}, "no driver is enabled"},
		{[]string{"config", "check"},
			[]string{judged, "agent.host = \"cn1\"", "log.level = \"debug\"    (environment COMPUTE_AGENT_LOG_LEVEL)"},
			"Not checked"},
		{[]string{"plugin", "list"}, []string{"fake", "enabled", filepath.Join(binaries.Dir(), "compute-driver-fake")},
			"No driver is configured"},
		{[]string{"plan", "--reshape"}, []string{"cn1", "nothing to write"}, "no driver"},
	} {
		out, _ := command(t, append(c.args, "--runtime-dir", filepath.Join(s.dir, "run"))...)
		if !testproc.ContainsAll(out, c.want) || strings.Contains(out, c.not) {
			t.Errorf("%v: want %q, and not %q, in\n%s", c.args, c.want, c.not, out)
		}
	}
}
