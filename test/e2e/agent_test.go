// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// site is a host: a configuration with the fake driver, and directories.
type site struct {
	t      *testing.T
	dir    string
	config string
	url    string
	env    []string // of its agents
}

func newSite(t *testing.T, url string) *site {
	t.Helper()
	dir := testproc.SocketDir(t)
	s := &site{t: t, dir: dir, config: filepath.Join(dir, "compute-agent.toml"), url: url}
	s.configure(8)
	return s
}

// configure writes the configuration of a machine with so many VCPUs.
func (s *site) configure(vcpus int) {
	s.t.Helper()
	check(s.t, os.WriteFile(s.config, []byte(fmt.Sprintf(`
[agent]
host = "cn1"
state_dir = %q
runtime_dir = %q
[placement_client]
url = %q
retries = 0
[tracker]
update_resources_interval = "100ms"
retry_backoff_min = "20ms"
retry_backoff_max = "100ms"
[plugins]
dir = %q
backoff_min = "50ms"
[log]
format = "json"
[drivers.fake.config]
nodes = [{name = "cn1", traits = ["HW_CPU_X86_AVX", "CUSTOM_FAST"],
  inventories = {VCPU = {total = %d, allocation_ratio = 4.0}, MEMORY_MB = {total = 16000, reserved = 512}},
  children = [{name = "gpu0", inventories = {CUSTOM_GPU = {total = 4}}}]}]
`, filepath.Join(s.dir, "state"), filepath.Join(s.dir, "run"), s.url, binaries.Dir(), vcpus)), 0o600))
}

func (s *site) run(env ...string) *process {
	return spawn(s.t, append(slices.Clone(s.env), env...), "compute-agent", "run", "--config", s.config)
}

func (s *site) status() health.Status {
	s.t.Helper()
	status, err := control.NewClient(config.Agent{RuntimeDir: filepath.Join(s.dir, "run")}.ControlSocket()).
		Status(s.t.Context())
	check(s.t, err)
	return status
}

// servePlacement runs the bundled Placement as a process, on a state directory that it does not
// own.
func servePlacement(t *testing.T, state, address string) *process {
	p := spawn(t, nil, "compute-agent", "placement", "serve", "--listen", address, "--state-dir", state,
		"--runtime-dir", t.TempDir())
	p.await(0, "Serving the Placement API.")
	return p
}

const (
	wrote     = `"operation":"`
	inStep    = "Placement is already up to date: nothing to write."
	isHealthy = `"state":"healthy"`
)

// TestAgentLifecycle: a change is one write; neither a killed plugin nor a killed agent costs any;
// an outage of Placement is reported, survived and made up for.
func TestAgentLifecycle(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	address, state := testproc.FreeAddress(t), t.TempDir()
	server := servePlacement(t, state, address)
	s := newSite(t, "http://"+address)
	agent := s.run()
	agent.await(0, wrote, "Set the traits of cn1")

	t.Log("a changed ratio and SIGHUP: one PUT and nothing else")
	mark, before := agent.Mark(), s.status().Placement
	s.configure(12)
	agent.signal(syscall.SIGHUP)
	agent.await(mark, wrote, "VCPU total 8→12")
	if now := s.status().Placement; now.Requests-before.Requests != 1 || now.Writes-before.Writes != 1 {
		t.Errorf("%d requests, %d of them writes, for one change",
			now.Requests-before.Requests, now.Writes-before.Writes)
	}

	t.Log("kill -9 of the plugin: it comes back, Placement is not asked")
	mark, before = agent.Mark(), s.status().Placement
	driver := s.status().Drivers[0].Plugin
	check(t, syscall.Kill(driver.PID, syscall.SIGKILL))
	agent.await(mark, isHealthy)
	passes := s.status().Drivers[0].Report.Nodes[0].Passes
	s.awaitPasses(agent, passes+2)
	if now := s.status().Placement; now.Requests != before.Requests {
		t.Errorf("%d requests after the plugin was killed", now.Requests-before.Requests)
	}

	t.Log("Placement stops, the machine changes, Placement comes back: the agent catches up")
	mark = agent.Mark()
	server.signal(syscall.SIGTERM)
	testproc.Equal(t, server.exit(), 0, "placement serve ended with %d")
	agent.await(mark, `"level":"warn"`, "placement is unavailable", "hint") // though nothing has to be written
	s.configure(16)
	agent.signal(syscall.SIGHUP)
	agent.await(mark, "configured again")
	testproc.Eventually(t, testproc.Patience, "the status says so", func() error {
		if st := s.status(); st.State != "degraded" || !strings.Contains(st.Summary, "unavailable") {
			return fmt.Errorf("status: %s: %s", st.State, st.Summary)
		}
		return nil
	})
	servePlacement(t, state, address)
	agent.await(mark, "reported again")
	agent.await(mark, wrote, "VCPU total 12→16")

	t.Log("kill -9 of the agent: no plugin is left, the next start writes nothing")
	driver = s.status().Drivers[0].Plugin
	agent.signal(syscall.SIGKILL)
	agent.exit()
	awaitGone(t, driver.PID)
	agent = s.run()
	agent.await(0, inStep)
	testproc.Equal(t, s.status().Placement.Writes, 0, "%d writes after the agent was killed and started again")

	t.Log("SIGTERM: everything is gone")
	driver = s.status().Drivers[0].Plugin
	agent.signal(syscall.SIGTERM)
	testproc.Equal(t, agent.exit(), 0, "the agent ended with %d")
	awaitGone(t, driver.PID)
	left := testproc.Try(filepath.Glob(filepath.Join(s.dir, "run", "*"))).Or(t)
	if len(left) > 0 {
		t.Errorf("left in the runtime directory: %v", left)
	}
}

