// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
)

// Destroy ends an instance and removes all of it, as [plugins.InstanceManager] says.
func (m *Manager) Destroy(ctx context.Context, node, uuid string) error {
	j, err := m.begin(ctx, node, uuid)
	if err != nil {
		return err
	}
	err = j.destroy(ctx)
	m.forget(uuid)
	return j.verdict(err)
}

func (j *job) destroy(ctx context.Context) error {
	path, err := j.setup.Directory(ctx)
	if err != nil {
		return err
	}
	return j.remove(ctx, directory{path: path, name: domain.Name(j.uuid)})
}

// mostRounds bounds how often a domain is looked for that was removed: one whose start was still under way comes up again, once.
const mostRounds = 3

// remove ends a domain and removes all that its mark says; then there is none. One that somebody else made is a fault; one of ours on another
// node stays.
func (j *job) remove(ctx context.Context, d directory) error {
	for range mostRounds {
		g, err := j.find(ctx)
		switch {
		case err != nil:
			return err
		case g.there && !g.ours():
			return j.foreign()
		case g.there && g.is.Mark.Node != j.node:
			return nil
		case !g.there:
			if !d.exists() {
				return nil
			}
			j.begun = true
			return d.remove()
		}
		if err := j.removeOnce(ctx, g, d); err != nil {
			return err
		}
	}
	return fmt.Errorf("instance %s: its domain is there again whenever it is removed", j.uuid)
}

func (j *job) removeOnce(ctx context.Context, g guest, d directory) error {
	// Whatever the list says: a start may be under way.
	err := j.slow(ctx, "switching off its domain", endLimit, func(c hypervisor.Conn) error { return c.DestroyDomain(j.uuid) })
	switch {
	case errors.Is(err, hypervisor.ErrNotFound):
	case errors.Is(err, hypervisor.ErrState): // it does not run; or the host is such that libvirt cannot tell
		now, err := j.find(ctx)
		if err != nil {
			return err
		}
		if now.there && now.active() {
			return fmt.Errorf("instance %s: libvirt does not switch off its domain, which is in state %d", j.uuid, now.State)
		}
	case err != nil:
		return err
	}
	if err := j.removeMdevs(ctx, g.is.Mark.Mdevs); err != nil {
		return err
	}
	if err := d.remove(); err != nil {
		return err
	}
	err = j.quick(ctx, "undefining its domain", func(c hypervisor.Conn) error { return c.UndefineDomain(j.uuid) })
	if errors.Is(err, hypervisor.ErrNotFound) {
		return nil
	}
	return err
}
