// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path"
	"strconv"
	"strings"
)

// The files of a virtual function about its vGPU (see package discovery), for [VGPUFile].
const (
	CurrentVGPUType    = "current_vgpu_type"
	CreatableVGPUTypes = "creatable_vgpu_types"
)

// VGPUFile is the path of a file of a virtual function about its vGPU, below the root; "" is their
// directory.
func VGPUFile(function Address, name string) string {
	return path.Join("sys/bus/pci/devices", function.String(), "nvidia", name)
}

const vgpuPrefix = "nvidia-"

// VGPUTypeID is the ID of the type of vGPUs with a number, as if it were one of mediated devices:
// nvidia-1519. The numbers are the same.
func VGPUTypeID(number int) string { return vgpuPrefix + strconv.Itoa(number) }

// VGPUTypeNumber is the number of a type, as the kernel's files have it: 1519.
func VGPUTypeNumber(id string) string { return strings.TrimPrefix(id, vgpuPrefix) }

// HasNVIDIADriver reports whether NVIDIA's driver has the device.
func (d Device) HasNVIDIADriver() bool { return d.Vendor == 0x10de && d.Driver == "nvidia" }
