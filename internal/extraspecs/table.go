// SPDX-License-Identifier: Apache-2.0

package extraspecs

// The words for truth values.
var (
	yes = []string{"true", "1", "t", "on", "y", "yes"}
	no  = []string{"false", "0", "f", "off", "n", "no"}
)

func honoured(name, what, why string, values ...Values) Row {
	row := Row{Name: name, What: what, Why: why, Verdict: Honoured}
	for _, v := range values {
		row.Values = v
	}
	return row
}
func harmless(name, what, why string) Row {
	return Row{Name: name, What: what, Why: why, Verdict: Harmless}
}

// topologyWhy is how the division of processors is chosen.
const topologyWhy = "the nearest to what flavor and image say, as Nova chooses; an impossible one is refused"

func refused(name, what, why string, accepts ...string) Row {
	return Row{Name: name, What: what, Why: why, Verdict: Refused, Accepts: accepts}
}

// Flavor is the table of extra specs: those of Nova 26 (nova/api/validation/extra_specs), and
// later ones that are known. The first row that fits counts.
var Flavor = []Row{
	honoured("resources*:*", "amounts of resource classes, by request group",
		"Placement grants them; a class that the driver cannot give is a fault"),
	honoured("trait*:*", "traits that hosts have or lack, by request group", "Placement chooses by them"),
	honoured("same_subtree:*", "request groups that are served below one provider",
		"Placement does it; each such extra spec is one list of groups: [above](#groups-that-belong-together)"),
	honoured("group_policy", "whether request groups may share a provider",
		"Placement does it; OpenStack's requires it with several groups, the bundled one takes `none` for it"),

	honoured("hw:cpu_policy", "processors that are dedicated, shared or mixed",
		"PCPU and VCPU of Placement; the driver pins"),
	honoured("hw:cpu_thread_policy", "how dedicated processors use the threads of cores",
		"a trait, where the processors are, and the driver's choice"),
	honoured("hw:cpu_dedicated_mask", "which processors of a mixed server are dedicated", "the driver pins them"),
	honoured("hw:emulator_threads_policy", "where the emulator runs", "the driver pins it"),
	honoured("hw:mem_page_size", "the size of memory pages",
		"on hosts with NUMA cells pages of Placement; the driver gives such pages, or it is a fault"),
	honoured("hw:numa_nodes", "how many NUMA nodes a server has",
		"each is on a NUMA node of its own of the host: [above](#numa-nodes)", between(1, MostGuestCells)),
	honoured("hw:numa_cpus.*", "which processors a NUMA node has", "as `hw:numa_nodes`"),
	honoured("hw:numa_mem.*", "how much memory a NUMA node has", "as `hw:numa_nodes`", atLeast(1)),
	refused("hw:pci_numa_affinity_policy", "whether devices are on the NUMA node of the processors",
		"no resource provider stands for a socket", "legacy", "preferred", "required"),
	refused("hw:cpu_realtime", "real-time processors", "no server has real-time processors", no...),
	refused("hw:cpu_realtime_mask", "which processors are real-time", "no server has real-time processors"),
	honoured("hw:cpu_sockets", "the topology of processors", topologyWhy, atLeast(1)),
	honoured("hw:cpu_cores", "the topology of processors", topologyWhy, atLeast(1)),
	honoured("hw:cpu_threads", "the topology of processors", topologyWhy, atLeast(1)),
	honoured("hw:cpu_max_sockets", "bounds of the topology of processors", topologyWhy, atLeast(1)),
	honoured("hw:cpu_max_cores", "bounds of the topology of processors", topologyWhy, atLeast(1)),
	honoured("hw:cpu_max_threads", "bounds of the topology of processors", topologyWhy, atLeast(1)),
	refused("hw:max_cpu_*", "nothing: Nova 26 lets flavors have it, and never reads it",
		"use hw:cpu_max_sockets, hw:cpu_max_cores and hw:cpu_max_threads"),
	honoured("hw:boot_menu", "a boot menu", "the firmware shows it; the image's word counts", truth),
	honoured("hw:hide_hypervisor_id", "hiding the hypervisor from the guest",
		"KVM is hidden; a fault where processors are emulated", truth),
	honoured("hide_hypervisor_id", "hiding the hypervisor from the guest",
		"the older name of hw:hide_hypervisor_id", truth),
	honoured("hw:locked_memory", "memory that is not swapped",
		"the driver locks it; needs hw:mem_page_size, as in Nova", truth),
	honoured("hw:mem_encryption", "encrypted memory",
		"MEM_ENCRYPTION_CONTEXT and a trait of Placement; implies UEFI if the image does not say which firmware",
		truth),
	honoured(
		"hw:mem_encryption_model",
		"the kind of memory encryption, amd-sev if it is not set",
		"a trait; nothing without hw:mem_encryption, as in Nova",
		oneOf(AMDSEV, AMDSEVES, AMDSEVSNP),
	),
	refused("hw:maxphysaddr_mode", "how wide addresses of memory are",
		"addresses are as wide as the hypervisor has them"),
	refused("hw:maxphysaddr_bits", "how wide addresses of memory are",
		"addresses are as wide as the hypervisor has them"),
	refused("hw:pmem", "persistent memory", "servers cannot be given persistent memory"),
	honoured("hw:pmu", "whether there is a performance monitoring unit",
		"the driver makes it, or it is a fault", truth),
	honoured("hw:serial_port_count", "serial ports, 1 if it says 0",
		"the driver makes them; the console log is of the first one", between(0, 4)),
	honoured("hw:tpm_version", "a TPM", "a trait, and the driver makes it", oneOf("1.2", tpm20)),
	honoured("hw:tpm_model", "the model of a TPM, tpm-tis if it is not set",
		"a trait, and the driver makes it; needs hw:tpm_version", oneOf(tis, crb)),
	refused("hw:tpm_secret_security", "how the secret of a TPM is kept",
		"the state of a TPM has no secret: it is a file on the host that only its administrator can read"),
	honoured("hw:viommu_model", "a virtual IOMMU", "a trait, and the driver makes it",
		oneOf("intel", "smmuv3", "virtio", "auto")),
	refused("hw:vif_multiqueue_enabled",
		"several queues of network interfaces", "servers have no network interfaces", no...),
	honoured("hw:virtio_packed_ring", "packed rings of virtio devices",
		"a trait; all virtio devices of the server have them", truth),
	honoured("hw:watchdog_action", "a watchdog", "the driver makes it; the image's word counts",
		oneOf("none", "pause", "poweroff", "reset", "disabled")),
	refused("hw:sound_model", "a sound device", "servers have no sound"),
	refused("hw:usb_model", "the model of the USB controller", "the USB controller cannot be chosen"),
	refused("hw:redirected_usb_ports", "ports for USB devices of a viewer", "there is no viewer to redirect from", "0"),
	refused("hw:ephemeral_encryption", "encrypted disks", "disks are not encrypted", no...),
	refused("hw:ephemeral_encryption_format", "the format of encrypted disks", "disks are not encrypted"),
	refused("hw:*", "any other hardware", "it is not known"),

	honoured("hw_rng:allowed", "whether there is a random number generator", "there is one if it says nothing", truth),
	honoured("hw_rng:rate_bytes", "how many bytes the random number generator gives in a period",
		"the driver limits it; 0 is no limit", atLeast(0)),
	honoured("hw_rng:rate_period", "the period in milliseconds", "1000 if it is not set or 0", atLeast(0)),
	refused("hw_rng:*", "anything else about the random number generator", "it is not known"),
	honoured("hw_video:ram_max_mb", "the most video memory that an image may ask for",
		"an image that asks for more is a fault", atLeast(0)),
	refused("hw_video:*", "any other video device", "servers have no video device"),

	honoured("os:secure_boot", "secure boot",
		"a trait, and the driver makes it; implies UEFI if the image does not say which firmware",
		oneOf(Required, Optional, "disabled")),
	refused("os:*", "screens of Hyper-V (resolution, monitors, vram)", "servers have no screen"),

	honoured(AliasSpec, "PCI devices by aliases, as a1:2,a2:1",
		"a request group for each device, by the pci_alias of the compute API"),
	refused("pci_passthrough:*", "anything else about PCI devices", "it is not known"),
	refused("accel:*", "devices of Cyborg", "there is no Cyborg"),
	refused("quota:*", "limits and shares of processors, memory, disks and network interfaces",
		"nothing is limited while a server runs"),
	refused("vmware:*", "settings of VMware", "there is no VMware"),
	refused("powervm:*", "settings of PowerVM", "there is no PowerVM"),

	refused("aggregate_instance_extra_specs:*", "hosts by the metadata of aggregates",
		"extra specs are not compared with the metadata of aggregates; choose hosts with trait:NAME"),
	refused("capabilities:*", "hosts by their capabilities",
		"hosts are not chosen by capabilities; choose them with trait:NAME"),
	harmless(otherNames, "names in other namespaces",
		"Nova does not read them either; they are given to the driver, and name aggregates where the operator has "+
			"it so: [above](#reserved-hosts)"),
	refused("*", "names without a namespace",
		"Nova chooses hosts by it, which is not done here; choose them with trait:NAME"),
}

