// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Input is what is known of one node.
type Input struct {
	Node   plugins.Node
	Driver string
	// Holdings is what Placement says, Guests all that the driver lists.
	Holdings reportclient.Holdings
	Guests   []plugins.Guest
	// Others are the guests that hold nothing on this node, as Placement has them, by uuid.
	Others map[string]reportclient.Consumer
	// Siblings are the guests of this host's other nodes, with the name of their node.
	Siblings map[string]string
	// Seen is what the agent remembers of guests on any node of this host.
	Seen map[string]resourcetracker.Sighting
	// Servers are the servers that the cell has on this host, or that move from it or to it, by
	// uuid; empty without a cell.
	Servers map[string]Server
	Now     time.Time
}

// Server is what the cell of the host says of a server.
type Server struct {
	Name string
	// Migration is the uuid of the migration from this host or to it, "" for none. It is a
	// consumer, with the allocations on the source as long as the server can go back.
	Migration string
	// Deleted says that it is being deleted.
	Deleted bool
}

// moving are the consumers that are servers that move, and their migrations: guests of them are
// kept where their allocations are not any more, or not there yet.
func moving(servers map[string]Server) map[string]bool {
	out := map[string]bool{}
	for uuid, s := range servers {
		if s.Migration != "" {
			out[uuid], out[s.Migration] = true, true
		}
	}
	return out
}

// Proof is what it takes to delete an orphaned allocation.
type Proof struct {
	// MinAge is how long ago the allocation must have been written, and its guest have disappeared.
	MinAge time.Duration
	// Named are consumers of which an operator says that they were guests here and are not any
	// more.
	Named map[string]bool
}

// Owner is the owner of a guest whose owner the hypervisor does not know; "" is no owner.
type Owner struct{ ProjectID, UserID string }

// Compare returns the allocations of a node that differ from its guests. Kept of a finding says why
// it cannot be fixed; "" if it can.
//
// Cost: O(allocations + guests).
func Compare(in Input, proof Proof, owner Owner) Node {
	c := comparison{
		in: in, moving: moving(in.Servers),
		names: map[string]string{}, shared: map[string]bool{},
		guests: map[string]plugins.Guest{}, classes: map[string]bool{},
	}
	for _, p := range in.Holdings.Providers {
		c.names[p.UUID], c.shared[p.UUID] = p.Name, p.Sharing
	}
	for _, g := range in.Guests {
		c.guests[g.UUID] = g
		if g.FromFlavor {
			continue
		}
		for _, amounts := range g.Resources {
			for class := range amounts {
				c.classes[class] = true
			}
		}
	}
	out := Node{
		Node: in.Node.Name, UUID: in.Node.UUID, Driver: in.Driver, Guests: len(in.Guests),
		Consumers: len(in.Holdings.Consumers),
		Orphans:   []Orphan{}, Unaccounted: []Guest{}, Overcommitted: overcommitted(in.Holdings.Providers),
		Providers: []string{},
	}
	for _, p := range in.Holdings.Providers {
		if !p.Sharing {
			out.Providers = append(out.Providers, p.UUID)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(in.Holdings.Consumers)) {
		if _, guest := c.guests[uuid]; guest || c.moving[uuid] {
			continue
		}
		// One that holds nothing but what a provider of the tree shares with other hosts may be a
		// guest of one of those.
		if o := c.newOrphan(in.Holdings.Consumers[uuid], proof); len(o.Here) > 0 {
			out.Orphans = append(out.Orphans, o)
		}
	}
	for _, g := range in.Guests {
		if found, wrong := c.compareGuest(g, owner); wrong {
			out.Unaccounted = append(out.Unaccounted, found)
		}
	}
	slices.SortFunc(out.Unaccounted,
		func(a, b Guest) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID)) })
	return out
}

type comparison struct {
	in      Input
	moving  map[string]bool   // servers that move, and their migrations
	names   map[string]string // of the node's providers, by uuid
	shared  map[string]bool   // those of them that other hosts use, too
	guests  map[string]plugins.Guest
	classes map[string]bool // those that the driver speaks of for any guest
}

func (c comparison) newOrphan(held reportclient.Consumer, proof Proof) Orphan {
	o := Orphan{
		Consumer: held.UUID, ProjectID: held.ProjectID, UserID: held.UserID, Written: held.Written, Age: held.Age,
		GuestOf: c.in.Siblings[held.UUID], Look: "openstack resource provider allocation show " + held.UUID, held: held,
	}
	o.Here, o.Elsewhere = c.split(held.Resources)
	if s, seen := c.in.Seen[held.UUID]; seen {
		o.Seen = &Seen{s.First, s.Gone}
	}
	o.Kept = c.missingProof(o, held, proof)
	return o
}

