// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// NodeChecker is implemented by a [Driver] that can know which nodes were removed for good, see
// [plugins.NodeChecker]. Its error is [plugins.ErrUnsupported] if its plugin cannot.
type NodeChecker interface {
	NodeDeleted(ctx context.Context, node plugins.Node) (bool, error)
}

// orphanInterval is how often it is looked again whether an orphaned node may go.
const orphanInterval = 5 * time.Minute

// orphans are the nodes that this driver reported and names no longer.
type orphans struct {
	checkedAt time.Time // when last; zero: never
	named     []string  // the uuids that the driver named then
}

// findOrphans finds the nodes that the driver reported before and names no longer. It deletes a
// node only if the driver says that the node was removed for good, no other host reports it,
// everything in its tree is ours, and it has no allocations. All others it shows in the status.
//
// Cost: none while the driver names the same nodes and none is orphaned; else one read of the
// records, and for each orphan, every five minutes, a call of Config.ReportedBy, one of the driver
// and, if it says that the node is gone, what [ownership.CheckRemoval] costs.
func (t *Tracker) findOrphans(ctx context.Context, nodes []plugins.Node, held []*ClaimedError) {
	if t.config.Records == nil {
		return
	}
	var named []string
	for _, n := range nodes {
		named = append(named, n.UUID)
	}
	for _, e := range held {
		named = append(named, e.Node.UUID)
	}
	slices.Sort(named)
	same := slices.Equal(named, t.orphans.named)
	if same && (!t.hasOrphans() || time.Since(t.orphans.checkedAt) < orphanInterval) {
		return
	}
	t.orphans = orphans{checkedAt: time.Now(), named: named}
	records, err := t.config.Records.List()
	if err != nil {
		t.config.Logger.Warn().Str("driver", t.config.Name).Err(err).
			Msg("Not all records of former nodes can be read, so removed nodes may go unnoticed.")
	}
	found := map[string]string{} // names by uuid
	for _, r := range records {
		if r.Driver != t.config.Name || slices.Contains(named, r.Root) ||
			t.config.HasOtherDriver != nil && t.config.HasOtherDriver(r.Root) {
			continue
		}
		left, gone := t.examineOrphan(ctx, r)
		if !gone {
			found[r.Root] = r.Node
			t.noteOrphan(r, left)
		}
	}
	t.dropOrphans(found)
}

// ErrNotNamed says that a node cannot be this host's, because the host's certificate names other
// nodes. Usually the node was moved to another host.
var ErrNotNamed = errors.New("the certificate of this host is for other nodes")

// leftOrphan is why a node that its driver does not name is still there: which other host reports
// it, if one does, and whether this host's certificate is for other nodes.
type leftOrphan struct {
	reason, reportedBy string
	notNamed           bool
}

// examineOrphan removes a node if all conditions of findOrphans hold; otherwise it returns which
// one does not.
func (t *Tracker) examineOrphan(ctx context.Context, r *ownership.Record) (left leftOrphan, gone bool) {
	ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
	defer cancel()
	var unknown error
	if t.config.ReportedBy != nil {
		left.reportedBy, unknown = t.config.ReportedBy(ctx, r.Root)
	}
	switch {
	case left.reportedBy != "":
		left.reason = "host " + left.reportedBy + " reports it now"
	case errors.Is(unknown, ErrNotNamed):
		left.reason, left.notNamed = ErrNotNamed.Error(), true
	default:
		left.reason, gone = t.removeOrphan(ctx, r, unknown)
	}
	return left, gone
}

// removeOrphan is the part of examineOrphan about this host. unknown is why it is not known whether
// another host reports the node.
func (t *Tracker) removeOrphan(ctx context.Context, r *ownership.Record, unknown error) (reason string, gone bool) {
	const unconfirmed = "the driver does not confirm that it was removed for good"
	checker, ok := t.config.Driver.(NodeChecker)
	placement, able := t.config.Placement.(ownership.RemovalClient)
	if !ok || !able {
		return unconfirmed, false
	}
	deleted, err := checker.NodeDeleted(ctx, plugins.Node{Name: r.Node, UUID: r.Root})
	switch {
	case errors.Is(err, plugins.ErrUnsupported), err == nil && !deleted:
		return unconfirmed, false
	case err != nil:
		return "the driver does not know whether it was removed for good: " + err.Error(), false
	case unknown != nil:
		return "the driver says that it was removed for good, but " + unknown.Error(), false
	}
	providers, err := ownership.RemoveNode(ctx, placement, r, t.config.Records, t.config.NodeRemoved)
	if err != nil {
		return err.Error(), false
	}
	t.count(EventWrite, r.Node, len(providers))
	t.config.Logger.Warn().Str("driver", t.config.Name).
		Str("node", r.Node).Str("uuid", r.Root).Int("providers", len(providers)).
		Msg("Deleted a node from Placement. The driver says that it was removed for good, and all of it was this " +
			"agent's and unused.")
	return "", true
}

func (t *Tracker) hasOrphans() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.nodes {
		if n.State == Orphaned {
			return true
		}
	}
	return false
}

// noteOrphan shows a node among those that are reported. A node of the same name that is reported
// goes before.
func (t *Tracker) noteOrphan(r *ownership.Record, left leftOrphan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[orphanKey(r.Root)]
	if n == nil {
		n = &nodeState{NodeStatus: NodeStatus{Name: r.Node, UUID: r.Root, State: Orphaned}}
		t.nodes[orphanKey(r.Root)] = n
		hint := "if it was removed for good: `compute-agent node remove " + r.Root + "`"
		if left.reportedBy != "" || left.notNamed {
			hint = "to have this agent forget it: `compute-agent node remove " + r.Root +
				"`, which deletes nothing in Placement then"
		}
		t.config.Logger.Warn().Str("driver", t.config.Name).Str("node", r.Node).Str("uuid", r.Root).
			Str("reason", left.reason).Str("hint", hint).
			Msg("The driver no longer names a node that it reported before. The node is left unchanged in Placement.")
	}
	n.Orphaned, n.ReportedBy, n.NotNamed = left.reason, left.reportedBy, left.notNamed
}

// dropOrphans forgets those that are named again or were removed.
func (t *Tracker) dropOrphans(found map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.nodes, func(_ string, n *nodeState) bool {
		_, still := found[n.UUID]
		return n.State == Orphaned && !still
	})
}

// orphanKey is not the name of any node: a driver may have a new one of the same name.
func orphanKey(root string) string { return "orphaned " + root }
