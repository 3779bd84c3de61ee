// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCoreDumps: neither this process nor those that it starts write core dumps, whatever the
// limits are with which it was started.
func TestCoreDumps(t *testing.T) {
	testproc.Check(t, forbidCoreDumps())
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -S -c; ulimit -H -c").CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || len(got) != 2 || got[0] != "0" || got[1] != "0" {
		t.Errorf("a process that it started may write core dumps: %s, %v", out, err)
	}
}
