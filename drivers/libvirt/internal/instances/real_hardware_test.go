// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package instances

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// hardwareRig is a host with an image of each firmware, and a guest of each.
func hardwareRig(t *testing.T) *realRig {
	t.Helper()
	r := realHost(t, testhost.SingleNode(), testhost.SimOptions{Emulators: true})
	r.shared, r.sites = []int{0}, map[string]assignment.Provider{rootUUID: {Kind: assignment.Root}}
	testproc.Check(t, os.WriteFile(filepath.Join(r.images, "hello"), bootable("hello, world"), 0o644))
	testproc.Check(t, os.Chmod(r.images, 0o755))
	return r
}

// guestOf is a guest of the image "hello".
func guestOf(n int, vcpus, memory int64, specs map[string]string) plugins.InstanceSpec {
	return plugins.InstanceSpec{
		UUID: own(n), Name: "hardware", Image: "hello",
		Flavor:      plugins.Flavor{Name: "tiny", VCPUs: vcpus, MemoryMB: memory, RootGB: 1, ExtraSpecs: specs},
		Allocations: providertree.ProviderResources{rootUUID: {"VCPU": vcpus, "MEMORY_MB": memory, "DISK_GB": 1}},
	}
}

// xml is libvirt's description of a domain.
func (r *realRig) xml(uuid string) string {
	r.t.Helper()
	text, err := hypervisor.Call(r.t.Context(), r.links[1],
		"a domain", func(c hypervisor.Conn) (string, error) { return c.DomainXML(uuid) })
	testproc.Check(r.t, err)
	return text
}

// says waits for a word on the console of a guest.
func (r *realRig) says(uuid, word string) {
	r.t.Helper()
	const long = 4 * testproc.Patience // UEFI takes a while on emulated processors
	console := filepath.Join(r.dir, domain.Name(uuid), consoleLog)
	testproc.Eventually(r.t, long, "a word of the guest's: "+word, testproc.True(func() bool {
		text, _ := os.ReadFile(console)
		return strings.Contains(string(text), word)
	}))
}

// TestRealHardware: a guest with one of each device runs, and QEMU has what was asked for.
func TestRealHardware(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := hardwareRig(t)
	spec := guestOf(20, 2, 64, map[string]string{
		"hw:watchdog_action": "reset", "hw:serial_port_count": "2", "hw:cpu_threads": "2",
		"hw:pmu": "false", "hw:boot_menu": "false",
		"hw:virtio_packed_ring": "true", "hw:viommu_model": "intel",
		"hw_rng:rate_bytes": "2048", "hw_rng:rate_period": "500", "hw_video:ram_max_mb": "16",
	})
	properties := `{"hw_video_model": "vga", "hw_video_ram": 16, "hw_qemu_guest_agent": true, "hw_time_hpet": ` +
		`"yes", "architecture": "amd64"}`
	testproc.Check(t, os.WriteFile(filepath.Join(r.images, "hello"+PropertiesSuffix), []byte(properties), 0o644))
	if is, err := r.Spawn(t.Context(), node, spec, nil); err != nil || is.Power != plugins.PowerRunning {
		t.Fatalf("%+v, %v", is, err)
	}
	r.says(spec.UUID, "hello, world")
	text := r.xml(spec.UUID)
	for _, want := range []string{
		"<watchdog model='i6300esb' action='reset'>", "<topology sockets='1'", "threads='2'/>",
		"<pmu state='off'/>", "<iommu model='intel'>",
		"packed='on'", "<rate bytes='2048' period='500'/>",
		"vram='16384'", "org.qemu.guest_agent.0", "<timer name='hpet' present='yes'/>",
	} {
		testproc.Contains(t, text, want, "no %s in\n%s", want)
	}
	if n := strings.Count(text, "<serial "); n != 2 {
		t.Errorf("%d serial ports in\n%s", n, text)
	}
	testproc.NoError(t, r.Manager.Destroy(t.Context(), node, spec.UUID))

	spec = guestOf(21, 2, 64, map[string]string{"hw:hide_hypervisor_id": "true"})
	if _, err := r.Spawn(t.Context(), node, spec, nil); !isFault(err) {
		t.Errorf("%v, want a fault: processors are emulated here", err)
	}
	r.nothingLeft(nil)
}

