// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// Host is a node of a host, or a host without one, and its enrolment.
type Host struct {
	Host string `json:"host"`
	Node string `json:"hypervisor_hostname,omitempty"`
	UUID string `json:"node_uuid,omitempty"`
	Cell string `json:"cell"`
	// From is the host that the node was mapped to before.
	From string `json:"from,omitempty"`
	// Problem is why the node gets no new servers there.
	Problem string `json:"problem,omitempty"`
	// Unmapped says that the node is not mapped there.
	Unmapped bool `json:"unmapped,omitempty"`
	// Enrolment is nil for a host that was never invited.
	Enrolment *Enrolment `json:"enrolment,omitempty"`
}

// Enrolment is the enrolment of a host.
type Enrolment struct {
	State   apidb.EnrolmentState `json:"state"`
	Cell    string               `json:"cell"`
	Nodes   []enrolment.Node     `json:"nodes"`
	Invited time.Time            `json:"invited,omitzero"`
	By      string               `json:"invited_by,omitempty"`
	Until   time.Time            `json:"invited_until,omitzero"`
	Joined  time.Time            `json:"joined,omitzero"`
	From    string               `json:"joined_from,omitempty"`
	// Issued and Expires are those of the last certificate.
	Issued  time.Time `json:"certificate_issued,omitzero"`
	Expires time.Time `json:"certificate_expires,omitzero"`
	Serial  string    `json:"certificate_serial,omitempty"`
	// Renewed is the address of its last renewal. Conflict is the last conflict of its keys.
	Renewed  string       `json:"renewed_from,omitempty"`
	Conflict *KeyConflict `json:"refused_key,omitempty"`
	// Agents are the processes that renew its certificate. It is empty unless there are several.
	Agents  []agentruns.Process `json:"agents,omitempty"`
	Denied  time.Time           `json:"denied_before,omitzero"`
	Evicted time.Time           `json:"evicted,omitzero"`
	Reason  string              `json:"reason,omitempty"`
}

// KeyConflict is the use of a key that is not the host's any more.
type KeyConflict struct {
	At   time.Time `json:"at"`
	From string    `json:"from"`
	Key  string    `json:"key"`
}

// Enrolments returns the enrolments of hosts at a time, each as a host without a node. known are
// the cells.
func Enrolments(all []apidb.Enrolment, known []apidb.Cell, now time.Time) []Host {
	hosts := make([]Host, 0, len(all))
	for _, e := range all {
		enrolled := &Enrolment{
			State: e.State, Cell: cellmappings.CellName(known, e.CellUUID), Nodes: nodesOf(e),
			Invited: e.CreatedAt, By: e.CreatedBy, Joined: e.EnrolledAt, From: e.EnrolledFrom,
			Issued: e.Issued, Expires: e.ExpiresAt, Serial: e.Serial,
			Renewed: e.RenewedFrom, Conflict: (*KeyConflict)(e.Conflict), Agents: enrolment.LiveAgents(e, now),
			Denied: e.DeniedBefore, Evicted: e.EvictedAt, Reason: e.Reason,
		}
		if e.State == apidb.Invited {
			enrolled.Until = e.InvitedUntil
		}
		hosts = append(hosts, Host{Host: e.Host, Cell: enrolled.Cell, Enrolment: enrolled})
	}
	return hosts
}

// HostList is the answer of list-hosts.
type HostList struct {
	// Nodes are the mapped nodes, and others that get no new servers.
	Nodes []Host
	// Enrolments are the enrolments of hosts, without nodes.
	Enrolments []Host
	// Down are the names of cells that did not answer: problems of their nodes are not known.
	Down []string
}

// ListHosts lists the nodes and enrolments of hosts.
func (d *Deployment) ListHosts(ctx context.Context) (*HostList, error) {
	known, err := d.Store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := d.Store.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	enrolments, err := d.Store.Enrolments(ctx)
	if err != nil {
		return nil, err
	}
	list := &HostList{Nodes: hostsOf(nodes, known), Enrolments: Enrolments(enrolments, known, d.now())}
	d.addProblems(ctx, list, known)
	return list, nil
}

// Hosts returns the nodes with the enrolments of their hosts; hosts without a node follow.
func (l *HostList) Hosts() []Host {
	hosts := slices.Clone(l.Nodes)
	for _, e := range l.Enrolments {
		found := false
		for i := range l.Nodes {
			if hosts[i].Host == e.Host {
				hosts[i].Enrolment, found = e.Enrolment, true
			}
		}
		if !found {
			hosts = append(hosts, e)
		}
	}
	return hosts
}

func hostsOf(nodes []apidb.Node, known []apidb.Cell) []Host {
	names := map[string]string{}
	for _, c := range known {
		names[c.UUID] = c.Name
	}
	hosts := make([]Host, 0, len(nodes))
	for _, n := range nodes {
		hosts = append(hosts, Host{Host: n.Host, Node: n.Name, UUID: n.UUID, Cell: names[n.CellUUID]})
	}
	return hosts
}

