// SPDX-License-Identifier: Apache-2.0

package extraspecs

import (
	"strings"
)

// Request is what a server is to be made of: a flavor, and an image as far as it is known.
type Request struct {
	// Flavor and Image are names, for errors.
	Flavor, Image string
	VCPUs         int64
	ExtraSpecs    map[string]string
	// Properties are the properties of the image, under today's names or older ones.
	Properties map[string]string
}

// Hardware is what a flavor and an image ask for, beside amounts of resources and the places of
// processors and memory. The zero value asks for nothing.
type Hardware struct {
	// Architecture is the architecture of the image, in the kernel's word; "": any. Machine is the
	// machine type; "": the usual one.
	Architecture, Machine string
	// Firmware is bios or uefi; "": the usual one. Stateless firmware stores no variables.
	Firmware  string
	Stateless bool
	// SecureBoot is required, optional or disabled; "" is disabled.
	SecureBoot string
	// TPMVersion is 1.2 or 2.0, and TPMModel tpm-tis or tpm-crb; "": no TPM.
	TPMVersion, TPMModel string
	// Encryption is the kind of memory encryption: amd-sev, amd-sev-es, amd-sev-snp; "": none.
	Encryption string
	// LockedMemory is never swapped.
	LockedMemory bool
	// Topology is the topology of the processors; zeros: the usual one.
	Topology Topology
	// PMU says whether there is a performance monitoring unit; nil: as the hypervisor has it.
	PMU            *bool
	HideHypervisor bool
	// HPET is the high precision event timer.
	HPET bool
	// DiskBus is virtio, scsi, sata or usb; "": the usual one.
	DiskBus string
	// VideoModel is the model of the video device; "": none is asked for. VideoRAMMB is its memory
	// in MiB; 0: the usual amount.
	VideoModel string
	VideoRAMMB int64
	// IOMMU is the model of the virtual IOMMU: auto, intel, smmuv3, virtio; "": none.
	IOMMU string
	// PackedRing says that virtio devices have packed rings.
	PackedRing bool
	// Watchdog is what happens to a server that hangs: none, pause, poweroff, reset; "": there is
	// no watchdog.
	Watchdog string
	// BootMenu says that the firmware shows a menu.
	BootMenu bool
	// GuestAgent says that there is a channel for QEMU's agent in the guest.
	GuestAgent bool
	// SerialPorts is how many there are; 0: as usual.
	SerialPorts int64
	// NoRNG says that there is no random number generator. RNGBytes is how many bytes it gives in
	// RNGPeriod milliseconds; 0: no limit, and the usual period.
	NoRNG               bool
	RNGBytes, RNGPeriod int64
}

// Topology is how processors are divided.
type Topology struct{ Sockets, Cores, Threads int64 }

// The values of SecureBoot, and of Firmware.
const (
	Required = "required"
	Optional = "optional"
	UEFI     = "uefi"
	BIOS     = "bios"
)

// The kinds of Encryption.
const (
	AMDSEV    = "amd-sev"
	AMDSEVES  = "amd-sev-es"
	AMDSEVSNP = "amd-sev-snp"
)

// The version of a TPM that has tpm-crb, and that model.
const (
	tpm20 = "2.0"
	crb   = "tpm-crb"
	tis   = "tpm-tis"
)

// Hardware is what is asked for. What both flavor and image say follows Nova: they must agree, or
// one of them counts, or the image may ask for less. Where only UEFI has what is asked for (secure
// boot, memory encryption), an image that does not say which firmware it boots with gets UEFI.
//
// Errors: [*RefusedError], [*ValueError] and [*ConflictError].
func (r Request) Hardware() (Hardware, error) {
	r.Properties = Current(r.Properties)
	if err := Check(r.ExtraSpecs); err != nil {
		return Hardware{}, err
	}
	if err := CheckImage(r.Properties); err != nil {
		return Hardware{}, err
	}
	h := Hardware{
		Architecture: architecture(r.Properties), Machine: r.Properties["hw_machine_type"],
		DiskBus: r.Properties["hw_disk_bus"],
		HPET:    isTrue(r.Properties["hw_time_hpet"]), GuestAgent: isTrue(r.Properties["hw_qemu_guest_agent"]),
		HideHypervisor: isTrue(r.ExtraSpecs["hide_hypervisor_id"]) || isTrue(r.ExtraSpecs["hw:hide_hypervisor_id"]) ||
			isTrue(r.Properties["img_hide_hypervisor_id"]),
		BootMenu: isTrue(r.ExtraSpecs["hw:boot_menu"]),
	}
	if menu, given := r.Properties["hw_boot_menu"]; given {
		h.BootMenu = isTrue(menu)
	}
	if h.IOMMU = r.ExtraSpecs["hw:viommu_model"]; h.IOMMU == "" {
		h.IOMMU = r.Properties["hw_viommu_model"]
	}
	h.Watchdog = r.ExtraSpecs["hw:watchdog_action"]
	if action, given := r.Properties["hw_watchdog_action"]; given {
		h.Watchdog = action
	}
	if h.Watchdog == "disabled" {
		h.Watchdog = ""
	}
	h.rng(r)
	for _, step := range []func(Request) error{h.topology,
		h.firmware, h.tpm, h.video, h.serial, h.switches, h.encryption, h.locked} {
		if err := step(r); err != nil {
			return Hardware{}, err
		}
	}
	return h, nil
}

