// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/doctor"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// standing is an agent that says what its configuration is read from.
type standing struct {
	control.Agent
	read control.Configuration
}

func (s standing) Status(context.Context) health.Status {
	return health.Status{State: resourcetracker.Reporting}
}
func (s standing) Configuration() control.Configuration { return s.read }

// TestDoctorLooksAtThePlacementOfTheRunningAgent, which flags set, where --config names the file of
// that agent; and otherwise at the one of --config.
func TestDoctorLooksAtThePlacementOfTheRunningAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	asked := make(chan string, 100)
	serve := func(name string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked <- name
			_, _ = fmt.Fprint(w,
				`{"versions":[{"id":"v1.0","min_version":"1.0","max_version":"1.39","status":"CURRENT","links":[]}]}`)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	bundled, configured := serve("bundled"), serve("configured")
	for _, want := range []string{"bundled", "configured"} {
		dir := testproc.SocketDir(t)
		file := filepath.Join(dir, "agent.toml")
		content := fmt.Sprintf(
			"[agent]\nstate_dir = %q\nruntime_dir = %q\n[placement_client]\nurl = %q\n[drivers.fake]\n", dir, dir,
			configured)
		testproc.Check(t, os.WriteFile(file, []byte(content), 0o600))
		agent := standing{read: control.Configuration{File: file, Environ: []string{},
			Overrides: []config.Override{{Key: "placement_client.url", Value: bundled, Flag: "--listen"}}}}
		if want == "configured" {
			agent.read.File = filepath.Join(dir, "another.toml")
		}
		ctx, stop := context.WithCancel(t.Context())
		socket := testproc.Try(control.Open(ctx, config.Agent{RuntimeDir: dir}.ControlSocket())).Or(t)
		over := make(chan error, 1)
		go func() { over <- socket.Serve(ctx, agent, zerolog.Nop()) }()
		var out bytes.Buffer
		cmd := newDoctor()
		cmd.SetArgs([]string{"--config", file})
		cmd.SetOut(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		_ = cmd.ExecuteContext(t.Context()) // this machine may have faults of its own
		stop()
		testproc.NoError(t, <-over)
		var got []string
		for len(asked) > 0 {
			got = append(got, <-asked)
		}
		if len(got) == 0 || strings.Join(got, " ") != strings.TrimSpace(strings.Repeat(want+" ", len(got))) {
			t.Errorf("asked were %q, want %s alone:\n%s", got, want, &out)
		}
	}
}

// statusOf is the command status on a machine with the systemctl in $PATH, an agent with a runtime
// directory, and no configuration but that of the test.
func statusOf(t *testing.T, runtimeDir string) func(args ...string) (string, error) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "COMPUTE_AGENT_") {
			t.Setenv(name, "") // set again after the test
			testproc.Check(t, os.Unsetenv(name))
		}
	}
	file := filepath.Join(t.TempDir(), "agent.toml")
	testproc.Check(t, os.WriteFile(file, nil, 0o600))
	here := func(ctx context.Context, _ string) []doctor.Service { return services(ctx, "") }
	return func(args ...string) (string, error) {
		return executed(t, newStatusWith(here),
			append([]string{"--config", file, "--runtime-dir", runtimeDir}, args...)...)
	}
}

// TestStatusOfCells: a cell that does not answer the compute API of this machine is in the first
// line of status.
func TestStatusOfCells(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "api.toml")
	testproc.Check(t, os.WriteFile(file, fmt.Appendf(nil, "[agent]\nruntime_dir = %q\n", dir), 0o600))
	text := `#!/bin/sh
case "$*" in
*list-unit-files*) echo compute-agent-cells-api.service enabled ;;
*list-units*) ;;
*) printf 'Id=compute-agent-cells-api.service\nActiveState=active\nSubState=running\nUnitFileState=enabled\nNRestarts=0\n'
   echo 'ExecStart={ path=/usr/bin/compute-agent ; argv[]=/usr/bin/compute-agent cells api --config ` + file + ` ; }' ;;
esac
`
	testproc.Check(t, testproc.WriteExecutable(filepath.Join(dir, "systemctl"), []byte(text)))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	status := statusOf(t, t.TempDir())
	out, err := status()
	testproc.Check(t, err)
	testproc.Contains(t, out, "skipped  Cells ", "without an answer: %s")
	l := testproc.Try(net.Listen("unix", filepath.Join(dir, cells.APISocket))).Or(t)
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).
				Encode([]cells.CellState{{Name: "cell1", Up: true},
					{Name: "cell2", Since: time.Now().Add(-time.Hour), Cause: "connection refused"}})
		})}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()
	out, err = status()
	if first, _, _ := strings.Cut(out, "\n"); !strings.HasPrefix(first, "error    Cell cell2 ") ||
		!strings.Contains(first, "down since 20") || !strings.Contains(first, "connection refused") {
		t.Errorf("the first line of:\n%s", out)
	}
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Code != cli.ExitFailed {
		t.Errorf("with a cell that is down: %v", err)
	}
}

