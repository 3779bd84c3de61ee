// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var binaries = testproc.Of("cmd/compute-agent", "cmd/compute-driver-fake", "cmd/compute-driver-libvirt")

func TestMain(m *testing.M) {
	testhost.SimMain()
	if os.Getenv(underWatch) != "" {
		fmt.Fprintln(os.Stderr, becomeWatched())
		os.Exit(1)
	}
	os.Exit(binaries.Main(m))
}

const patience = testproc.Patience

// process is a running binary of a test.
type process struct {
	*testproc.Process
	t *testing.T
}

// spawn starts a binary; its output is kept, and shown if the test fails.
func spawn(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	cmd := binaries.Command(name, args...)
	cmd.Env = append(cmd.Env, env...)
	return launch(t, name, cmd)
}

// launch starts the command of a binary, of which more may have been changed.
func launch(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Process: testproc.Start(t, name, cmd), t: t}
	p.KilledBy(t)
	return p
}

func (p *process) await(mark int, parts ...string) {
	p.t.Helper()
	p.Await(p.t, mark, parts...)
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	check(p.t, p.Signal(sig))
}

func (p *process) exit() int {
	p.t.Helper()
	return p.Exit(p.t)
}

func (p *process) stop() {
	p.t.Helper()
	p.Stop(p.t)
}

// awaitAny waits for a line with one of the texts, or for the end of the process.
func (p *process) awaitAny(texts ...string) {
	p.t.Helper()
	p.Until(p.t, fmt.Sprintf("any of %q", texts), 0, func(line string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) })
	})
}

var check = testproc.Check

// get reads a resource of a Placement, as curl would.
func get(t *testing.T, url string, out any) {
	t.Helper()
	testproc.Send(t, nil, http.MethodGet, url, "placement 1.37", nil).Good(t).Into(t, out)
}

// command runs a short-lived command and returns its output and exit code.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return binaries.Run(t, "compute-agent", args...)
}