// awaitPasses waits until the node has seen so many passes. They are not logged one by one, so it
// reloads the agent, which logs that.
func (s *site) awaitPasses(agent *process, n int64) {
	s.t.Helper()
	for range 1000 {
		if s.status().Drivers[0].Report.Nodes[0].Passes >= n {
			return
		}
		mark := agent.Mark()
		agent.signal(syscall.SIGHUP)
		agent.await(mark, "Reload")
	}
	s.t.Fatalf("no %d passes", n)
}

// awaitGone waits for the end of a process that is not our child.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	fd, err := pidfdOpen(pid)
	if errors.Is(err, syscall.ESRCH) {
		return
	}
	check(t, err)
	defer func() { _ = syscall.Close(fd) }()
	if !pollReadable(t, fd) {
		t.Fatalf("process %d is still there", pid)
	}
}

// TestAgainstOpenStack: OpenStack's own Placement ends up with the same tree, and a second start
// writes nothing.
func TestAgainstOpenStack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := testproc.StartPlacement(t)
	s := newSite(t, server.URL)
	agent := s.run()
	agent.await(0, wrote, "Set the traits of cn1")
	uuid := s.status().Drivers[0].Report.Nodes[0].UUID
	agent.signal(syscall.SIGTERM)
	agent.exit()

	var list struct {
		Providers []struct {
			UUID, Name string
			Parent     string `json:"parent_provider_uuid"`
		} `json:"resource_providers"`
	}
	get(t, server.URL+"/resource_providers?in_tree="+uuid, &list)
	names := map[string]string{}
	for _, p := range list.Providers {
		names[p.Name] = p.Parent
	}
	if len(names) != 2 || names["cn1_gpu0"] != uuid {
		t.Errorf("providers: %v", names)
	}
	var inventories struct {
		Inventories map[string]struct {
			Total, Reserved int
			Ratio           float64 `json:"allocation_ratio"`
		}
	}
	get(t, server.URL+"/resource_providers/"+uuid+"/inventories", &inventories)
	if v, m := inventories.Inventories["VCPU"], inventories.Inventories["MEMORY_MB"]; v.Total != 8 ||
		v.Ratio != 4 || m.Reserved != 512 {
		t.Errorf("inventories: %+v", inventories)
	}
	var traits struct{ Traits []string }
	get(t, server.URL+"/resource_providers/"+uuid+"/traits", &traits)
	if got := strings.Join(traits.Traits, " "); len(traits.Traits) != 4 ||
		!testproc.ContainsAll(got, []string{"COMPUTE_NODE", "OWNER_NOVA", "HW_CPU_X86_AVX", "CUSTOM_FAST"}) {
		t.Errorf("traits: %v", traits.Traits)
	}

	agent = s.run()
	agent.await(0, inStep)
	testproc.Equal(t, s.status().Placement.Writes, 0, "%d writes at the second start")
	agent.signal(syscall.SIGTERM)
	agent.exit()
}

// TestAgentNotifiesSystemd: a service manager hears when the agent is ready, reloads, lives and
// stops, in words.
func TestAgentNotifiesSystemd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	address := testproc.FreeAddress(t)
	servePlacement(t, t.TempDir(), address)
	s := newSite(t, "http://"+address)
	path := filepath.Join(s.dir, "notify")
	socket := testproc.Try(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})).Or(t)
	defer func() { _ = socket.Close() }()
	received := make(chan string, 1000)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := socket.Read(buf)
			if err != nil {
				close(received)
				return
			}
			received <- string(buf[:n])
		}
	}()
	hear := func(parts ...string) {
		t.Helper()
		for message := range received {
			if testproc.ContainsAll(message, parts) {
				t.Logf("%q", message)
				return
			}
		}
		t.Fatalf("systemd did not receive %v", parts)
	}
	agent := s.run("NOTIFY_SOCKET="+path, "WATCHDOG_USEC=300000")
	hear("READY=1", "STATUS=reporting 1 node")
	hear("WATCHDOG=1")
	agent.signal(syscall.SIGHUP)
	hear("RELOADING=1", "MONOTONIC_USEC=")
	hear("READY=1")
	agent.signal(syscall.SIGTERM)
	hear("STOPPING=1", "STATUS=")
	testproc.Equal(t, agent.exit(), 0, "exit code %d")
}