// Traits are what a host must have for it, as newest Nova requires them.
func (h Hardware) Traits() []string {
	var out []string
	if h.SecureBoot == Required {
		out = append(out, TraitSecureBoot)
	}
	if h.Stateless {
		out = append(out, "COMPUTE_SECURITY_STATELESS_FIRMWARE")
	}
	if h.TPMVersion != "" {
		out = append(out, "COMPUTE_SECURITY_TPM_"+strings.ReplaceAll(h.TPMVersion, ".", "_"))
	}
	if h.TPMModel == crb { // every host with TPMs has the other model, and older Placements know no trait of it
		out = append(out, "COMPUTE_SECURITY_TPM_CRB")
	}
	if h.PackedRing {
		out = append(out, "COMPUTE_NET_VIRTIO_PACKED")
	}
	if h.IOMMU != "" {
		out = append(out, "COMPUTE_VIOMMU_MODEL_"+strings.ToUpper(h.IOMMU))
	}
	if h.DiskBus != "" {
		out = append(out, "COMPUTE_STORAGE_BUS_"+strings.ToUpper(h.DiskBus))
	}
	if h.VideoModel != "" {
		out = append(out, "COMPUTE_GRAPHICS_MODEL_"+strings.ToUpper(h.VideoModel))
	}
	return out
}

// The traits of hosts whose guests can boot securely, and whose guests can have UEFI.
const (
	TraitSecureBoot = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
	TraitUEFI       = "COMPUTE_FIRMWARE_UEFI"
)

// isTrue is a truth value that was checked.
func isTrue(value string) bool {
	truth, _ := parseTruth(value)
	return truth
}

// number reads a number that was checked; 0 if there is none.
func number(from map[string]string, name string) int64 {
	n, _ := atLeast(0).number(from[name])
	return n
}

// unique returns the value of a key in the flavor or the image, "" for none. It is an error if both
// have different ones.
func (r Request) unique(prefix, key string) (string, error) {
	flavor, image := r.ExtraSpecs[prefix+":"+key], r.Properties[prefix+"_"+key]
	if flavor != "" && image != "" && flavor != image {
		return "", r.conflict(prefix, key, flavor, image)
	}
	if flavor != "" {
		return flavor, nil
	}
	return image, nil
}

// uniqueTruth is the same for a truth value; nil: neither says anything.
func (r Request) uniqueTruth(key string) (*bool, error) {
	flavor, ofFlavor := r.ExtraSpecs["hw:"+key]
	image, ofImage := r.Properties["hw_"+key]
	switch {
	case ofFlavor && ofImage && isTrue(flavor) != isTrue(image):
		return nil, r.conflict("hw", key, pythonTruth(isTrue(flavor)), pythonTruth(isTrue(image)))
	case ofFlavor:
		v := isTrue(flavor)
		return &v, nil
	case ofImage:
		v := isTrue(image)
		return &v, nil
	}
	return nil, nil
}

func (r Request) conflict(prefix, key, flavor, image string) error {
	return conflictf("Flavor %.255s has %s:%s extra spec explicitly set to %.64s, conflicting with image %.255s "+
		"which has %[2]s_%[3]s explicitly set to %.64[6]s.",
		r.Flavor, prefix, key, flavor, r.Image, image)
}

