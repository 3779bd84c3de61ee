// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
)

// refusal is why a node does not take a server.
type refusal int

const (
	takes refusal = iota // nothing speaks against it
	notChosen
	cellDisabled
	cellDown
	cellSuspect
	serviceMissing
	serviceDown
	serviceDisabled
	otherZone
	otherAggregate
	groupPolicy
	nodeContested
	notEnrolled
	notSameHost
	notDifferentHost
	otherCell
	mustLeave
	notReported
	cannotMove
	notOffered
	refusedMeanwhile
	cellRefused
	cellTooOld
	refusals // how many there are
)

// refusalKeys and refusalTexts are the reasons as fields of the log, and as an administrator reads
// them behind a number of nodes.
var (
	refusalKeys = [refusals]string{
		notChosen:        "not_the_forced_host",
		cellDisabled:     "cell_disabled",
		cellDown:         "cell_down",
		cellSuspect:      "cell_database_suspect",
		serviceMissing:   "service_missing",
		serviceDown:      "service_down",
		serviceDisabled:  "service_disabled",
		otherZone:        "other_zone",
		otherAggregate:   "other_aggregate",
		groupPolicy:      "server_group_policy",
		nodeContested:    "node_contested",
		notEnrolled:      "not_enrolled",
		notSameHost:      "not_same_host",
		notDifferentHost: "not_different_host",
		otherCell:        "other_cell",
		mustLeave:        "left_by_the_server",
		notReported:      "not_reported",
		cannotMove:       "cannot_migrate",
		notOffered:       "not_offered",
		refusedMeanwhile: "refused_meanwhile",
		cellRefused:      "cell_refused",
		cellTooOld:       "cell_too_old",
	}
	refusalTexts = [refusals]string{
		notChosen:       "not the requested host",
		cellDisabled:    "in a cell that is disabled",
		cellDown:        "in a cell that is down",
		cellSuspect:     "in a cell that has another database than before, which is not accepted yet",
		serviceMissing:  "without a service in their cell",
		serviceDown:     "with a service that is down",
		serviceDisabled: "with a service that is disabled",
		otherZone:       "not in the requested availability zone",
		otherAggregate:  "not in the host aggregates for this project and flavor",
		groupPolicy:     "ruled out by the policy of the server group",
		nodeContested: "reported by several hosts, or by several agents of one, or not certainly those of " +
			"their hosts",
		notEnrolled:      "on hosts that are not enrolled by a person, and the server has user data",
		notSameHost:      "without a server of the hint same_host",
		notDifferentHost: "with a server of the hint different_host",
		otherCell:        "in another cell than the server",
		mustLeave:        "what the server moves from, or on hosts that could not build it",
		notReported:      "not reported by their hosts now",
		cannotMove:       "without the ability to take servers of other hosts",
		notOffered:       "not offered by Placement (no capacity left, or not what the flavor requires)",
		refusedMeanwhile: "rejected by Placement in the meantime",
		cellRefused:      "in a cell that rejected the server",
		cellTooOld:       "in a cell of an older version, which has no key pairs",
	}
)

// whyUnfit is why the host of a node does not take the server of a build regardless of capacity.
func (h *hosts) whyUnfit(node apidb.Node, b *build) refusal {
	service, known := h.services[hostKey{node.CellUUID, node.Host}]
	spec := &b.spec
	switch {
	case spec.ForcedHost != "" && spec.ForcedHost != node.Host, spec.ForcedNode != "" && spec.ForcedNode != node.Name:
		return notChosen
	case h.cells[node.CellUUID].Disabled:
		return cellDisabled
	case h.down[node.CellUUID]:
		return cellDown
	case h.suspect[node.CellUUID]: // what is put there may go with it
		return cellSuspect
	case !known: // also of a cell that is gone
		return serviceMissing
	case !service.Up:
		return serviceDown
	case service.Disabled:
		return serviceDisabled
	case spec.Zone != "" && spec.Zone != h.zoneOf(node.Host):
		return otherZone
	case !b.destination.Has(h.aggregatesByHost[node.Host]):
		return otherAggregate
	case !b.group.takes(node.Host):
		return groupPolicy
	case b.refusedBy[node.UUID] == nodeContested, slices.Contains(service.Contested, node.UUID):
		return nodeContested
	case spec.UserData != "" && !h.takesUserData(node.Host, service.Auth):
		return notEnrolled
	}
	if m := b.move; m != nil {
		switch {
		case m.cell.UUID != node.CellUUID:
			return otherCell
		case m.excluded[node.Host]:
			return mustLeave
		case m.Type != cellwire.MigrationBuild:
			if able, reported := m.canMove[node.UUID]; !reported {
				return notReported
			} else if !able {
				return cannotMove
			}
		}
	}
	return b.hintRefusal(node.Host)
}

