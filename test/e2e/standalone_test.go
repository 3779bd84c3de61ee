// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestStandalone runs one command on the real machine, after which Placement has its inventory. It
// uses libvirt's own daemon where one answers, and a private one otherwise. The driver is found
// beside the agent.
func TestStandalone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if _, err := os.Stat("/usr/sbin/libvirtd"); err != nil {
		testproc.NotRun(t, "Debian's package libvirt-daemon-system is not installed (tools/packages.sh real)")
	}
	dir := testproc.SocketDir(t)
	address := testproc.FreeAddress(t)
	instances := filepath.Join(dir, "instances")
	check(t, os.Mkdir(instances, 0o755))
	file := filepath.Join(dir, "compute-agent.toml")
	check(t, os.WriteFile(file, []byte("[drivers.libvirt.config]\nreserved_host_memory_mb = 256\ninstances_path = "+
		strconv.Quote(instances)+"\n"), 0o600))
	start := func() *process {
		return spawn(t, nil, "compute-agent", "standalone", "--listen", address, "--config", file,
			"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", filepath.Join(dir, "run"))
	}
	agent := start()
	agent.await(0, "This machine in Placement:")
	agent.await(0, "Ctrl-C stops everything except guests")
	status, err := control.NewClient(config.Agent{RuntimeDir: filepath.Join(dir, "run")}.ControlSocket()).
		Status(t.Context())
	check(t, err)
	node := status.Drivers[0].Report.Nodes[0]
	host := testproc.Try(os.Hostname()).Or(t)
	if node.Name != host {
		t.Errorf("the node is %q, the host %q", node.Name, host)
	}

	var inventories struct {
		Inventories map[string]struct {
			Total, Reserved int64
			Ratio           float64 `json:"allocation_ratio"`
		}
	}
	get(t, "http://"+address+"/resource_providers/"+node.UUID+"/inventories", &inventories)
	vcpu, memory, disk := inventories.Inventories["VCPU"],
		inventories.Inventories["MEMORY_MB"], inventories.Inventories["DISK_GB"]
	if want := onlineCPUs(t); vcpu.Total != want || vcpu.Ratio != 4 {
		t.Errorf("VCPU %+v, the machine has %d CPUs online", vcpu, want)
	}
	if total := memTotalMB(t); memory.Total < 1 || memory.Total > total+1024 || memory.Reserved != 256 {
		t.Errorf("MEMORY_MB %+v, /proc/meminfo has %d", memory, total)
	}
	var df unix.Statfs_t
	check(t, unix.Statfs(instances, &df))
	if want := int64(df.Blocks) * df.Frsize >> 30; disk.Total != want {
		t.Errorf("DISK_GB %+v, df has %d", disk, want)
	}
	var traits struct{ Traits []string }
	get(t, "http://"+address+"/resource_providers/"+node.UUID+"/traits", &traits)
	if all := strings.Join(traits.Traits, " "); !testproc.ContainsAll(all,
		[]string{"COMPUTE_NODE", "OWNER_NOVA", "HW_ARCH_"}) {
		t.Errorf("traits: %s", all)
	}

	t.Log("the private libvirtd is killed: it comes back, and the driver with it")
	mark := agent.Mark()
	if daemons := processesNaming(t, filepath.Join(dir, "run", "libvirt")); len(daemons) > 0 {
		for _, pid := range daemons {
			if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) { // a child of one before it
				check(t, err)
			}
		}
		agent.await(mark, "Restarted the private libvirt daemon")
	}

	pids := append(processesNaming(t, dir), status.Drivers[0].Plugin.PID)
	agent.signal(syscall.SIGINT)
	testproc.Equal(t, agent.exit(), 0, "Ctrl-C ended it with %d")
	for _, pid := range pids {
		awaitGone(t, pid)
	}
	check(t, filepath.WalkDir(filepath.Join(dir, "run"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 {
			t.Errorf("a socket is left behind: %s", path)
		}
		return err
	}))

	again := start()
	again.await(0, "Ctrl-C stops everything except guests")
	again.signal(syscall.SIGINT)
	again.exit()
	// A virtual machine's memory may have been plugged in or out meanwhile. Nothing else may have
	// changed.
	if n := again.Count(0, wrote) - again.Count(0, wrote, ": MEMORY_MB total "); n != 0 {
		t.Errorf("%d writes at the second start", n)
	}
}

