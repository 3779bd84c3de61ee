// SPDX-License-Identifier: Apache-2.0

package extraspecs

// The words for truth values.
var (
	yes = []string{"true", "1", "t", "on", "y", "yes"}
	no  = []string{"false", "0", "f", "off", "n", "no"}
)

func honoured(name, what, why string) Row {
	return Row{Name: name, What: what, Why: why, Verdict: Honoured}
}
func harmless(name, what, why string) Row {
	return Row{Name: name, What: what, Why: why, Verdict: Harmless}
}
func refused(name, what, why string, accepts ...string) Row {
	return Row{Name: name, What: what, Why: why, Verdict: Refused, Accepts: accepts}
}

// Flavor is the table of extra specs: those of Nova 26 (nova/api/validation/extra_specs), and
// later ones that are known. The first row that fits counts.
var Flavor = []Row{
	honoured("resources*:*", "amounts of resource classes, by request group",
		"Placement grants them; a class that the driver cannot give is a fault"),
	honoured("trait*:*", "traits that hosts have or lack, by request group", "Placement chooses by them"),
	honoured("group_policy", "whether request groups may share a provider",
		"Placement does it; OpenStack's requires it with several groups, the bundled one takes `none` for it"),

	honoured("hw:cpu_policy", "processors that are dedicated, shared or mixed", "PCPU and VCPU of Placement; the driver pins"),
	honoured("hw:cpu_thread_policy", "how dedicated processors use the threads of cores", "a trait, and the driver's choice"),
	honoured("hw:cpu_dedicated_mask", "which processors of a mixed server are dedicated", "the driver pins them"),
	honoured("hw:emulator_threads_policy", "where the emulator runs", "the driver pins it"),
	honoured("hw:mem_page_size", "the size of memory pages", "the driver gives such pages, or it is a fault"),
	honoured("hw:numa_nodes", "how many NUMA nodes a server has", "the driver makes so many, or it is a fault"),
	refused("hw:numa_cpus.*", "which processors a NUMA node has", "NUMA nodes are divided evenly"),
	refused("hw:numa_mem.*", "how much memory a NUMA node has", "NUMA nodes are divided evenly"),
	refused("hw:pci_numa_affinity_policy", "whether devices are on the NUMA node of the processors",
		"NUMA nodes near the devices are preferred, and not required", "legacy", "preferred"),
	refused("hw:cpu_realtime", "real-time processors", "no server has real-time processors", no...),
	refused("hw:cpu_realtime_mask", "which processors are real-time", "no server has real-time processors"),
	refused("hw:cpu_sockets", "the topology of processors", "the topology of processors cannot be chosen"),
	refused("hw:cpu_cores", "the topology of processors", "the topology of processors cannot be chosen"),
	refused("hw:cpu_threads", "the topology of processors", "the topology of processors cannot be chosen"),
	refused("hw:max_cpu_sockets", "bounds of the topology of processors", "the topology of processors cannot be chosen"),
	refused("hw:max_cpu_cores", "bounds of the topology of processors", "the topology of processors cannot be chosen"),
	refused("hw:max_cpu_threads", "bounds of the topology of processors", "the topology of processors cannot be chosen"),
	refused("hw:boot_menu", "a boot menu", "there is no boot menu", no...),
	refused("hw:hide_hypervisor_id", "hiding the hypervisor from the guest", "the hypervisor is not hidden", no...),
	refused("hide_hypervisor_id", "hiding the hypervisor from the guest", "the hypervisor is not hidden", no...),
	refused("hw:locked_memory", "memory that is not swapped", "memory is not locked", no...),
	refused("hw:mem_encryption", "encrypted memory", "the memory of servers is not encrypted", no...),
	refused("hw:mem_encryption_model", "the kind of memory encryption", "the memory of servers is not encrypted"),
	refused("hw:pmem", "persistent memory", "servers cannot be given persistent memory"),
	refused("hw:pmu", "whether there is a performance monitoring unit", "the performance monitoring unit cannot be chosen"),
	refused("hw:serial_port_count", "serial ports", "every server has one serial port", "1"),
	refused("hw:tpm_model", "a TPM", "servers have no TPM"),
	refused("hw:tpm_version", "a TPM", "servers have no TPM"),
	refused("hw:tpm_secret_security", "how the secret of a TPM is kept", "servers have no TPM"),
	refused("hw:viommu_model", "a virtual IOMMU", "servers have no virtual IOMMU"),
	refused("hw:vif_multiqueue_enabled", "several queues of network interfaces", "servers have no network interfaces", no...),
	refused("hw:virtio_packed_ring", "packed rings of virtio devices", "virtio devices have split rings", no...),
	refused("hw:watchdog_action", "a watchdog", "servers have no watchdog", "disabled"),
	refused("hw:ephemeral_encryption", "encrypted disks", "disks are not encrypted", no...),
	refused("hw:ephemeral_encryption_format", "the format of encrypted disks", "disks are not encrypted"),
	refused("hw:*", "any other hardware", "it is not known"),

	refused("hw_rng:allowed", "a random number generator",
		"every server has a random number generator", yes...),
	refused("hw_rng:*", "the rate of the random number generator", "the random number generator has no limit"),
	harmless("hw_video:ram_max_mb", "the most video memory that an image may ask for", "no image asks for any"),
	refused("hw_video:*", "any other video device", "servers have no video device"),

	refused("os:secure_boot", "secure boot", "servers do not boot securely", "disabled", "optional"),
	refused("os:*", "screens of Hyper-V (resolution, monitors, vram)", "servers have no screen"),

	refused("pci_passthrough:*", "PCI devices by an alias", "there are no aliases; ask for devices with resources:CLASS"),
	refused("accel:*", "devices of Cyborg", "there is no Cyborg"),
	refused("quota:*", "limits and shares of processors, memory, disks and network interfaces", "nothing is limited while a server runs"),
	refused("vmware:*", "settings of VMware", "there is no VMware"),
	refused("powervm:*", "settings of PowerVM", "there is no PowerVM"),

	refused("aggregate_instance_extra_specs:*", "hosts by the metadata of aggregates",
		"there are no host aggregates with metadata; choose hosts with trait:NAME"),
	refused("capabilities:*", "hosts by their capabilities", "hosts are not chosen by capabilities; choose them with trait:NAME"),
	harmless("*:*", "names in other namespaces", "Nova does not read them either; they are given to the driver"),
	refused("*", "names without a namespace", "Nova chooses hosts by it, which is not done here; choose them with trait:NAME"),
}

