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
)

var binaries = testproc.Of("cmd/compute-agent")

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// process is a `compute-agent placement serve`. What it says of requests is not kept: there are
// very many of them.
type process struct{ *testproc.Process }

// place is the state directory of a database file, not there yet: with a short path, since
// sockets are made below it, that every user can reach.
func place(t *testing.T) string {
	t.Helper()
	dir := testproc.Try(os.MkdirTemp("", "ca")).Or(t)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755)) //nolint:gosec // it holds nothing but the state directory
	return filepath.Join(dir, "state")
}

// onStateDir are the arguments for a state directory.
func onStateDir(dir string) []string { return []string{"--state-dir", dir} }

// onDatabase are the arguments for a database that is empty now: that of a state directory, or one
// on the engine of the test, if one is chosen.
func onDatabase(t *testing.T) []string {
	t.Helper()
	args := onStateDir(place(t))
	if dbservers.Engine(t) != "" {
		args = append(args, "--database", dbservers.WithPasswordFile(t, dbservers.Fresh(t)))
	}
	return args
}

// start starts a server on a free port; prepare changes how, when it is not nil.
func start(t *testing.T, prepare func(*exec.Cmd), args ...string) *process {
	t.Helper()
	cmd := binaries.Command("compute-agent", append([]string{"placement", "serve", "--listen", "127.0.0.1:0"}, args...)...)
	// Each has sockets of its own, in a directory that it makes itself, as the user that it runs
	// as.
	sockets := testproc.Try(os.MkdirTemp("", "cr")).Or(t)
	t.Cleanup(func() { check(t, os.RemoveAll(sockets)) })
	check(t, os.Chmod(sockets, 0o777)) //nolint:gosec // see above
	cmd.Env = append(cmd.Env, "COMPUTE_AGENT_AGENT_RUNTIME_DIR="+filepath.Join(sockets, "run"))
	if prepare != nil {
		prepare(cmd)
	}
	p := &process{testproc.Start(t, "a server", cmd, `"level":"info"`, `"message":"request"`)}
	p.KilledBy(t)
	return p
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

// serving is what a server logs when it serves.
const serving = "Serving the Placement API."

// serves waits until the server serves, and returns its URL, or until it ends.
func (p *process) serves(t *testing.T) (url string, ok bool) {
	t.Helper()
	_, ok = p.Until(t, "that it serves", 0, func(text string) bool {
		var line struct{ Message, Address string }
		err := json.Unmarshal([]byte(text), &line)
		url = "http://" + line.Address
		return err == nil && line.Message == serving
	})
	return url, ok
}

// client waits until the server serves.
func (p *process) client(t *testing.T) *client {
	t.Helper()
	url, ok := p.serves(t)
	if !ok {
		t.Fatalf("the server ended with %d before it served:\n%s", p.Code(), strings.Join(p.Lines(), "\n"))
	}
	c := newClient(url)
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// quietly is client, for a start that must log no alarms.
func (p *process) quietly(t *testing.T) *client {
	t.Helper()
	c := p.client(t)
	if alarms := p.alarms(); len(alarms) > 0 {
		t.Errorf("the start was alarming:\n%s", strings.Join(alarms, "\n"))
	}
	return c
}
