// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package libvirt

import "github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"

// New returns the driver.
func New() *Driver { return newDriver(hypervisor.OpenLibvirt) }

// SaveDomainCapabilities runs the command of [DomainCapabilitiesFlag] with these arguments.
func SaveDomainCapabilities(args []string) error {
	return saveDomainCapabilities(hypervisor.OpenLibvirt, args)
}
