// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package libvirt

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealConformance puts the suite that every driver must pass to the plugin as it is shipped: a
// process with the real library in it. It does so on a host of libvirt's test driver, which is the
// same everywhere, on this machine, through a daemon of its own, and on a made-up host with
// devices, in both layouts and from one to the other.
func TestRealConformance(t *testing.T) {
	path := builtPlugin(t)
	// All are started before the first check: the one for remaining processes takes what starts
	// beside it for its plugin's.
	d := privateDaemon(t, place(t, noEmulators))
	flat, nested := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{}),
		testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{})
	small := testhost.Sample()
	for i := range small.Cells {
		// the suite's consumers hold some of everything, and a root has huge pages for those who
		// do; a new one has none
		small.Cells[i].HugePages = nil
	}
	again := testhost.SimForTest(t, small, testhost.SimOptions{})
	t.Run("test driver", func(t *testing.T) {
		testproc.Drawn(t, 2)
		testproc.Parallel(t, testproc.Light)
		h, dir := testhost.Sample(), scratch(t)
		testproc.Try(h.Sysfs(dir)).Or(t)
		file := filepath.Join(dir, "node.xml")
		guest := testhost.Domain{Name: "instance-00000001",
			UUID: guestUUID, Metadata: novaInstance, VCPUs: 1, MemoryMiB: 1}
		testproc.Check(t, os.WriteFile(file, []byte(h.NodeXML(guest)), 0o600))
		conform(t, path, nil, map[string]any{"uri": "test://" + file, "chroot": dir, "instances_path": dir})
	})
	t.Run("daemon", func(t *testing.T) {
		testproc.Parallel(t, testproc.Light)
		conform(t, path, nil,
			map[string]any{"uri": d.URI(), "instances_path": t.TempDir(), "reserved_host_memory_mb": 1})
	})
	// The suite's consumers have no domains: where they are is for the driver to guess, or a reason
	// to refuse.
	config := func(s *testhost.Sim, numa, unplaced string) map[string]any {
		c := maps.Clone(everything)
		c["uri"], c["chroot"], c["instances_path"], c["numa"], c["unplaced_consumers"] = s.URI(),
			s.Root(), s.Root(), numa, unplaced
		c["cpu_shared_set"], c["cpu_dedicated_set"] = "0-3,8-11", "4-7,12-15"
		return c
	}
	t.Run("devices, flat", func(t *testing.T) {
		testproc.Drawn(t, 2)
		testproc.Parallel(t, testproc.Light)
		conform(t, path, nil, config(flat, "flat", "refuse"))
	})
	t.Run("devices, nested", func(t *testing.T) {
		testproc.Parallel(t, testproc.Light)
		conform(t, path, config(nested, "flat", "guess"), config(nested, "nested", "guess"), reshapes...)
	})
	t.Run("devices, flat again", func(t *testing.T) {
		testproc.Parallel(t, testproc.Light)
		conform(t, path, config(again, "nested", "guess"), config(again, "flat", "guess"), reshapes...)
	})
}

// reshapes are the checks that apply when allocations are to move.
var reshapes = []string{"reshape/needed", "reshape/conserves", "reshape/complete",
	"reshape/settled", "reshape/idempotent"}

// conform runs the suite. If the host's tree is unavailable, most checks do not apply, which must
// not pass for conformance.
func conform(t *testing.T, path string, former, config map[string]any, more ...string) {
	t.Helper()
	raw, err := json.Marshal(config)
	options := drivertest.Options{Path: path, Config: raw}
	if former != nil && err == nil {
		options.Former, err = json.Marshal(former)
	}
	testproc.Check(t, err)
	said := map[string]drivertest.Result{}
	options.Each = func(r drivertest.Result) { said[r.ID] = r }
	drivertest.Run(t, options)
	for _, id := range append([]string{"start/handshake", "nodes/some", "tree/idempotent", "foreign/provider",
		"abilities/guests", "watch/heartbeat", "shutdown/drains"}, more...) {
		if r := said[id]; r.Outcome != drivertest.Passed {
			t.Errorf("%s: %s %s", id, r.Outcome, r.Why)
		}
	}
}

func builtPlugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compute-driver-libvirt")
	cmd := exec.CommandContext(t.Context(), "go", "build",
		"-tags", "libvirt_dlopen", "-o", path, "github.com/compute-agent/compute-agent/cmd/compute-driver-libvirt")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	return path
}
