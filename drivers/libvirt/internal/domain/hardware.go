// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
)

// The words of libvirt and the kernel.
const (
	kvmType  = "kvm"
	qemuType = "qemu"
	x86      = "x86_64"
	arm      = "aarch64"
	s390     = "s390x"
	q35      = "q35"
	virtio   = "virtio"
	scsi     = "scsi"
	usb      = "usb"
	on       = "on"
	off      = "off"
	efi      = "efi"
	intel    = "intel"
	smmuv3   = "smmuv3"
	auto     = "auto"
	noVideo  = "none"
)

// mostSerialPorts is how many a PC can have. Other machines have one.
const mostSerialPorts = 4

// hardware is what an instance gets for what it asks for: where the host or the architecture
// decides, that is decided.
type hardware struct {
	extraspecs.Hardware
	arch string
	kvm  bool
	// firmware is libvirt's word; "": the usual one of the architecture.
	firmware string
	secure   bool
}

// choose decides about the hardware. The error is a [*plugins.InstanceFault].
func (s Spec) choose() (hardware, error) {
	return s.chooseBy(true)
}

// chooseBy is choose, without the memory encryption if that is not decided.
func (s Spec) chooseBy(decided bool) (hardware, error) {
	h := hardware{Hardware: s.Hardware, arch: s.Arch, kvm: s.Type == kvmType}
	h.Machine, h.DiskBus = cmp.Or(h.Machine, machines[s.Arch]), cmp.Or(h.DiskBus, virtio)
	steps := []func(Spec) string{h.sizes, h.boot, h.possible, h.emulated, h.iommu}
	if decided {
		steps = slices.Insert(steps, 2, h.encrypted)
	}
	for _, step := range steps {
		if reason := step(s); reason != "" {
			return hardware{}, &plugins.InstanceFault{UUID: s.Instance.UUID, Reason: reason}
		}
	}
	return h, nil
}

// Check reports what Write would refuse of what the owner asks for, whatever is decided: the
// Decision is not looked at.
//
// Errors: an [*plugins.InstanceFault].
func (s Spec) Check() error {
	s.Decision = Decision{}
	contexts := int64(0) // of which kind, the decision says
	for _, classes := range s.Instance.Allocations {
		contexts += classes["MEM_ENCRYPTION_CONTEXT"]
	}
	_, err := s.chooseBy(contexts == 0)
	return err
}

// sizes checks what is not checked before: the flavor's sizes, and what is the machine's.
func (h *hardware) sizes(s Spec) string {
	flavor := s.Instance.Flavor
	switch {
	case flavor.VCPUs < 1 || flavor.VCPUs > MaxVCPUs:
		return fmt.Sprintf("its flavor has %d VCPUs; it must have 1 to %d", flavor.VCPUs, MaxVCPUs)
	case flavor.MemoryMB < 1 || flavor.MemoryMB > maxMemoryMB:
		return fmt.Sprintf("its flavor has %d MB of memory; it must have 1 to %d", flavor.MemoryMB, int64(maxMemoryMB))
	case h.Machine != "" && !word.MatchString(h.Machine):
		return fmt.Sprintf("its image asks for the machine type %.60q", h.Machine)
	case targets[h.DiskBus] == "":
		return fmt.Sprintf("its image asks for the disk bus %.60q; it must be virtio, scsi, sata or usb", h.DiskBus)
	case h.Architecture != "" && h.Architecture != s.Arch && (h.Architecture != "i686" || s.Arch != x86):
		return fmt.Sprintf("its image is for the architecture %.60q, and the host has %s", h.Architecture, s.Arch)
	case h.SerialPorts > 1 && s.Arch != x86:
		return fmt.Sprintf("it asks for %d serial ports, and guests of %s have one", h.SerialPorts, s.Arch)
	case h.SerialPorts > mostSerialPorts:
		return fmt.Sprintf("it asks for %d serial ports, and there can be %d", h.SerialPorts, mostSerialPorts)
	case h.HPET && s.Arch != x86:
		return fmt.Sprintf("its image asks for a high precision event timer, which guests of %s do not have", s.Arch)
	case h.Topology != extraspecs.Topology{} && h.Topology.Sockets*h.Topology.Cores*h.Topology.Threads != flavor.VCPUs:
		return fmt.Sprintf("the topology of its processors is %d:%d:%d, and its flavor has %d",
			h.Topology.Sockets, h.Topology.Cores, h.Topology.Threads, flavor.VCPUs)
	}
	return ""
}

