// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package libvirt

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealInstancesAreManagedOnlyIfConfigured: without the table there is no such ability, and no
// connection with write access.
func TestRealInstancesAreManagedOnlyIfConfigured(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t, testhost.Sample(), hypervisor.OpenLibvirt, map[string]any{"uri": "test:///default"})
	tree := newTree(t)
	r.mustPass(tree)
	_, listed := r.Instances(t.Context(), nodeName)
	_, spawned := r.Spawn(t.Context(), nodeName, plugins.InstanceSpec{UUID: guestUUID}, tree)
	_, powered := r.SetPower(t.Context(), nodeName, guestUUID, plugins.PowerRunning, false)
	for _, err := range []error{listed, spawned, powered, r.Destroy(t.Context(), nodeName, guestUUID)} {
		testproc.ErrorIs(t, err, plugins.ErrUnsupported, "%v")
	}
	if len(r.managing.links) > 0 {
		t.Error("there are connections with write access")
	}
	err := r.configure(map[string]any{"uri": "test:///default", "instances": map[string]any{"virt_type": "lxc"}})
	testproc.ErrorHas(t, err, "instances.virt_type", "%v")
	testproc.Check(t, r.configure(map[string]any{"uri": "test:///default", "instances": map[string]any{}}))
	list, err := r.Instances(t.Context(), nodeName)
	if err != nil || len(list) != 0 || len(r.managing.links) != writers {
		t.Errorf("%+v, %v, %d connections", list, err, len(r.managing.links))
	}
	before := r.managing.links[0]
	testproc.Check(t, r.configure(map[string]any{"uri": "test:///default",
		"instances": map[string]any{"images_type": "raw"}, "reserved_host_cpus": 1}))
	if r.managing.links[0] != before {
		t.Error("the connections were made again")
	}
	testproc.Check(t, r.configure(map[string]any{"uri": "test:///default"}))
	if _, err := r.Instances(t.Context(), nodeName); !errors.Is(err, plugins.ErrUnsupported) ||
		len(r.managing.links) > 0 {
		t.Errorf("%v, %d connections", err, len(r.managing.links))
	}
}

// TestRealInstanceConformance puts the suite to the plugin as it is shipped, with guests of QEMU's
// own emulation that it makes and removes. It does not run beside TestRealConformance: the check
// for remaining processes adopts orphans of this process, and would take QEMU, which libvirt starts
// as a daemon, for one of its plugin's.
func TestRealInstanceConformance(t *testing.T) {
	if _, err := os.Stat("/usr/bin/qemu-system-x86_64"); err != nil {
		testproc.NotRun(t, "no QEMU (Debian package: qemu-system-x86)")
	}
	dir := t.TempDir()
	d := privateDaemon(t, place(t, ""))
	raw := testproc.Try(json.Marshal(map[string]any{
		"uri": d.URI(), "instances_path": dir, "reserved_host_memory_mb": 1,
		"instances": map[string]any{"virt_type": "qemu", "shutdown_timeout": "300ms"},
	})).Or(t)
	said := map[string]drivertest.Result{}
	drivertest.Run(t, drivertest.Options{
		Path: builtPlugin(t), Config: raw, Each: func(r drivertest.Result) { said[r.ID] = r },
		Instances: &drivertest.InstanceTemplate{Flavor: plugins.Flavor{Name: "tiny", VCPUs: 1, MemoryMB: 32, RootGB: 1},
			UserData: []byte("#cloud-config\n")},
		Select: regexp.MustCompile("^instances/"),
	})
	passed := 0
	for id, r := range said {
		if strings.HasPrefix(id, "instances/") && r.Outcome == drivertest.Passed {
			passed++
		} else if strings.HasPrefix(id, "instances/") {
			t.Logf("%s: %s %s", id, r.Outcome, r.Why)
		}
	}
	if passed < 18 {
		t.Errorf("%d checks of instances passed", passed)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
}
