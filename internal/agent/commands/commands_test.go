// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// fakeAgent answers what these tests ask; no test asks for the rest.
type fakeAgent struct {
	control.Agent
	configuration control.Configuration
}

var errBusy = errors.New("a pass is running")

func (fakeAgent) Nodes(context.Context) (statedir.Nodes, error) { return statedir.Nodes{}, errBusy }
func (fakeAgent) UndoReshape(context.Context, int64) error      { return errBusy }
func (a fakeAgent) Configuration() control.Configuration        { return a.configuration }

// newHost is a host without an agent.
func newHost(t *testing.T) commands.Host {
	t.Helper()
	return commands.Host{Config: &config.Config{Agent: config.Agent{StateDir: t.TempDir(),
		RuntimeDir: testproc.SocketDir(t)}}, Logger: zerolog.Nop}
}

// runs runs an agent on a host until the test ends.
func runs(t *testing.T, h commands.Host, a control.Agent) {
	t.Helper()
	socket := testproc.Try(control.Open(t.Context(), h.Config.Agent.ControlSocket())).Or(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- socket.Serve(ctx, a, zerolog.Nop()) }()
	t.Cleanup(func() {
		cancel()
		testproc.NoError(t, <-done)
	})
}

// TestFailureOfTheAgentIsItsAnswer: what the running agent fails in is not done without it.
func TestFailureOfTheAgentIsItsAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newHost(t)
	testproc.ErrorIs(t, h.UndoReshape(t.Context(), 1), journal.ErrUnknownEntry, "without an agent: %v")
	testproc.Try(h.Nodes(t.Context())).Or(t)
	runs(t, h, fakeAgent{})
	testproc.ErrorHas(t, h.UndoReshape(t.Context(), 1), errBusy.Error(), "UndoReshape: %v")
	_, err := h.Nodes(t.Context())
	testproc.ErrorHas(t, err, errBusy.Error(), "%v")
}

// TestLoadRunning: the configuration is that of the agent's file and variables, as they are now,
// with the keys that the agent added, unless a command is about another file.
func TestLoadRunning(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newHost(t)
	socket := h.Config.Agent.ControlSocket()
	if cfg, running, err := commands.LoadRunning(t.Context(), socket, ""); cfg != nil || running != nil || err != nil {
		t.Errorf("without an agent: %v, %v, %v", cfg, running, err)
	}
	file, other := filepath.Join(t.TempDir(), "a.toml"), filepath.Join(t.TempDir(), "b.toml")
	testproc.Check(t, os.WriteFile(file, []byte("[drivers.fake.config]\nof_the_file = 1\nboth = 1\n"), 0o600))
	testproc.Check(t, os.WriteFile(other, nil, 0o600))
	runs(t, h, fakeAgent{configuration: control.Configuration{File: file,
		Environ:    []string{"HOME=/nonexistent", "COMPUTE_AGENT_AGENT_HOST=cn7"},
		Executable: "/usr/bin/compute-agent",
		Drivers:    map[string]json.RawMessage{"fake": json.RawMessage(`{"added": 1, "both": 2}`)}}})
	for _, asked := range []string{"", file} {
		cfg, running, err := commands.LoadRunning(t.Context(), socket, asked)
		testproc.Check(t, err)
		testproc.Equal(t, running.File, file, "%s")
		testproc.Equal(t, cfg.Agent.Host, "cn7", "the host is %q")
		own := string(testproc.Try(json.Marshal(cfg.Drivers["fake"].Config)).Or(t))
		testproc.Equal(t, own, `{"added":1,"both":1,"of_the_file":1}`, "%s")
	}
	if cfg, running, err := commands.LoadRunning(t.Context(), socket, other); cfg != nil || running != nil ||
		err != nil {
		t.Errorf("another file: %v, %v, %v", cfg, running, err)
	}
}

// TestConfigurationOf: a command that checks this process's configuration gets the variables that
// count, and no others, which may be secrets.
func TestConfigurationOf(t *testing.T) {
	t.Setenv("COMPUTE_AGENT_AGENT_HOST", "cn7")
	t.Setenv("SOME_PASSWORD", "secret")
	t.Setenv("HOME", "/home/x")
	got := commands.ConfigurationOf("a.toml", []config.Override{{Key: "agent.host", Value: "cn8"}})
	if !filepath.IsAbs(got.File) || got.PID != os.Getpid() || len(got.Overrides) != 1 ||
		!slices.Contains(got.Environ, "COMPUTE_AGENT_AGENT_HOST=cn7") ||
		!slices.Contains(got.Environ, "HOME=/home/x") || strings.Contains(strings.Join(got.Environ, "\n"), "secret") {
		t.Errorf("ConfigurationOf: got %+v, want file, process, override and variables, and no secret", got)
	}
	testproc.Equal(t, commands.ConfigurationOf("", nil).File, "", "the default file is %q")
}

// TestRequester names who ran sudo, unless the variable cannot be a name.
func TestRequester(t *testing.T) {
	for name, ends := range map[string]string{"": ")", "alice": ") for alice", "a\x1b[2J": ")"} {
		t.Setenv("SUDO_USER", name)
		if got := commands.Requester(); !strings.HasSuffix(got, ends) || !strings.Contains(got, "uid ") {
			t.Errorf("SUDO_USER is %q: %q", name, got)
		}
	}
}

// TestOtherFiles: what an agent has read is compared by the names of its files and by their times.
func TestOtherFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	file := filepath.Join(t.TempDir(), "a.toml")
	testproc.Check(t, os.WriteFile(file, nil, 0o600))
	now := time.Now()
	testproc.Check(t, os.Chtimes(file, now, now))
	for _, c := range []struct {
		files   []string
		running health.Status
		want    string
	}{
		{nil, health.Status{}, ""},
		{[]string{file}, health.Status{}, "The running agent has read no file, not " + file},
		{nil, health.Status{ConfigFiles: []string{file}}, "The running agent has read " + file + ", not "},
		{[]string{file}, health.Status{ConfigFiles: []string{file}, Started: now.Add(time.Hour)}, ""},
		{[]string{file}, health.Status{ConfigFiles: []string{file}, Started: now.Add(-time.Hour)},
			file + " has changed since the running agent read it"},
		{[]string{file}, health.Status{ConfigFiles: []string{file}, Started: now.Add(-time.Hour),
			Reloaded: now.Add(time.Hour)}, ""},
	} {
		testproc.Equal(t, commands.OtherFiles(c.files, c.running), c.want, "OtherFiles: %s")
	}
}