// TestRealSecureBootAndTPM: a guest with secure boot and a TPM boots its firmware, keeps variables
// and TPM while it is off, and leaves neither behind.
func TestRealSecureBootAndTPM(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if found, _ := filepath.Glob("/usr/share/qemu/firmware/*secure-enrolled*.json"); len(found) == 0 {
		testproc.NotRun(t, "no firmware with keys (Debian package: ovmf)")
	}
	for _, program := range []string{"swtpm", "swtpm_setup"} {
		if _, err := exec.LookPath(program); err != nil {
			testproc.NotRun(t, "no "+program+" (Debian packages: swtpm, swtpm-tools)")
		}
	}
	r := hardwareRig(t)
	left := func() []string {
		t.Helper()
		var out []string
		for _, pattern := range []string{"qemu/nvram/*", "swtpm/*"} {
			files := testproc.Try(filepath.Glob(filepath.Join(filepath.Dir(r.Log()), "lib", pattern))).Or(t)
			for _, file := range files {
				out = append(out, filepath.Base(file))
			}
		}
		slices.Sort(out)
		return out
	}
	spec := guestOf(22, 1, 256,
		map[string]string{"os:secure_boot": "required", "hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"})
	if is, err := r.Spawn(t.Context(), node, spec, nil); err != nil || is.Power != plugins.PowerRunning {
		t.Fatalf("%+v, %v", is, err)
	}
	r.says(spec.UUID, "BdsDxe")
	text := r.xml(spec.UUID)
	for _, want := range []string{"<feature enabled='yes' name='enrolled-keys'/>",
		"<feature enabled='yes' name='secure-boot'/>", "<smm state='on'/>", "<tpm model='tpm-crb'>", "version='2.0'"} {
		testproc.Contains(t, text, want, "no %s in\n%s", want)
	}
	diff(t, "what the firmware and the TPM keep", []string{spec.UUID, domain.Name(spec.UUID) + "_VARS.fd"}, left())
	for _, to := range []plugins.PowerState{plugins.PowerShutdown, plugins.PowerRunning} {
		if is, err := r.SetPower(t.Context(), node, spec.UUID, to, true); err != nil || is.Power != to {
			t.Fatalf("%+v, %v", is, err)
		}
	}
	diff(t, "what they keep after a restart", []string{spec.UUID, domain.Name(spec.UUID) + "_VARS.fd"}, left())
	testproc.NoError(t, r.Manager.Destroy(t.Context(), node, spec.UUID))
	r.nothingLeft(nil)
	diff(t, "left", []string(nil), left())

	// UEFI alone, and TPM 1.2.
	spec = guestOf(23, 1, 256, map[string]string{"os:secure_boot": "optional", "hw:tpm_version": "1.2"})
	spec.ImageProperties = map[string]string{"hw_firmware_type": "uefi"}
	if is, err := r.Spawn(t.Context(), node, spec, nil); err != nil || is.Power != plugins.PowerRunning {
		t.Fatalf("%+v, %v", is, err)
	}
	if text := r.xml(spec.UUID); strings.Contains(text, "<smm state='on'") ||
		!strings.Contains(text, "<tpm model='tpm-tis'>") {
		t.Error(text)
	}
	testproc.NoError(t, r.Manager.Destroy(t.Context(), node, spec.UUID))
	r.nothingLeft(nil)
	diff(t, "left", []string(nil), left())

	// There is no such firmware for an ISA PC.
	spec = guestOf(24, 1, 256, nil)
	spec.ImageProperties = map[string]string{"hw_firmware_type": "uefi", "hw_machine_type": "isapc"}
	if _, err := r.Spawn(t.Context(), node, spec, nil); !isFault(err) {
		t.Errorf("%v, want a fault", err)
	}
	r.nothingLeft(nil)
	diff(t, "left", []string(nil), left())
}
