// SPDX-License-Identifier: Apache-2.0

package extraspecs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// asked is a request for 4 processors: names and values of extra specs, which have a colon, and of
// properties.
func asked(text string) extraspecs.Request {
	r := extraspecs.Request{Flavor: "m1", Image: "debian",
		VCPUs: 4, ExtraSpecs: map[string]string{}, Properties: map[string]string{}}
	for _, one := range strings.Fields(text) {
		name, value, _ := strings.Cut(one, "=")
		if strings.Contains(name, ":") || name == "hide_hypervisor_id" {
			r.ExtraSpecs[name] = value
		} else {
			r.Properties[name] = value
		}
	}
	return r
}

// TestHardware: what flavor and image ask for together.
func TestHardware(t *testing.T) {
	yes, no := true, false
	for text, want := range map[string]extraspecs.Hardware{
		"":                         {},
		"hw:watchdog_action=reset": {Watchdog: "reset"},
		"hw:watchdog_action=reset hw_watchdog_action=pause":    {Watchdog: "pause"},
		"hw:watchdog_action=reset hw_watchdog_action=disabled": {},
		"hw:boot_menu=true":                                         {BootMenu: true},
		"hw:boot_menu=true hw_boot_menu=no":                         {},
		"hide_hypervisor_id=yes":                                    {HideHypervisor: true},
		"hw:hide_hypervisor_id=1":                                   {HideHypervisor: true},
		"img_hide_hypervisor_id=on":                                 {HideHypervisor: true},
		"hw:pmu=false":                                              {PMU: &no},
		"hw:pmu=true hw_pmu=yes":                                    {PMU: &yes},
		"hw:virtio_packed_ring=false hw_virtio_packed_ring=f":       {},
		"hw_virtio_packed_ring=true":                                {PackedRing: true},
		"hw:serial_port_count=3":                                    {SerialPorts: 3},
		"hw:serial_port_count=3 hw_serial_port_count=2":             {SerialPorts: 2},
		"hw_serial_port_count=4":                                    {SerialPorts: 4},
		"hw_rng:allowed=false hw_rng:rate_bytes=5":                  {NoRNG: true},
		"hw_rng:rate_bytes=5 hw_rng:rate_period=7":                  {RNGBytes: 5, RNGPeriod: 7},
		"hw_rng:rate_period=7":                                      {},
		"hw:viommu_model=intel hw_viommu_model=virtio":              {IOMMU: "intel"},
		"hw_viommu_model=auto":                                      {IOMMU: "auto"},
		"hw_video_model=qxl hw_video_ram=16 hw_video:ram_max_mb=16": {VideoModel: "qxl", VideoRAMMB: 16},
		"hw_video:ram_max_mb=16":                                    {},
		"hw:mem_page_size=small hw_locked_memory=true":              {LockedMemory: true},
		"hw:locked_memory=false":                                    {},
		"hw_machine_type=pc hw_disk_bus=sata hw_time_hpet=true": {Machine: "pc",
			DiskBus: "sata", HPET: true},
		"architecture=amd64 hw_qemu_guest_agent=yes": {Architecture: "x86_64",
			GuestAgent: true},
		"hw_architecture=x86_64 hw_emulation_architecture=arm64":                   {Architecture: "aarch64"},
		"hw_firmware_type=uefi hw_firmware_stateless=true":                         {Firmware: "uefi", Stateless: true},
		"vmware_adaptertype=lsiLogic hw_disk_bus=virtio hw_scsi_model=virtio-scsi": {DiskBus: "virtio"},
		"hw:cpu_sockets=1 hw:cpu_threads=2": {
			Topology: extraspecs.Topology{Sockets: 1, Cores: 2, Threads: 2},
		},
		"hw:cpu_max_sockets=2": {
			Topology: extraspecs.Topology{Sockets: 2, Cores: 2, Threads: 1},
		},
		"hw:cpu_max_sockets=2 hw_cpu_max_sockets=1 hw:cpu_sockets=2": {
			Topology: extraspecs.Topology{Sockets: 1, Cores: 4, Threads: 1},
		},
		"hw:cpu_sockets=4 hw_cpu_cores=4": {
			Topology: extraspecs.Topology{Sockets: 1, Cores: 4, Threads: 1},
		},
		"os:secure_boot=required": {Firmware: "uefi",
			SecureBoot: "required"},
		"os:secure_boot=required hw_firmware_type=uefi":   {Firmware: "uefi", SecureBoot: "required"},
		"os:secure_boot=optional os_secure_boot=optional": {SecureBoot: "optional"},
		"os:secure_boot=disabled hw_firmware_type=bios":   {Firmware: "bios", SecureBoot: "disabled"},
		"hw:mem_encryption=true":                          {Firmware: "uefi", Encryption: "amd-sev"},
		"hw:mem_encryption=true hw:mem_encryption_model=amd-sev-es hw_machine_type=pc-q35-9.2 hw_mem_encryption=yes": {
			Firmware: "uefi", Encryption: "amd-sev-es", Machine: "pc-q35-9.2",
		},
		"hw:mem_encryption=true hw:mem_encryption_model=amd-sev-snp os:secure_boot=optional": {
			Firmware: "uefi", Encryption: "amd-sev-snp", Stateless: true, SecureBoot: "optional",
		},
		"hw:mem_encryption=false hw:mem_encryption_model=amd-sev-es": {},
		"hw:tpm_version=2.0": {TPMVersion: "2.0", TPMModel: "tpm-tis"},
		"hw:tpm_version=2.0 hw_tpm_version=2.0 hw_tpm_model=tpm-crb": {TPMVersion: "2.0", TPMModel: "tpm-crb"},
	} {
		got, err := asked(text).Hardware()
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", text, d)
		}
	}
}

