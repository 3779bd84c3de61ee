// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// Report is what an audit found on the nodes of a host.
type Report struct {
	Nodes []Node `json:"nodes"`
	// Refused says why nothing, or nothing more, was healed: for example because a driver did not
	// answer.
	Refused string `json:"refused,omitempty"`
}

// Node is what was found on one compute node.
type Node struct {
	Node   string `json:"node"`
	UUID   string `json:"uuid"`
	Driver string `json:"driver"`
	// Providers are the uuids of its resource providers, without those that it shares with other
	// hosts.
	Providers []string `json:"resource_provider_uuids"`
	// Guests and Consumers are how many were compared.
	Guests    int `json:"guests"`
	Consumers int `json:"consumers"`
	// Orphans are consumers that have allocations here and are not guests.
	Orphans []Orphan `json:"orphaned_allocations"`
	// Unaccounted are guests without allocations here, or with others than the driver lists.
	Unaccounted   []Guest         `json:"unaccounted_guests"`
	Overcommitted []Overcommitted `json:"overcommitted_inventories"`
	// Error says why this node could not be compared; nothing else is there then.
	Error string `json:"error,omitempty"`
}

// Share is an amount that is held.
type Share struct {
	// Provider is the uuid; Name is "" for one that is not of this node.
	Provider string `json:"resource_provider_uuid"`
	Name     string `json:"resource_provider,omitempty"`
	Class    string `json:"resource_class"`
	Amount   int64  `json:"amount"`
}

// Orphan is a consumer that has allocations on this node and is not a guest of it.
type Orphan struct {
	Consumer  string `json:"consumer_uuid"`
	ProjectID string `json:"project_id"`
	UserID    string `json:"user_id"`
	// Here and Elsewhere are what it holds on this node and on all other providers.
	Here      []Share `json:"here"`
	Elsewhere []Share `json:"elsewhere"`
	// Written is when what it holds was last written; zero: not known. Age is how long ago that
	// was.
	Written time.Time     `json:"written,omitzero"`
	Age     time.Duration `json:"age_ns"`
	// Seen is what the agent remembers of it as a guest; nil: it never saw it.
	Seen *Seen `json:"seen_as_guest,omitempty"`
	// GuestOf is the node of this host on which it is a guest now, if it is on another.
	GuestOf string `json:"guest_of,omitempty"`
	// Kept says why it is not deleted; "" if nothing prevents it.
	Kept string `json:"kept_because,omitempty"`
	// Done is what became of it, where something was to be done.
	Done Outcome `json:"outcome,omitempty"`
	// Problem is the error of an outcome that is one.
	Problem string `json:"problem,omitempty"`
	// Look is a command that shows what Placement has of it.
	Look string `json:"look"`

	held reportclient.Consumer
}

// Held is the consumer as it was compared, for [reportclient.Client.DeleteOurPart].
func (o Orphan) Held() reportclient.Consumer { return o.held }

// Seen is when a consumer was a guest.
type Seen struct {
	First time.Time `json:"first"`
	Gone  time.Time `json:"gone,omitzero"`
}

// Guest is a guest whose allocations differ from what the driver lists.
type Guest struct {
	UUID      string `json:"uuid"`
	Name      string `json:"name,omitempty"`
	ProjectID string `json:"project_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
	// Has is what the driver lists, nil if it does not know. Here and Elsewhere are the guest's
	// allocations on this node and on all other providers.
	Has       []Share `json:"has"`
	Here      []Share `json:"here"`
	Elsewhere []Share `json:"elsewhere"`
	// Differences are the amounts that differ between driver and Placement; empty for a guest
	// without allocations here.
	Differences []Difference `json:"differences"`
	// Kept says why no allocations are made for it; "" if nothing prevents it.
	Kept    string  `json:"kept_because,omitempty"`
	Done    Outcome `json:"outcome,omitempty"`
	Problem string  `json:"problem,omitempty"`

	listed plugins.Guest
}

// CheckUnchanged returns an error unless the driver lists the guest as it was compared; now is nil
// if it no longer lists it.
func (g Guest) CheckUnchanged(now *plugins.Guest) error {
	switch {
	case now == nil:
		return errors.New("it is no longer a guest of this node")
	case !maps.EqualFunc(now.Resources, g.listed.Resources, maps.Equal):
		return errors.New("the driver now reports other resources for it")
	}
	return nil
}

// DesiredAllocations are the allocations to make for it, for
// [reportclient.Client.CreateAllocations].
func (g Guest) DesiredAllocations() reportclient.Consumer {
	return reportclient.Consumer{UUID: g.UUID,
		ConsumerAllocations: providertree.ConsumerAllocations{ProjectID: g.ProjectID, UserID: g.UserID,
			Resources: g.listed.Resources}}
}

// Difference is an amount that differs between driver and Placement.
type Difference struct {
	Provider  string `json:"resource_provider_uuid"`
	Name      string `json:"resource_provider,omitempty"`
	Class     string `json:"resource_class"`
	Driver    int64  `json:"driver"`
	Placement int64  `json:"placement"`
}

// Overcommitted is an inventory of which more is allocated than there is.
type Overcommitted struct {
	Provider        string  `json:"resource_provider_uuid"`
	Name            string  `json:"resource_provider"`
	Class           string  `json:"resource_class"`
	Total           int64   `json:"total"`
	Reserved        int64   `json:"reserved"`
	AllocationRatio float64 `json:"allocation_ratio"`
	Capacity        int64   `json:"capacity"`
	Used            int64   `json:"used"`
}

// Differing returns the amounts that differ between driver and Placement, a line for each guest.
func (n Node) Differing() []string {
	var out []string
	for _, g := range n.Unaccounted {
		var parts []string
		for _, d := range g.Differences {
			parts = append(parts,
				fmt.Sprintf("%d %s on %s, driver %d", d.Placement, d.Class, cmp.Or(d.Name, d.Provider), d.Driver))
		}
		if len(parts) > 0 {
			out = append(out, strings.TrimSpace(g.UUID+" "+g.Name)+": allocated "+strings.Join(parts, "; "))
		}
	}
	return out
}

// Outcome is the outcome of fixing a finding.
type Outcome string

// The outcomes.
const (
	Deleted     Outcome = "deleted"
	WouldDelete Outcome = "would be deleted"
	Created     Outcome = "created"
	WouldCreate Outcome = "would be created"
	Failed      Outcome = "failed"
)

// Fixed reports whether nothing is left to do about it.
func (o Outcome) Fixed() bool { return o == Deleted || o == Created }

// Clean reports whether every node could be compared, and all findings are fixed.
func (r Report) Clean() bool {
	for _, n := range r.Nodes {
		if !n.clean() {
			return false
		}
	}
	return true
}

// Accounted reports whether every node could be compared, and every guest has allocations. In a dry
// run, allocations that would be created count.
func (r Report) Accounted() bool {
	for _, n := range r.Nodes {
		for _, g := range n.Unaccounted {
			if len(g.Differences) == 0 && !g.Done.Fixed() && g.Done != WouldCreate {
				return false
			}
		}
		if n.Error != "" {
			return false
		}
	}
	return true
}

func (n Node) clean() bool {
	for _, o := range n.Orphans {
		if !o.Done.Fixed() {
			return false
		}
	}
	for _, g := range n.Unaccounted {
		if !g.Done.Fixed() {
			return false
		}
	}
	return len(n.Overcommitted) == 0 && n.Error == ""
}