// nodeName is a node as its host knows it: one with a new uuid, as after a reinstallation, is
// mapped beside the former one until the cell forgets that.
type nodeName struct{ cell, host, name string }

// refused counts the nodes by why they did not take the server, those of one name once. It costs a
// look at each node.
func (b *build) refused() (counts [refusals]int) {
	reasons := map[nodeName]refusal{}
	for _, node := range b.hosts.nodes {
		why := cmp.Or(b.hosts.whyUnfit(node, b), b.refusedBy[node.CellUUID], b.refusedBy[node.UUID], notOffered)
		name := nodeName{node.CellUUID, node.Host, node.Name}
		// a former node is neither
		if former, twice := reasons[name]; !twice ||
			(former == notOffered || former == notReported) && why != notReported {
			reasons[name] = why
		}
	}
	for _, why := range reasons {
		counts[why]++
	}
	return counts
}

// whyNoHost is for administrators: what Placement had, and why no node takes the server.
func (b *build) whyNoHost(targets int) string {
	text := "Placement returned no candidates."
	if b.candidates+b.tried+len(b.stageByNode) > 0 {
		text = fmt.Sprintf(
			"Placement returned %d candidates: %d on hosts that can take servers, %d on nodes without a cell; %d "+
				"hosts were queried one by one; %d were tried.",
			b.candidates, targets, b.unmapped, len(b.stageByNode), b.tried)
	}
	switch {
	case b.stage == 0:
		text += " The flavor needs a host with NUMA cells as resource providers, and no resource provider " +
			"has the trait " + resourcerequest.TraitNUMARoot + "."
	case len(b.numaRequests) > 0:
		text += " On hosts with NUMA cells all processors and memory were asked for in " +
			strings.Join(b.numaRequests, ", then divided among ") +
			", and the guest cannot be divided further."
	}
	if len(b.hosts.nodes) == 0 {
		return text + " No host is mapped to a cell."
	}
	var reasons []string
	nodes := 0
	for why, n := range b.refused() {
		if nodes += n; n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", n, refusalTexts[why]))
		}
	}
	text = fmt.Sprintf("%s Of %d mapped nodes are %s.", text, nodes, strings.Join(reasons, ", "))
	for _, r := range b.firstStage {
		if how := r.Explain(); how != "" {
			text += " " + how
		}
	}
	return text
}

// logUnplaced logs that the server is in cell0, and why. It is the only log line of a user's failed
// boot.
func (b *build) logUnplaced(ctx context.Context, fault cellwire.Fault) {
	fields := b.s.log(ctx).With().Str("server", b.spec.UUID).Str("project", b.spec.ProjectID).
		Str("flavor", b.spec.Flavor.Name)
	if b.spec.ForcedHost != "" || b.spec.ForcedNode != "" {
		fields = fields.Str("forced_host", b.spec.ForcedHost).Str("forced_node", b.spec.ForcedNode)
	}
	if b.spec.Zone != "" {
		fields = fields.Str("zone", b.spec.Zone)
	}
	if !strings.HasPrefix(fault.Message, noValidHost) {
		log := fields.Str("why", fault.Message).Logger()
		log.Warn().Msg("Could not schedule a server. It is in ERROR in cell0; its fault says why.")
		return
	}
	for why, n := range b.refused() {
		if n > 0 {
			fields = fields.Int(refusalKeys[why], n)
		}
	}
	if b.unmapped > 0 {
		fields = fields.Int("in_no_cell", b.unmapped)
	}
	log := fields.Str("why", fault.Details).Logger()
	log.Warn().
		Msg("No valid host was found for a server. It is in ERROR in cell0. Fix what keeps the hosts from taking " +
			"servers, then create it again.")
}
