// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"
)

// Version is one of libvirt's or QEMU's, in libvirt's notation: 9.1.2 is 9001002. 0 is not known.
type Version uint64

// guests are what the guests of a host can have, whichever architecture and machine type they
// choose: the union of the domain capabilities.
type guests struct {
	// asked says that libvirt gave domain capabilities. Without, little is known.
	asked bool
	// types are how guests run, arches their architectures.
	types, arches              map[string]bool
	buses, videos, filesystems map[string]bool
	// What follows is about guests of the host's own architecture.
	secureBoot, bios, uefi bool
	tpmEnabled             bool
	tpmBackends            map[string]bool
	tpmModels, tpmVersions map[string]bool
	libvirt, qemu          Version
}

func (h HostTraits) guests() guests {
	g := guests{
		asked: len(h.Domains) > 0, types: map[string]bool{}, arches: map[string]bool{},
		buses: map[string]bool{}, videos: map[string]bool{}, filesystems: map[string]bool{},
		tpmBackends: map[string]bool{}, tpmModels: map[string]bool{}, tpmVersions: map[string]bool{},
		tpmEnabled: h.Config.SWTPM, libvirt: h.Libvirt, qemu: h.QEMU,
	}
	for _, d := range h.Domains {
		g.types[d.Type] = true
		g.arches[d.Arch] = true
		add(g.buses, d.DiskBuses)
		add(g.videos, d.VideoModels)
		add(g.filesystems, d.Filesystems)
		if d.Arch != h.Arch {
			continue
		}
		g.secureBoot = g.secureBoot || d.Loader.Secure
		// Only PCs have a BIOS, which comes with the emulator and is in no list before libvirt 11.
		g.bios = g.bios || families[d.Arch] == "x86" &&
			slices.Contains(d.Loader.Types, "rom") || slices.Contains(d.Loader.Firmware, "bios")
		g.uefi = g.uefi || slices.Contains(d.Loader.Firmware, "efi") || d.Loader.Files &&
			slices.Contains(d.Loader.Types, "pflash")
		add(g.tpmBackends, d.TPM.Backends)
		add(g.tpmModels, d.TPM.Models)
		add(g.tpmVersions, d.TPM.Versions)
	}
	if len(g.tpmVersions) == 0 { // libvirt before 8.6 does not say; swtpm makes both
		add(g.tpmVersions, []string{"1.2", "2.0"})
	}
	return g
}

func add(to map[string]bool, words []string) {
	for _, w := range words {
		to[w] = true
	}
}

// known is b, if there are domain capabilities.
func (g guests) known(b bool) verdict {
	if !g.asked {
		return unknown
	}
	return verdictOf(b)
}

// has is whether libvirt lists a word.
func (g guests) has(set map[string]bool, word string) verdict { return g.known(set[word]) }

// byQEMU is whether QEMU runs the guests, with or without KVM. Of others nothing is known.
func (g guests) byQEMU() verdict {
	if !g.types["kvm"] && !g.types["qemu"] {
		return unknown
	}
	return yes
}

// qemuHas is b where QEMU runs the guests.
func (g guests) qemuHas(b bool) verdict {
	if g.byQEMU() == unknown {
		return unknown
	}
	return verdictOf(b)
}

// since is whether libvirt and QEMU are that new, where QEMU runs the guests; major 0 for any.
func (g guests) since(libvirtMajor, libvirtMinor, qemuMajor, qemuMinor Version) verdict {
	out := g.byQEMU()
	for _, v := range []struct{ have, want Version }{{g.libvirt, 1e6*libvirtMajor + 1e3*libvirtMinor},
		{g.qemu, 1e6*qemuMajor + 1e3*qemuMinor}} {
		switch {
		case v.want == 0 || out != yes:
		case v.have == 0:
			out = unknown
		default:
			out = verdictOf(v.have >= v.want)
		}
	}
	return out
}

// tpm is whether guests can have an emulated TPM that is in the set.
func (g guests) tpm(set map[string]bool, word string) verdict {
	return g.known(g.tpmEnabled && g.tpmBackends["emulator"] && set[word])
}

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
	trait    string
	evaluate func(guests) verdict
}

func always(guests) verdict    { return yes }
func never(guests) verdict     { return no }
func undecided(guests) verdict { return unknown }

