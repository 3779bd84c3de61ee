// SPDX-License-Identifier: Apache-2.0

// Package systemdtest checks unit files in tests with the systemd-analyze of the machine, and with nothing else of the machine.
package systemdtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Tool returns the path of a program of systemd. Without it the test is skipped, and fails where CI=true: the units would go unchecked.
func Tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is missing, so the unit files cannot be checked; run: apt-get install systemd", name)
	default:
		t.Skipf("THE UNIT FILES ARE NOT CHECKED: %s is missing; run: apt-get install systemd", name)
	}
	return ""
}

// Verify runs `systemd-analyze verify` on units and returns everything that it prints, which is nothing for valid ones. Units and drop-ins are looked for
// in dir alone: systemd-analyze also loads what the units depend on, and prints warnings about those, so that a unit of another package of the
// machine could fail the test. The targets that every unit depends on are empty ones.
func Verify(t *testing.T, dir string, units ...string) string {
	t.Helper()
	targets := t.TempDir()
	for _, name := range []string{"sysinit.target", "basic.target", "shutdown.target", "network-online.target"} {
		if err := os.WriteFile(filepath.Join(targets, name), []byte("[Unit]\nDescription="+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), Tool(t, "systemd-analyze"), append([]string{"verify", "--man=no"}, units...)...)
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":"+targets)
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}
