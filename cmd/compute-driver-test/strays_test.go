// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDaemonIsAStray: one that has left everything that it could be known by is found, since this
// process adopts orphans. It is not in parallel: a check that runs beside it in the same process
// could take the daemon for its own plugin's.
func TestDaemonIsAStray(t *testing.T) {
	const name = "starts a daemon with an environment of its own"
	opts := alone[name].options(writeScript(t), name)
	opts.Select = regexp.MustCompile("^shutdown/strays$")
	report := testproc.Try(drivertest.Execute(t.Context(), opts)).Or(t)
	for _, after := range []string{"(sleep 30) still runs after Shutdown",
		"(sleep 30) still runs after the process was killed"} {
		if r := report.Results[0]; r.Outcome != drivertest.Failed || !strings.Contains(r.Came, after) {
			t.Errorf("%q is not in:\n%s", after, r.Explain())
		}
	}
}
