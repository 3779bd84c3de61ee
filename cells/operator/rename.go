// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// Renamed is the answer of rename-host.
type Renamed struct {
	From string `json:"from"`
	To   string `json:"to"`
	Cell string `json:"cell"`
	// Servers is how many came along.
	Servers int `json:"servers"`
	// Nodes are the nodes that get new names. If there are none, Node is the name that one keeps.
	Nodes []Node `json:"nodes"`
	Node  string `json:"node,omitempty"`
	// Token is what the host joins with at URL until Expires, if its certificate names it.
	Token   string    `json:"token,omitempty"`
	URL     string    `json:"url,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	// Invite is why there is no token, although the host needs one.
	Invite string `json:"not_invited,omitempty"`
	// Joined says that the host has its certificate by the new name already.
	Joined bool `json:"joined,omitempty"`
}

// hostRename is one rename. Its steps, each of which is whole or not done, and is left out when the
// command is run again:
//
//	check       nothing is changed by a command that is refused
//	begin       the new name is kept for the host in the API database
//	Placement   what the host may report, and the names of its resource providers
//	cell        all that names the host, in one transaction, which refuses what began meanwhile
//	finish      all that names the host in the API database, in one transaction
//	invite      a token for a certificate with the new name
type hostRename struct {
	apidb.HostRename
	*Deployment
	cell      apidb.Cell
	service   string // its uuid in the cell
	begun     bool
	unrenamed string // the name of a node that keeps it
	renames   []identity.Rename
	providers *reportclient.Client
}

// RenameHost renames a host together with its servers, or finishes a rename that was interrupted.
// withServers is how many servers and other consumers the operator knows to be on the host.
// [RefusedError] for a host whose agent reports, with changes of servers under way, or for a name
// that is taken.
func (d *Deployment) RenameHost(ctx context.Context, from, to, withServers string) (*Renamed, error) {
	r := &hostRename{
		HostRename: apidb.HostRename{From: from, To: to, Nodes: map[string]string{}, By: sqldb.CommandUser(ctx)},
		Deployment: d,
	}
	done, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	if !done {
		if r.providers, err = d.providers(); err != nil {
			return nil, err
		}
		defer r.providers.CloseIdle()
		if err := r.check(ctx, withServers); err != nil {
			return nil, err
		}
		for _, step := range []func(context.Context) error{r.begin, r.renameProviders, r.renameInCell} {
			if err := step(ctx); err != nil {
				return nil, err
			}
		}
	}
	return r.finish(ctx)
}

// find reads what the API database has of the host. done: all but an invitation.
func (r *hostRename) find(ctx context.Context) (done bool, err error) {
	has, err := r.mappings(ctx)
	if err != nil {
		return false, err
	}
	former, err := r.Store.Enrolment(ctx, r.From)
	if err != nil {
		return false, err
	}
	next, err := r.Store.Enrolment(ctx, r.To)
	if err != nil {
		return false, err
	}
	r.begun = next.Renames(r.From)
	name := r.From
	if now, renamed := former.RenamedTo(); renamed && now == r.To {
		done, name = true, r.To
	}
	cell, mapped := mappedTo(name, has.hosts)
	if !mapped {
		return false, r.unmappedError(ctx, r.From, "")
	}
	r.CellUUID = cell
	if at := slices.IndexFunc(has.cells, func(c apidb.Cell) bool { return c.UUID == cell }); at >= 0 {
		r.cell = has.cells[at]
	}
	for _, n := range has.nodes {
		if n.Host != name {
			continue
		}
		switch rest, below := strings.CutPrefix(n.Name, r.From+"."); {
		case n.Name == r.From:
			r.Nodes[n.UUID] = r.To
		case below:
			r.Nodes[n.UUID] = r.To + "." + rest
		case done && (n.Name == r.To || strings.HasPrefix(n.Name, r.To+".")):
			r.Nodes[n.UUID] = n.Name
		default:
			r.unrenamed = n.Name
		}
	}
	return done, nil
}

func (r *hostRename) refuse(format string, args ...any) error {
	left := "nothing was changed"
	if r.begun {
		left = "the rename was begun before, and is not finished: run the command again then"
	}
	return refused("host %s is not renamed: %w; %s", r.From, fmt.Errorf(format, args...), left)
}

// check refuses what would be refused later.
func (r *hostRename) check(ctx context.Context, withServers string) error {
	on, err := r.contentsOf(ctx, r.From)
	if err != nil {
		return err
	}
	if len(on.Unknown) > 0 {
		return r.refuse("what is on it is not known: %s", strings.Join(on.Unknown, "; "))
	}
	if !r.begun { // afterwards the servers may be those of the new name already
		const hint = "To rename the host, and them with it, add --with-servers %d"
		if err := on.checkEmpty(r.From, withServers, hint); err != nil {
			return err
		}
	}
	if err := r.findService(ctx); err != nil {
		return err
	}
	for _, uuid := range slices.Sorted(maps.Keys(r.Nodes)) {
		tree, err := r.providers.TreeOf(ctx, uuid)
		if errors.Is(err, reportclient.ErrNotFound) {
			continue
		}
		if err != nil {
			return r.refuse("%w", err)
		}
		root, _ := tree.Provider(uuid)
		was := r.From + strings.TrimPrefix(r.Nodes[uuid], r.To)
		if root.Name != was && root.Name != r.Nodes[uuid] {
			return r.refuse("resource provider %s is named %s, and neither %s nor %s",
				uuid, root.Name, was, r.Nodes[uuid])
		}
		renames, err := identity.PlanRenames(ctx, r.providers, tree, uuid, was, r.Nodes[uuid])
		if err != nil {
			return r.refuse("%w", err)
		}
		r.renames = append(r.renames, renames...)
	}
	return r.requestRename(ctx, true)
}

// findService finds the service of the host in its cell, and refuses a name that a cell knows.
func (r *hostRename) findService(ctx context.Context) error {
	known, err := r.Store.Cells(ctx) // also one that was registered since
	if err != nil {
		return err
	}
	known = slices.DeleteFunc(known, apidb.Cell.IsCell0)
	renamed := ""
	ask := func(ctx context.Context, c *cellclient.Client) ([]cellwire.Service, error) { return c.Services(ctx) }
	for _, a := range gather.All(ctx, r.Gatherer, known, ask) {
		for _, s := range a.Value {
			switch {
			case a.Cell.UUID == r.CellUUID && s.Host == r.From:
				r.service = s.UUID
			case a.Cell.UUID == r.CellUUID && s.Host == r.To && r.begun:
				renamed = s.UUID
			case s.Host == r.To:
				return r.refuse("cell %s has a host %s", a.Cell.Name, r.To)
			}
		}
	}
	switch {
	case r.service == "":
		r.service = renamed
	case renamed != "":
		return r.refuse("cell %s has both %s and %s: an agent was started meanwhile. Stop it, and delete the service "+
			"of the one without servers (openstack compute service delete)", r.cell.Name, r.From, r.To)
	}
	if r.service == "" {
		return r.refuse("cell %s does not have it; if it is gone for good: compute-agent cells manage delete-host "+
			"%s", r.cell.Name, r.From)
	}
	return nil
}

// requestRename has the cell rename the host, or only say what stands against it.
func (r *hostRename) requestRename(ctx context.Context, checkOnly bool) error {
	request := cellwire.RenameRequest{From: r.From, To: r.To, Nodes: r.Nodes, Check: checkOnly}
	rename := func(ctx context.Context, c *cellclient.Client) (cellwire.Service, error) {
		return c.RenameHost(ctx, r.service, request)
	}
	_, err := gather.One(ctx, r.Gatherer, r.cell, rename)
	switch {
	case err == nil:
		return nil
	case cellclient.IsNoCall(err):
		return r.refuse("cell %s is of a version that cannot rename hosts; upgrade it first", r.cell.Name)
	case cellclient.IsInUse(err):
		return r.refuse("%w. Start its agent, and let it finish, or end it (docs/cells.md, \"A host that never comes "+
			"back\"); confirm or revert migrations", err)
	}
	return r.refuse("%w", err)
}

func (r *hostRename) begin(ctx context.Context) error {
	if err := r.Store.BeginRename(ctx, r.HostRename); err != nil {
		if taken := new(apidb.NodeTakenError); errors.As(err, &taken) {
			err = fmt.Errorf("%w: choose another name, or, if host %s is gone, evict and delete it", err, taken.Host)
		}
		return r.refuse("%w", err)
	}
	r.begun = true
	return nil
}

// renameProviders renames the resource providers, and has what was stated of the host stated of its
// new name.
func (r *hostRename) renameProviders(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	client, err := r.admissions()
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	admitted, err := client.Admission(asked, r.From)
	if err == nil && len(admitted.Classes)+len(admitted.Traits) > 0 {
		_, err = client.Admit(asked, r.To, wire.AdmissionChange{Classes: admitted.Classes, Traits: admitted.Traits})
	}
	if err != nil && !errors.Is(err, placementclient.ErrNotFound) { // which is OpenStack's, or knows nothing of it
		return r.refuse("what it may report cannot be stated of %s: %w", r.To, err)
	}
	if err := identity.RenameProviders(ctx, r.providers, r.renames); err != nil {
		return r.refuse("%w", err)
	}
	return nil
}

func (r *hostRename) renameInCell(ctx context.Context) error { return r.requestRename(ctx, false) }

// finish ends the rename in the API database, and invites the host if it needs a certificate.
func (r *hostRename) finish(ctx context.Context) (*Renamed, error) {
	e, err := r.Store.FinishRename(ctx, r.HostRename)
	if err != nil {
		return nil, err
	}
	renamed := &Renamed{From: r.From, To: r.To, Cell: r.cell.Name, Nodes: []Node{}}
	for _, uuid := range slices.Sorted(maps.Keys(r.Nodes)) {
		renamed.Nodes = append(renamed.Nodes, Node{uuid, r.Nodes[uuid]})
	}
	if len(r.Nodes) == 0 {
		renamed.Node = r.unrenamed
	}
	on, err := gather.One(ctx, r.Gatherer, r.cell, func(ctx context.Context, c *cellclient.Client) (contents, error) {
		return serversOn(ctx, c, r.To)
	})
	if err != nil {
		return nil, err
	}
	renamed.Servers = len(on.Servers)
	switch {
	case e.State == apidb.Enrolled && e.KeyDigest != "":
		renamed.Joined = true
	case e.State == apidb.Invited:
		invited, err := r.invite(ctx, "", enrolment.Invitation{
			Host: r.To, CellUUID: r.CellUUID, Nodes: nodesOf(e), By: r.By, TTL: time.Hour,
		})
		if err != nil {
			renamed.Invite = err.Error()
			break
		}
		renamed.Token, renamed.URL, renamed.Expires = invited.Token, invited.URL, invited.Expires
	}
	return renamed, nil
}