// rules are all traits about what guests can have that the driver owns, in groups.
//
// Words are libvirt's, and so are the answers, where it answers: buses, video models, firmware,
// TPM. It does not say which network, sound, IOMMU and USB models its emulator has; as in Nova's
// driver these follow from how guests run, from their architectures, and from the versions that
// brought them. So a guest of a foreign architecture may be promised a model that only another one
// has, as under Nova.
var rules = slices.Concat(
	each(func(g guests, bus string) verdict { return g.has(g.buses, bus) }, map[string]string{
		"fdc": "COMPUTE_STORAGE_BUS_FDC", "ide": "COMPUTE_STORAGE_BUS_IDE", "lxc": "COMPUTE_STORAGE_BUS_LXC",
		"sata": "COMPUTE_STORAGE_BUS_SATA", "scsi": "COMPUTE_STORAGE_BUS_SCSI", "uml": "COMPUTE_STORAGE_BUS_UML",
		"usb": "COMPUTE_STORAGE_BUS_USB", "virtio": "COMPUTE_STORAGE_BUS_VIRTIO", "xen": "COMPUTE_STORAGE_BUS_XEN",
	}),
	each(func(g guests, model string) verdict { return g.has(g.videos, model) }, map[string]string{
		"bochs": "COMPUTE_GRAPHICS_MODEL_BOCHS", "cirrus": "COMPUTE_GRAPHICS_MODEL_CIRRUS",
		"gop":  "COMPUTE_GRAPHICS_MODEL_GOP",
		"none": "COMPUTE_GRAPHICS_MODEL_NONE", "qxl": "COMPUTE_GRAPHICS_MODEL_QXL", "vga": "COMPUTE_GRAPHICS_MODEL_VGA",
		"virtio": "COMPUTE_GRAPHICS_MODEL_VIRTIO", "vmvga": "COMPUTE_GRAPHICS_MODEL_VMVGA",
		"xen": "COMPUTE_GRAPHICS_MODEL_XEN",
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

// more are facts for which there is a trait but that Nova's driver does not report. Firmware must
// really be there: the emulator's word that it could load some is not enough.
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

// service are the traits by which Nova's service on the host promises what it can do with guests,
// as far as Nova's libvirt driver can have them: its CAPABILITY_TRAITS_MAP, without those that are
// facts about the hypervisor (they are in rules). Nova's answer depends on its configuration for a
// few; what is here is the answer to the default one. The others have no answer: only an override
// names them.
var service = []rule{
	{"COMPUTE_ACCELERATORS", always},
	{"COMPUTE_CONFIG_DRIVE_REGENERATION", undecided},
	{"COMPUTE_DEVICE_TAGGING", always},
	{"COMPUTE_EPHEMERAL_ENCRYPTION", undecided},
	{"COMPUTE_EPHEMERAL_ENCRYPTION_LUKS", undecided},
	{"COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2", undecided},
	{"COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN", undecided},
	{"COMPUTE_IMAGE_TYPE_AKI", always},
	{"COMPUTE_IMAGE_TYPE_AMI", always},
	{"COMPUTE_IMAGE_TYPE_ARI", always},
	{"COMPUTE_IMAGE_TYPE_ISO", always},
	{"COMPUTE_IMAGE_TYPE_PLOOP", never},
	{"COMPUTE_IMAGE_TYPE_QCOW2", always}, // not with images_type rbd or lvm
	{"COMPUTE_IMAGE_TYPE_RAW", always},
	{"COMPUTE_IMAGE_TYPE_VDI", never},
	{"COMPUTE_IMAGE_TYPE_VHD", never},
	{"COMPUTE_IMAGE_TYPE_VHDX", never},
	{"COMPUTE_IMAGE_TYPE_VMDK", never},
	{"COMPUTE_MEM_BACKING_FILE", undecided}, // with file_backed_memory
	{"COMPUTE_MIGRATE_AUTO_CONVERGE", undecided},
	{"COMPUTE_MIGRATE_POST_COPY", undecided},
	{"COMPUTE_NET_ATTACH_INTERFACE", always},
	{"COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", always},
	{"COMPUTE_REMOTE_MANAGED_PORTS", func(g guests) verdict { return g.since(7, 9, 0, 0) }},
	{"COMPUTE_RESCUE_BFV", always},
	{"COMPUTE_SAME_HOST_COLD_MIGRATE", never},
	{"COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT", undecided},
	{"COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST", undecided},
	{"COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER", undecided},
	{"COMPUTE_SHARE_LOCAL_FS", undecided},
	{"COMPUTE_SOCKET_PCI_NUMA_AFFINITY", always},
	{"COMPUTE_STORAGE_VIRTIO_FS", func(g guests) verdict { return g.has(g.filesystems, "virtiofs") }},
	{"COMPUTE_TRUSTED_CERTS", always},
	{"COMPUTE_VOLUME_ATTACH", undecided},
	{"COMPUTE_VOLUME_ATTACH_WITH_TAG", always},
	{"COMPUTE_VOLUME_EXTEND", always},
	{"COMPUTE_VOLUME_MULTI_ATTACH", always},
}

var promised = func() map[string]bool {
	m := make(map[string]bool, len(service))
	for _, r := range service {
		m[r.trait] = true
	}
	return m
}()

// Capabilities is what the service that runs the guests promises, by trait, for
// [plugins.CapabilityReporter]: what is true is put on the root, what is false is taken off it, and
// what is missing is left alone.
//
// None of it follows from the host. nova-compute can attach a volume to a running guest; this
// driver's own instances can be made, started, stopped and deleted, no more. A promise that is not
// kept sends a guest where it fails; one that is withdrawn while nova-compute still keeps it leaves
// guests without a host. So the operator configures what runs the guests:
//
//	keep    nova-compute does, or did: its traits stay, none is written (the default)
//	report  nova-compute does, and has not written its traits: a new host, beside others that
//	        Nova reports
//	remove  the driver does: none of it is promised
//
// Overrides come on top.
func (h HostTraits) Capabilities() map[string]bool {
	out := map[string]bool{}
	switch g := h.guests(); h.Config.Service {
	case ReportTrait:
		for _, r := range service {
			if v := r.evaluate(g); v != unknown {
				out[r.trait] = v == yes
			}
		}
	case RemoveTrait:
		for _, r := range service {
			out[r.trait] = false
		}
	}
	maps.Copy(out, h.Config.Overrides)
	return out
}
