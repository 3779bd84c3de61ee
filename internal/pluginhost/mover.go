// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

var _ plugins.InstanceMover = (*Plugin)(nil)

// Depart lets the driver shut down an instance that is to be moved. Errors: as SetPower.
func (p *Plugin) Depart(ctx context.Context, node, uuid string) (string, error) {
	return manageOn(ctx, p, "Depart", uuid, func(s *activeProcess) (string, error) { return s.Depart(ctx, node, uuid) })
}

// ReadFile reads a file of an instance that departed. It does not wait for other calls for the
// instance, nor they for it.
//
// Errors: as AvailableNodes; [plugins.ErrInstanceNotFound], [*plugins.InstanceFault]; those of
// each.
func (p *Plugin) ReadFile(ctx context.Context, node, uuid, name string, offset int64, each plugins.ChunkFunc) error {
	s, err := p.acquire()
	if err != nil {
		return err
	}
	defer s.calls.Done()
	err = s.ReadFile(ctx, node, uuid, name, offset, each)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unavailableError(s, err)
}

// Arrive lets the driver create an instance that comes from another host, and leave it off. Errors:
// as Spawn.
func (p *Plugin) Arrive(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	return manageOn(ctx, p, "Arrive", spec.UUID,
		func(s *activeProcess) (plugins.Instance, error) { return s.Arrive(ctx, node, spec, tree, from) })
}

// Leave lets the driver remove an instance, but nothing of what the same one on another host uses.
// Errors: as Destroy.
func (p *Plugin) Leave(ctx context.Context, node, uuid string) error {
	_, err := manageOn(ctx, p, "Leave", uuid,
		func(s *activeProcess) (struct{}, error) { return struct{}{}, s.Leave(ctx, node, uuid) })
	return err
}
