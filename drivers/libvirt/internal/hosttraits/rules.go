// SPDX-License-Identifier: Apache-2.0

package hosttraits

import (
	"maps"
	"slices"
)

// verdict is whether a host has a trait.
type verdict int8

const (
	// unknown: the host did not say. The trait stays as it is.
	unknown verdict = iota
	no
	yes
)

func verdictOf(b bool) verdict {
	if b {
		return yes
	}
	return no
}

// rule decides about one trait.
type rule struct {
	trait string
	of    func(guests) verdict
}

func always(guests) verdict { return yes }
func never(guests) verdict  { return no }
func silent(guests) verdict { return unknown }

// rules are all traits about what guests can have that the driver owns, in groups.
//
// Words are libvirt's, and so are the answers, where it answers: buses, video models, firmware, TPM. It does not say which network, sound,
// IOMMU and USB models its emulator has; as in Nova's driver these follow from how guests run, from their architectures, and from the versions
// that brought them. So a guest of a foreign architecture may be promised a model that only another one has, as under Nova.
var rules = slices.Concat(
	each(func(g guests, bus string) verdict { return g.has(g.buses, bus) }, map[string]string{
		"fdc": "COMPUTE_STORAGE_BUS_FDC", "ide": "COMPUTE_STORAGE_BUS_IDE", "lxc": "COMPUTE_STORAGE_BUS_LXC",
		"sata": "COMPUTE_STORAGE_BUS_SATA", "scsi": "COMPUTE_STORAGE_BUS_SCSI", "uml": "COMPUTE_STORAGE_BUS_UML",
		"usb": "COMPUTE_STORAGE_BUS_USB", "virtio": "COMPUTE_STORAGE_BUS_VIRTIO", "xen": "COMPUTE_STORAGE_BUS_XEN",
	}),
	each(func(g guests, model string) verdict { return g.has(g.videos, model) }, map[string]string{
		"bochs": "COMPUTE_GRAPHICS_MODEL_BOCHS", "cirrus": "COMPUTE_GRAPHICS_MODEL_CIRRUS", "gop": "COMPUTE_GRAPHICS_MODEL_GOP",
		"none": "COMPUTE_GRAPHICS_MODEL_NONE", "qxl": "COMPUTE_GRAPHICS_MODEL_QXL", "vga": "COMPUTE_GRAPHICS_MODEL_VGA",
		"virtio": "COMPUTE_GRAPHICS_MODEL_VIRTIO", "vmvga": "COMPUTE_GRAPHICS_MODEL_VMVGA", "xen": "COMPUTE_GRAPHICS_MODEL_XEN",
	}),
	[]rule{
		{"COMPUTE_NET_VIF_MODEL_E1000", guests.byQEMU},
		{"COMPUTE_NET_VIF_MODEL_E1000E", guests.byQEMU},
		{"COMPUTE_NET_VIF_MODEL_IGB", func(g guests) verdict { return g.since(9, 3, 8, 0) }},
		{"COMPUTE_NET_VIF_MODEL_LAN9118", func(g guests) verdict { return g.qemuHas(g.types["qemu"]) }},
		{"COMPUTE_NET_VIF_MODEL_NE2K_PCI", guests.byQEMU},
		{"COMPUTE_NET_VIF_MODEL_PCNET", guests.byQEMU},
		{"COMPUTE_NET_VIF_MODEL_RTL8139", guests.byQEMU},
		{"COMPUTE_NET_VIF_MODEL_SPAPR_VLAN", guests.byQEMU},
		{"COMPUTE_NET_VIF_MODEL_VIRTIO", guests.byQEMU},
		{"COMPUTE_NET_VIF_MODEL_VMXNET3", guests.byQEMU},
		{"COMPUTE_NET_VIRTIO_PACKED", func(g guests) verdict { return g.since(6, 3, 4, 2) }},

		{"COMPUTE_VIOMMU_MODEL_AUTO", guests.byQEMU},
		{"COMPUTE_VIOMMU_MODEL_INTEL", func(g guests) verdict { return g.qemuHas(g.arches["x86_64"]) }},
		{"COMPUTE_VIOMMU_MODEL_SMMUV3", func(g guests) verdict { return g.qemuHas(g.arches["aarch64"]) }},
		{"COMPUTE_VIOMMU_MODEL_VIRTIO", func(g guests) verdict { return g.since(8, 3, 0, 0) }},

		{"COMPUTE_SOUND_MODEL_AC97", guests.byQEMU},
		{"COMPUTE_SOUND_MODEL_ES1370", guests.byQEMU},
		{"COMPUTE_SOUND_MODEL_ICH6", guests.byQEMU},
		{"COMPUTE_SOUND_MODEL_ICH9", guests.byQEMU},
		{"COMPUTE_SOUND_MODEL_PCSPK", guests.byQEMU},
		{"COMPUTE_SOUND_MODEL_SB16", guests.byQEMU},
		{"COMPUTE_SOUND_MODEL_USB", guests.byQEMU},
		{"COMPUTE_SOUND_MODEL_VIRTIO", func(g guests) verdict { return g.since(10, 4, 8, 2) }},

		{"COMPUTE_SECURITY_TPM_1_2", func(g guests) verdict { return g.tpm(g.tpmVersions, "1.2") }},
		{"COMPUTE_SECURITY_TPM_2_0", func(g guests) verdict { return g.tpm(g.tpmVersions, "2.0") }},
		{"COMPUTE_SECURITY_TPM_CRB", func(g guests) verdict { return g.tpm(g.tpmModels, "tpm-crb") }},
		{"COMPUTE_SECURITY_TPM_TIS", func(g guests) verdict { return g.tpm(g.tpmModels, "tpm-tis") }},

		{"COMPUTE_ADDRESS_SPACE_EMULATED", func(g guests) verdict { return g.since(8, 7, 2, 7) }},
		{"COMPUTE_ADDRESS_SPACE_PASSTHROUGH", func(g guests) verdict { return g.since(8, 7, 2, 7) }},
		{"COMPUTE_SECURITY_STATELESS_FIRMWARE", func(g guests) verdict { return g.since(8, 6, 0, 0) }},
		{"COMPUTE_SECURITY_UEFI_SECURE_BOOT", func(g guests) verdict { return g.known(g.secureBoot) }},
	},
)

// more are facts for which there is a trait but that Nova's driver does not report. Firmware must really be there: the emulator's word that it
// could load some is not enough.
var more = []rule{
	{"COMPUTE_FIRMWARE_BIOS", func(g guests) verdict { return g.known(g.bios) }},
	{"COMPUTE_FIRMWARE_UEFI", func(g guests) verdict { return g.known(g.uefi) }},
	{"COMPUTE_USB_MODEL_NEC_XHCI", func(g guests) verdict { return g.qemuHas(g.buses["usb"]) }},
	{"COMPUTE_USB_MODEL_QEMU_XHCI", func(g guests) verdict { return g.qemuHas(g.buses["usb"]) }},
}

// each makes a rule for each word of a table.
func each(of func(g guests, word string) verdict, traits map[string]string) []rule {
	var out []rule
	for _, word := range slices.Sorted(maps.Keys(traits)) {
		out = append(out, rule{traits[word], func(g guests) verdict { return of(g, word) }})
	}
	return out
}