// missingProof says what is missing for an orphan to be taken for forgotten.
func (c comparison) missingProof(o Orphan, held reportclient.Consumer, proof Proof) string {
	named := proof.Named[o.Consumer]
	server, inCell := c.in.Servers[o.Consumer]
	// How long ago each was, by the clock of the host and by Placement's; the sooner of the two
	// events is the longer ago.
	const rounding = 2 * time.Second
	rewritten := o.Seen != nil && held.Age+rounding < c.in.Now.Sub(o.Seen.Gone)
	switch {
	case inCell && server.Deleted:
		return "it is the server " + server.Name +
			" of the cell, which is being deleted: the agent removes its allocations"
	case inCell:
		return "it is the server " + server.Name + " of the cell, which has no guest now: reboot it hard, or delete it"
	case o.GuestOf != "":
		return fmt.Sprintf("it is a guest of %s, another node of this host: it may be migrating", o.GuestOf)
	case o.Seen == nil && !named:
		return "this agent has never seen it as a guest: it may be a migration, a guest that is being built, or " +
			"another client's"
	case o.Seen != nil && (o.Seen.Gone.IsZero() || c.in.Now.Sub(o.Seen.Gone) < proof.MinAge):
		return fmt.Sprintf("it was a guest here less than %v ago: it may be back soon", proof.MinAge)
	case held.Written.IsZero():
		return "Placement does not say how old the allocation is"
	case held.Age < proof.MinAge:
		return fmt.Sprintf("the allocation was written less than %v ago: its guest may not have started yet",
			proof.MinAge)
	case rewritten && !named:
		return "the allocation was written after the guest left: it may come back (for example a queued migration)"
	case len(c.in.Guests) == 0 && !named:
		return "the driver lists no guests on this node: it may be connected to the wrong hypervisor, or to one " +
			"that lost its guests' definitions"
	case held.Generation == nil:
		return "Placement gives it no generation, so a concurrent write would not be detected"
	}
	return ""
}

// compareGuest reports whether a guest's allocations differ from what it uses.
func (c comparison) compareGuest(g plugins.Guest, owner Owner) (found Guest, wrong bool) {
	held, here := c.in.Holdings.Consumers[g.UUID]
	if !here {
		held = c.in.Others[g.UUID]
	}
	found = Guest{
		UUID:        g.UUID,
		Name:        g.Name,
		ProjectID:   cmp.Or(g.ProjectID, owner.ProjectID),
		UserID:      cmp.Or(g.UserID, owner.UserID),
		Has:         c.shares(g.Resources),
		Differences: []Difference{},
		listed:      g,
	}
	found.Here, found.Elsewhere = c.split(held.Resources)
	if c.moving[g.UUID] { // it is only kept here, for the way back, or has not got its new size yet
		return found, false
	}
	if here {
		found.Kept = "it already has allocations, which are not changed: find out which of the two is right"
		found.Differences = c.differences(g, held)
		return found, len(found.Differences) > 0
	}
	if g.Resources != nil && len(g.Resources) == 0 {
		return found, false // it has nothing, and holds nothing
	}
	switch {
	case c.in.Servers[g.UUID].Deleted:
		found.Kept = "its server is being deleted"
	case !held.Empty():
		found.Kept = "it has allocations elsewhere: it may be migrating, or was evacuated and is still here"
	case g.Resources == nil:
		found.Kept = cmp.Or(g.ResourcesUnknown, "the driver does not report its resources")
	case found.ProjectID == "" || found.UserID == "":
		found.Kept = "the driver does not report its project and user (--incomplete-project and --incomplete-user " +
			"supply them)"
	}
	return found, true
}

// differences lists the amounts that differ between the driver and Placement. Classes that the
// driver reports for no guest (a network's bandwidth, say) are not compared, nor are guests whose
// resources it does not know, or knows only as requested.
func (c comparison) differences(g plugins.Guest, held reportclient.Consumer) []Difference {
	out := []Difference{}
	if g.Resources == nil || g.FromFlavor {
		return out
	}
	providers := maps.Clone(c.names)
	for uuid := range g.Resources { // a sharing provider may be among them
		providers[uuid] = c.names[uuid]
	}
	for uuid, name := range providers {
		for class := range c.classes {
			if has, holds := g.Resources[uuid][class], held.Resources[uuid][class]; has != holds {
				out = append(out, Difference{Provider: uuid, Name: name, Class: class, Driver: has, Placement: holds})
			}
		}
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Class, b.Class))
	})
	return out
}

// split tells what is held on this node alone from the rest: on other hosts, and on what hosts
// share.
func (c comparison) split(resources providertree.ProviderResources) (here, elsewhere []Share) {
	here, elsewhere = []Share{}, []Share{}
	for _, s := range c.shares(resources) {
		if _, ours := c.names[s.Provider]; ours && !c.shared[s.Provider] {
			here = append(here, s)
		} else {
			elsewhere = append(elsewhere, s)
		}
	}
	return here, elsewhere
}

func (c comparison) shares(resources providertree.ProviderResources) []Share {
	if resources == nil {
		return nil
	}
	out := []Share{}
	for provider, amounts := range resources {
		for class, n := range amounts {
			out = append(out, Share{Provider: provider, Name: c.names[provider], Class: class, Amount: n})
		}
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Class, b.Class))
	})
	return out
}

// overcommitted lists inventories of which more is allocated than there is, and classes that are
// allocated without inventory.
func overcommitted(providers []reportclient.HeldProvider) []Overcommitted {
	out := []Overcommitted{}
	for _, p := range providers {
		used := p.Used()
		for _, class := range slices.Sorted(maps.Keys(used)) {
			inv := p.Inventories[class]
			capacity, ratio := inv.Capacity(), inv.AllocationRatio
			if ratio == reportclient.ZeroRatio {
				ratio = 0
			}
			if used[class] > capacity {
				out = append(out, Overcommitted{
					Provider: p.UUID, Name: p.Name, Class: class, Total: inv.Total, Reserved: inv.Reserved,
					AllocationRatio: ratio, Capacity: capacity, Used: used[class],
				})
			}
		}
	}
	return out
}