// TestStandaloneServer runs the command that standalone prints as soon as it is printed: the host
// is mapped and up by then, also when a former run has left its mapping.
func TestStandaloneServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := testproc.SocketDir(t)
	file := filepath.Join(dir, "compute-agent.toml")
	check(t, os.WriteFile(file, []byte(`
[drivers.fake.config]
instances = {}
nodes = [{name = "cn1", inventories = {VCPU = {total = 8}, MEMORY_MB = {total = 8192}, DISK_GB = {total = 100}}}]
`), 0o600))
	for _, run := range []string{"first", "second"} {
		t.Run(run, func(t *testing.T) { standaloneServer(t, dir, file) })
	}
}

// standaloneServer is one run of standalone, of its start and its end.
func standaloneServer(t *testing.T, dir, file string) {
	t.Helper()
	agent := spawn(t, nil, "compute-agent", "standalone", "--listen", testproc.FreeAddress(t), "--config", file,
		"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", filepath.Join(dir, "run"))
	curl, _ := agent.Until(t, "the command that makes a server", 0,
		func(line string) bool { return strings.Contains(line, "curl ") && strings.Contains(line, "/servers") })
	made := testproc.Try(exec.CommandContext(t.Context(), "sh", "-c", curl).Output()).Or(t)
	var answer struct{ Server struct{ ID string } }
	check(t, json.Unmarshal(made, &answer))
	url := regexp.MustCompile(`http://\S+/servers`).FindString(curl) + "/" + answer.Server.ID
	testproc.Eventually(t, testproc.Patience, "the server to be made", func() error {
		out := testproc.Try(exec.CommandContext(t.Context(), "curl", "-sS", "-H", "X-Auth-Token: admin", url).Output()).
			Or(t)
		var shown struct {
			Server struct {
				Status string
				Fault  struct{ Message string }
			}
		}
		check(t, json.Unmarshal(out, &shown))
		if shown.Server.Status == "ERROR" {
			t.Fatalf("the server is in error: %s", shown.Server.Fault.Message)
		}
		if shown.Server.Status != "ACTIVE" {
			return errors.New(shown.Server.Status)
		}
		return nil
	})
	agent.signal(syscall.SIGINT)
	testproc.Equal(t, agent.exit(), 0, "Ctrl-C ended it with %d")
}

// processesNaming lists the processes whose command line names a directory: the private libvirtd
// and what it started.
func processesNaming(t *testing.T, dir string) []int {
	t.Helper()
	var out []int
	files := testproc.Try(filepath.Glob("/proc/[0-9]*/cmdline")).Or(t)
	for _, f := range files {
		cmdline, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(cmdline), dir) {
			continue
		}
		pid := testproc.Try(strconv.Atoi(filepath.Base(filepath.Dir(f)))).Or(t)
		if pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out
}

func onlineCPUs(t *testing.T) int64 {
	t.Helper()
	content := testproc.Try(os.ReadFile("/sys/devices/system/cpu/online")).Or(t)
	var n int64
	for r := range strings.SplitSeq(strings.TrimSpace(string(content)), ",") {
		first, last, isRange := strings.Cut(r, "-")
		a, err := strconv.ParseInt(first, 10, 64)
		check(t, err)
		b := a
		if isRange {
			b, err = strconv.ParseInt(last, 10, 64)
			check(t, err)
		}
		n += b - a + 1
	}
	return n
}

func memTotalMB(t *testing.T) int64 {
	t.Helper()
	content := testproc.Try(os.ReadFile("/proc/meminfo")).Or(t)
	for line := range strings.Lines(string(content)) {
		if rest, found := strings.CutPrefix(line, "MemTotal:"); found {
			kb := testproc.Try(strconv.ParseInt(strings.Fields(rest)[0], 10, 64)).Or(t)
			return kb / 1024
		}
	}
	t.Fatal("no MemTotal in /proc/meminfo")
	return 0
}
