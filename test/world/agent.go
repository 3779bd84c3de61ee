// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Agent is a host with a real agent and the driver that needs no hypervisor: its guests are files.
type Agent struct {
	*testproc.Process
	Host, Dir, Config string

	w      *World
	former []*testproc.Process
}

// AddAgent configures an agent of a cell, with more keys; it does not run yet.
func (w *World) AddAgent(cell, host string, keys ...string) *Agent {
	w.T.Helper()
	a := &Agent{Host: host, w: w, Dir: w.Path(host)}
	a.Config = w.configure(host, append([]string{
		fmt.Sprintf("placement_client.url = %q", w.PlacementURL), "placement_client.retries = 0", fmt.Sprintf("cell_client.url = %q", w.Cells[cell].URL),
		`tracker.update_resources_interval = "1s"`, `tracker.retry_backoff_min = "20ms"`, `tracker.retry_backoff_max = "100ms"`,
		fmt.Sprintf("plugins.dir = %q", w.plan.Binaries.Dir()), "drivers.fake.config.instances = {}",
		fmt.Sprintf(`drivers.fake.config.nodes = [{name = %q, inventories = {VCPU = {total = 16}, MEMORY_MB = {total = 16384}, DISK_GB = {total = 100}}}]`, host),
	}, keys...)...)
	return a
}

// Run starts the agent, or starts it again.
func (a *Agent) Run() *Agent {
	a.w.T.Helper()
	if a.Process != nil {
		a.former = append(a.former, a.Process)
	}
	a.Process = a.w.Start(a.Host, "run", "--config", a.Config)
	return a
}

// Guests are the files of the guests, by server.
func (a *Agent) Guests() map[string]string {
	a.w.T.Helper()
	files, err := filepath.Glob(filepath.Join(a.Dir, "drivers", "fake", "machines", "[0-9a-f]*.json"))
	testproc.Check(a.w.T, err)
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of this test
		if os.IsNotExist(err) {
			continue
		}
		testproc.Check(a.w.T, err)
		out[machineFile.FindString(filepath.Base(file))] = string(text)
	}
	return out
}

var machineFile = regexp.MustCompile(`^[0-9a-f-]{36}`)

// Spawned is how often guests were made, by what the driver says.
func (a *Agent) Spawned() map[string]int {
	out := map[string]int{}
	for _, p := range append(a.former, a.Process) {
		for _, line := range p.Lines() {
			var said struct{ Message, Instance string }
			if json.Unmarshal([]byte(line), &said) == nil && said.Message == "made an instance" {
				out[said.Instance]++
			}
		}
	}
	return out
}
