// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Guests lists libvirt's domains, running or only defined, whoever made them: all or an error. A domain that Nova made has the uuid of the
// instance, and metadata that name the owner. What guests have is not told: that is Nova's to say, from the flavor.
//
// Cost: that of roster.list.
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
	domains, unread, err := d.roster.list(ctx, link, false)
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return nil, fmt.Errorf("%w: %w", plugins.ErrUnsupported, err)
	case err != nil:
		return nil, answer(err)
	case len(unread) > 0:
		return nil, fmt.Errorf("%d of the domains cannot be told: %s; look at it with virsh dumpxml, and mend it with virsh edit", len(unread), unread[0].Text)
	}
	guests := make([]plugins.Guest, len(domains))
	for i, domain := range domains {
		guests[i] = plugins.Guest{UUID: domain.UUID, Name: domain.Name}
		guests[i].ProjectID, guests[i].UserID = domain.Owner()
	}
	return guests, nil
}