// Image is the table of properties of images: those of Nova 26 (nova/objects/image_meta.py). The
// compute API knows none, because images are files; only another agent can send them to a driver.
var Image = []Row{
	honoured("hw_machine_type", "the machine type", "the driver makes it, or it is a fault"),
	honoured("hw_firmware_type", "bios or uefi", "the driver makes it, or it is a fault"),
	honoured("hw_disk_bus", "the bus of disks", "the driver makes it, or it is a fault"),
	refused("hw_rng_model", "the model of the random number generator", "the random number generator is of virtio", "virtio"),
	refused("hw_*", "any other hardware", "hardware is chosen by flavors"),
	harmless("img_owner_id", "whose image it is", "it describes the image"),
	harmless("img_version", "a version", "it describes the image"),
	harmless("img_bittorrent", "how Xen fetches it", "an image is a file on the host"),
	harmless("img_cache_in_nova", "whether Xen caches it", "an image is a file on the host"),
	harmless("img_compression_level", "the compression of snapshots", "there are no snapshots"),
	refused("img_*", "hypervisors, volumes, config drives and signatures", "servers are not made by it"),
	harmless("os_distro", "which system it is", "it describes the image"),
	harmless("os_version", "which system it is", "it describes the image"),
	harmless("os_admin_user", "whose password is set", "passwords are not set"),
	refused("os_*", "the command line, secure boot, the clock and agents of the system", "servers are not made by it"),
	refused("trait:*", "traits of hosts", "hosts are chosen by flavors"),
	refused("traits_required", "traits of hosts", "hosts are chosen by flavors"),
	harmless("*", "any other name", "Nova does not read it either"),
}