// addProblems adds to mapped nodes why they get no new servers, and adds nodes that are not mapped,
// as their cells know it.
func (d *Deployment) addProblems(ctx context.Context, list *HostList, known []apidb.Cell) {
	known = slices.DeleteFunc(slices.Clone(known), apidb.Cell.IsCell0)
	type key struct{ host, uuid, cell string }
	at := map[key]int{}
	for i, n := range list.Nodes {
		at[key{n.Host, n.UUID, n.Cell}] = i
	}
	ask := func(ctx context.Context, c *cellclient.Client) (cellwire.NodesAnswer, error) { return c.Nodes(ctx) }
	for _, a := range gather.All(ctx, d.Gatherer, known, ask) {
		if a.Err != nil {
			list.Down = append(list.Down, a.Cell.Name)
		}
		for _, n := range a.Value.Nodes {
			add := func(host string, problem string) {
				i, mapped := at[key{host, n.UUID, a.Cell.Name}]
				if !mapped {
					i = len(list.Nodes)
					list.Nodes = append(list.Nodes, Host{
						Host: host, Node: n.Name, UUID: n.UUID, Cell: a.Cell.Name, Unmapped: true,
					})
				}
				list.Nodes[i].Problem = strings.TrimPrefix(list.Nodes[i].Problem+"; "+problem, "; ")
			}
			if n.Problem != "" {
				add(n.Host, n.Problem)
			}
			if len(n.Agents) > 1 {
				add(n.Host, agentruns.SeveralAgents(n.Host, n.Agents))
			}
			for _, claim := range n.Claims {
				add(claim.Host, "host "+n.Host+" has it")
				if claim.Named || !n.Named {
					add(n.Host, "host "+claim.Host+" reports it too")
				}
			}
		}
	}
}

// Discovery is the answer of discover-hosts.
type Discovery struct {
	Mapped []Host `json:"mapped"`
}

// DiscoverHosts maps hosts that registered with a cell, which is given by name or uuid; nil: with
// any. Hosts that are named are mapped because the operator names them. With an error there is a
// result if the cells were asked: it has the hosts that were mapped, and the error says why others
// were not.
func (d *Deployment) DiscoverHosts(ctx context.Context, cell *string, named []string) (*Discovery, error) {
	known, err := d.Store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	options := cellmappings.DiscoverOptions{Patterns: d.DiscoverPatterns, Hosts: named, By: sqldb.CommandUser(ctx)}
	if cell != nil {
		one, err := d.findCell(ctx, *cell)
		if err != nil {
			return nil, err
		}
		options.Cell = one.UUID
	}
	report, err := cellmappings.Discover(ctx, d.Store, d.Gatherer, known, options)
	mapped := hostsOf(report.Mapped, known)
	for i := range mapped {
		for _, r := range report.Remapped {
			if r.Node == report.Mapped[i] {
				mapped[i].From = r.From
			}
		}
	}
	return &Discovery{mapped}, errors.Join(err, notDiscovered(report, named))
}

// notDiscovered is why hosts were not mapped, of those that were named, or of all if none was.
func notDiscovered(report cellmappings.DiscoverReport, named []string) error {
	var all []error
	for _, c := range report.Down {
		all = append(all, fmt.Errorf("cell %s does not answer, so its hosts were not mapped; run this again when it "+
			"answers", c.Name))
	}
	for _, c := range report.NotEnrolled {
		if len(named) > 0 && !slices.Contains(named, c.Node.Host) {
			continue
		}
		all = append(all, fmt.Errorf("node %s of host %s was not mapped: %w; enrol the host (compute-agent cells "+
			"manage add-host %[2]s), or map it as it is (compute-agent cells manage discover-hosts --host %[2]s)",
			c.Node.Name, c.Node.Host, c.Err))
	}
	for _, host := range report.Missing {
		all = append(all, fmt.Errorf("no cell has a host %s that could be mapped: its agent has not reported a node "+
			"([cell_client] url)", host))
	}
	for _, c := range report.Conflicts {
		all = append(all, fmt.Errorf("node %s of host %s: %w; if the host has moved, unmap it (compute-agent cells "+
			"manage delete-host %s), otherwise correct [cell_client] url on it",
			c.Node.Name, c.Node.Host, c.Err, c.Node.Host))
	}
	return errors.Join(all...)
}

// HostNames returns the names of the hosts that are mapped or have an enrolment. One that is and
// has both is there twice.
func HostNames(ctx context.Context, store apidb.Store) (hosts []string, err error) {
	mapped, err := store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	enrolments, err := store.Enrolments(ctx)
	for _, h := range mapped {
		hosts = append(hosts, h.Host)
	}
	for _, e := range enrolments {
		hosts = append(hosts, e.Host)
	}
	return hosts, err
}

// KnownName returns the host of a name, whose case does not count; "" without one.
func KnownName(name string, hosts []string) string {
	if slices.Contains(hosts, name) {
		return name
	}
	for _, host := range hosts {
		if strings.EqualFold(host, name) {
			return host
		}
	}
	return ""
}

// Suggestion returns "; did you mean H?" with the host that a name is most like, or "".
func Suggestion(name string, hosts []string) string {
	short, _, _ := strings.Cut(name, ".")
	for _, host := range hosts {
		if head, _, _ := strings.Cut(host, "."); strings.EqualFold(head, short) {
			return fmt.Sprintf("; did you mean %s?", host)
		}
	}
	if near := textutil.Suggest(name, hosts, 2); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
