// SPDX-License-Identifier: Apache-2.0

package hypervisor

import "errors"

// ErrUnsupported means that the hypervisor driver behind the connection does not know the call.
var ErrUnsupported = errors.New("not supported by this hypervisor driver")

// ErrNoLibrary means that libvirt's client library could not be loaded.
var ErrNoLibrary = errors.New("libvirt's client library (libvirt.so.0) cannot be loaded")

// Conn is an open connection to libvirt. Calls block for as long as libvirt does, and are made one at a time.
type Conn interface {
	// Type is the hypervisor driver: "QEMU", "TEST", ….
	Type() (string, error)
	// Hostname is the machine's name as libvirt resolves it.
	Hostname() (string, error)
	NodeInfo() (NodeInfo, error)
	// CPUMap tells of each host CPU, by its number, whether it is online. Errors: ErrUnsupported.
	CPUMap() ([]bool, error)
	// Capabilities is the XML that describes the host and what its emulators can run.
	Capabilities() (string, error)
	// ExpandCPU returns a <cpu> element in which all features that the model of the given one stands for are listed.
	// Errors: ErrUnsupported.
	ExpandCPU(cpu string) (string, error)
	// Guests lists all domains, running or only defined: all or an error. Errors: ErrUnsupported.
	Guests() ([]Guest, error)
	// Alive reports whether the connection can still be used, without asking the daemon.
	Alive() bool
	// Close gives the connection back. An error means that something still refers to it: a leak.
	Close() error
}

// NodeInfo is what libvirt says of the host in figures.
type NodeInfo struct {
	// MemoryKiB is the memory of all NUMA nodes.
	MemoryKiB uint64
	// CPUs is the number of online CPUs.
	CPUs uint
}

// Guest is a domain.
type Guest struct {
	UUID, Name string
	// Metadata is the XML element that Nova attached to the domain, or "".
	Metadata string
}

// Open opens a connection. closed is called at most once, from any goroutine, when the connection breaks by itself.
type Open func(uri string, closed func(reason string)) (Conn, error)