// boot decides about the firmware.
func (h *hardware) boot(s Spec) string {
	efiOnly := s.Arch == arm || s.Arch == "riscv64" // there is no other firmware
	switch h.Firmware {
	case "":
		if efiOnly {
			h.firmware = efi
		}
	case extraspecs.BIOS:
		if efiOnly {
			return fmt.Sprintf("its image asks for the firmware bios, which %s does not have", s.Arch)
		}
	case extraspecs.UEFI:
		h.firmware = efi
	default:
		return fmt.Sprintf("its image asks for the firmware %.60q; it must be bios or uefi", h.Firmware)
	}
	if h.Firmware == extraspecs.UEFI && s.lacksTrait(extraspecs.TraitUEFI) {
		return "UEFI is not supported by the host"
	}
	able := s.Arch != x86 || strings.Contains(h.Machine, q35)
	switch h.SecureBoot {
	case extraspecs.Required:
		if !able {
			return fmt.Sprintf("secure boot needs the machine type q35, and its image asks for %.60q", h.Machine)
		}
		h.secure = true // s.possible looks at the host
	case extraspecs.Optional:
		h.secure = h.firmware == efi && able && !h.Stateless && s.Traits[extraspecs.TraitSecureBoot]
	}
	return ""
}

// encryptions are the kinds of memory encryption by Nova's word.
var encryptions = map[string]Security{extraspecs.AMDSEV: SEV, extraspecs.AMDSEVES: SEVES, extraspecs.AMDSEVSNP: SEVSNP}

// encrypted compares the memory encryption that is asked for with what was granted.
func (h *hardware) encrypted(s Spec) string {
	granted := s.Decision.Encryption
	switch {
	case h.Encryption == "" && granted != "":
		return "it was granted MEM_ENCRYPTION_CONTEXT; its flavor must have hw:mem_encryption=true for it"
	case h.Encryption == "":
	case granted == "":
		return "it asks for encrypted memory, and was granted no MEM_ENCRYPTION_CONTEXT: its flavor must have " +
			"hw:mem_encryption=true, not its image alone"
	case granted != encryptions[h.Encryption]:
		return fmt.Sprintf("it asks for memory encryption of the model %s, and was granted a context of %s",
			h.Encryption, granted)
	case s.Type != kvmType:
		return "it asks for encrypted memory, which guests with emulated processors do not have"
	case s.Arch != x86 || !strings.Contains(h.Machine, q35):
		return fmt.Sprintf("q35 type is required for SEV to work, and its machine type is %s", h.Machine)
	}
	return ""
}

// lacksTrait reports whether it is known that guests of the host cannot have a trait.
func (s Spec) lacksTrait(trait string) bool {
	has, known := s.Traits[trait]
	return known && !has
}

// possible compares with what guests of the host can have.
func (h *hardware) possible(s Spec) string {
	for _, trait := range h.Traits() {
		if s.lacksTrait(trait) {
			return fmt.Sprintf("it asks for %s, which guests of this host cannot have (%s)", traitWords(trait), trait)
		}
	}
	return ""
}

// traitWords says what a trait stands for.
func traitWords(trait string) string {
	for _, t := range []struct{ prefix, words string }{
		{extraspecs.TraitSecureBoot, "secure boot"}, {"COMPUTE_SECURITY_STATELESS_FIRMWARE", "stateless firmware"},
		{"COMPUTE_SECURITY_TPM_", "such a TPM"}, {"COMPUTE_NET_VIRTIO_PACKED", "packed rings"},
		{"COMPUTE_VIOMMU_MODEL_", "such a virtual IOMMU"}, {"COMPUTE_STORAGE_BUS_", "such a disk bus"},
		{"COMPUTE_GRAPHICS_MODEL_", "such a video device"},
	} {
		if strings.HasPrefix(trait, t.prefix) {
			return t.words
		}
	}
	return "something"
}

