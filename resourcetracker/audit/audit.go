// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Request asks for a comparison of the allocations in Placement with the guests that the drivers
// list.
type Request struct {
	// Node is the name of the node that is reported; "": all.
	Node string `json:"node,omitempty"`
	// Heal deletes the orphaned allocations for which there is proof. DryRun only lists these.
	Heal   bool `json:"heal,omitempty"`
	DryRun bool `json:"dry_run,omitempty"`
	// MinAge is how long ago an orphaned allocation must have been written, and its guest have
	// disappeared.
	MinAge time.Duration `json:"min_age_ns"`
	// Consumers are consumers of which an operator says that they were guests of the host.
	Consumers []string `json:"consumers,omitempty"`
}

// Check validates the values of flags. It changes Consumers to canonical uuids.
func (r *Request) Check() error {
	if r.MinAge < 0 {
		return fmt.Errorf("--min-age %s: must not be negative", r.MinAge)
	}
	for i, c := range r.Consumers {
		uuid, err := providertree.CanonicalUUID(c)
		if err != nil {
			return fmt.Errorf("--consumer: %w", err)
		}
		r.Consumers[i] = uuid
	}
	return nil
}

// HealRequest creates allocations for the guests that have none.
type HealRequest struct {
	Node   string `json:"node,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	// IncompleteProject and IncompleteUser become the owner of allocations of a guest whose owner
	// the driver does not know.
	IncompleteProject string `json:"incomplete_project,omitempty"`
	IncompleteUser    string `json:"incomplete_user,omitempty"`
}

// Driver is one virt driver, as an audit asks it.
type Driver struct {
	Name string
	// Guests lists its nodes with their guests: [resourcetracker.Tracker.Guests].
	Guests func(ctx context.Context) ([]resourcetracker.NodeGuests, error)
}

// Placement is what an audit needs of Placement; *[reportclient.Client] has it.
type Placement interface {
	Holdings(ctx context.Context, root string) (reportclient.Holdings, error)
	Consumer(ctx context.Context, uuid string) (reportclient.Consumer, error)
	DeleteOurPart(ctx context.Context, consumer reportclient.Consumer, ours []string) (changed bool, err error)
	CreateAllocations(ctx context.Context, consumer reportclient.Consumer) error
}

// Auditor compares the allocations in Placement with the guests of all drivers of a host, and heals
// what differs.
type Auditor struct {
	Placement Placement
	// Drivers are the drivers of the host at the moment: a reload may change them while an audit
	// runs.
	Drivers func() []Driver
	Seen    *resourcetracker.SeenGuests
	// Servers returns the servers of the host's cell, and why they are not known, or "". It is nil
	// if the host has no cell.
	Servers func() (servers map[string]Server, unknown string)
	// Discrepancy is why nothing must be written: this may not be the machine on which the guests
	// were seen. "": it is.
	Discrepancy string
	// NewNode is the temporary uuid of the node of a host without an identity; "" if the host has
	// one.
	NewNode string
	Logger  zerolog.Logger
}

// discovery is what the drivers of a host say of their guests at one time.
type discovery struct {
	nodes []discovered
	// servers are the servers that the cell has on the host, or that move from it or to it;
	// serversUnknown is why they are not known.
	servers        map[string]Server
	serversUnknown string
	// unanswered are the drivers and nodes that did not answer, with the reason.
	unanswered []string
}

// discovered is one node of a discovery, or a driver of which not even the nodes are known.
type discovered struct {
	driver string
	node   plugins.Node
	guests []plugins.Guest
	err    error
}

// discovery asks every driver for its guests.
//
// Cost: two calls of each driver, one more for each further node, and what reading the trees costs.
func (a Auditor) discovery(ctx context.Context) discovery {
	var s discovery
	for _, d := range a.Drivers() {
		nodes, err := d.Guests(ctx)
		if err != nil {
			s.nodes = append(s.nodes,
				discovered{driver: d.Name, node: plugins.Node{Name: "driver " + d.Name}, err: err})
			s.unanswered = append(s.unanswered, fmt.Sprintf("driver %s: %v", d.Name, err))
			continue
		}
		for _, n := range nodes {
			s.nodes = append(s.nodes, discovered{driver: d.Name, node: n.Node, guests: n.Guests, err: n.Err})
			if n.Err != nil {
				s.unanswered = append(s.unanswered, fmt.Sprintf("node %s: %v", n.Node.Name, n.Err))
			}
		}
	}
	if a.Servers != nil { // last, since a move may begin meanwhile
		s.servers, s.serversUnknown = a.Servers()
	}
	return s
}

// guests are all guests of the host, with the names of their nodes.
func (d discovery) guests() map[string]string {
	out := map[string]string{}
	for _, n := range d.nodes {
		for _, g := range n.guests {
			out[g.UUID] = n.node.Name
		}
	}
	return out
}

// check refuses a name that no driver names.
func (d discovery) check(name string) error {
	if name == "" {
		return nil
	}
	var names []string
	for _, n := range d.nodes {
		if n.node.Name == name {
			return nil
		}
		if n.node.UUID != "" {
			names = append(names, n.node.Name)
		}
	}
	if len(d.unanswered) > 0 {
		return fmt.Errorf("unknown node %q; the nodes are %q; some drivers failed to list theirs: %s",
			name, names, strings.Join(d.unanswered, "; "))
	}
	return fmt.Errorf("no driver of this host names a node %q; the nodes are %q", name, names)
}

// query says what is compared, and what stands for what is not known.
type query struct {
	node  string // "": all
	proof Proof
	owner Owner
}

// compare compares what the drivers reported with what Placement has of their nodes.
//
// Cost: see [reportclient.Client.Holdings], and one GET for each guest that holds nothing on its
// node.
func (a Auditor) compare(ctx context.Context, s discovery, q query) Report {
	out := Report{Nodes: []Node{}}
	guests := s.guests()
	seen, seenErr := a.sightings(s)
	for _, n := range s.nodes {
		if q.node != "" && n.node.Name != q.node {
			continue
		}
		in := Input{Node: n.node, Driver: n.driver, Guests: n.guests, Siblings: maps.Clone(guests), Seen: seen,
			Servers: s.servers, Now: time.Now()}
		for _, g := range n.guests {
			delete(in.Siblings, g.UUID)
		}
		err := n.err
		if err == nil {
			err = seenErr
		}
		if err == nil {
			in.Holdings, in.Others, err = a.holdings(ctx, n)
		}
		if err != nil {
			out.Nodes = append(out.Nodes, Node{
				Node: n.node.Name, UUID: n.node.UUID, Driver: n.driver, Error: err.Error(),
				Providers: []string{}, Orphans: []Orphan{}, Unaccounted: []Guest{}, Overcommitted: []Overcommitted{},
			})
			continue
		}
		out.Nodes = append(out.Nodes, Compare(in, q.proof, q.owner))
	}
	return out
}

func (a Auditor) holdings(
	ctx context.Context, n discovered,
) (reportclient.Holdings, map[string]reportclient.Consumer, error) {
	held, err := a.Placement.Holdings(ctx, n.node.UUID)
	if err != nil {
		return held, nil, err
	}
	others := map[string]reportclient.Consumer{}
	for _, g := range n.guests {
		if _, here := held.Consumers[g.UUID]; here {
			continue
		}
		if others[g.UUID], err = a.Placement.Consumer(ctx, g.UUID); err != nil {
			return held, nil, err
		}
	}
	return held, others, nil
}

// sightings are the guests that were ever seen on any of the nodes. One that is on a node now is
// not gone from the others.
func (a Auditor) sightings(s discovery) (map[string]resourcetracker.Sighting, error) {
	out := map[string]resourcetracker.Sighting{}
	for _, n := range s.nodes {
		if n.node.UUID == "" {
			continue
		}
		seen, err := a.Seen.GuestsOf(n.node.UUID)
		if err != nil {
			return nil, err
		}
		for guest, s := range seen {
			before, twice := out[guest]
			switch {
			case !twice:
			case before.Gone.IsZero() || s.Gone.IsZero():
				s.Gone = time.Time{}
			case before.Gone.After(s.Gone):
				s.Gone = before.Gone
			}
			if twice && before.First.Before(s.First) {
				s.First = before.First
			}
			out[guest] = s
		}
	}
	return out, nil
}

// recordGuests records the guests of a discovery, for the next one. What cannot be kept is only
// missing then.
func (a Auditor) recordGuests(s discovery) {
	for _, n := range s.nodes {
		if n.err != nil || a.NewNode != "" && n.node.UUID == a.NewNode {
			continue
		}
		if err := a.Seen.Record(n.node.UUID, n.guests, time.Now()); err != nil {
			a.Logger.Warn().
				Str("node", n.node.Name).
				Err(err).
				Msg("Failed to record the guests. Name orphaned allocations of guests removed from now on with " +
					"--consumer to delete them.")
		}
	}
}

// Audit compares allocations with guests, and with Heal deletes orphaned allocations.
func (a Auditor) Audit(ctx context.Context, r Request) (Report, error) {
	s := a.discovery(ctx)
	if err := s.check(r.Node); err != nil {
		return Report{}, err
	}
	a.recordGuests(s)
	q := query{node: r.Node, proof: Proof{MinAge: r.MinAge, Named: map[string]bool{}}}
	for _, c := range r.Consumers {
		q.proof.Named[c] = true
	}
	report := a.compare(ctx, s, q)
	if !r.Heal {
		return report, nil
	}
	for _, c := range r.Consumers {
		if !mentions(report, c) && len(s.unanswered) == 0 {
			report.Refused = "nothing is written: consumer " + c +
				" was named but is not orphaned here: it holds nothing on these nodes, or is a guest of one of them"
			return report, nil
		}
	}
	a.heal(ctx, s, &report, healer{
		dryRun:  r.DryRun,
		due:     func(n *Node) []finding { return orphans(n, a.Placement) },
		planned: WouldDelete, done: Deleted,
	})
	return report, nil
}

// Differing returns the allocations of a node's guests that differ from what its driver lists, a
// line for each. Servers that move are left out. So it fails if something differs and the cell does
// not answer which servers move.
func (a Auditor) Differing(ctx context.Context, node plugins.Node, guests []plugins.Guest) ([]string, error) {
	held, err := a.Placement.Holdings(ctx, node.UUID)
	if err != nil {
		return nil, err
	}
	in, unknown := Input{Node: node, Holdings: held, Guests: guests}, ""
	if a.Servers != nil { // last, since a move may begin meanwhile
		in.Servers, unknown = a.Servers()
	}
	out := Compare(in, Proof{}, Owner{}).Differing()
	if len(out) > 0 && unknown != "" {
		return nil, fmt.Errorf("%s; whether its servers move, which explains some or all of this, is not known: %s",
			strings.Join(out, "; "), unknown)
	}
	return out, nil
}

func mentions(report Report, consumer string) bool {
	return slices.ContainsFunc(report.Nodes, func(n Node) bool {
		return slices.ContainsFunc(n.Orphans, func(o Orphan) bool { return o.Consumer == consumer })
	})
}

// HealAllocations compares allocations with guests, and creates allocations for guests without any.
func (a Auditor) HealAllocations(ctx context.Context, r HealRequest) (Report, error) {
	s := a.discovery(ctx)
	if err := s.check(r.Node); err != nil {
		return Report{}, err
	}
	a.recordGuests(s)
	report := a.compare(ctx, s,
		query{node: r.Node, owner: Owner{ProjectID: r.IncompleteProject, UserID: r.IncompleteUser}})
	a.heal(ctx, s, &report, healer{
		dryRun:  r.DryRun,
		due:     func(n *Node) []finding { return missing(n, a.Placement) },
		planned: WouldCreate, done: Created,
	})
	return report, nil
}