// TestStatusOfTheControlPlane: where no agent is, status shows the services that are enabled, and
// fails if one does not run.
func TestStatusOfTheControlPlane(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "service.toml")
	testproc.Check(t, os.WriteFile(file, nil, 0o600))
	script := func(state string) {
		text := `#!/bin/sh
case "$*" in
*list-unit-files*) echo compute-agent-cell@cell1.service enabled ;;
*list-units*) ;;
*) printf 'Id=compute-agent-cell@cell1.service\nActiveState=` + state + `\nSubState=\nUnitFileState=enabled\nNRestarts=0\n'
   echo 'ExecStart={ argv[]=compute-agent cells serve --config ` + file + ` ; }' ;;
esac
`
		testproc.Check(t, testproc.WriteExecutable(filepath.Join(dir, "systemctl"), []byte(text)))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	status := statusOf(t, dir)
	script("active")
	out, err := status()
	testproc.Check(t, err)
	testproc.Contains(t, out, "ok       compute-agent-cell@cell1 it runs\n", "status: %s")
	script("failed")
	out, err = status()
	testproc.Contains(t, out, "error    compute-agent-cell@cell1 it has failed", "status: %s")
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Code != cli.ExitFailed {
		t.Errorf("a service that has failed: %v", err)
	}
	testproc.Check(t, os.Remove(filepath.Join(dir, "systemctl")))
	_, err = status()
	testproc.ErrorIs(t, err, control.ErrNotRunning, "without services: %v")
}

// TestStatusOfAgentAndControlPlane: a machine with both shows both, whether or not the agent runs,
// and fails if a service does not run.
func TestStatusOfAgentAndControlPlane(t *testing.T) {
	dir := testproc.SocketDir(t)
	file := filepath.Join(dir, "service.toml")
	testproc.Check(t, os.WriteFile(file, nil, 0o600))
	script := func(cell string) {
		text := `#!/bin/sh
case "$*" in
*list-unit-files*) printf 'compute-agent.service enabled\ncompute-agent-cell@cell1.service enabled\ncompute-agent-cell@cell2.service enabled\n' ;;
*list-units*) ;;
*) for unit in compute-agent compute-agent-cell@cell1 compute-agent-cell@cell2; do
       case $unit in *cell2) state=` + cell + ` ;; *) state=active ;; esac
       printf 'Id=%s.service\nActiveState=%s\nUnitFileState=enabled\n' "$unit" "$state"
       printf 'ExecStart={ argv[]=compute-agent --config ` + file + ` ; }\n\n'
   done ;;
esac
`
		testproc.Check(t, testproc.WriteExecutable(filepath.Join(dir, "systemctl"), []byte(text)))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script("active")
	status := statusOf(t, dir)
	out, err := status()
	testproc.ErrorIs(t, err, control.ErrNotRunning, "without the agent: %v")
	testproc.Contains(t, out, "ok       compute-agent-cell@cell1 it runs\n", "without the agent: %s")
	script("failed")
	out, err = status()
	testproc.ErrorIs(t, err, control.ErrNotRunning, "without the agent and with a service that has failed: %v")
	if exit := (*cli.ExitError)(nil); errors.As(err, &exit) || cli.ExitCode(err) != cli.ExitFailed {
		t.Errorf("the error of the agent is not printed: %v", err)
	}
	testproc.Contains(t, out, "error    compute-agent-cell@cell2 it has failed", "without the agent: %s")
	inJSON := func() {
		t.Helper()
		out, _ := status("--output", "json")
		var view struct {
			ControlPlane []struct{ Name, Severity string } `json:"control_plane"`
		}
		testproc.Check(t, json.Unmarshal([]byte(out), &view))
		if c := view.ControlPlane; len(c) != 2 ||
			c[0].Name != "service.compute-agent-cell@cell2" || c[0].Severity != "error" {
			t.Errorf("in JSON: %s", out)
		}
	}
	inJSON() // without the agent
	silent := testproc.Try(net.Listen("unix", config.Agent{RuntimeDir: dir}.ControlSocket())).Or(t)
	go func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	out, err = status()
	testproc.Check(t, silent.Close())
	if err == nil || errors.Is(err, control.ErrNotRunning) {
		t.Errorf("an agent that does not answer: %v", err)
	}
	testproc.Contains(t, out, "error    compute-agent-cell@cell2 it has failed",
		"beside an agent that does not answer: %s")
	script("active")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	socket := testproc.Try(control.Open(ctx, config.Agent{RuntimeDir: dir}.ControlSocket())).Or(t)
	over := make(chan error, 1)
	go func() { over <- socket.Serve(ctx, standing{}, zerolog.Nop()) }()
	out, err = status()
	testproc.Check(t, err)
	testproc.Contains(t, out,
		"\ncontrol plane on this machine\n  well        compute-agent-cell@cell1: it runs; "+
			"compute-agent-cell@cell2: it runs\n", "both: %s")
	script("failed")
	out, err = status()
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Code != cli.ExitFailed {
		t.Errorf("a service that has failed: %v", err)
	}
	testproc.Contains(t, out, "error    compute-agent-cell@cell2 it has failed", "a service that has failed: %s")
	inJSON()
	stop()
	testproc.NoError(t, <-over)
}
