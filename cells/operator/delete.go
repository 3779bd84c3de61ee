// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// Removal is what delete-host did with a host.
type Removal struct {
	Host string
	// Was is what the host was before.
	Was Mapping
	// Now is the name of a host that was renamed.
	Now string
	// Cells are the cells in which its nodes are free for other hosts now, and those that did not
	// answer.
	Cells []FreedCell
	// NoPlacement says that Placement did not answer, so that its resource providers are not known.
	NoPlacement bool
	// Root is the resource provider below which those of the host are; its UUID is "" without one.
	Root Node
	// InUse says that the resource providers cannot be removed.
	InUse bool
	// Remove says that they were to be removed, and Removed are those that were.
	Remove  bool
	Removed []string
}

// Mapping is whether a host is mapped to a cell.
type Mapping int

// What a host was before it was deleted.
const (
	// NotMapped is a host of which nothing but resource providers was left.
	NotMapped Mapping = iota
	// FormerName is the former name of a host.
	FormerName
	// NameKept is a host of no cell, whose name and nodes were kept from others.
	NameKept
	// Mapped is a host of a cell.
	Mapped
)

// FreedCell is what became of the nodes of a host in a cell.
type FreedCell struct {
	Name string
	// Up says that the agent of the host reports: the nodes that it reports stay its own.
	Up bool
	// Err is why the nodes were not freed; nil: they were.
	Err error
}

// DeleteOptions say which host is deleted.
type DeleteOptions struct {
	Host string
	// WithServers is how many servers and other consumers the operator knows to be on the host;
	// [identity.UnknownServers] where that cannot be found out.
	WithServers string
	// RemoveProviders deletes its resource providers from Placement as well.
	RemoveProviders bool
}

// DeleteHost unmaps a host, and frees its nodes for other hosts. With an error there is a result if
// the host is unmapped, and not all of its resource providers could be removed. [RefusedError] for
// a host with servers or other consumers on it, and for resource providers that are in use.
func (d *Deployment) DeleteHost(ctx context.Context, o DeleteOptions) (*Removal, error) {
	on, err := d.contentsOf(ctx, o.Host)
	if err == nil {
		err = on.checkEmpty(o.Host, o.WithServers,
			"Migrate, evacuate or delete them first; to unmap the host all the same, and leave them without it, add "+
				"--with-servers %d")
	}
	if err == nil && o.RemoveProviders {
		err = on.checkRemovable(o.Host)
	}
	if err != nil {
		return nil, err
	}
	r, err := d.unmap(ctx, o.Host, o.RemoveProviders && len(on.Providers) > 0)
	if err != nil {
		return nil, err
	}
	r.NoPlacement, r.Remove = on.NoPlacement, o.RemoveProviders
	if on.NoPlacement || len(on.Providers) == 0 {
		return r, nil
	}
	root := on.Providers[len(on.Providers)-1]
	r.Root, r.InUse = Node{root.UUID, root.Name}, on.checkRemovable(o.Host) != nil
	if o.RemoveProviders {
		r.Removed, err = d.removeProviders(ctx, on.Providers)
	}
	return r, err
}

// unmap unmaps a host. again says that it may be unmapped already.
func (d *Deployment) unmap(ctx context.Context, host string, again bool) (*Removal, error) {
	known, err := d.Store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := d.Store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	enrolled, err := d.Store.Enrolment(ctx, host)
	if err != nil {
		return nil, err
	}
	now, renamed := enrolled.RenamedTo()
	in, mapped := mappedTo(host, hosts)
	switch err := d.Store.DeleteHost(ctx, host); {
	case again && errors.Is(err, apidb.ErrNotFound):
		return &Removal{Host: host, Was: NotMapped}, nil
	case errors.Is(err, apidb.ErrNotFound):
		return nil, d.unmappedError(ctx, host, "; --remove-providers deletes resource providers that are left of it")
	case err != nil:
		return nil, err
	case renamed:
		return &Removal{Host: host, Was: FormerName, Now: now}, nil
	}
	r := &Removal{Host: host, Was: NameKept}
	if mapped {
		r.Was = Mapped
	}
	for _, cell := range known {
		if cell.IsCell0() || mapped && cell.UUID != in {
			continue
		}
		if freed, has := d.freeNodes(ctx, cell, host, mapped); has {
			r.Cells = append(r.Cells, freed)
		}
	}
	return r, nil
}

// freeNodes has a cell free the nodes of a host for others. has is false for a cell to which the
// host was not mapped, and that does not have it.
func (d *Deployment) freeNodes(
	ctx context.Context, cell apidb.Cell, host string, mapped bool,
) (freed FreedCell, has bool) {
	freed, has = FreedCell{Name: cell.Name}, mapped
	_, freed.Err = gather.One(ctx, d.Gatherer, cell, func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
		services, err := c.Services(ctx)
		if err != nil {
			return struct{}{}, err
		}
		for _, s := range services {
			has, freed.Up = has || s.Host == host, freed.Up || s.Host == host && s.Up
		}
		if !has {
			return struct{}{}, nil
		}
		return struct{}{}, c.NodesState(ctx, cellwire.NodesRequest{Host: host})
	})
	return freed, has || freed.Err != nil
}