// Image is the table of properties of images: those of Nova (nova/objects/image_meta.py), by the
// names that it has today; see [Current].
var Image = []Row{
	honoured("hw_architecture", "the architecture", "the host's own, or it is a fault"),
	honoured("hw_emulation_architecture", "the architecture to emulate", "the host's own, or it is a fault"),
	honoured("hw_machine_type", "the machine type", "the driver makes it, or it is a fault"),
	honoured("hw_firmware_type", "the firmware", "the driver makes it, or it is a fault", oneOf(BIOS, UEFI)),
	honoured("hw_firmware_stateless", "UEFI that stores no variables", "the driver makes it, or it is a fault", truth),
	honoured("hw_disk_bus", "the bus of disks", "the driver makes it, or it is a fault",
		oneOf("virtio", "scsi", "sata", "usb")),
	honoured("hw_boot_menu", "a boot menu", "as hw:boot_menu", truth),
	honoured("hw_cpu_sockets", "the topology of processors", "as hw:cpu_sockets", atLeast(1)),
	honoured("hw_cpu_cores", "the topology of processors", "as hw:cpu_cores", atLeast(1)),
	honoured("hw_cpu_threads", "the topology of processors", "as hw:cpu_threads", atLeast(1)),
	honoured("hw_cpu_max_sockets", "bounds of the topology of processors",
		"no more than hw:cpu_max_sockets", atLeast(1)),
	honoured("hw_cpu_max_cores", "bounds of the topology of processors", "no more than hw:cpu_max_cores", atLeast(1)),
	honoured("hw_cpu_max_threads", "bounds of the topology of processors",
		"no more than hw:cpu_max_threads", atLeast(1)),
	honoured("hw_locked_memory", "memory that is not swapped", "as hw:locked_memory", truth),
	honoured("hw_mem_encryption", "encrypted memory",
		"as hw:mem_encryption; a fault if the flavor does not ask for it, too", truth),
	honoured("hw_mem_encryption_model", "the kind of memory encryption", "as hw:mem_encryption_model",
		oneOf(AMDSEV, AMDSEVES, AMDSEVSNP)),
	honoured("hw_pmu", "whether there is a performance monitoring unit", "as hw:pmu", truth),
	honoured("hw_qemu_guest_agent", "a channel for QEMU's agent in the guest", "the driver makes it", truth),
	honoured("hw_serial_port_count", "serial ports", "no more than hw:serial_port_count", between(0, 4)),
	honoured("hw_time_hpet", "the high precision event timer", "the driver makes it, or it is a fault", truth),
	honoured("hw_tpm_version", "a TPM", "as hw:tpm_version", oneOf("1.2", tpm20)),
	honoured("hw_tpm_model", "the model of a TPM", "as hw:tpm_model", oneOf(tis, crb)),
	honoured("hw_video_model", "a video device",
		"the driver makes it, or it is a fault; there is none if it says nothing", oneOf(videoModels...)),
	honoured("hw_video_ram", "the memory of the video device in MB", "no more than hw_video:ram_max_mb", atLeast(0)),
	honoured("hw_viommu_model", "a virtual IOMMU", "as hw:viommu_model, whose word counts",
		oneOf("intel", "smmuv3", "virtio", "auto")),
	honoured("hw_virtio_packed_ring", "packed rings of virtio devices", "as hw:virtio_packed_ring", truth),
	honoured("hw_watchdog_action", "a watchdog",
		"as hw:watchdog_action", oneOf("none", "pause", "poweroff", "reset", "disabled")),
	honoured("img_hide_hypervisor_id", "hiding the hypervisor from the guest", "as hw:hide_hypervisor_id", truth),

	refused("hw_rng_model", "the model of the random number generator",
		"the random number generator is of virtio", "virtio"),
	refused("hw_scsi_model", "the model of the SCSI controller", "the SCSI controller is of virtio", "virtio-scsi"),
	refused("hw_vm_mode", "how the guest is virtualized", "servers are hvm", "hvm"),
	refused("hw_vif_multiqueue_enabled",
		"several queues of network interfaces", "servers have no network interfaces", no...),
	refused("hw_cpu_policy", "processors that are dedicated, shared or mixed", flavorsChoose),
	refused("hw_cpu_thread_policy", "how dedicated processors use the threads of cores", flavorsChoose),
	refused("hw_cpu_realtime_mask", "which processors are real-time", "no server has real-time processors"),
	refused("hw_mem_page_size", "the size of memory pages", flavorsChoose),
	refused("hw_numa_nodes", "how many NUMA nodes a server has", flavorsChoose),
	refused("hw_numa_cpus*", "which processors a NUMA node has", flavorsChoose),
	refused("hw_numa_mem*", "how much memory a NUMA node has", flavorsChoose),
	refused("hw_pci_numa_affinity_policy", "whether devices are on the NUMA node of the processors", flavorsChoose),
	refused("hw_maxphysaddr_mode", "how wide addresses of memory are",
		"addresses are as wide as the hypervisor has them"),
	refused("hw_maxphysaddr_bits", "how wide addresses of memory are",
		"addresses are as wide as the hypervisor has them"),
	refused("hw_ephemeral_encryption", "encrypted disks", "disks are not encrypted", no...),
	refused("hw_ephemeral_encryption_format", "the format of encrypted disks", "disks are not encrypted"),
	refused("hw_ephemeral_encryption_secret_uuid", "the key of encrypted disks", "disks are not encrypted"),
	refused("hw_sound_model", "a sound device", "servers have no sound"),
	refused("hw_usb_model", "the model of the USB controller", "the USB controller cannot be chosen"),
	refused("hw_redirected_usb_ports", "ports for USB devices of a viewer", "there is no viewer to redirect from", "0"),
	harmless("hw_cdrom_bus", "the bus of CD-ROM drives", "servers have no CD-ROM drive"),
	harmless("hw_floppy_bus", "the bus of floppy drives", "servers have no floppy drive"),
	harmless("hw_rescue_bus", "the bus of the disk for a rescue", "servers are not rescued"),
	harmless("hw_rescue_device", "the device of the disk for a rescue", "servers are not rescued"),
	harmless("hw_vif_model", "the model of network interfaces", "servers have no network interfaces"),
	harmless("hw_input_bus", "the bus of tablet and keyboard", "servers have no screen to point at"),
	harmless("hw_pointer_model", "a tablet", "servers have no screen to point at"),
	harmless("hw_auto_disk_config", "whether Xen grows the root disk",
		"the driver makes it as large as the flavor says"),
	harmless("hw_device_id", "the version of Xen's tools", "there is no Xen"),
	harmless("hw_ipxe_boot", "how Xen boots from the network", "there is no Xen"),
	harmless("hw_disk_type", "how VMware allocates disks", "there is no VMware"),
	refused("hw_*", "any other hardware", "it is not known"),

	harmless("img_owner_id", "whose image it is", "it describes the image"),
	harmless("img_version", "a version", "it describes the image"),
	harmless("img_root_device_name", "the root disk's name in snapshots", "it describes the image"),
	harmless("img_bittorrent", "how Xen fetches it", "an image is a file on the host"),
	harmless("img_cache_in_nova", "whether Xen caches it", "an image is a file on the host"),
	harmless("img_compression_level", "the compression of snapshots", "there are no snapshots"),
	harmless("img_linked_clone", "how VMware makes disks", "there is no VMware"),
	harmless("img_use_agent", "whether Xen's agent is in the guest", "there is no Xen"),
	refused("img_hv_type", "the hypervisor", "the hypervisor is QEMU", "kvm", "qemu"),
	refused("img_hv_requested_version", "the version of the hypervisor",
		"hosts are not chosen by versions; choose them with trait:NAME of flavors"),
	refused("img_config_drive", "whether there must be a config drive",
		"it is not known when the server is created; ask for one with config_drive", "optional"),
	refused("img_bdm_v2", "the form of img_block_device_mapping", "servers have no volumes"),
	refused("img_block_device_mapping", "volumes and more disks", "servers have no volumes"),
	refused("img_mappings", "names of disks", "the names of disks cannot be chosen"),
	refused("img_signature*", "a signature", "signatures are not checked"),
	refused("img_*", "anything else about the image", "it is not known"),

	harmless("os_distro", "which system it is", "it describes the image"),
	harmless("os_version", "which system it is", "it describes the image"),
	harmless("os_admin_user", "whose password is set", "passwords are not set"),
	harmless("os_skip_agent_inject_files_at_boot", "what Xen's agent does", "there is no Xen"),
	harmless("os_skip_agent_inject_ssh", "what Xen's agent does", "there is no Xen"),
	honoured("os_secure_boot", "secure boot", "as os:secure_boot", oneOf(Required, Optional, "disabled")),
	refused("os_type", "the kind of system",
		"servers are made for Linux: windows needs a clock and a hypervisor that they do not have", "linux"),
	refused("os_require_quiesce", "that file systems can be frozen for snapshots", "there are no snapshots", no...),
	refused("os_command_line", "the command line of the kernel", "the kernel is in the image"),
	refused("os_*", "anything else about the system", "it is not known"),
	refused("trait:*", "traits of hosts", flavorsChoose),
	refused("traits_required", "traits of hosts", flavorsChoose),
	harmless("*", "any other name", "Nova does not read it either"),
}

