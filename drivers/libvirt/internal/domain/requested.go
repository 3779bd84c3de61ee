// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	mibPerGiB = 1024

	cpuPolicy  = "hw:cpu_policy"
	pmemSpec   = "hw:pmem"
	cyborgSpec = "accel:device_profile"
)

// overrides are extra specs that request resources in place of, or besides, those of the flavor's
// sizes.
var overrides = regexp.MustCompile(`^resources[a-zA-Z0-9_-]{0,64}:`)

// Requested is what Nova allocates for the instance, by resource class: VCPU, MEMORY_MB and DISK_GB
// of the flavor, none of them 0. Shared are the host's processors that guests without dedicated
// ones run on; nil: not known.
//
// Where more or something else is allocated than that, Requested returns nil and why, for people:
// dedicated processors, devices of the host, persistent or encrypted memory, a volume as root disk,
// extra specs that say so. Network bandwidth of ports is not seen in a domain.
//
// Source: ResourceRequest.from_request_spec in Nova's scheduler/utils.py.
func (d Domain) Requested(shared []int) (amounts map[string]int64, reason string) {
	n := d.Nova
	switch {
	case n == nil:
		return nil, "its metadata has no Nova flavor"
	case n.VCPUs <= 0 || n.MemoryMB <= 0 || n.DiskGB < 0 || n.EphemeralGB < 0 || n.SwapMB < 0:
		return nil, "its metadata has no complete flavor"
	case d.pinned(shared) || n.ExtraSpecs[cpuPolicy] == "dedicated" || n.ExtraSpecs[cpuPolicy] == "mixed":
		return nil, "it has dedicated processors (PCPU)"
	case len(d.Mdevs)+len(d.VGPUs) > 0:
		return nil, "it has mediated devices (VGPU)"
	case len(d.PCI) > 0:
		return nil, "it has PCI devices of the host"
	case d.PersistentMemory > 0 || n.ExtraSpecs[pmemSpec] != "":
		return nil, "it has persistent memory"
	case d.Security != "":
		return nil, "its memory is encrypted (MEM_ENCRYPTION_CONTEXT)"
	case n.ExtraSpecs[cyborgSpec] != "":
		return nil, "it has Cyborg accelerators"
	case d.rootIsVolume():
		return nil, "its root disk is a volume"
	}
	for _, spec := range slices.Sorted(maps.Keys(n.ExtraSpecs)) {
		if overrides.MatchString(spec) {
			return nil, fmt.Sprintf("its flavor requests resources with the extra spec %.80q", spec)
		}
	}
	amounts = map[string]int64{"VCPU": n.VCPUs, "MEMORY_MB": n.MemoryMB}
	if disk := n.DiskGB + n.EphemeralGB + (n.SwapMB+mibPerGiB-1)/mibPerGiB; disk > 0 {
		amounts["DISK_GB"] = disk
	}
	return amounts, ""
}

// pinned reports whether some virtual processor has a processor of the host for itself. One that
// runs on all of a shared set of a single processor has not.
func (d Domain) pinned(shared []int) bool {
	return slices.ContainsFunc(d.Pins, func(cpus []int) bool { return len(cpus) == 1 && !slices.Equal(cpus, shared) })
}

// rootIsVolume reports whether the root disk is a volume, or may be one. Nova's own root disk is
// the file "disk" in the instance's directory, or UUID_disk in a volume group or a pool.
func (d Domain) rootIsVolume() bool {
	if slices.ContainsFunc(d.Disks, func(disk AttachedDisk) bool {
		name := path.Base(disk.Source)
		return disk.Serial == "" && (name == "disk" || name == d.UUID+"_disk")
	}) {
		return false
	}
	if d.Nova.ImageID == "" {
		return true
	}
	return slices.ContainsFunc(d.Disks, func(disk AttachedDisk) bool {
		first := strings.HasSuffix(disk.Target, "da") || disk.Target == ""
		return disk.Serial != "" || first && disk.Type != "file"
	})
}
