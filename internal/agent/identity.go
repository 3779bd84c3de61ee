// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// self is the identity of this host.
type self struct {
	uuid string
	// temporary: the host has no identity yet, and the uuid is not recorded.
	temporary bool
	// discrepancy is why this may not be the machine of the state directory; set only without a
	// running agent.
	discrepancy string
}

// identify reads this host's identity, and refuses one that may belong to another host. The state
// directory is locked.
func (a *Agent) identify() error {
	refuse := func(err error) error {
		return &resourcetracker.FatalError{Node: a.settings.current().Agent.Host, Err: err, Protects: true}
	}
	dir, beside := a.settings.current().Agent.StateDir, filepath.Dir(a.settings.current().File())
	state, err := identity.Open(dir)
	if err != nil {
		return refuse(err)
	}
	found, err := resourcetracker.FindIdentity(dir, beside)
	if err == nil && found == "" {
		err = state.CheckFirstStart(ownership.DirName)
	}
	if err != nil {
		return refuse(err)
	}
	id, created, err := resourcetracker.LoadIdentity(dir, beside)
	switch {
	case err != nil && found == "": // the identity is certain, but could not be recorded
		return fmt.Errorf("agent.state_dir: %w; `compute-agent doctor` checks the state directory", err)
	case err != nil:
		return refuse(err)
	}
	note, err := state.Update(identity.Self{UUID: id, Host: a.settings.current().Agent.Host,
		Machine: statedir.Machine(a.log)})
	if err != nil {
		return refuse(err)
	}
	if note != "" {
		a.log.Warn().Str("identity", id).Str("host", a.settings.current().Agent.Host).Msg(note)
	}
	if created {
		a.log.Info().Str("identity", id).Str("file", filepath.Join(dir, resourcetracker.IdentityFile)).
			Msg("This host had no identity: created a new one. Keep the file when the host is reinstalled.")
	}
	a.self.uuid, a.state.Identity = id, state
	return nil
}

// admission is the Placement of one driver's tracker. At the first contact with a node it checks
// that the node may be created if Placement does not have it, and it records which nodes Placement
// has.
type admission struct {
	*reportclient.Client
	state  *identity.State
	driver string
	guests plugins.GuestLister

	mu       sync.Mutex
	admitted map[string]plugins.Node // by uuid
}

// admitting returns the Placement of a driver's tracker. Without a state file, as in a dry run, it
// is the client itself.
func (a *Agent) admitting(d *driver) resourcetracker.Placement {
	if a.state.Identity == nil {
		return a.placement
	}
	return &admission{
		Client: a.placement, state: a.state.Identity, driver: d.name, guests: d.plugin,
		admitted: map[string]plugins.Node{},
	}
}

// Tree implements [resourcetracker.Placement].
func (a *admission) Tree(ctx context.Context, uuid, name string) (*providertree.Tree, error) {
	tree, err := a.Client.Tree(ctx, uuid, name)
	if err != nil {
		return nil, err
	}
	node := plugins.Node{UUID: uuid, Name: name}
	a.mu.Lock()
	_, admitted := a.admitted[uuid]
	a.mu.Unlock()
	if !admitted {
		if err := a.state.CheckNewNode(ctx, node, tree, a.guests); err != nil {
			return nil, err
		}
		a.mu.Lock()
		a.admitted[uuid] = node
		a.mu.Unlock()
	}
	if root, _ := tree.Provider(uuid); root.Generation != providertree.NoGeneration {
		return tree, a.state.Reported(node, a.driver)
	}
	return tree, nil
}

// Apply implements [resourcetracker.Placement].
func (a *admission) Apply(ctx context.Context, root string, plan reportclient.Plan) error {
	if err := a.Client.Apply(ctx, root, plan); err != nil {
		return err
	}
	a.mu.Lock()
	node, ok := a.admitted[root]
	a.mu.Unlock()
	if !ok {
		return nil
	}
	return a.state.Reported(node, a.driver)
}