// emulated refuses what only KVM can do.
func (h *hardware) emulated(s Spec) string {
	switch {
	case s.Type == kvmType:
	case h.HideHypervisor:
		return "it asks to hide the hypervisor, which guests with emulated processors cannot"
	case h.PMU != nil && *h.PMU && s.Arch == x86:
		return "it asks for a performance monitoring unit, which emulated processors do not have"
	}
	return ""
}

// iommu decides about the model of the IOMMU, as Nova does.
func (h *hardware) iommu(s Spec) string {
	model := map[string]string{x86: intel, arm: smmuv3}[s.Arch]
	switch {
	case h.IOMMU == "":
		return ""
	case model == "":
		return fmt.Sprintf("vIOMMU required either x86 or AArch64 architecture, but given architecture %s.", s.Arch)
	case s.Arch == x86 && !strings.Contains(h.Machine, q35), s.Arch == arm && !strings.Contains(h.Machine, "virt"):
		return fmt.Sprintf("vIOMMU is not supported by Current machine type %s (Architecture: %s).", h.Machine, s.Arch)
	case h.IOMMU == auto && !s.lacksTrait("COMPUTE_VIOMMU_MODEL_VIRTIO"):
		h.IOMMU = virtio
	case h.IOMMU == auto:
		h.IOMMU = model
	case h.IOMMU != virtio && h.IOMMU != model:
		return fmt.Sprintf("it asks for the virtual IOMMU %s, which guests of %s do not have", h.IOMMU, s.Arch)
	}
	return ""
}

// board writes what is no device.
func (h hardware) board(x *libvirtxml.Domain) {
	x.OS.Firmware = h.firmware
	if h.BootMenu {
		x.OS.BootMenu = &libvirtxml.DomainBootMenu{Enable: yes}
	}
	features := x.Features
	if features == nil {
		features = &libvirtxml.DomainFeatureList{}
	}
	if h.firmware == efi {
		h.loader(x.OS, features)
	}
	if h.HideHypervisor {
		features.KVM = &libvirtxml.DomainFeatureKVM{Hidden: &libvirtxml.DomainFeatureState{State: on}}
	}
	if h.PMU != nil {
		features.PMU = &libvirtxml.DomainFeatureState{State: map[bool]string{true: on, false: off}[*h.PMU]}
	}
	if h.IOMMU == intel {
		features.IOAPIC = &libvirtxml.DomainFeatureIOAPIC{Driver: "qemu"}
	}
	if *features != (libvirtxml.DomainFeatureList{}) {
		x.Features = features
	}
	if t := h.Topology; t != (extraspecs.Topology{}) {
		x.CPU.Topology = &libvirtxml.DomainCPUTopology{Sockets: int(t.Sockets),
			Cores: int(t.Cores), Threads: int(t.Threads)}
	}
	x.LaunchSecurity = h.launch()
	// QEMU pins pages that are encrypted in place
	if h.LockedMemory || h.Encryption != "" && h.Encryption != extraspecs.AMDSEVSNP {
		if x.MemoryBacking == nil {
			x.MemoryBacking = &libvirtxml.DomainMemoryBacking{}
		}
		x.MemoryBacking.MemoryLocked = &libvirtxml.DomainMemoryLocked{}
	}
}

// The policies of Nova: no debugging, no sharing of keys, only hosts of the same owner with SEV or
// better, and encrypted registers. For SEV-SNP: threads of one core may run other guests.
const (
	sevPolicy   = 0x33
	sevESPolicy = sevPolicy | encryptedState
	snpPolicy   = 0x30000
)

// launch is how the guest's memory is encrypted; nil: it is not.
func (h hardware) launch() *libvirtxml.DomainLaunchSecurity {
	policy := uint(sevPolicy)
	switch h.Encryption {
	case "":
		return nil
	case extraspecs.AMDSEVSNP:
		policy := uint64(snpPolicy)
		return &libvirtxml.DomainLaunchSecurity{SEVSNP: &libvirtxml.DomainLaunchSecuritySEVSNP{KernelHashes: "no",
			AuthorKey: "no", VCEK: yes, Policy: &policy}}
	case extraspecs.AMDSEVES:
		policy = sevESPolicy
	}
	return &libvirtxml.DomainLaunchSecurity{SEV: &libvirtxml.DomainLaunchSecuritySEV{Policy: &policy}}
}

