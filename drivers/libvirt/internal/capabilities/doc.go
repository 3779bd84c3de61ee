// SPDX-License-Identifier: Apache-2.0

// Package capabilities reads libvirt's XML about a host, as values and without I/O:
//
//	virConnectGetCapabilities ───────▶ ParseHost ───▶ Host
//	    its CPU, NUMA cells, guests' architectures, QEMU's user
//	virConnectGetDomainCapabilities ─▶ ParseDomain ─▶ Domain
//	    what an emulator can give to guests of one architecture and machine type
//	virNodeDeviceGetXMLDesc ─────────▶ ParseDevice ─▶ Device
//	    PCI devices, parents of mediated devices, mediated devices
//	Host, Devices ───────────────────▶ FromLibvirt ─▶ machine.Machine
//	    to be compared with the kernel's
//
// It keeps what is used and passes over the rest, so that newer versions of libvirt do no harm.
// What is kept must make sense: a number that cannot be read is an error, never zero. Elements with
// supported='no' are ignored.
package capabilities
