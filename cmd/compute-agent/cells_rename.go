// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// renamedView is the answer of rename-host, as printed.
type renamedView struct {
	From string `json:"from"`
	To   string `json:"to"`
	Cell string `json:"cell"`
	// Servers is how many came along.
	Servers int `json:"servers"`
	// Nodes are those with new names; without one, Node is the name that one keeps.
	Nodes []nodeView `json:"nodes"`
	Node  string     `json:"node,omitempty"`
	// Token is what the host joins with at URL until Expires, if its certificate names it.
	Token   string    `json:"token,omitempty"`
	URL     string    `json:"url,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	// Invite is why there is no token, although the host needs one.
	Invite string `json:"not_invited,omitempty"`
	// Joined says that the host has its certificate by the new name already.
	Joined bool `json:"joined,omitempty"`
}

func newRenameHost() *cobra.Command {
	var opts manageOptions
	var withServers string
	cmd := &cobra.Command{
		Use: "rename-host HOST NAME", Aliases: []string{"rename_host"}, Short: "Give a host another name, with its servers", Args: cobra.ExactArgs(2),
		Long: "Give a host another name while servers are on it. Its guests go on running; servers, allocations, resource providers, aggregates\n" +
			"and the uuids of all of them stay. Its agent must be stopped until it counts as down, and gets the new name afterwards; the command\n" +
			"prints the commands for the host. Compute nodes that are named HOST or HOST.DOMAIN are named NAME or NAME.DOMAIN then.\n\n" +
			"The command is refused, with exit code 3 and nothing changed, while the agent reports, while servers on the host have a task, are\n" +
			"being placed there, or move from there or to there, if the cell or Placement does not answer, and if another host has the name or\n" +
			"one that overlaps with it. While servers or other consumers are on the host, it is refused without --with-servers and their number.\n\n" +
			"If it ends in the middle, run it again: it goes on where it stopped. The former name is evicted then, so that an agent which\n" +
			"still has it does not come back; `cells manage delete-host HOST` frees it for another host.",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := errors.Join(pki.CheckName(args[1]), checkWithServers(withServers))
			if err == nil && args[0] == args[1] {
				err = errors.New("the new name is that of the host")
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				view, err := renameHost(cmd.Context(), store, cfg, args[0], args[1], withServers)
				if err != nil {
					return err
				}
				return printed(cmd, &opts.options, view, printRenamed)
			})
		},
	}
	opts.addFlags(cmd)
	addWithServers(cmd, &withServers)
	return cmd
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
	store     apidb.Store
	cfg       *config.Config
	cell      apidb.Cell
	service   string // its uuid in the cell
	begun     bool
	keeps     string // the name of a node that keeps it
	providers []identity.Rename
	placement *reportclient.Client
}

// renameHost does what is left of a rename.
func renameHost(ctx context.Context, store apidb.Store, cfg *config.Config, from, to, withServers string) (renamedView, error) {
	r := &hostRename{HostRename: apidb.HostRename{From: from, To: to, Nodes: map[string]string{}, By: sqldb.CommandUser(ctx)}, store: store, cfg: cfg}
	done, err := r.find(ctx)
	if err != nil {
		return renamedView{}, err
	}
	if !done {
		if r.placement, err = agent.NewPlacementClient(cfg, nil, nil, nil, zerolog.Nop()); err != nil {
			return renamedView{}, err
		}
		defer r.placement.CloseIdle()
		if err := r.check(ctx, withServers); err != nil {
			return renamedView{}, err
		}
		for _, step := range []func(context.Context) error{r.begin, r.inPlacement, r.inCell} {
			if err := step(ctx); err != nil {
				return renamedView{}, err
			}
		}
	}
	return r.finish(ctx)
}

// find reads what the API database has of the host. done: all but an invitation.
func (r *hostRename) find(ctx context.Context) (done bool, err error) {
	cells, err := r.store.Cells(ctx)
	if err != nil {
		return false, err
	}
	hosts, err := r.store.Hosts(ctx)
	if err != nil {
		return false, err
	}
	nodes, err := r.store.Nodes(ctx)
	if err != nil {
		return false, err
	}
	former, err := r.store.Enrolment(ctx, r.From)
	if err != nil {
		return false, err
	}
	next, err := r.store.Enrolment(ctx, r.To)
	if err != nil {
		return false, err
	}
	r.begun = next.Renames(r.From)
	name := r.From
	if now, renamed := former.RenamedTo(); renamed && now == r.To {
		done, name = true, r.To
	}
	i := slices.IndexFunc(hosts, func(h apidb.HostMapping) bool { return h.Host == name })
	if i < 0 {
		all, err := hostsOf(ctx, r.store)
		return false, errors.Join(fmt.Errorf("host %s is not mapped%s; `compute-agent cells manage list-hosts` lists all", r.From, likeHost(r.From, all)), err)
	}
	r.CellUUID = hosts[i].CellUUID
	if at := slices.IndexFunc(cells, func(c apidb.Cell) bool { return c.UUID == r.CellUUID }); at >= 0 {
		r.cell = cells[at]
	}
	for _, n := range nodes {
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
			r.keeps = n.Name
		}
	}
	return done, nil
}

func (r *hostRename) refuse(format string, args ...any) error {
	left := "nothing was changed"
	if r.begun {
		left = "the rename was begun before, and is not finished: run the command again then"
	}
	return &exitError{exitProtect, fmt.Errorf("host %s is not renamed: %w; %s", r.From, fmt.Errorf(format, args...), left)}
}

// check refuses what would be refused later.
func (r *hostRename) check(ctx context.Context, withServers string) error {
	contents, err := contentsOf(ctx, r.store, r.cfg, r.From)
	if err != nil {
		return err
	}
	if len(contents.Unknown) > 0 {
		return r.refuse("what is on it is not known: %s", strings.Join(contents.Unknown, "; "))
	}
	if !r.begun { // afterwards the servers may be those of the new name already
		if err := contents.allow(r.From, withServers, "To rename the host, and them with it, add --with-servers %d"); err != nil {
			return err
		}
	}
	if err := r.findService(ctx); err != nil {
		return err
	}
	for _, uuid := range slices.Sorted(maps.Keys(r.Nodes)) {
		tree, err := r.placement.TreeOf(ctx, uuid)
		if errors.Is(err, reportclient.ErrNotFound) {
			continue
		}
		if err != nil {
			return r.refuse("%w", err)
		}
		root, _ := tree.Provider(uuid)
		was := r.From + strings.TrimPrefix(r.Nodes[uuid], r.To)
		if root.Name != was && root.Name != r.Nodes[uuid] {
			return r.refuse("resource provider %s is named %s, and neither %s nor %s", uuid, root.Name, was, r.Nodes[uuid])
		}
		renames, err := identity.PlanRenames(ctx, r.placement, tree, uuid, was, r.Nodes[uuid])
		if err != nil {
			return r.refuse("%w", err)
		}
		r.providers = append(r.providers, renames...)
	}
	return r.ask(ctx, true)
}

// findService finds the service of the host in its cell, and refuses a name that a cell knows.
func (r *hostRename) findService(ctx context.Context) error {
	known, err := r.store.Cells(ctx)
	if err != nil {
		return err
	}
	known = slices.DeleteFunc(known, apidb.Cell.IsCell0)
	renamed := ""
	for _, a := range gather.All(ctx, newGatherer(r.cfg), known, func(ctx context.Context, c *cellclient.Client) ([]cellwire.Service, error) { return c.Services(ctx) }) {
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
		return r.refuse("cell %s has both %s and %s: an agent was started meanwhile. Stop it, and delete the service of the one without servers (openstack compute service delete)",
			r.cell.Name, r.From, r.To)
	}
	if r.service == "" {
		return r.refuse("cell %s does not have it; if it is gone for good: compute-agent cells manage delete-host %s", r.cell.Name, r.From)
	}
	return nil
}

// ask has the cell rename the host, or only say what stands against it.
func (r *hostRename) ask(ctx context.Context, only bool) error {
	request := cellwire.RenameRequest{From: r.From, To: r.To, Nodes: r.Nodes, Check: only}
	_, err := gather.One(ctx, newGatherer(r.cfg), r.cell, func(ctx context.Context, c *cellclient.Client) (cellwire.Service, error) {
		return c.RenameHost(ctx, r.service, request)
	})
	switch {
	case err == nil:
		return nil
	case cellclient.IsNoCall(err):
		return r.refuse("cell %s is of a version that cannot rename hosts; upgrade it first", r.cell.Name)
	case cellclient.IsInUse(err):
		return r.refuse("%w. Start its agent, and let it finish, or end it (docs/cells.md, \"A host that never comes back\"); confirm or revert migrations", err)
	}
	return r.refuse("%w", err)
}

func (r *hostRename) begin(ctx context.Context) error {
	if err := r.store.BeginRename(ctx, r.HostRename); err != nil {
		if taken := new(apidb.NodeTakenError); errors.As(err, &taken) {
			err = fmt.Errorf("%w: choose another name, or, if host %s is gone, evict and delete it", err, taken.Host)
		}
		return r.refuse("%w", err)
	}
	r.begun = true
	return nil
}

// inPlacement renames the resource providers, and has what was stated of the host stated of its new
// name.
func (r *hostRename) inPlacement(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client, closeIdle, err := askingPlacement(r.cfg.PlacementClient, wire.Version(wire.ErrorCodes).String())
	if err != nil {
		return err
	}
	defer closeIdle()
	admitted, err := client.Admission(asked, r.From)
	if err == nil && len(admitted.Classes)+len(admitted.Traits) > 0 {
		_, err = client.Admit(asked, r.To, wire.AdmissionChange{Classes: admitted.Classes, Traits: admitted.Traits})
	}
	if err != nil && !errors.Is(err, placementclient.ErrNotFound) { // which is OpenStack's, or knows nothing of it
		return r.refuse("what it may report cannot be stated of %s: %w", r.To, err)
	}
	if err := identity.RenameProviders(ctx, r.placement, r.providers); err != nil {
		return r.refuse("%w", err)
	}
	return nil
}

func (r *hostRename) inCell(ctx context.Context) error { return r.ask(ctx, false) }

// finish ends the rename in the API database, and invites the host if it needs a certificate.
func (r *hostRename) finish(ctx context.Context) (renamedView, error) {
	view := renamedView{From: r.From, To: r.To, Cell: r.cell.Name, Nodes: []nodeView{}}
	e, err := r.store.FinishRename(ctx, r.HostRename)
	if err != nil {
		return view, err
	}
	for _, uuid := range slices.Sorted(maps.Keys(r.Nodes)) {
		view.Nodes = append(view.Nodes, nodeView{uuid, r.Nodes[uuid]})
	}
	if len(r.Nodes) == 0 {
		view.Node = r.keeps
	}
	on, err := gather.One(ctx, newGatherer(r.cfg), r.cell, func(ctx context.Context, c *cellclient.Client) (hostContents, error) { return serversOn(ctx, c, r.To) })
	if err != nil {
		return view, err
	}
	view.Servers = len(on.Servers)
	switch {
	case e.State == apidb.Enrolled && e.KeyDigest != "":
		view.Joined = true
	case e.State == apidb.Invited:
		if err := r.invite(ctx, e, &view); err != nil {
			view.Invite = err.Error()
		}
	}
	return view, nil
}

// invite makes a token for the certificate with the new name.
func (r *hostRename) invite(ctx context.Context, e apidb.Enrolment, view *renamedView) error {
	url, err := enrolmentURL(r.cfg.Enrolment)
	if err != nil {
		return err
	}
	fingerprint, err := caFingerprint(r.cfg.Enrolment, "")
	if err != nil {
		return err
	}
	const ttl = time.Hour
	e, token, err := enrolment.Invite(ctx, r.store, fingerprint, enrolment.Invitation{
		Host: r.To, CellUUID: r.CellUUID, Nodes: nodesOf(e), By: r.By, TTL: ttl, Now: time.Now(),
	})
	if err != nil {
		return err
	}
	view.Token, view.URL, view.Expires = token.Reveal(), url, e.InvitedUntil
	return nil
}

func printRenamed(w io.Writer, v renamedView) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	say("Renamed host %s to %s in cell %s, with its servers (%d), in Placement and in the compute API.", v.From, v.To, v.Cell, v.Servers)
	say("The name %s is evicted: its certificates and tokens are refused, and no node is mapped to it.\n\nRun on the host, as root, with its agent stopped:\n", v.From)
	switch {
	case v.Token != "":
		say("  (umask 077; echo %s > /root/join.token)", v.Token)
		say("  compute-agent join --again --api %s --token-file /root/join.token", v.URL)
	case v.Invite != "":
		say("  compute-agent join --again, with a token of: compute-agent cells manage add-host %s --cell %s (%s)", v.To, v.Cell, v.Invite)
	case v.Joined:
		say("  (it has a certificate with the new name)")
	default:
		say("  set host = %q below [agent] in /etc/compute-agent/compute-agent.toml, and its credentials to those of the new name, if they name the host", v.To)
	}
	if v.Node != "" { // for the record of the host
		say("  compute-agent adopt --rename --node %s --yes", v.Node)
	}
	for _, n := range v.Nodes {
		node := ""
		if n.Name != v.To {
			node = " --node " + n.Name
		}
		say("  compute-agent adopt --rename%s --yes", node)
	}
	say("  systemctl start compute-agent")
	if v.Token != "" {
		say("\nThe token is a secret, good once, until %s; the same command makes another one.", v.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}
