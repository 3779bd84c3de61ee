// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestPluginScripts runs the commands for driver authors on the fake driver's plugin, a real process.
func TestPluginScripts(t *testing.T) {
	driver := filepath.Join(t.TempDir(), "compute-driver-fake")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", driver, "../compute-driver-fake").CombinedOutput(); err != nil {
		t.Fatalf("building the fake driver: %v: %s", err, out)
	}
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/plugin",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Setup: func(env *testscript.Env) error {
			env.Setenv("DRIVER", driver)
			return nil
		},
	})
}
