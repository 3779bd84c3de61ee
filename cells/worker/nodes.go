// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/plugins"
)

// nodeState is what is known of a node. Worker.mu guards it.
type nodeState struct {
	Node
	// probed: its driver has said whether it makes guests there; supported is what it reported.
	probed, supported bool
	// dirty: its guests must be compared; listing: a goroutine does so, and is woken when a retry
	// may help.
	dirty, listing bool
	wake           chan struct{}
	failures       backoff
	// unknown are guests that the driver made and no row is about, idle those about whose rows
	// nothing is to be done; with their names.
	unknown, idle map[string]string
}

// Changed reports that an instance of a node may have changed: uuid "" stands for all of the node,
// node (a name) "" for all of all nodes. A restart of the driver's process is reported so, too:
// failed work is then retried. It does not block.
func (w *Worker) Changed(node, uuid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.markChanged(node)
	if uuid != "" {
		return
	}
	for _, s := range w.servers {
		if _, name := w.nodeRef(s.item); s.task && (node == "" || name == node) {
			signal(s.wake)
		}
	}
	for _, n := range w.nodes {
		if node == "" || n.Name == node {
			signal(n.wake)
		}
	}
}

// recheckNode has the driver asked again whether a node can have guests.
func (w *Worker) recheckNode(node Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.markChanged(node.Name)
}

// markChanged has nodes looked at. Which guest it is about makes no difference: a driver lists them
// all in one call. w.mu is held.
func (w *Worker) markChanged(node string) {
	for _, n := range w.nodes {
		if node == "" || n.Name == node {
			n.dirty = true
		}
	}
	signal(w.compareNow)
}

// refreshNodes takes over which nodes there are.
func (w *Worker) refreshNodes(ctx context.Context) {
	now, complete := w.cfg.Guests.Nodes(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if complete && !w.named {
		signal(w.heartbeatNow)
	}
	w.named = complete
	named := make(map[string]bool, len(now))
	w.held = nil
	for _, node := range now {
		if node.Held != "" {
			w.held = append(w.held, node)
			continue
		}
		named[node.UUID] = true
		if known := w.nodes[node.UUID]; known != nil {
			// another version
			if !slices.Equal(known.Abilities, node.Abilities) || !sameHypervisor(known.Hypervisor, node.Hypervisor) {
				signal(w.heartbeatNow)
			}
			known.Node = node
			continue
		}
		w.nodes[node.UUID] = &nodeState{Node: node, dirty: true, wake: make(chan struct{}, 1)}
		signal(w.compareNow)
		for _, s := range w.servers {
			if s.task {
				signal(s.wake) // it may have waited for this node
			}
		}
	}
	for uuid, n := range w.nodes {
		if !named[uuid] {
			signal(n.wake)
			delete(w.nodes, uuid)
			signal(w.heartbeatNow)
		}
	}
}

// awaitNodes waits for a while until it is known which nodes can have guests, so that the first
// heartbeat names them.
func (w *Worker) awaitNodes(ctx context.Context) {
	for deadline := time.Now().Add(nodesTimeout); time.Now().Before(deadline); {
		if known, some := w.allProbed(); known && some || !wait.Until(ctx, time.Until(deadline), w.heartbeatNow) {
			return
		}
	}
}

// allProbed reports whether it is known which nodes can have guests, and whether there are nodes.
func (w *Worker) allProbed() (known, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known = w.named
	for _, n := range w.nodes {
		known = known && n.probed
	}
	return known, len(w.nodes)+len(w.held) > 0
}

// starting reports whether nodes that are missing may come yet. Only the loop of the heartbeats
// calls it.
func (w *Worker) starting() bool {
	known, _ := w.allProbed()
	w.started = w.started || known || time.Since(w.begun) >= startTimeout
	return !w.started
}

// reportable are the nodes that can have guests.
func (w *Worker) reportable() []cellwire.ReportedNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []cellwire.ReportedNode{}
	for _, uuid := range slices.Sorted(maps.Keys(w.nodes)) {
		if n := w.nodes[uuid]; n.supported {
			out = append(out,
				cellwire.ReportedNode{UUID: uuid,
					Name: n.Name, Abilities: abilities(n.Abilities), Details: w.details(n)})
		}
	}
	return out
}

// watchLoop looks at nodes when something may have changed, and now and then. Events that come
// together cost one call of the driver.
func (w *Worker) watchLoop(ctx context.Context) {
	periodic, nodes := time.NewTicker(compareInterval), time.NewTicker(time.Second)
	defer periodic.Stop()
	defer nodes.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-nodes.C:
			w.refreshNodes(ctx)
			continue
		case <-periodic.C:
			w.mu.Lock()
			w.markChanged("")
			w.mu.Unlock()
		case <-w.compareNow:
		}
		if !wait.For(ctx, eventGap) {
			return
		}
		w.mu.Lock()
		for _, n := range w.nodes {
			if n.dirty && !n.listing {
				n.dirty, n.listing = false, true
				w.comparisons.Go(func() { w.compareGuests(ctx, n) })
			}
		}
		w.mu.Unlock()
	}
}

