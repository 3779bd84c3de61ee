// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package binding

import (
	"fmt"

	"libvirt.org/go/libvirt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
)

// novaMetadata are the names of the elements that Nova attaches to its domains: the present one and that of before 2020.
var novaMetadata = []string{"http://openstack.org/xmlns/libvirt/nova/1.1", "http://openstack.org/xmlns/libvirt/nova/1.0"}

// Guests takes one call for the list and two to three for each domain. One that goes meanwhile is left out: it is no guest any more.
func (c *connection) Guests() ([]hypervisor.Guest, error) {
	domains, err := c.c.ListAllDomains(0)
	if err != nil {
		return nil, translate(err)
	}
	defer func() {
		for i := range domains {
			_ = domains[i].Free()
		}
	}()
	guests := make([]hypervisor.Guest, 0, len(domains))
	for i := range domains {
		g, err := guest(&domains[i])
		switch {
		case is(err, libvirt.ERR_NO_DOMAIN):
		case err != nil:
			return nil, fmt.Errorf("domain %q: %w", g.Name, err)
		default:
			guests = append(guests, g)
		}
	}
	return guests, nil
}

func guest(d *libvirt.Domain) (g hypervisor.Guest, err error) {
	if g.Name, err = d.GetName(); err != nil {
		return g, err
	}
	if g.UUID, err = d.GetUUIDString(); err != nil {
		return g, err
	}
	for _, uri := range novaMetadata {
		g.Metadata, err = d.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, uri, libvirt.DOMAIN_AFFECT_CURRENT)
		if !is(err, libvirt.ERR_NO_DOMAIN_METADATA) {
			break
		}
	}
	if is(err, libvirt.ERR_NO_DOMAIN_METADATA) || unsupported(err) {
		return g, nil
	}
	return g, err
}
