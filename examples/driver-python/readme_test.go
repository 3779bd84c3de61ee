// SPDX-License-Identifier: Apache-2.0

package driverpython_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealDriverOfOnesOwn follows README.md's steps for the author of another driver, and runs the
// suite on the result, and not in parallel either.
func TestRealDriverOfOnesOwn(t *testing.T) {
	need(t)
	readme := testproc.Try(os.ReadFile("README.md")).Or(t)
	_, section, _ := strings.Cut(string(readme), "\n## One of your own\n")
	section, _, _ = strings.Cut(section, "\n## ")
	before, rest, _ := strings.Cut(section, "```python\n")
	source, after, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("README.md has no such section")
	}
	checkout := testproc.Try(filepath.Abs("../..")).Or(t)
	home, dir := t.TempDir(), t.TempDir()
	testproc.Check(t, os.Symlink(checkout, filepath.Join(home, "compute-agent")))
	typed := func(text string) {
		t.Helper()
		script := "set -e\n"
		for line := range strings.Lines(text) {
			// no agent is installed here
			if command, is := strings.CutPrefix(line, "    "); is && !strings.HasPrefix(command, "compute-agent ") {
				script += command
			}
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+home)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	typed(before)
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "src/rack/driver.py"), []byte(source), 0o600))
	typed(after)
	drivertest.Run(t, drivertest.Options{Path: filepath.Join(dir, "compute-driver-rack"),
		Config: []byte(`{"cpus": 8}`)})
}