// pythonTruth is Python's word for a truth value.
func pythonTruth(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func (h *Hardware) rng(r Request) {
	if allowed, given := r.ExtraSpecs["hw_rng:allowed"]; given && !isTrue(allowed) {
		h.NoRNG = true
		return
	}
	if h.RNGBytes = number(r.ExtraSpecs, "hw_rng:rate_bytes"); h.RNGBytes > 0 {
		h.RNGPeriod = number(r.ExtraSpecs, "hw_rng:rate_period")
	}
}

func (h *Hardware) firmware(r Request) (err error) {
	h.Firmware, h.Stateless = r.Properties["hw_firmware_type"], isTrue(r.Properties["hw_firmware_stateless"])
	if h.SecureBoot, err = r.unique("os", "secure_boot"); err != nil {
		return err
	}
	if h.SecureBoot == Required && h.Firmware == "" {
		h.Firmware = UEFI
	}
	switch {
	case h.SecureBoot == Required && h.Firmware != UEFI:
		return conflictf(
			"Secure boot is required, but the image has the property hw_firmware_type=%s: only UEFI boots securely.",
			h.Firmware)
	case h.SecureBoot == Required && h.Stateless:
		return conflictf(
			"Secure boot is required, but the image has the property hw_firmware_stateless: such firmware has no " +
				"keys to check by.")
	case h.Stateless && h.Firmware != UEFI:
		return conflictf("The image has the property hw_firmware_stateless, and needs hw_firmware_type=uefi then.")
	}
	return nil
}

func (h *Hardware) tpm(r Request) (err error) {
	if h.TPMVersion, err = r.unique("hw", "tpm_version"); err != nil {
		return err
	}
	if h.TPMModel, err = r.unique("hw", "tpm_model"); err != nil {
		return err
	}
	switch {
	case h.TPMVersion == "" && h.TPMModel != "":
		return conflictf(
			"A TPM of the model %s is asked for, and no version: set hw:tpm_version of the flavor, or "+
				"hw_tpm_version of the image.", h.TPMModel)
	case h.TPMModel == crb && h.TPMVersion != tpm20:
		return conflictf("TPM model CRB is only valid with TPM version 2.0.")
	case h.TPMVersion != "" && h.TPMModel == "":
		h.TPMModel = tis
	}
	return nil
}

func (h *Hardware) video(r Request) error {
	h.VideoModel, h.VideoRAMMB = r.Properties["hw_video_model"], number(r.Properties, "hw_video_ram")
	if most := number(r.ExtraSpecs, "hw_video:ram_max_mb"); h.VideoRAMMB > most {
		return conflictf("The requested amount of video memory %d is higher than the maximum allowed by flavor %d.",
			h.VideoRAMMB, most)
	}
	return nil
}

func (h *Hardware) serial(r Request) error {
	flavor, image := number(r.ExtraSpecs, "hw:serial_port_count"), number(r.Properties, "hw_serial_port_count")
	if flavor > 0 && image > flavor {
		return conflictf("Forbidden to exceed flavor value of number of serial ports passed in image meta.")
	}
	if h.SerialPorts = image; image == 0 {
		h.SerialPorts = flavor
	}
	return nil
}

// switches reads the switches on which flavor and image must not differ.
func (h *Hardware) switches(r Request) error {
	packed, err := r.uniqueTruth("virtio_packed_ring")
	if err != nil {
		return err
	}
	h.PackedRing = packed != nil && *packed
	h.PMU, err = r.uniqueTruth("pmu")
	return err
}

func (h *Hardware) encryption(r Request) error {
	asked, err := r.uniqueTruth("mem_encryption")
	if err != nil || asked == nil || !*asked {
		return err
	}
	if h.Encryption, err = r.unique("hw", "mem_encryption_model"); err != nil {
		return err
	}
	if h.Encryption == "" {
		h.Encryption = AMDSEV
	}
	if h.Firmware == "" {
		h.Firmware = UEFI
	}
	_, set := r.Properties["hw_firmware_stateless"]
	switch {
	case h.Firmware != UEFI:
		return conflictf(
			"Memory encryption is requested but the image metadata doesn't have the 'hw_firmware_type' property " +
				"set to 'uefi'")
	case h.Machine != "" && !strings.Contains(h.Machine, "q35"):
		return conflictf(
			"Machine type '%.64s' is not compatible with image %.255s: q35 type is required for SEV to work", h.Machine,
			r.Image)
	case h.Encryption == AMDSEVSNP && set && !h.Stateless:
		return conflictf(
			"The %s memory encryption model requires stateless firmware but the image metadata doesn't have the "+
				"'hw_firmware_stateless' property set to True",
			h.Encryption,
		)
	case h.Encryption == AMDSEVSNP:
		h.Stateless = true
	}
	if h.Stateless && h.SecureBoot == Required {
		return conflictf(
			"Secure boot is required, and memory encryption of the model %s: its firmware is stateless and has no "+
				"keys to check by.", h.Encryption)
	}
	return nil
}

func (h *Hardware) locked(r Request) error {
	flavor, ofFlavor := r.ExtraSpecs["hw:locked_memory"]
	image, ofImage := r.Properties["hw_locked_memory"]
	switch {
	case ofFlavor && ofImage && isTrue(flavor) != isTrue(image):
		return conflictf(
			"locked_memory value in image (%s) and flavor (%s) conflict. A consistent value is expected if "+
				"both specified.", pythonTruth(isTrue(image)), pythonTruth(isTrue(flavor)))
	case !isTrue(flavor) && !isTrue(image):
		return nil
	case r.ExtraSpecs["hw:mem_page_size"] == "":
		return conflictf("locked_memory value in image or flavor is forbidden when mem_page_size is not set.")
	}
	h.LockedMemory = true
	return nil
}

// architecture is the image's, in the kernel's word.
func architecture(properties map[string]string) string {
	word := properties["hw_emulation_architecture"]
	if word == "" {
		word = properties["hw_architecture"]
	}
	word = strings.ToLower(word)
	if same, known := architectures[word]; known {
		return same
	}
	return word
}

// architectures are other words for the same.
var architectures = map[string]string{
	"amd64": "x86_64", "x86-64": "x86_64", "x64": "x86_64", "arm64": "aarch64",
	"i386": "i686", "i486": "i686", "i586": "i686", "x86": "i686", "ppc64el": "ppc64le",
}
