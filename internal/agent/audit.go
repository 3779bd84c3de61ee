// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/control"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

// survey is what the drivers of a host say of their guests at one time.
type survey struct {
	nodes []surveyed
	// silent are those who did not say all that they must be asked, and why.
	silent []string
}

// surveyed is one node of a survey, or a driver of which not even the nodes are known.
type surveyed struct {
	driver string
	node   plugins.Node
	guests []plugins.Guest
	err    error
}

// survey asks every driver for its guests.
//
// Cost: two calls of each driver, one more for each further node, and what reading the trees costs.
func (a *Agent) survey(ctx context.Context) survey {
	var s survey
	for _, d := range a.active() {
		nodes, err := d.tracker.Guests(ctx)
		if err != nil {
			s.nodes = append(s.nodes, surveyed{driver: d.name, node: plugins.Node{Name: "driver " + d.name}, err: err})
			s.silent = append(s.silent, fmt.Sprintf("driver %s: %v", d.name, err))
			continue
		}
		for _, n := range nodes {
			s.nodes = append(s.nodes, surveyed{driver: d.name, node: n.Node, guests: n.Guests, err: n.Err})
			if n.Err != nil {
				s.silent = append(s.silent, fmt.Sprintf("node %s: %v", n.Node.Name, n.Err))
			}
		}
	}
	return s
}

// guests are all guests of the host, with the names of their nodes.
func (s survey) guests() map[string]string {
	out := map[string]string{}
	for _, n := range s.nodes {
		for _, g := range n.guests {
			out[g.UUID] = n.node.Name
		}
	}
	return out
}

// check refuses a name that no driver names.
func (s survey) check(name string) error {
	var names []string
	for _, n := range s.nodes {
		if name == "" || n.node.Name == name {
			return nil
		}
		if n.node.UUID != "" {
			names = append(names, n.node.Name)
		}
	}
	if len(s.nodes) == 0 && name == "" {
		return nil
	}
	if len(s.silent) > 0 {
		return fmt.Errorf("no node %q is known; those that are: %q; not all drivers could tell: %s", name, names, strings.Join(s.silent, "; "))
	}
	return fmt.Errorf("no driver of this host names a node %q; the nodes are %q", name, names)
}

// questions say what is compared, and what stands for what is not known.
type questions struct {
	node  string // "": all
	proof audit.Proof
	owner audit.Owner
}

// compare reads what Placement has of the surveyed nodes and compares.
//
// Cost: see [reportclient.Client.Holdings], and one GET for each guest that holds nothing on its node.
func (a *Agent) compare(ctx context.Context, s survey, q questions) audit.Report {
	out := audit.Report{Nodes: []audit.Node{}}
	guests := s.guests()
	seen, seenErr := a.sightings(s)
	for _, n := range s.nodes {
		if q.node != "" && n.node.Name != q.node {
			continue
		}
		in := audit.Input{Node: n.node, Driver: n.driver, Guests: n.guests, Siblings: maps.Clone(guests), Seen: seen, Now: time.Now()}
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
			out.Nodes = append(out.Nodes, audit.Node{
				Node: n.node.Name, UUID: n.node.UUID, Driver: n.driver, Error: err.Error(),
				Providers: []string{}, Orphans: []audit.Orphan{}, Unaccounted: []audit.Guest{}, Overcommitted: []audit.Overcommitted{},
			})
			continue
		}
		out.Nodes = append(out.Nodes, audit.Compare(in, q.proof, q.owner))
	}
	return out
}

func (a *Agent) holdings(ctx context.Context, n surveyed) (reportclient.Holdings, map[string]reportclient.Consumer, error) {
	held, err := a.placement.Holdings(ctx, n.node.UUID)
	if err != nil {
		return held, nil, err
	}
	others := map[string]reportclient.Consumer{}
	for _, g := range n.guests {
		if _, here := held.Consumers[g.UUID]; here {
			continue
		}
		if others[g.UUID], err = a.placement.Consumer(ctx, g.UUID); err != nil {
			return held, nil, err
		}
	}
	return held, others, nil
}