// TestRefusals: an agent that must not start ends with the exit code of the reason.
func TestRefusals(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	address := testproc.FreeAddress(t)
	servePlacement(t, t.TempDir(), address)
	first := newSite(t, "http://"+address)
	agent := first.run()
	agent.await(0, wrote, "Set the traits of cn1")

	t.Run("another host of the same name", func(t *testing.T) {
		second := newSite(t, "http://"+address)
		content := testproc.Try(os.ReadFile(second.config)).Or(t)
		check(t, os.WriteFile(second.config, append([]byte("[reshape]\non_failure = \"exit\"\n"), content...), 0o600))
		p := second.run()
		p.await(0, "placement has this compute node under another identity")
		testproc.Equal(t, p.exit(), 3, "exit code %d")
	})
	t.Run("a second agent on one state", func(t *testing.T) {
		p := first.run()
		p.await(0, "another agent uses")
		testproc.Equal(t, p.exit(), 1, "exit code %d")
	})
	t.Run("a configuration that the driver refuses", func(t *testing.T) {
		s := newSite(t, "http://"+address)
		content := testproc.Try(os.ReadFile(s.config)).Or(t)
		check(t, os.WriteFile(s.config, append(content, "no_such_key = 1\n"...), 0o600))
		p := s.run()
		p.await(0, "no_such_key")
		testproc.Equal(t, p.exit(), 78, "exit code %d")
	})
	t.Run("no driver", func(t *testing.T) {
		s := newSite(t, "http://"+address)
		content := testproc.Try(os.ReadFile(s.config)).Or(t)
		before, _, _ := strings.Cut(string(content), "[drivers")
		check(t, os.WriteFile(s.config, []byte(before), 0o600))
		p := s.run()
		p.await(0, "no driver is configured")
		testproc.Equal(t, p.exit(), 78, "exit code %d")
	})
	t.Run("a port that is taken", func(t *testing.T) {
		p := spawn(t, nil, "compute-agent", "placement", "serve", "--listen", address, "--state-dir", t.TempDir())
		p.await(0, "is another Placement running there")
		testproc.Equal(t, p.exit(), 1, "exit code %d")
	})
}

// TestCommands runs every command that asks a running agent.
func TestCommands(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	address := testproc.FreeAddress(t)
	servePlacement(t, t.TempDir(), address)
	s := newSite(t, "http://"+address)
	if out, code := command(t, "status", "--config", s.config); code != 1 ||
		!strings.Contains(out, "the agent is not running") {
		t.Errorf("status without an agent: %d\n%s", code, out)
	}
	agent := s.run()
	agent.await(0, wrote, "Set the traits of cn1")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"tree"}, []string{"cn1  ", "└─ cn1_gpu0  ", "CUSTOM_GPU", "VCPU", "COMPUTE_NODE"}},
		{[]string{"tree", "--output", "json"}, []string{`"resource_class": "CUSTOM_GPU"`, `"used": 0`}},
		{[]string{"status"}, []string{"reporting 1 node, all is well", "driver fake", "last sync "}},
		{[]string{"status", "-o", "json"}, []string{`"state": "reporting"`, `"pid": ` + strconv.Itoa(agent.Pid())}},
		{[]string{"plan"}, []string{"nothing to write"}},
		{[]string{"plan", "-o", "json"}, []string{`"operations": `}},
		{[]string{"config", "check"}, []string{"The configuration is valid", "agent.host = \"cn1\""}},
		{[]string{"doctor"}, []string{"Placement"}},
	} {
		out, code := command(t, append(c.args, "--config", s.config)...)
		if !testproc.ContainsAll(out, c.want) || (code != 0 && c.args[0] != "doctor") {
			t.Errorf("%v: exit code %d, want %q in\n%s", c.args, code, c.want, out)
		}
	}
	for _, args := range [][]string{{"nonsense"}, {"tree", "--output", "xml"},
		{"tree", "--nonsense"}, {"status", "extra"}} {
		if out, code := command(t, args...); code != 64 {
			t.Errorf("%v: exit code %d, want 64\n%s", args, code, out)
		}
	}
}
