// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// agentLane is an outage as a host sees it, whose agent is a real one with the driver that needs no
// hypervisor. Its guests are files.
var agentLane = lane{build: agentWorld, cases: []aCase{
	{64, "host_whose_cell_is_down", func(t *testing.T, w *world) {
		web1, agent := w.id(t, "web1"), w.agents["c1h1"]
		before := agent.guests(t)
		if len(before) != 2 {
			t.Fatalf("the guests are %v", before)
		}
		mark := agent.process.Mark()
		w.down(t, "cell1")
		// It notices, and the guests stay; also when the agent is killed and started meanwhile.
		agent.process.Await(t, mark, `"level":"warn"`, "cell")
		agent.unchanged(t, before)
		agent.process.Kill()
		agent.run(t, w)
		agent.process.Await(t, 0, `"level":"warn"`, "cell")
		agent.unchanged(t, before)

		// As after ten minutes: its service is down when the cell is back, until the agent reports.
		edit(t, w.cellDatabase("cell1"), "UPDATE services SET last_seen_up = last_seen_up - 600000000")
		w.revive(t, "cell1")
		began := time.Now()
		w.up(t)
		if took := time.Since(began); took > 30*agentReports {
			t.Errorf("the service was up after %v", took)
		}
		w.settled(t, "ACTIVE", "web1", "web2")
		agent.unchanged(t, before)
		w.boot(t, "p1", "web3", "c1h1")
		for id, n := range agent.spawned(t) {
			if n != 1 {
				t.Errorf("the guest of %s was made %d times", w.name(id), n)
			}
		}

		w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+web1, nil).status(t, 204)
		w.gone(t, "web1")
		w.free(t, web1)
		if after := agent.guests(t); len(after) != 2 || after[web1] != "" {
			t.Errorf("the guests are %v", after)
		}
	}},
	{64, "host_whose_cell_hangs", func(t *testing.T, w *world) {
		agent := w.agents["c1h1"]
		before := agent.guests(t)
		w.frozen(t, "cell1")
		mark := agent.process.Mark()
		agent.process.Await(t, mark, `"level":"warn"`, "cell")
		agent.unchanged(t, before)
		w.thawed(t, "cell1")
		w.up(t)
		w.boot(t, "p1", "web4", "c1h1")
		for id, n := range agent.spawned(t) {
			if n != 1 {
				t.Errorf("the guest of %s was made %d times", w.name(id), n)
			}
		}
	}},
	{64, "rebuild_whose_cell_and_agent_are_killed", func(t *testing.T, w *world) {
		const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDdYXGbpsTE2fzyfO0JAzbXoEJcLeP3yjG4nCKSAr1uI me"
		agent, web5 := w.agents["c1h1"], w.boot(t, "p1", "web5", "c1h1")
		before, held := agent.guests(t), w.held(t, web5)
		w.api.ask(t, of("p1"), "2.2", "POST", "/os-keypairs", map[string]any{"keypair": map[string]any{"name": "mine", "public_key": key}}).status(t, 201)
		w.api.ask(t, of("p1"), "2.54", "POST", "/servers/"+web5+"/action", map[string]any{"rebuild": map[string]any{
			"imageRef": "155d900f-4e14-4e4c-a73d-069cbf4541e6", "key_name": "mine",
		}}).status(t, 202)
		// Whichever half it is in.
		agent.process.Kill()
		w.down(t, "cell1")
		w.revive(t, "cell1")
		agent.run(t, w)
		w.up(t)
		w.settled(t, "ACTIVE", "web5")
		after := agent.guests(t)
		if strings.Contains(before[web5], key) || !strings.Contains(after[web5], key) {
			t.Errorf("the guest was\n%s\nand is\n%s", before[web5], after[web5])
		}
		delete(before, web5)
		delete(after, web5)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the other guests (-before +after):\n%s", diff)
		}
		if now := w.held(t, web5); !slices.Equal(held, now) || len(held) == 0 {
			t.Errorf("its allocations were %v and are %v", held, now)
		}
		if n := agent.spawned(t)[web5]; n < 1 || n > 2 { // the driver may end before the agent logs what it says
			t.Errorf("its guest was made %d times", n)
		}
	}},
}}

