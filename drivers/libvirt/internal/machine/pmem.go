// SPDX-License-Identifier: Apache-2.0

package machine

// Namespace is a part of the persistent memory.
type Namespace struct {
	// Name is the kernel's (namespace0.0), Label the operator's, which ndctl calls the name, "" if
	// it has none.
	Name, Label string
	Mode        Mode
	// Bytes is its size, with what the kernel keeps for itself.
	Bytes uint64
	// Cell is the NUMA cell of its region, or [machine.NoCell].
	Cell int
	// Device is its character device (/dev/dax0.0), "" in other modes and while it is disabled.
	Device string
	// Driver is the driver of that device: device_dax serves it to programs, kmem makes normal
	// memory of it; "" if it has no driver.
	Driver string
}

// Mode is the kernel's word for how a namespace is used.
type Mode string

// The modes.
const (
	ModeRaw    Mode = "raw"
	ModeSafe   Mode = "safe"   // ndctl calls it sector
	ModeMemory Mode = "memory" // ndctl calls it fsdax
	ModeDAX    Mode = "dax"    // ndctl calls it devdax
)

// MaxPMEMLabel is the longest label of a namespace, in bytes.
const MaxPMEMLabel = 63
