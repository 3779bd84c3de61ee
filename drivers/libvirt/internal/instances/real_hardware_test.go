// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package instances

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
)

// hardwareRig is a host with an image of each firmware, and a guest of each.
func hardwareRig(t *testing.T) *realRig {
	t.Helper()
	r := realHost(t, testhost.SingleNode(), testhost.SimOptions{Emulators: true})
	r.shared, r.sites = []int{0}, map[string]assignment.Provider{rootUUID: {Kind: assignment.Root}}
	if err := os.WriteFile(filepath.Join(r.images, "hello"), bootable("hello, world"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.images, 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// guestOf is a guest of the image "hello".
func guestOf(n int, memory int64, specs map[string]string) plugins.InstanceSpec {
	return plugins.InstanceSpec{
		UUID: own(n), Name: "hardware", Image: "hello", Flavor: plugins.Flavor{Name: "tiny", VCPUs: 2, MemoryMB: memory, RootGB: 1, ExtraSpecs: specs},
		Allocations: providertree.ProviderResources{rootUUID: {"VCPU": 2, "MEMORY_MB": memory, "DISK_GB": 1}},
	}
}

// xml is libvirt's description of a domain.
func (r *realRig) xml(uuid string) string {
	r.t.Helper()
	text, err := hypervisor.Call(r.t.Context(), r.links[1], "a domain", func(c hypervisor.Conn) (string, error) { return c.DomainXML(uuid) })
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// says waits for a word on the console of a guest.
func (r *realRig) says(uuid, word string) {
	r.t.Helper()
	console := filepath.Join(r.dir, domain.Name(uuid), consoleLog)
	r.eventually("a word of the guest's: "+word, func() bool {
		text, _ := os.ReadFile(console)
		return strings.Contains(string(text), word)
	})
}

// A guest with one of each device runs, and QEMU has what was asked for.
func TestRealHardware(t *testing.T) {
	r := hardwareRig(t)
	spec := guestOf(20, 64, map[string]string{
		"hw:watchdog_action": "reset", "hw:serial_port_count": "2", "hw:cpu_threads": "2", "hw:pmu": "false", "hw:boot_menu": "false",
		"hw:virtio_packed_ring": "true", "hw:viommu_model": "intel",
		"hw_rng:rate_bytes": "2048", "hw_rng:rate_period": "500", "hw_video:ram_max_mb": "16",
	})
	properties := `{"hw_video_model": "vga", "hw_video_ram": 16, "hw_qemu_guest_agent": true, "hw_time_hpet": "yes", "architecture": "amd64"}`
	if err := os.WriteFile(filepath.Join(r.images, "hello"+PropertiesSuffix), []byte(properties), 0o644); err != nil {
		t.Fatal(err)
	}
	if is, err := r.Spawn(t.Context(), node, spec, nil); err != nil || is.Power != plugins.PowerRunning {
		t.Fatalf("%+v, %v", is, err)
	}
	r.says(spec.UUID, "hello, world")
	text := r.xml(spec.UUID)
	for _, want := range []string{
		"<watchdog model='i6300esb' action='reset'>", "<topology sockets='1'", "threads='2'/>", "<pmu state='off'/>", "<iommu model='intel'>",
		"packed='on'", "<rate bytes='2048' period='500'/>", "vram='16384'", "org.qemu.guest_agent.0", "<timer name='hpet' present='yes'/>",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "<serial "); n != 2 {
		t.Errorf("%d serial ports in\n%s", n, text)
	}
	if err := r.Manager.Destroy(t.Context(), node, spec.UUID); err != nil {
		t.Error(err)
	}

	spec = guestOf(21, 64, map[string]string{"hw:hide_hypervisor_id": "true"})
	if _, err := r.Spawn(t.Context(), node, spec, nil); !isFault(err) {
		t.Errorf("%v, want a fault: processors are emulated here", err)
	}
	r.nothingLeft(nil)
}
