// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SystemdTool returns the path of a program of systemd. It skips the test where the program is
// missing, and fails it where CI is set.
func SystemdTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		NotRun(t, name+" is missing, so the unit files cannot be checked; run: apt-get install systemd")
	}
	return path
}

// VerifyUnits runs `systemd-analyze verify` on units and returns its output, which is empty for
// valid units. Units and drop-ins are loaded from dir alone, so that warnings about units of other
// packages on the machine do not count; the targets that every unit depends on are empty.
func VerifyUnits(t *testing.T, dir string, units ...string) string {
	t.Helper()
	targets := t.TempDir()
	for _, name := range []string{"sysinit.target", "basic.target", "shutdown.target", "network-online.target"} {
		if err := os.WriteFile(filepath.Join(targets, name),
			[]byte("[Unit]\nDescription="+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), SystemdTool(t, "systemd-analyze"),
		append([]string{"verify", "--man=no"}, units...)...)
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":"+targets)
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}
