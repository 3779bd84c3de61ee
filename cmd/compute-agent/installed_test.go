// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandsUseTheInstalledService: a command about the data of a service that is given no file
// and no directory uses those of the service's unit; one that is given either uses that.
func TestCommandsUseTheInstalledService(t *testing.T) {
	dir := t.TempDir()
	defer func(p, a installation) { installedPlacement, installedAPI = p, a }(installedPlacement, installedAPI)
	installedPlacement = installation{filepath.Join(dir, "compute-agent.toml"), filepath.Join(dir, "placement")}
	installedAPI = installation{filepath.Join(dir, "compute-api.toml"), filepath.Join(dir, "cells-api")}
	for _, i := range []installation{installedPlacement, installedAPI} {
		check(t, os.Mkdir(i.stateDir, 0o700))
	}
	check(t, os.WriteFile(installedAPI.file, []byte(fmt.Sprintf("[deny_list]\nfile = %q\n", filepath.Join(dir, "denied"))), 0o600))
	run := func(command string) string {
		t.Helper()
		var out bytes.Buffer
		if code := execute(t.Context(), strings.Fields(command), &out, &out); code != exitDone {
			t.Errorf("%s ended with %d: %s", command, code, &out)
		}
		return out.String()
	}
	run("placement db upgrade")
	run("cells manage create --name cell1 --url http://127.0.0.1:1")
	run("ca revoke h417")
	for _, file := range []string{"placement/placement.db", "cells-api/compute_api.db", "cells-api/audit.log", "denied"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("a command did not use the service that is installed: %v", err)
		}
	}
	if out := run("cells manage list"); !strings.Contains(out, "cell1") {
		t.Errorf("the cells are %s", out)
	}

	other := t.TempDir()
	run("placement db upgrade --state-dir " + other)
	if _, err := os.Stat(filepath.Join(other, "placement.db")); err != nil {
		t.Error(err)
	}
	t.Setenv("COMPUTE_AGENT_AGENT_STATE_DIR", filepath.Join(other, "variable"))
	run("placement db upgrade")
	if _, err := os.Stat(filepath.Join(other, "variable", "placement.db")); err != nil {
		t.Error(err)
	}
}

// TestAuditNamesTheLogsOfThisMachine: without flags, audit is about the agent, which has no log.
func TestAuditNamesTheLogsOfThisMachine(t *testing.T) {
	dir := t.TempDir()
	placement := filepath.Join(dir, "compute-agent-placement")
	check(t, os.Mkdir(placement, 0o700))
	check(t, os.WriteFile(filepath.Join(placement, "audit.log"), nil, 0o600))
	var out bytes.Buffer
	code := execute(t.Context(), []string{"audit", "--state-dir", filepath.Join(dir, "compute-agent")}, &out, &out)
	want := "this machine has " + filepath.Join(placement, "audit.log") + ": name the service's directory with --state-dir"
	if code != exitFailed || !strings.Contains(out.String(), want) {
		t.Errorf("ended with %d: %s, want %q", code, &out, want)
	}
}
