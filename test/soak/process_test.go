// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

var (
	binaries = testproc.Of("cmd/compute-agent")
	check    = testproc.Check
)

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// place is the state directory of a database file, not there yet, that every user can reach.
func place(t *testing.T) string {
	t.Helper()
	dir := testproc.SocketDir(t)
	check(t, os.Chmod(dir, 0o755))
	return filepath.Join(dir, "state")
}

// onDatabase are the arguments for a database that is empty now: that of a state directory, or one
// on the engine of the test, if one is chosen.
func onDatabase(t *testing.T) []string {
	t.Helper()
	args := []string{"--state-dir", place(t)}
	if dbservers.Engine(t) != "" {
		args = append(args, "--database", dbservers.WithPasswordFile(t, dbservers.Fresh(t)))
	}
	return args
}

// process is a Placement that is a process of its own.
type process struct{ *world.Alone }

// start starts a server on a free port; prepare changes how, when it is not nil.
func start(t *testing.T, prepare func(*exec.Cmd), args ...string) *process {
	t.Helper()
	return &process{world.StartAlone(t, binaries, prepare, append([]string{"placement", "serve"}, args...)...)}
}

// alarms are the lines above level info.
func (p *process) alarms() (out []string) {
	for _, text := range p.Lines() {
		var line struct{ Level string }
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Level != "info" {
			out = append(out, text)
		}
	}
	return out
}

// quietly waits until the server serves, after a start that must log no alarms.
func (p *process) quietly(t *testing.T) *client {
	t.Helper()
	c := newClient(t, p.Serving(t).URL)
	if alarms := p.alarms(); len(alarms) > 0 {
		t.Errorf("the start was alarming:\n%s", strings.Join(alarms, "\n"))
	}
	return c
}

// refuses checks that a server ends by itself with a code, and what it says then.
func (p *process) refuses(t *testing.T, code int, says ...string) (said string) {
	t.Helper()
	testproc.Equal(t, p.Exit(t), code, "it ended with %d")
	said = strings.Join(p.Lines(), "\n")
	for _, words := range says {
		testproc.Contains(t, said, words, "it says %s")
	}
	return said
}