// agentReports is how often agents report in all worlds.
const agentReports = time.Second

func agentWorld(t *testing.T) *world {
	w := newWorld(t, plan{cells: []string{"cell1"}, noHosts: true})
	w.addAgent(t, "c1h1", "cell_client.url = "+quoted(w.cells["cell1"].url)).run(t, w)
	w.discovered(t, 1)
	w.begin(t, "p1", "web1", "c1h1")
	w.begin(t, "p1", "web2", "c1h1")
	w.settled(t, "ACTIVE", "web1", "web2")
	return w
}

// agent is a host with a real agent.
type agent struct {
	host, dir, config string
	process           *testproc.Process
	former            []*testproc.Process
}

// addAgent configures an agent with more keys; it does not run yet.
func (w *world) addAgent(t *testing.T, host string, keys ...string) *agent {
	t.Helper()
	a := &agent{host: host, dir: filepath.Join(w.dir, host), config: filepath.Join(w.dir, host+".toml")}
	w.write(t, a.config, append([]string{
		"agent.host = " + quoted(host), "agent.state_dir = " + quoted(a.dir), "agent.runtime_dir = " + quoted(filepath.Join(w.dir, host+".run")),
		"placement_client.url = " + quoted("http://"+w.placementAddress), "placement_client.retries = 0",
		`tracker.update_resources_interval = "200ms"`, `tracker.retry_backoff_min = "20ms"`, `tracker.retry_backoff_max = "100ms"`,
		"plugins.dir = " + quoted(binaries.Dir()), `cell_client.timeout = "2s"`,
	}, keys...))
	file, err := os.OpenFile(a.config, os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = fmt.Fprintf(file, "[drivers.fake.config]\ninstances = {}\nnodes = [{name = %q, inventories = {VCPU = {total = 16}, MEMORY_MB = {total = 16384}, DISK_GB = {total = 100}}}]\n", host)
	check(t, err)
	check(t, file.Close())
	w.agents[host] = a
	return a
}

// run starts the agent, or starts it again.
func (a *agent) run(t *testing.T, w *world) {
	t.Helper()
	if a.process != nil {
		a.former = append(a.former, a.process)
	}
	a.process = w.start(t, "agent of "+a.host, "run", "--config", a.config)
}

// discovered waits until so many hosts are mapped.
func (w *world) discovered(t *testing.T, n int) {
	t.Helper()
	eventually(t, "hosts are discovered", func() error {
		w.discover(t)
		if got := count(t, w.backup(t), "SELECT COUNT(*) FROM host_mappings"); got != n {
			return fmt.Errorf("%d are, not %d", got, n)
		}
		return nil
	})
}

// guests are the files of the guests, by server.
func (a *agent) guests(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	check(t, filepath.WalkDir(a.dir, func(path string, entry os.DirEntry, err error) error {
		id := filepath.Base(path)
		if err != nil || entry.IsDir() || len(id) != 41 || !uuidForm.MatchString(id) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var machine struct {
			Project string `json:"project_id"`
		}
		if json.Unmarshal(content, &machine) == nil && machine.Project != "" { // and no file about a node
			out[id[:36]] = string(content)
		}
		return nil
	}))
	return out
}

func (a *agent) unchanged(t *testing.T, before map[string]string) {
	t.Helper()
	after := a.guests(t)
	for id, content := range before {
		if after[id] != content {
			t.Errorf("the guest %s was\n%s\nand is\n%s", id, content, after[id])
		}
	}
	if len(after) != len(before) {
		t.Errorf("there were %d guests, and are %d", len(before), len(after))
	}
}

// spawned is how often guests were made, by what the driver says.
func (a *agent) spawned(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, p := range append(a.former, a.process) {
		for _, line := range p.Lines() {
			var said struct{ Message, Instance string }
			if json.Unmarshal([]byte(line), &said) == nil && said.Message == "made an instance" {
				out[said.Instance]++
			}
		}
	}
	if len(out) == 0 {
		t.Error("the driver does not say which guests it made")
	}
	return out
}
