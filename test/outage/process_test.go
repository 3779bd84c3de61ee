// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"os"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var binaries = testproc.Of("cmd/compute-agent", "cmd/compute-driver-fake")

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

const patience = testproc.Patience

// start starts compute-agent with arguments. name is for the log of a test that fails.
func start(t *testing.T, name string, args ...string) *testproc.Process {
	t.Helper()
	return testproc.Start(t, name, binaries.Command("compute-agent", args...))
}

// command runs compute-agent to its end and returns what it printed and its exit code.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return binaries.Run(t, "compute-agent", args...)
}

// must runs a command that succeeds.
func must(t *testing.T, args ...string) {
	t.Helper()
	if out, code := command(t, args...); code != 0 {
		t.Fatalf("compute-agent %s ended with %d:\n%s", strings.Join(args, " "), code, out)
	}
}

var check = testproc.Check

func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	testproc.Eventually(t, patience, what, holds)
}