// flavorsChoose is why an image cannot ask for what Placement grants.
const flavorsChoose = "hosts are chosen by flavors; use the flavor's extra spec"

var videoModels = []string{"vga", "cirrus", "vmvga", "xen", "qxl", "gop", "virtio", "none", "bochs"}

// Current gives the properties of an image the names that they have today: Nova reads older ones as
// well. Where there are both, the one with today's name counts.
func Current(properties map[string]string) map[string]string {
	out := make(map[string]string, len(properties))
	for name, value := range properties {
		if today, older := olderNames[name]; older {
			if _, both := properties[today]; both {
				continue
			}
			name = today
		}
		out[name] = value
	}
	if adapter := properties["vmware_adaptertype"]; adapter != "" {
		delete(out, "vmware_adaptertype")
		bus := map[bool]string{true: "ide", false: "scsi"}[adapter == "ide"]
		if _, given := out["hw_disk_bus"]; !given {
			out["hw_disk_bus"] = bus
		}
		if _, given := out["hw_scsi_model"]; bus == "scsi" && !given {
			out["hw_scsi_model"] = adapter
		}
	}
	return out
}

// olderNames has the present name of each older one, as ImageMetaProps._legacy_property_map in
// nova/objects/image_meta.py.
var olderNames = map[string]string{
	"architecture": "hw_architecture", "owner_id": "img_owner_id", "vmware_disktype": "hw_disk_type",
	"vmware_image_version": "img_version",
	"vmware_ostype":        "os_distro", "auto_disk_config": "hw_auto_disk_config", "ipxe_boot": "hw_ipxe_boot",
	"xenapi_device_id":               "hw_device_id",
	"xenapi_image_compression_level": "img_compression_level", "vmware_linked_clone": "img_linked_clone",
	"xenapi_use_agent":                       "img_use_agent",
	"xenapi_skip_agent_inject_ssh":           "os_skip_agent_inject_ssh",
	"xenapi_skip_agent_inject_files_at_boot": "os_skip_agent_inject_files_at_boot",
	"cache_in_nova":                          "img_cache_in_nova", "vm_mode": "hw_vm_mode",
	"bittorrent": "img_bittorrent", "mappings": "img_mappings",
	"block_device_mapping": "img_block_device_mapping",
	"bdm_v2":               "img_bdm_v2", "root_device_name": "img_root_device_name",
	"hypervisor_version_requires": "img_hv_requested_version", "hypervisor_type": "img_hv_type",
}