// TestConflicts: what is refused, and in which words.
func TestConflicts(t *testing.T) {
	for text, want := range map[string]string{
		"hw:watchdog_action=bark": "The extra spec hw:watchdog_action=bark of the " +
			"flavor is invalid: it must be none, pause, poweroff, reset or disabled.",
		"hw_watchdog_action=bark": "The property hw_watchdog_action=bark of the " +
			"image is invalid: it must be none, pause, poweroff, reset or disabled.",
		"hw:boot_menu=perhaps": "The extra spec hw:boot_menu=perhaps of the flavor is invalid: it must be " +
			"true or false.",
		"hw:cpu_sockets=0": "The extra spec hw:cpu_sockets=0 of the flavor is invalid: it must be an " +
			"integer of 1 or more.",
		"hw:serial_port_count=9": "The extra spec hw:serial_port_count=9 of the flavor is invalid: it must be " +
			"an integer from 0 to 4.",
		"hw:pmem=a": "The extra spec hw:pmem=a of the flavor is not supported here: servers " +
			"cannot be given persistent memory.",
		"vm_mode=xen": "The property hw_vm_mode=xen of the " +
			"image is not supported here: servers are hvm.",
		"vmware_adaptertype=lsiLogic": "The property hw_scsi_model=lsiLogic of the image is not supported here: " +
			"the SCSI controller is of virtio.",
		"vmware_adaptertype=ide": "The property hw_disk_bus=ide of the image is invalid: " +
			"it must be virtio, scsi, sata or usb.",
		"hw:pmu=true hw_pmu=false": "Flavor m1 has hw:pmu extra spec explicitly set to True, " +
			"conflicting with image debian which has hw_pmu explicitly set to False.",
		"hw:virtio_packed_ring=no hw_virtio_packed_ring=y": "Flavor m1 has hw:virtio_packed_ring extra spec " +
			"explicitly set to False, conflicting with image debian " +
			"which has hw_virtio_packed_ring explicitly set to True.",
		"hw:serial_port_count=1 hw_serial_port_count=2": "Forbidden to exceed flavor value of number of serial ports " +
			"passed in image meta.",
		"hw_video_model=vga hw_video_ram=17 hw_video:ram_max_mb=16": "The requested amount of video memory 17 is " +
			"higher than the maximum allowed by flavor 16.",
		"hw:locked_memory=true": "locked_memory value in image or flavor is forbidden when mem_page_size is not set.",
		"hw:locked_memory=true hw_locked_memory=false hw:mem_page_size=any": "locked_memory value in image (False) " +
			"and flavor (True) conflict. A consistent value is expected if both specified.",
		"hw_firmware_stateless=true": "The image has the property hw_firmware_stateless, " +
			"and needs hw_firmware_type=uefi then.",
		"hw:cpu_max_sockets=1 hw_cpu_max_sockets=2": "Image vCPU topology limits (sockets=2, cores=0, threads=0) " +
			"exceeds the limits of the flavor (sockets=1, cores=0, threads=0)",
		"hw:cpu_max_sockets=1 hw_cpu_sockets=2": "Image vCPU topology (sockets=2, cores=0, threads=0) " +
			"exceeds the limits of the flavor or image (sockets=1, cores=65536, threads=65536)",
		"hw:cpu_max_sockets=1 hw:cpu_max_cores=1 hw:cpu_max_threads=2": "Requested vCPU limits 1:1:2 are impossible " +
			"to satisfy for vcpus count 4",
		"hw:mem_encryption=true hw_mem_encryption=false": "Flavor m1 has hw:mem_encryption extra spec explicitly set " +
			"to True, conflicting with image debian which has hw_mem_encryption explicitly set to False.",
		"hw:mem_encryption=true hw:mem_encryption_model=amd-sev hw_mem_encryption_model=amd-sev-es": "Flavor m1 has " +
			"hw:mem_encryption_model extra spec explicitly set to amd-sev, " +
			"conflicting with image debian which has hw_mem_encryption_model explicitly set to amd-sev-es.",
		"hw:mem_encryption=true hw_firmware_type=bios": "Memory encryption is requested but the image metadata " +
			"doesn't have the 'hw_firmware_type' property set to 'uefi'",
		"hw:mem_encryption=true hw_machine_type=pc": "Machine type 'pc' is not compatible with image debian: " +
			"q35 type is required for SEV to work",
		"hw:mem_encryption=true hw:mem_encryption_model=amd-sev-snp " +
			"hw_firmware_type=uefi hw_firmware_stateless=no": "The amd-sev-snp memory encryption model requires " +
			"stateless firmware but the image metadata doesn't have the 'hw_firmware_stateless' property set to True",
		"hw:mem_encryption=true hw:mem_encryption_model=amd-sev-snp os:secure_boot=required": "Secure boot is " +
			"required, and memory encryption of the model amd-sev-snp: " +
			"its firmware is stateless and has no keys to check by.",
		"os:secure_boot=perhaps": "The extra spec os:secure_boot=" +
			"perhaps of the flavor is invalid: it must be required, optional or disabled.",
		"os:secure_boot=required hw_firmware_type=bios": "Secure boot is required, but " +
			"the image has the property hw_firmware_type=bios: only UEFI boots securely.",
		"os_secure_boot=required hw_firmware_type=uefi hw_firmware_stateless=true": "Secure boot is required, but " +
			"the image has the property hw_firmware_stateless: such firmware has no keys to check by.",
		"os:secure_boot=required os_secure_boot=disabled": "Flavor m1 has os:secure_boot extra spec explicitly set " +
			"to required, conflicting with image debian which has os_secure_boot explicitly set to disabled.",
		"hw:tpm_version=1.2 hw_tpm_version=2.0": "Flavor m1 has hw:tpm_version extra spec explicitly set to 1.2, " +
			"conflicting with image debian which has hw_tpm_version explicitly set to 2.0.",
		"hw:tpm_version=1.2 hw:tpm_model=tpm-crb": "TPM model CRB is only valid with TPM version 2.0.",
		"hw:tpm_model=tpm-tis": "A TPM of the model tpm-tis is asked for, and no version: set " +
			"hw:tpm_version of the flavor, or hw_tpm_version of the image.",
	} {
		_, err := asked(text).Hardware()
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestTraits: what a host must have.
func TestTraits(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil,
		"hw:virtio_packed_ring=true hw:viommu_model=intel": {"COMPUTE_NET_VIRTIO_PACKED",
			"COMPUTE_VIOMMU_MODEL_INTEL"},
		"hw_disk_bus=scsi hw_video_model=qxl": {"COMPUTE_STORAGE_BUS_SCSI",
			"COMPUTE_GRAPHICS_MODEL_QXL"},
		"hw_firmware_type=uefi hw_firmware_stateless=true": {"COMPUTE_SECURITY_STATELESS_FIRMWARE"},
		"os:secure_boot=required hw:tpm_version=2.0 hw:tpm_model=tpm-crb": {"COMPUTE_SECURITY_UEFI_SECURE_BOOT",
			"COMPUTE_SECURITY_TPM_2_0", "COMPUTE_SECURITY_TPM_CRB"},
		"os:secure_boot=optional hw:tpm_version=1.2": {"COMPUTE_SECURITY_TPM_1_2"},
	} {
		h := testproc.Try(asked(text).Hardware()).Or(t)
		testproc.Samef(t, cmp.Diff(want, h.Traits()), "%s", text)
	}
}

// TestTopologyIsNovas: of all divisions, Nova's order has this one first.
func TestTopologyIsNovas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := extraspecs.Request{VCPUs: rapid.Int64Range(1, 48).Draw(t, "vcpus"), ExtraSpecs: map[string]string{}}
		wanted, most := [3]int64{}, [3]int64{}
		for i, name := range []string{"sockets", "cores", "threads"} {
			wanted[i] = rapid.Int64Range(0, 6).Draw(t, name)
			most[i] = rapid.Int64Range(0, 8).Draw(t, "most "+name)
			for key, n := range map[string]int64{"hw:cpu_": wanted[i], "hw:cpu_max_": most[i]} {
				if n > 0 {
					r.ExtraSpecs[key+name] = fmt.Sprint(n)
				}
			}
		}
		got, err := r.Hardware()
		want, possible := novasTopology(r.VCPUs, wanted, most)
		if (err == nil) != possible {
			t.Fatalf("%v, and possible is %t", err, possible)
		}
		if len(r.ExtraSpecs) > 0 && want != got.Topology {
			t.Fatalf("%v, want %v", got.Topology, want)
		}
	})
}

