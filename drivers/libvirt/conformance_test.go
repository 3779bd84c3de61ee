// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package libvirt

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/internal/testhost"
	"github.com/compute-agent/compute-agent/plugins/drivertest"
)

// TestConformance puts the suite that every driver must pass to the plugin as it is shipped: a process with the real library in it. Twice:
// on a host of libvirt's test driver, which is the same everywhere, and on this machine, through a daemon of its own.
func TestConformance(t *testing.T) {
	path := builtPlugin(t)
	t.Run("test driver", func(t *testing.T) {
		h, dir := testhost.Sample(), scratch(t)
		if _, err := h.Sysfs(dir); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "node.xml")
		guest := testhost.Domain{Name: "instance-00000001", UUID: guestUUID, Metadata: novaInstance, VCPUs: 1, MemoryMiB: 1}
		if err := os.WriteFile(file, []byte(h.NodeXML(guest)), 0o600); err != nil {
			t.Fatal(err)
		}
		conform(t, path, map[string]any{"uri": "test://" + file, "chroot": dir, "instances_path": dir})
	})
	t.Run("daemon", func(t *testing.T) {
		d := privateDaemon(t, place(t, noEmulators))
		conform(t, path, map[string]any{"uri": d.URI(), "instances_path": t.TempDir(), "reserved_host_memory_mb": 1})
	})
}

// conform runs the suite. A host whose tree cannot be had makes most checks not apply, which must not pass for conformance.
func conform(t *testing.T, path string, config map[string]any) {
	t.Helper()
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]drivertest.Result{}
	drivertest.Run(t, drivertest.Options{Path: path, Config: raw, Each: func(r drivertest.Result) { said[r.ID] = r }})
	for _, id := range []string{"start/handshake", "nodes/some", "tree/idempotent", "foreign/provider", "abilities/guests", "watch/heartbeat", "shutdown/drains"} {
		if r := said[id]; r.Outcome != drivertest.Passed {
			t.Errorf("%s: %s %s", id, r.Outcome, r.Why)
		}
	}
}

func builtPlugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compute-driver-libvirt")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "libvirt_dlopen", "-o", path, "github.com/compute-agent/compute-agent/cmd/compute-driver-libvirt")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	return path
}