// loader says which firmware libvirt is to find, by its features alone: some versions of libvirt
// refuse the older words for the same. Without keys that are enrolled, firmware that could check
// what it boots does not.
func (h hardware) loader(os *libvirtxml.DomainOS, features *libvirtxml.DomainFeatureList) {
	keys := yesNo(h.secure)
	os.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{
		{Enabled: keys, Name: "enrolled-keys"}, {Enabled: keys, Name: "secure-boot"},
	}}
	if h.Stateless {
		os.Loader = &libvirtxml.DomainLoader{Stateless: yes}
	}
	if h.secure && h.arch == x86 { // else the guest could write to the keys
		features.SMM = &libvirtxml.DomainFeatureSMM{State: on}
	}
}

// devices adds the devices that are asked for, and makes those of virtio as they are asked for.
func (h hardware) devices(out *libvirtxml.DomainDeviceList) {
	if !h.NoRNG {
		rng := libvirtxml.DomainRNG{
			Model:   virtio,
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}
		if h.RNGBytes > 0 {
			rng.Rate = &libvirtxml.DomainRNGRate{Bytes: uint(h.RNGBytes), Period: uint(h.RNGPeriod)}
		}
		out.RNGs = append(out.RNGs, rng)
	}
	for i := int64(1); i < h.SerialPorts; i++ {
		out.Serials = append(out.Serials,
			libvirtxml.DomainSerial{Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}})
	}
	if h.TPMVersion != "" {
		out.TPMs = append(out.TPMs, libvirtxml.DomainTPM{
			Model: h.TPMModel,
			Backend: &libvirtxml.DomainTPMBackend{
				Emulator: &libvirtxml.DomainTPMBackendEmulator{Version: h.TPMVersion},
			},
		})
	}
	if h.Watchdog != "" {
		model := "i6300esb"
		if h.arch == s390 {
			model = "diag288"
		}
		out.Watchdogs = append(out.Watchdogs, libvirtxml.DomainWatchdog{Model: model, Action: h.Watchdog})
	}
	if h.VideoModel != "" {
		video := libvirtxml.DomainVideoModel{Type: h.VideoModel}
		if h.VideoModel != noVideo {
			video.VRam = uint(h.VideoRAMMB) * 1024
		}
		out.Videos = append(out.Videos, libvirtxml.DomainVideo{Model: video})
	}
	if h.GuestAgent {
		out.Channels = append(out.Channels, libvirtxml.DomainChannel{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind"}},
			Target: &libvirtxml.DomainChannelTarget{
				VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"},
			},
		})
	}
	switch h.IOMMU {
	case "":
	case intel:
		driver := &libvirtxml.DomainIOMMUDriver{IntRemap: on, CachingMode: on, IOTLB: on, AWBits: 48}
		if h.kvm { // more than 255 processors; emulated ones cannot
			driver.EIM = on
		}
		out.IOMMUs = []libvirtxml.DomainIOMMU{{Model: intel, Driver: driver}}
	default: // libvirt takes no attributes of these
		out.IOMMUs = []libvirtxml.DomainIOMMU{{Model: h.IOMMU}}
	}
	if h.PackedRing {
		packed(out)
	}
}

// packed gives all virtio devices packed rings.
func packed(out *libvirtxml.DomainDeviceList) {
	for i := range out.Disks {
		if out.Disks[i].Target.Bus == virtio {
			out.Disks[i].Driver.Packed = on
		}
	}
	for i := range out.Controllers {
		if out.Controllers[i].Type == scsi {
			out.Controllers[i].Driver = &libvirtxml.DomainControllerDriver{Packed: on}
		}
	}
	for i := range out.RNGs {
		out.RNGs[i].Driver = &libvirtxml.DomainRNGDriver{Packed: on}
	}
	out.MemBalloon.Driver = &libvirtxml.DomainMemBalloonDriver{Packed: on}
	for i := range out.Videos {
		if out.Videos[i].Model.Type == virtio {
			out.Videos[i].Driver = &libvirtxml.DomainVideoDriver{Packed: on}
		}
	}
}

// yesNo is libvirt's word for a truth value.
func yesNo(b bool) string {
	if b {
		return yes
	}
	return "no"
}
