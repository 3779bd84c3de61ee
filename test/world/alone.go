// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Alone is a Placement or a cell without a world around it. What it logs of requests is not kept.
type Alone struct {
	*testproc.Process
	URL string // set by Serves
}

// StartAlone starts a command such as "placement", "serve", without the configuration of the
// machine, and ends it with the test. prepare changes how it runs, unless it is nil: also as
// another user, who can make its sockets. Placement gets a free port, unless --listen says another
// address.
func StartAlone(t testing.TB, b *testproc.Binaries, prepare func(*exec.Cmd), args ...string) *Alone {
	t.Helper()
	sockets := testproc.SocketDir(t)
	testproc.Check(t, os.Chmod(sockets, 0o777)) // any user makes a directory in it
	config := filepath.Join(sockets, "empty.toml")
	testproc.Check(t, os.WriteFile(config, nil, 0o644)) // for any user
	args = append(args, "--config", config)
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	cmd := b.Command("compute-agent", args...)
	cmd.Env = append(cmd.Env, "COMPUTE_AGENT_AGENT_RUNTIME_DIR="+filepath.Join(sockets, "run"))
	if prepare != nil {
		prepare(cmd)
	}
	name := strings.Join(args[:2], " ")
	a := &Alone{Process: testproc.Start(t, name, cmd, `"level":"info"`, `"message":"request"`)}
	a.KilledBy(t)
	return a
}

// Serves waits until it serves, or until it ends: then it returns false.
func (a *Alone) Serves(t testing.TB) bool {
	t.Helper()
	_, serves := a.Until(t, "that it serves", 0, func(text string) bool {
		var line struct{ Message, Address string }
		err := json.Unmarshal([]byte(text), &line)
		a.URL = "http://" + line.Address
		return err == nil && (line.Message == placementServes || line.Message == cellServes)
	})
	return serves
}

// Serving is Serves of what must not end before.
func (a *Alone) Serving(t testing.TB) *Alone {
	t.Helper()
	if !a.Serves(t) {
		t.Fatalf("it ended with %d before it served:\n%s", a.Code(), strings.Join(a.Lines(), "\n"))
	}
	return a
}
