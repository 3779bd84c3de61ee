// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Guests lists libvirt's domains, running or only defined, whoever made them. A domain that Nova made has the uuid of the instance, and
// metadata that name the owner. What guests have is not told: that is Nova's to say, from the flavor.
//
// Cost: one call of libvirt, and two to three for each domain.
func (d *Driver) Guests(ctx context.Context, _ *providertree.Tree, node string) ([]plugins.Guest, error) {
	if name, err := d.nodeName(ctx); err != nil {
		return nil, answer(err)
	} else if name != node {
		return nil, fmt.Errorf("the libvirt driver knows the node %q only, not %q", name, node)
	}
	_, link, err := d.current()
	if err != nil {
		return nil, err
	}
	domains, err := hypervisor.Call(ctx, link, "the domains", func(c hypervisor.Conn) ([]hypervisor.Guest, error) { return c.Guests() })
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return nil, fmt.Errorf("%w: %w", plugins.ErrUnsupported, err)
	case err != nil:
		return nil, answer(err)
	}
	guests := make([]plugins.Guest, 0, len(domains))
	for _, domain := range domains {
		guest := plugins.Guest{UUID: domain.UUID, Name: domain.Name}
		guest.ProjectID, guest.UserID = owner(domain.Metadata)
		guests = append(guests, guest)
	}
	return guests, nil
}

// owner reads the ids of the project and the user from the element <nova:instance> that Nova attaches to a domain. Anything else has no
// owner that is known.
func owner(metadata string) (project, user string) {
	type id struct {
		UUID string `xml:"uuid,attr"`
	}
	var instance struct {
		XMLName xml.Name `xml:"instance"`
		Owner   struct {
			User    id `xml:"user"`
			Project id `xml:"project"`
		} `xml:"owner"`
	}
	if err := xml.Unmarshal([]byte(metadata), &instance); err != nil {
		return "", ""
	}
	return instance.Owner.Project.UUID, instance.Owner.User.UUID
}
