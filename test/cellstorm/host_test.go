// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// kind is what a host is made of.
type kind int

const (
	fake kind = iota
	libvirt
)

// host is a host with an agent.
type host struct {
	*world.Agent
	kind   kind
	cell   *cell
	guests string // where libvirt has their files
	sim    *testhost.Sim
}

// addHost starts a host of a cell.
func (d *deployment) addHost(name string, c *cell, k kind) *host {
	d.T.Helper()
	h := &host{kind: k, cell: c}
	d.hosts = append(d.hosts, h)
	keys := append([]string{
		`cell_client.timeout = "3s"`, "placement_client.retries = 3",
		`tracker.update_resources_interval = "5s"`,
		`tracker.retry_backoff_min = "100ms"`, `tracker.retry_backoff_max = "2s"`,
		`plugins.call_timeout = "60s"`, `plugins.health_interval = "2s"`, `plugins.health_timeout = "1s"`,
		`plugins.backoff_min = "100ms"`, `plugins.backoff_max = "2s"`,
		"plugins.crash_limit = 1000", `plugins.crash_window = "1s"`,
	}, patient...)
	if k == fake {
		const inventories = "VCPU = {total = 200}, PCPU = {total = 100}, " +
			"MEMORY_MB = {total = 32768}, DISK_GB = {total = 1000}"
		nodes := fmt.Sprintf("drivers.fake.config.nodes = [{name = %q, inventories = {%s}}]", name, inventories)
		h.Agent = d.AddAgent(c.name, name, append(keys, nodes)...)
	} else {
		h.guests = d.Path(name + ".guests")
		images := d.Path(name + ".images")
		check(d.T, os.Mkdir(h.guests, 0o755), os.Mkdir(images, 0o755),
			os.Chmod(d.Dir, 0o755), // libvirt's emulators run as another user
			os.WriteFile(filepath.Join(images, world.Image), make([]byte, 1<<20), 0o644))
		h.sim = simulated(d.T)
		h.Agent = d.AddBareAgent(c.name, name, append(keys,
			fmt.Sprintf("drivers.libvirt.config.uri = %q", h.sim.URI()),
			fmt.Sprintf("drivers.libvirt.config.chroot = %q", h.sim.Root()),
			fmt.Sprintf("drivers.libvirt.config.instances_path = %q", h.guests),
			"drivers.libvirt.config.reserved_host_memory_mb = 0",
			`drivers.libvirt.config.cpu_shared_set = "0-1,4-5,8-9,12-13"`,
			`drivers.libvirt.config.cpu_dedicated_set = "2-3,6-7"`,
			`drivers.libvirt.config.enabled_mdev_types = ["nvidia-222"]`,
			fmt.Sprintf("drivers.libvirt.config.instances.images_path = %q", images),
			`drivers.libvirt.config.instances.virt_type = "qemu"`,
			`drivers.libvirt.config.instances.shutdown_timeout = "300ms"`,
		)...)
	}
	h.Run()
	return h
}

// simulated starts a libvirtd on a made-up machine.
func simulated(t *testing.T) *testhost.Sim {
	t.Helper()
	for program, debian := range map[string]string{"qemu-system-x86_64": "qemu-system-x86",
		"virsh": "libvirt-clients"} {
		if _, err := exec.LookPath(program); err != nil {
			testproc.NotRun(t, fmt.Sprintf("%v (Debian's package %s)", err, debian))
		}
	}
	options := testhost.SimOptions{Passthrough: true, Cache: filepath.Join(binaries.Dir(), "cache")}
	s, err := testhost.StartSim(t.Context(), testhost.Sample(), options)
	if errors.Is(err, testhost.ErrNotRoot) || errors.Is(err, libvirtd.ErrNotInstalled) {
		testproc.NotRun(t, err.Error())
	}
	check(t, err)
	return s
}

// guest is one that a host has, whole or in part.
type guest struct {
	host  string
	runs  bool
	pid   int    // of its emulator
	since uint64 // when that was started
}

// traces are the servers that a host has something of: a guest, or files of one. It asks no
// process, and is cheap.
func (h *host) traces() (map[string]guest, error) {
	out := map[string]guest{}
	if h.kind == libvirt {
		entries, err := os.ReadDir(h.guests)
		for _, e := range entries {
			out[strings.TrimPrefix(e.Name(), "instance-")] = guest{host: h.Host}
		}
		return out, err
	}
	for uuid, text := range h.Guests() {
		var m struct {
			Power    plugins.PowerState
			Complete bool
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return nil, err
		}
		out[uuid] = guest{host: h.Host, runs: m.Complete && m.Power == plugins.PowerRunning}
	}
	return out, nil
}

// children are the processes of drivers that the agent has.
func (h *host) children() (pids []int) {
	all, _ := processes.All()
	for _, p := range all {
		if p.Parent == h.Pid() {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// domains are what libvirt has on a host, by uuid: whether they run.
func (h *host) domains(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for which, runs := range map[string]bool{
		"--state-running": true, "--state-shutoff": false, "--state-other": false, "--state-paused": false,
	} {
		text := testproc.Try(h.sim.Virsh(t.Context(), "list", "--all", "--uuid", which)).Or(t)
		for _, uuid := range strings.Fields(text) {
			out[uuid] = runs
		}
	}
	return out
}

// emulators are the processes of QEMU on this machine that are of the guests of a world, by the
// server's uuid.
func (d *deployment) emulators() map[string][]guest {
	out := map[string][]guest{}
	all, _ := processes.All()
	for _, p := range all {
		line := processes.CommandLine(p.PID)
		_, after, is := strings.Cut(line, " -uuid ")
		if !is || p.State == 'Z' || !strings.Contains(line, d.Dir) {
			continue
		}
		g := guest{runs: true, pid: p.PID, since: p.Started}
		for _, h := range d.hosts {
			if h.kind == libvirt && strings.Contains(line, h.guests+"/") {
				g.host = h.Host
			}
		}
		uuid, _, _ := strings.Cut(after, " ")
		out[uuid] = append(out[uuid], g)
	}
	return out
}
