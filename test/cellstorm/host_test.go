// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// kind is what a host is made of.
type kind int

const (
	fake kind = iota
	libvirt
)

// host is a host with an agent.
type host struct {
	*process
	kind kind
	cell *cell
	node string // the uuid of its root provider
	dir  string // of the guests' files
	sim  *testhost.Sim
}

// addHost starts a host of a cell.
func (w *deployment) addHost(t *testing.T, name string, c *cell, k kind) {
	t.Helper()
	h := &host{kind: k, cell: c}
	driver := ""
	switch k {
	case fake:
		h.dir = filepath.Join(w.path(name), "drivers", "fake", "machines")
		driver = fmt.Sprintf(`[drivers.fake.config]
nodes = [{name = %q, inventories = {VCPU = {total = 200}, PCPU = {total = 100}, MEMORY_MB = {total = 32768}, DISK_GB = {total = 1000}}}]
instances = {}
`, name)
	case libvirt:
		h.dir = w.path(name + ".guests")
		images := w.path(name + ".images")
		check(t, os.Mkdir(h.dir, 0o755))
		check(t, os.Mkdir(images, 0o755))
		check(t, os.Chmod(w.dir, 0o755)) // libvirt's emulators run as another user
		check(t, os.WriteFile(filepath.Join(images, image), make([]byte, 1<<20), 0o644))
		h.sim = simulated(t)
		w.hosts = append(w.hosts, h) // from here on it is to be closed
		driver = fmt.Sprintf(`[drivers.libvirt.config]
uri = %q
chroot = %q
instances_path = %q
reserved_host_memory_mb = 0
cpu_shared_set = "0-1,4-5,8-9,12-13"
cpu_dedicated_set = "2-3,6-7"
enabled_mdev_types = ["nvidia-222"]
[drivers.libvirt.config.instances]
images_path = %q
virt_type = "qemu"
shutdown_timeout = "300ms"
`, h.sim.URI(), h.sim.Root(), h.dir, images)
	}
	config := w.configure(t, name, fmt.Sprintf(`[placement_client]
url = %q
timeout = %q
connect_timeout = "1s"
[cell_client]
url = %q
timeout = "3s"
[tracker]
update_resources_interval = "5s"
retry_backoff_min = "100ms"
retry_backoff_max = "2s"
[plugins]
dir = %q
call_timeout = "60s"
health_interval = "2s"
health_timeout = "1s"
backoff_min = "100ms"
backoff_max = "2s"
crash_limit = 1000
crash_window = "1s"
%s`, "http://"+w.placementAddress, placementTimeout, c.url, binaries.Dir(), driver))
	if k == fake {
		w.hosts = append(w.hosts, h)
	}
	h.process = w.run(t, name, "", "run", "--config", config)
}

// simulated starts a libvirtd on a made-up machine.
func simulated(t *testing.T) *testhost.Sim {
	t.Helper()
	for program, debian := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "virsh": "libvirt-clients"} {
		if _, err := exec.LookPath(program); err != nil {
			testproc.NotRun(t, fmt.Sprintf("%v (Debian's package %s)", err, debian))
		}
	}
	s, err := testhost.StartSim(t.Context(), testhost.Sample(), testhost.SimOptions{Passthrough: true, Cache: filepath.Join(binaries.Dir(), "cache")})
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
	since string // when that was started, in the words of /proc
}

// traces are the servers that a host has something of: a guest, or files of one. It asks no
// process, and is cheap.
func (h *host) traces() (map[string]guest, error) {
	entries, err := os.ReadDir(h.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]guest{}
	for _, e := range entries {
		name := e.Name()
		switch h.kind {
		case libvirt:
			out[strings.TrimPrefix(name, "instance-")] = guest{host: h.name}
		case fake:
			uuid, is := strings.CutSuffix(name, ".json")
			if !is || strings.HasPrefix(uuid, ".") {
				continue
			}
			var m struct {
				Power    plugins.PowerState
				Complete bool
			}
			text, err := os.ReadFile(filepath.Join(h.dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = json.Unmarshal(text, &m)
			}
			if err != nil {
				return nil, err
			}
			out[uuid] = guest{host: h.name, runs: m.Complete && m.Power == plugins.PowerRunning}
		}
	}
	return out, nil
}

// domains are what libvirt has on a host, by uuid: whether they run.
func (h *host) domains(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for which, runs := range map[string]bool{"--state-running": true, "--state-shutoff": false, "--state-other": false, "--state-paused": false} {
		text := testproc.Try(h.sim.Virsh(t.Context(), "list", "--all", "--uuid", which)).Or(t)
		for _, uuid := range strings.Fields(text) {
			out[uuid] = runs
		}
	}
	return out
}

// emulators are the processes of QEMU on this machine that are of the guests of a world, by the
// server's uuid.
func (w *deployment) emulators() map[string][]guest {
	out := map[string][]guest{}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte(w.dir)) {
			continue
		}
		_, after, is := bytes.Cut(text, []byte("\x00-uuid\x00"))
		if !is {
			continue
		}
		uuid, _, _ := bytes.Cut(after, []byte{0})
		g := guest{runs: true}
		if _, err := fmt.Sscanf(file, "/proc/%d/cmdline", &g.pid); err != nil {
			continue
		}
		for _, h := range w.hosts {
			if bytes.Contains(text, []byte(h.dir+"/")) {
				g.host = h.name
			}
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.pid))
		if err != nil {
			continue
		}
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 19 && fields[0] != "Z" {
			g.since = fields[19]
			out[string(uuid)] = append(out[string(uuid)], g)
		}
	}
	return out
}