// novasTopology is nova.virt.hardware, step by step.
func novasTopology(vcpus int64, wanted, most [3]int64) (extraspecs.Topology, bool) {
	above := false
	for i := range most {
		if most[i] == 0 {
			most[i] = 65536
		}
		above = above || wanted[i] > most[i]
	}
	if above {
		wanted = [3]int64{}
	}
	var possible []extraspecs.Topology
	for s := int64(1); s <= min(vcpus, most[0]); s++ {
		for c := int64(1); c <= min(vcpus, most[1]); c++ {
			for n := int64(1); n <= min(vcpus, most[2]); n++ {
				if s*c*n == vcpus {
					possible = append(possible, extraspecs.Topology{Sockets: s, Cores: c, Threads: n})
				}
			}
		}
	}
	if len(possible) == 0 {
		return extraspecs.Topology{}, false
	}
	slices.SortStableFunc(possible, func(a, b extraspecs.Topology) int {
		x, y := []int64{b.Sockets * b.Cores, b.Sockets, b.Threads}, []int64{a.Sockets * a.Cores, a.Sockets, a.Threads}
		return slices.Compare(x, y)
	})
	score := func(one extraspecs.Topology) (n int) {
		for i, v := range []int64{one.Sockets, one.Cores, one.Threads} {
			if wanted[i] == v {
				n++
			}
		}
		return n
	}
	best := possible[0]
	for _, one := range possible {
		if score(one) > score(best) {
			best = one
		}
	}
	return best, true
}

// FuzzHardware: whatever stands in a flavor and an image, there is hardware or a reason.
func FuzzHardware(f *testing.F) {
	for _, seed := range [][4]string{{"hw:cpu_sockets", "2", "hw_cpu_cores", "9"},
		{"hw:mem_encryption", "1", "vmware_adaptertype", ""},
		{"os:secure_boot", "required", "hw_firmware_type", "bios"}} {
		f.Add(seed[0], seed[1], seed[2], seed[3], int64(4))
	}
	f.Fuzz(func(t *testing.T, spec, value, property, of string, vcpus int64) {
		r := extraspecs.Request{VCPUs: vcpus, ExtraSpecs: map[string]string{spec: value},
			Properties: map[string]string{property: of}}
		h, err := r.Hardware()
		if err != nil && err.Error() == "" {
			t.Error("a refusal without a reason")
		}
		if d := h.Topology; err == nil && d != (extraspecs.Topology{}) && d.Sockets*d.Cores*d.Threads != vcpus {
			t.Errorf("%d processors are divided as %v", vcpus, d)
		}
	})
}
