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

// Agent is a host with a real agent.
type Agent struct {
	*testproc.Process
	Host, Dir, Config string
	Node              string // the uuid, which [World.Ready] learns

	w *World
}

// AddAgent configures an agent of a cell, with more keys; it does not run yet. Its driver needs no
// hypervisor: its guests are files.
func (w *World) AddAgent(cell, host string, keys ...string) *Agent {
	w.T.Helper()
	const inventories = "VCPU = {total = 16}, MEMORY_MB = {total = 16384}, DISK_GB = {total = 100}"
	return w.AddBareAgent(cell, host, append([]string{
		"drivers.fake.config.instances = {}",
		fmt.Sprintf("drivers.fake.config.nodes = [{name = %q, inventories = {%s}}]", host, inventories),
	}, keys...)...)
}

// AddBareAgent is AddAgent with the driver that the keys configure.
func (w *World) AddBareAgent(cell, host string, keys ...string) *Agent {
	w.T.Helper()
	a := &Agent{Host: host, w: w, Dir: w.Path(host)}
	a.Config = w.configure(host, append([]string{
		fmt.Sprintf("placement_client.url = %q", w.PlacementURL), "placement_client.retries = 0",
		fmt.Sprintf("cell_client.url = %q", w.Cells[cell].URL), fmt.Sprintf("plugins.dir = %q", w.plan.Binaries.Dir()),
		`tracker.update_resources_interval = "1s"`,
		`tracker.retry_backoff_min = "20ms"`, `tracker.retry_backoff_max = "100ms"`,
	}, keys...)...)
	return a
}

// Run starts the agent.
func (a *Agent) Run() *Agent {
	a.w.T.Helper()
	a.Process = a.w.Start(a.Host, "run", "--config", a.Config)
	return a
}

// Ready has the compute API know the hosts of agents, and returns when servers can go to all.
func (w *World) Ready(agents ...*Agent) {
	w.T.Helper()
	for _, a := range agents {
		a.Await(w.T, 0, "Registered this host with the cell.")
	}
	w.Eventually("the hosts report their nodes, and have inventories", func() error {
		w.Discover() // the list has no nodes that are not mapped
		nodes := map[any]any{}
		for _, h := range w.Get(Admin, "2.69", "/os-hypervisors/detail").List(w.T, "hypervisors") {
			if service, is := h["service"].(Record); is {
				nodes[service["host"]] = h["id"]
			}
		}
		for _, a := range agents {
			var is bool
			if a.Node, is = nodes[a.Host].(string); !is {
				return fmt.Errorf("the cell of %s has no node of it: %v", a.Host, nodes)
			}
			var has struct{ Inventories Record }
			err := w.ReadPlacement("/resource_providers/"+a.Node+"/inventories", &has)
			if err != nil || len(has.Inventories) == 0 {
				return fmt.Errorf("%s has no inventory: %w", a.Host, err)
			}
		}
		return nil
	})
}

// Guests are the files of the guests that the driver without a hypervisor has, by server.
func (a *Agent) Guests() map[string]string {
	a.w.T.Helper()
	files, err := filepath.Glob(filepath.Join(a.Dir, "drivers", "fake", "machines", "[0-9a-f]*.json"))
	testproc.Check(a.w.T, err)
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
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
	for _, line := range a.Lines() {
		var said struct{ Message, Instance string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Message == "Created the instance." {
			out[said.Instance]++
		}
	}
	return out
}