// sightings are the guests that were ever seen on any of the nodes. One that is on a node now is not gone from the others.
func (a *Agent) sightings(s survey) (map[string]resourcetracker.Sighting, error) {
	out := map[string]resourcetracker.Sighting{}
	for _, n := range s.nodes {
		if n.node.UUID == "" {
			continue
		}
		seen, err := a.seen.Of(n.node.UUID)
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

// remember notes the guests of a survey, for the next one. What cannot be kept is only missing then.
func (a *Agent) remember(s survey) {
	for _, n := range s.nodes {
		if n.err != nil || a.unknown && n.node.UUID == a.identity {
			continue
		}
		if err := a.seen.Note(n.node.UUID, n.guests, time.Now()); err != nil {
			a.log.Warn().Str("node", n.node.Name).Err(err).Msg("The guests cannot be remembered. Orphaned allocations of those that go from now on will have to be named (--consumer) to be deleted.")
		}
	}
}

// Audit implements [control.Agent].
func (a *Agent) Audit(ctx context.Context, r control.AuditRequest) (audit.Report, error) {
	s := a.survey(ctx)
	if err := s.check(r.Node); err != nil {
		return audit.Report{}, err
	}
	a.remember(s)
	q := questions{node: r.Node, proof: audit.Proof{MinAge: r.MinAge, Named: map[string]bool{}}}
	for _, c := range r.Consumers {
		q.proof.Named[c] = true
	}
	report := a.compare(ctx, s, q)
	if !r.Heal {
		return report, nil
	}
	for _, c := range r.Consumers {
		if !mentions(report, c) && len(s.silent) == 0 {
			report.Refused = "nothing is written: consumer " + c + " was named and is not orphaned here: it holds nothing on these nodes, or is a guest of theirs"
			return report, nil
		}
	}
	a.heal(ctx, s, &report, healer{
		dryRun: r.DryRun,
		due:    func(n *audit.Node) []finding { return orphans(n, a.placement) },
		would:  audit.WouldDelete, done: audit.Deleted,
	})
	return report, nil
}

func mentions(report audit.Report, consumer string) bool {
	return slices.ContainsFunc(report.Nodes, func(n audit.Node) bool {
		return slices.ContainsFunc(n.Orphans, func(o audit.Orphan) bool { return o.Consumer == consumer })
	})
}

// HealAllocations implements [control.Agent].
func (a *Agent) HealAllocations(ctx context.Context, r control.HealRequest) (audit.Report, error) {
	s := a.survey(ctx)
	if err := s.check(r.Node); err != nil {
		return audit.Report{}, err
	}
	a.remember(s)
	report := a.compare(ctx, s, questions{node: r.Node, owner: audit.Owner{ProjectID: r.IncompleteProject, UserID: r.IncompleteUser}})
	a.heal(ctx, s, &report, healer{
		dryRun: r.DryRun,
		due:    func(n *audit.Node) []finding { return missing(n, a.placement) },
		would:  audit.WouldCreate, done: audit.Created,
	})
	return report, nil
}

// AuditOffline is Audit where no agent runs: the drivers are started for it and ended again. It has the state directory for
// itself meanwhile.
func AuditOffline(ctx context.Context, cfg *config.Config, log zerolog.Logger, r control.AuditRequest) (audit.Report, error) {
	return auditOffline(ctx, cfg, log, func(ctx context.Context, a *Agent) (audit.Report, error) { return a.Audit(ctx, r) })
}

// HealAllocationsOffline is HealAllocations where no agent runs.
func HealAllocationsOffline(ctx context.Context, cfg *config.Config, log zerolog.Logger, r control.HealRequest) (audit.Report, error) {
	return auditOffline(ctx, cfg, log, func(ctx context.Context, a *Agent) (audit.Report, error) { return a.HealAllocations(ctx, r) })
}

func auditOffline(ctx context.Context, cfg *config.Config, log zerolog.Logger, do func(context.Context, *Agent) (audit.Report, error)) (report audit.Report, err error) {
	unlock, err := takeState(cfg)
	if err != nil {
		return report, err
	}
	defer unlock()
	failed := withDrivers(ctx, cfg, log, func(ctx context.Context, a *Agent) error {
		report, err = do(ctx, a)
		return err
	})
	return report, failed
}