// compareGuests compares the guests of one node with what the cell knows of them.
func (w *Worker) compareGuests(ctx context.Context, n *nodeState) {
	w.mu.Lock()
	node := n.Node
	before := make(map[string]int, len(w.servers))
	for uuid, s := range w.servers {
		before[uuid] = s.changes
	}
	complete := w.complete
	w.mu.Unlock()
	begun := time.Now()
	guests, err := node.Manager.Instances(ctx, node.Name)
	took := time.Since(begun)
	if ctx.Err() != nil {
		return
	}
	if err != nil && !errors.Is(err, plugins.ErrUnsupported) {
		w.log.Debug().Str("node", node.Name).Err(err).Msg("The driver did not list its guests. Retrying.")
		w.mu.Lock()
		pause := n.failures.next(retryServer)
		w.mu.Unlock()
		wait.Until(ctx, pause, n.wake)
		w.finishCompare(n, true)
		return
	}
	w.mu.Lock()
	n.failures.reset()
	able := err == nil
	if !n.probed || n.supported != able {
		n.probed, n.supported = true, able
		signal(w.heartbeatNow)
	}
	if able && complete {
		w.compare(ctx, n, guests, before)
	}
	w.mu.Unlock()
	if pause := min(2*took, 10*time.Second); pause > eventGap { // a driver that takes long is not kept busy with this
		wait.For(ctx, pause)
	}
	w.finishCompare(n, false)
}

// finishCompare ends a look.
func (w *Worker) finishCompare(n *nodeState, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n.listing = false
	if n.dirty = n.dirty || again; n.dirty {
		signal(w.compareNow)
	}
}

// compare reports what the cell does not know. before has the servers that there were before the
// driver was asked: of those that were changed since, and of newer ones, the list says nothing.
// w.mu is held. Cost: O(servers + guests).
func (w *Worker) compare(ctx context.Context, n *nodeState, guests []plugins.Instance, before map[string]int) {
	listed := make(map[string]plugins.Instance, len(guests))
	unknown, idle := map[string]string{}, map[string]string{}
	for _, g := range guests {
		listed[g.UUID] = g
		if s := w.servers[g.UUID]; s != nil && s.item.Want == cellwire.WantIdle {
			idle[g.UUID] = g.Name
		}
		if _, was := before[g.UUID]; was || w.servers[g.UUID] != nil {
			continue
		}
		unknown[g.UUID] = g.Name
		if _, logged := n.unknown[g.UUID]; !logged {
			w.log.Warn().Str("instance", g.UUID).Str("name", g.Name).Str("node", n.Name).
				Msg("A guest that this agent created has no server in the cell. It is left alone; `compute-agent " +
					"status` lists such guests.")
		}
	}
	n.unknown, n.idle = unknown, idle
	for uuid, changes := range before {
		s := w.servers[uuid]
		if s != nil && s.changes == changes && s.item.Want == cellwire.WantDeparting && s.answered &&
			!s.task && n.matches(w.nodeRef(s.item)) {
			g, there := listed[uuid]
			started := there && g.Power != plugins.PowerShutdown && g.Power != plugins.PowerCrashed // outside the cell
			if started || keepsGuest(s.item) && there == s.missing {
				s.answered = false
				w.start(ctx, s)
			}
			continue
		}
		if s == nil || s.changes != changes || !s.hasPowerState() ||
			!n.matches(s.item.Server.NodeUUID, s.item.Server.Node) {
			continue
		}
		power := listed[uuid].Power // PowerNoState if it is not there
		_, there := listed[uuid]
		if !there && !s.missing {
			advice := "a hard reboot of the server makes it again over its disks"
			if s.item.Server.VMState == cellwire.VMResized {
				advice = "a revert of its migration takes the server back to the host that keeps its guest"
			}
			w.log.Error().Str("instance", uuid).Str("node", n.Name).
				Msg("The guest of a server does not exist. Its power state is reported as NOSTATE; " + advice + ".")
		}
		s.observed, s.missing = &power, !there
		if s.reported != power {
			s.reported = power
			w.outbox.add(cellwire.Report{UUID: uuid, Kind: cellwire.ReportPower, PowerState: power,
				Revision: s.item.Server.Revision})
		}
		// started outside the cell
		if s.item.Server.VMState == cellwire.VMSoftDeleted && s.item.Want == cellwire.WantShutdown &&
			power == plugins.PowerRunning {
			s.settled = ""
			w.start(ctx, s)
		}
	}
}

// matches reports whether the node has a uuid, or a name where that is not known.
func (n Node) matches(uuid, name string) bool {
	return uuid == n.UUID || (uuid == "" && name == n.Name)
}
