// SPDX-License-Identifier: Apache-2.0

package hosttraits

import "maps"

// service are the traits by which Nova's service on the host promises what it can do with guests, as far as Nova's libvirt driver can have
// them: its CAPABILITY_TRAITS_MAP, without those that are facts about the hypervisor (they are in rules). Nova's answer depends on its
// configuration for a few; what is here is the answer to the default one. The others have no answer: only an override names them.
var service = []rule{
	{"COMPUTE_ACCELERATORS", always},
	{"COMPUTE_CONFIG_DRIVE_REGENERATION", silent},
	{"COMPUTE_DEVICE_TAGGING", always},
	{"COMPUTE_EPHEMERAL_ENCRYPTION", silent},
	{"COMPUTE_EPHEMERAL_ENCRYPTION_LUKS", silent},
	{"COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2", silent},
	{"COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN", silent},
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
	{"COMPUTE_MEM_BACKING_FILE", silent}, // with file_backed_memory
	{"COMPUTE_MIGRATE_AUTO_CONVERGE", silent},
	{"COMPUTE_MIGRATE_POST_COPY", silent},
	{"COMPUTE_NET_ATTACH_INTERFACE", always},
	{"COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", always},
	{"COMPUTE_REMOTE_MANAGED_PORTS", func(g guests) verdict { return g.since(7, 9, 0, 0) }},
	{"COMPUTE_RESCUE_BFV", always},
	{"COMPUTE_SAME_HOST_COLD_MIGRATE", never},
	{"COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT", silent},
	{"COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST", silent},
	{"COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER", silent},
	{"COMPUTE_SHARE_LOCAL_FS", silent},
	{"COMPUTE_SOCKET_PCI_NUMA_AFFINITY", always},
	{"COMPUTE_STORAGE_VIRTIO_FS", func(g guests) verdict { return g.has(g.filesystems, "virtiofs") }},
	{"COMPUTE_TRUSTED_CERTS", always},
	{"COMPUTE_VOLUME_ATTACH", silent},
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

// Capabilities is what the service that runs the guests promises, by trait, for [plugins.CapabilityReporter]: what is true is put on the
// root, what is false is taken off it, and what is missing is left alone.
//
// None of it follows from the host. nova-compute can attach a volume to a running guest; this driver's own instances can be made, started,
// stopped and deleted, no more. A promise that is not kept sends a guest where it fails; one that is withdrawn while nova-compute still keeps
// it leaves guests without a host. So it is the operator who says who runs the guests:
//
//	keep    nova-compute does, beside the agent, or did: its traits stay, none is written (the default)
//	report  nova-compute does, and nobody has written its traits: a new host, beside others that Nova reports
//	remove  the driver does: none of it is promised
//
// Overrides come on top.
func (h Host) Capabilities() map[string]bool {
	out := map[string]bool{}
	switch g := h.guests(); h.Config.Service {
	case Report:
		for _, r := range service {
			if v := r.of(g); v != unknown {
				out[r.trait] = v == yes
			}
		}
	case Remove:
		for _, r := range service {
			out[r.trait] = false
		}
	}
	maps.Copy(out, h.Config.Overrides)
	return out
}
