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

// Guests lists libvirt's domains, running or only defined, whoever made them: all or an error. A domain that Nova made has the uuid of the
// instance, and metadata that name the owner and the flavor, from which follows what is allocated for it. For guests that have more than a
// flavor's sizes (dedicated processors, devices), or have a volume as root disk, that is not known.
//
// Cost: that of roster.list; with NUMA cells as providers, that of survey.
func (d *Driver) Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	cfg, link, root, err := d.nodeOf(ctx, tree, node)
	if err != nil {
		return nil, err
	}
	r := requests{cfg: cfg, tree: tree, node: node, root: root}
	if cfg.NUMA == nested {
		f, err := d.survey(ctx, cfg, link, false)
		if err != nil {
			return nil, answer(err)
		}
		r.host = assignment.On(f.machine)
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
		guests[i] = r.guest(domain)
	}
	return guests, nil
}
