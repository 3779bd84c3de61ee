// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Guests lists libvirt's domains, running or only defined, whatever created them: all or an error.
// A domain that Nova created has the uuid of the instance, and metadata with the owner and the
// flavor, from which its allocations follow. They are unknown for guests that have more than a
// flavor's sizes (dedicated processors, devices), or a volume as root disk.
//
// Cost: that of domainCache.list; with NUMA cells as providers, that of discover.
func (d *Driver) Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	cfg, link, root, err := d.nodeOf(ctx, tree, node)
	if err != nil {
		return nil, err
	}
	r := requests{cfg: cfg, tree: tree, node: node, root: root}
	if cfg.NUMA == nested {
		f, err := d.discover(ctx, cfg, link, false)
		if err != nil {
			return nil, driverError(err)
		}
		r.host = assignment.NewHost(f.machine)
	}
	domains, unread, err := d.domainCache.list(ctx, link, false)
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return nil, fmt.Errorf("%w: %w", plugins.ErrUnsupported, err)
	case err != nil:
		return nil, driverError(err)
	case len(unread) > 0:
		return nil, fmt.Errorf(
			"%d of the domains cannot be read: %s; inspect it with virsh dumpxml, and fix it with virsh edit",
			len(unread), unread[0].Text)
	}
	guests := make([]plugins.Guest, len(domains))
	for i, domain := range domains {
		guests[i] = r.guest(domain)
	}
	return guests, nil
}
