// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCommandsUseTheInstalledService: a command about the data of a service that is given no file
// and no directory uses those of the service's unit; one that is given either uses that.
func TestCommandsUseTheInstalledService(t *testing.T) {
	dir := testproc.SocketDir(t)
	defer func(p, a cli.Installation) { cli.InstalledPlacement, cli.InstalledAPI = p, a }(cli.InstalledPlacement,
		cli.InstalledAPI)
	cli.InstalledPlacement = cli.Installation{
		File: filepath.Join(dir, "compute-agent.toml"), StateDir: filepath.Join(dir, "placement")}
	cli.InstalledAPI = cli.Installation{
		File: filepath.Join(dir, "compute-api.toml"), StateDir: filepath.Join(dir, "cells-api")}
	for _, i := range []cli.Installation{cli.InstalledPlacement, cli.InstalledAPI} {
		check(t, os.Mkdir(i.StateDir, 0o700))
	}
	check(t, os.WriteFile(cli.InstalledAPI.File,
		[]byte(fmt.Sprintf("[deny_list]\nfile = %q\n", filepath.Join(dir, "denied"))), 0o600))
	run := func(command string) string {
		t.Helper()
		var out bytes.Buffer
		if code := execute(t.Context(), strings.Fields(command), &out, &out); code != cli.ExitDone {
			t.Errorf("%s ended with %d: %s", command, code, &out)
		}
		return out.String()
	}
	run("placement db upgrade")
	run("cells manage create --name cell1 --url http://127.0.0.1:1")
	run("ca revoke h417 --unknown")
	for _, file := range []string{"placement/placement.db",
		"cells-api/compute_api.db", "cells-api/audit.log", "denied"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("a command did not use the service that is installed: %v", err)
		}
	}
	testproc.Contains(t, run("cells manage list"), "cell1", "the cells are %s")

	other := testproc.SocketDir(t)
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

// TestAuditOfTheServiceOfThisMachine: the agent has no audit log, so audit shows the one of the
// service beside it, and names them if there are several.
func TestAuditOfTheServiceOfThisMachine(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := testproc.SocketDir(t)
	var logs []string
	audit := func() (int, string) {
		var out bytes.Buffer
		code := execute(t.Context(), []string{"audit", "--state-dir", filepath.Join(dir, "compute-agent")}, &out, &out)
		return code, out.String()
	}
	if code, out := audit(); code != cli.ExitFailed || !strings.Contains(out, "select that of the service") {
		t.Errorf("without a log: %d, %s", code, out)
	}
	for _, service := range []string{"cell-cell1", "placement"} {
		state := filepath.Join(dir, "compute-agent-"+service)
		check(t, os.Mkdir(state, 0o700))
		logs = append(logs, filepath.Join(state, "audit.log"))
		check(t, os.WriteFile(logs[len(logs)-1],
			[]byte(`{"time":"2026-11-23T19:27:50Z","service":"`+service+
				`","user":"u","outcome":"done","changes":[{"kind":"trait","id":"CUSTOM_T"}]}`+"\n"), 0o600))
		code, out := audit()
		if len(logs) == 1 && (code != cli.ExitDone || !strings.Contains(out, "cell-cell1")) {
			t.Errorf("with one log: %d, %s", code, out)
		}
		if want := "this machine has " + strings.Join(logs, ", ") +
			": name the service's directory with --state-dir"; len(logs) == 2 &&
			(code != cli.ExitFailed || !strings.Contains(out, want)) {
			t.Errorf("with two logs: %d, %s, want %q", code, out, want)
		}
	}
}
